// SPDX-License-Identifier: GPL-2.0-only
//! `spin.h`: whether a vCPU has spun for so long that it is taken off its CPU.

use crate::ffi;

pub use ffi::{
    OVB_SPIN_APART as APART, OVB_SPIN_EXITS as EXITS, OVB_SPIN_TRIAL as TRIAL, OVB_SPIN_TRUST as TRUST,
    ovb_spin as Spin,
};

impl Spin {
    /// Books a PAUSE exit at `now` of a vCPU that came to its CPU at `resumed`, ns.
    pub fn exit(&mut self, resumed: u64, now: u64, limit: u64) {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_spin_exit(self, resumed, now, limit) }
    }

    /// The vCPU leaves its CPU at `now`, ns.
    pub fn leave(&mut self, now: u64, limit: u64) {
        // SAFETY: as above.
        unsafe { ffi::ovb_spin_leave(self, now, limit) }
    }

    /// Whether the last exit itself says that the vCPU has spun for long; counts it then.
    pub fn was_long(&mut self) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_spin_was_long(self) != 0 }
    }

    /// Whether nearly all its spins are long.
    pub fn are_long(&self) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_spins_are_long(self) != 0 }
    }

    /// Whether the vCPU spins on after its last exit.
    pub fn is_spared(&mut self, limit: u64) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_spin_is_spared(self, limit) != 0 }
    }
}
