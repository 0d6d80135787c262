// SPDX-License-Identifier: GPL-2.0-only
//! `gang.h`: whether a VM's vCPUs run together.

use crate::ffi;

pub use ffi::{OVB_GANG_IDLE, OVB_GANG_ONE, OVB_GANG_TRIAL, ovb_gang as Gang};

/// spin ÷ run in parts of [`OVB_GANG_ONE`].
pub fn share(spin_ns: u64, run_ns: u64) -> u32 {
    // SAFETY: a pure function.
    unsafe { ffi::ovb_gang_share(spin_ns, run_ns) }
}

impl Gang {
    /// Looks at the VM's sums; whether its vCPUs shall run together.
    pub fn step(&mut self, now: u64, run_ns: u64, spin_ns: u64, period: u64) -> bool {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_gang_step(self, now, run_ns, spin_ns, period) != 0 }
    }
}
