// SPDX-License-Identifier: GPL-2.0-only
//! `tiers.h`: who of a VM's queued vCPUs is worth most to it now.

use crate::ffi;

pub use ffi::{
    ovb_siblings as Siblings, ovb_tier_OVB_TIER_ANSWERED as ANSWERED, ovb_tier_OVB_TIER_ANY as ANY,
    ovb_tier_OVB_TIER_CHAINED as CHAINED, ovb_tier_OVB_TIER_INTERRUPT as INTERRUPT,
    ovb_tier_OVB_TIER_NONE as NONE, ovb_tier_OVB_TIER_WAITING as WAITING, ovb_tier_OVB_TIERS as OVB_TIERS,
};

impl Siblings {
    /// Who of 64 vCPUs is of a tier.
    pub fn members(&self, tier: u32) -> u64 {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_tier_members(self, tier) }
    }

    /// The highest tier that any of them is of.
    pub fn best(&self) -> u32 {
        // SAFETY: as above.
        unsafe { ffi::ovb_tier_best(self) }
    }
}
