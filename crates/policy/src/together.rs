// SPDX-License-Identifier: GPL-2.0-only
//! `together.h`: whether a VM's turns end on all CPUs together.

use crate::ffi;

pub use ffi::{
    OVB_TOGETHER_IDLE, OVB_TOGETHER_ONE, OVB_TOGETHER_TRIAL, OVB_TOGETHER_TRIAL_MAX,
    ovb_together as Together, ovb_turns_OVB_TURNS_APART as APART, ovb_turns_OVB_TURNS_TOGETHER as TOGETHER,
};

/// spin ÷ run in parts of [`OVB_TOGETHER_ONE`].
pub fn share(spin_ns: u64, run_ns: u64) -> u32 {
    // SAFETY: a pure function.
    unsafe { ffi::ovb_together_share(spin_ns, run_ns) }
}

impl Together {
    /// Looks at the VM's sums; whether its turns shall end together.
    pub fn step(&mut self, now: u64, run_ns: u64, spin_ns: u64, period: u64) -> bool {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_together_step(self, now, run_ns, spin_ns, period) != 0 }
    }
}
