// SPDX-License-Identifier: GPL-2.0-only
//! `weight.h`: rates, ns of virtual time per ns of running. A rate is packed: a mantissa above a shift.

pub use crate::ffi::{OVB_RATE_SHIFT_MAX, OVB_RATE_SHIFT_MIN};

pure! {
    /// a ÷ b as a rate; a 0 counts as 1.
    ratio = ovb_rate_ratio(a: u32, b: u32) -> u64;
    /// The rate of who weighs so much among all.
    of = ovb_rate_of(weight: u32) -> u64;
    /// rate · a ÷ b: a member's rate from its group's.
    times = ovb_rate_times(rate: u64, a: u32, b: u32) -> u64;
    /// What a rate was made of, in one word: that of the levels below, and one level's.
    inputs = ovb_rate_inputs(below: u64, total: u64, weight: u32) -> u64;
    /// Real time as virtual time at a rate, saturating.
    age = ovb_age(rate: u64, ns: u64) -> u64;
}
