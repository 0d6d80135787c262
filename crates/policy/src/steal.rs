// SPDX-License-Identifier: GPL-2.0-only
//! `steal.h` and `cores.h`: how many cores a guest should use, and which.

use crate::ffi;

pub use ffi::{
    OVB_STEAL_ONE, ovb_core as Core, ovb_steal_rules as Rules, ovb_steal_sample as Sample,
    ovb_steal_state as State,
};

/// The published rule: a core at a time.
pub const STEP: u32 = ffi::ovb_governor_OVB_GOVERNOR_STEP;
/// Ours: as many cores as the host serves.
pub const PROPORTIONAL: u32 = ffi::ovb_governor_OVB_GOVERNOR_PROPORTIONAL;

/// part ÷ whole in parts of [`OVB_STEAL_ONE`], saturating.
pub fn ratio(part: u64, whole: u64) -> u32 {
    // SAFETY: a pure function, defined for all values.
    unsafe { ffi::ovb_steal_ratio(part, whole) }
}

impl State {
    /// Cores to prefer after a sample, of `all` (1 to 65535), of which `cores` are preferred now.
    pub fn decide(&mut self, rules: &Rules, sample: &Sample, cores: u32, all: u32) -> u32 {
        // SAFETY: the references are valid for the call, and nothing is kept.
        unsafe { ffi::ovb_steal_decide(self, rules, sample, cores, all) }
    }
}

/// Place of the core to stop to prefer, if any may go.
pub fn core_to_drop(cores: &[Core]) -> Option<usize> {
    // SAFETY: the length is the slice's own.
    usize::try_from(unsafe { ffi::ovb_core_to_drop(cores.as_ptr(), cores.len() as u32) }).ok()
}

/// Place of the core to prefer again, if any is not preferred.
pub fn core_to_add(cores: &[Core]) -> Option<usize> {
    // SAFETY: as above.
    usize::try_from(unsafe { ffi::ovb_core_to_add(cores.as_ptr(), cores.len() as u32) }).ok()
}
