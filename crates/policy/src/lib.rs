// SPDX-License-Identifier: GPL-2.0-only
//! Overbook's decisions, as Rust sees them: thin, safe calls into the C headers of `policy/`, the same files
//! that the BPF programs include. Each function's unit, range and source stand in its header.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod ffi {
    include!(concat!(env!("OUT_DIR"), "/policy.rs"));
}

/// Declares safe functions for C ones that only read their arguments.
macro_rules! pure {
    ($($(#[$doc:meta])* $name:ident = $c:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $($(#[$doc])*
        pub fn $name($($arg: $kind),*) -> $out {
            // SAFETY: a pure function of its arguments, defined for all values of them.
            unsafe { crate::ffi::$c($($arg),*) }
        })*
    };
}

pub mod class;
pub mod entitle;
pub mod home;
pub mod quota;
pub mod rates;
pub mod relations;
pub mod spin;
pub mod steal;
pub mod tiers;
pub mod turn;

pub use ffi::{
    OVB_DEBOOST_INTERVAL_NS, OVB_DEBOOST_REVERSAL_NS, OVB_SHARE_ONE, OVB_WEIGHT_MAX, OVB_WEIGHT_NICE_0,
    ovb_deboost_call as DeboostCall, ovb_deboost_state as DeboostState, ovb_ratelimit as RateLimit,
};

pure! {
    /// `math.h`: a + b, saturating.
    add_sat = ovb_add_sat(a: u64, b: u64) -> u64;
    /// `math.h`: upper half of the 128-bit product.
    mul_hi = ovb_mul_hi(a: u64, b: u64) -> u64;
    /// `math.h`: (a · b) >> shift, saturating; shift is 1 to 63.
    mul_shr_sat = ovb_mul_shr_sat(a: u64, b: u64, shift: u32) -> u64;
    /// `math.h`: floor(a / 10).
    div10 = ovb_div10(a: u64) -> u64;
    /// `vtime.h`: signed difference.
    vtime_diff = ovb_vtime_diff(a: u64, b: u64) -> i64;
    /// `vtime.h`: the later of two.
    vtime_max = ovb_vtime_max(a: u64, b: u64) -> u64;
    /// `vtime.h`: how far the target lies behind the yielder, or 0.
    vtime_gap = ovb_vtime_gap(target: u64, yielder: u64) -> u64;
    /// `weight.h`: cpu.weight as a scheduler weight.
    weight_from_cgroup = ovb_weight_from_cgroup(cpu_weight: u32) -> u32;
    /// `weight.h`: real time as virtual time at a weight.
    weighted = ovb_weighted(ns: u64, weight: u32) -> u64;
    /// `published/deboost.h`: upper bound of a penalty.
    deboost_cap = ovb_deboost_cap(gran: u64, nr_queued: u32) -> u64;
    /// `published/deboost.h`: penalty when the target is not behind.
    deboost_baseline = ovb_deboost_baseline(gran: u64, nr_queued: u32) -> u64;
    /// `published/credit.h`: lag that a credited target ends with.
    credit_margin = ovb_credit_margin(weighted_slice: u64, nr_queued: u32) -> u64;
    /// `published/credit.h`: the target's new virtual time.
    credit = ovb_credit(vtime: u64, now: u64, weighted_slice: u64, nr_queued: u32) -> u64;
    /// `published/credit.h`: the same, where somebody pays.
    credit_paid = ovb_credit_paid(vtime: u64, now: u64, weighted_slice: u64, nr_queued: u32, paid: u64) -> u64;
    /// `math.h`: members of a set.
    popcount = ovb_popcount(bits: u64) -> u32;
    /// `published/proportional.h`: weight ÷ total in parts of [`OVB_SHARE_ONE`].
    share = ovb_share(weight: u32, total: u32) -> u32;
    /// `published/proportional.h`: the yielder's share of the entity one level up.
    proportional_share = ovb_proportional_share(share: u32, weight: u32, total: u32) -> u32;
    /// `published/proportional.h`: how far that entity is pushed back.
    proportional = ovb_proportional(weighted_slice: u64, share: u32) -> u64;
}

/// `vtime.h`: whether a lies before b.
pub fn vtime_before(a: u64, b: u64) -> bool {
    // SAFETY: as in `pure!`.
    unsafe { ffi::ovb_vtime_before(a, b) != 0 }
}

/// `published/deboost.h`: the published penalty.
pub fn deboost_penalty_published(gran: u64, gap: u64, nr_queued: u32, reversal: bool) -> u64 {
    // SAFETY: as in `pure!`.
    unsafe { ffi::ovb_deboost_penalty_published(gran, gap, nr_queued, reversal.into()) }
}

/// `published/deboost.h`: the mended penalty.
pub fn deboost_penalty(gran: u64, gap: u64, nr_queued: u32, reversal: bool) -> u64 {
    // SAFETY: as in `pure!`.
    unsafe { ffi::ovb_deboost_penalty(gran, gap, nr_queued, reversal.into()) }
}

/// `published/deboost.h`: the published steps in their published order; 0 for no penalty.
pub fn deboost_published(state: &mut DeboostState, call: &DeboostCall) -> u64 {
    // SAFETY: both references are valid for the call, and nothing is kept.
    unsafe { ffi::ovb_deboost_published(state, call) }
}

/// `published/deboost.h`: the mended steps in their mended order; 0 for no penalty.
pub fn deboost(state: &mut DeboostState, call: &DeboostCall) -> u64 {
    // SAFETY: as above.
    unsafe { ffi::ovb_deboost(state, call) }
}

/// `published/ratelimit.h`: whether more than `interval` ns have passed since the last use.
pub fn ratelimit_open(limit: &RateLimit, now: u64, interval: u64) -> bool {
    // SAFETY: as above.
    unsafe { ffi::ovb_ratelimit_open(limit, now, interval) != 0 }
}

/// `published/ratelimit.h`: notes a use.
pub fn ratelimit_use(limit: &mut RateLimit, now: u64) {
    // SAFETY: as above.
    unsafe { ffi::ovb_ratelimit_use(limit, now) }
}
