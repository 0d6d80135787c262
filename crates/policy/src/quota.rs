// SPDX-License-Identifier: GPL-2.0-only
//! `quota.h`: cpu.max, period by period.

use crate::ffi;

pub use ffi::{OVB_QUOTA_LONGEST, OVB_QUOTA_PERIODS, ovb_quota as Quota};

impl Quota {
    /// Adds what the periods bring that have begun until `now`; whether one has.
    pub fn refill(&mut self, now: u64) -> bool {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_quota_refill(self, now) != 0 }
    }
}
