// SPDX-License-Identifier: GPL-2.0-only
//! `entitle.h`: what a VM could have, in parts of [`OVB_ENTITLE_ONE`] of a CPU.

use crate::ffi;

pub use ffi::{OVB_ENTITLE_ONE, ovb_claim as Claim};

impl Claim {
    /// A tenant of a weight that wants so much.
    pub fn new(weight: u32, wants: u32) -> Claim {
        Claim { weight, wants, settled: 0 }
    }
}

/// So many CPUs in parts.
pub fn parts(cpus: f64) -> u32 {
    (cpus * f64::from(OVB_ENTITLE_ONE)) as u32
}

/// What a tenant of a weight could have of `capacity` beside others, if it wanted `most`.
pub fn entitled(others: &mut [Claim], weight: u32, most: u32, capacity: u32) -> u32 {
    // SAFETY: the length is the slice's own, and nothing is kept.
    unsafe { ffi::ovb_entitled(others.as_mut_ptr(), others.len() as u32, weight, most, capacity) }
}

/// Cores of `per_core` CPUs each that a guest uses that could have `cpus`, and uses `now`.
pub fn entitled_cores(cpus: u32, per_core: u32, now: u32) -> u32 {
    // SAFETY: takes numbers only.
    unsafe { ffi::ovb_entitled_cores(cpus, per_core, now) }
}

/// Whether a guest that wants so many CPUs, and could have `could`, uses no more cores than that; `packed`: it does now.
pub fn packs(wants: u32, could: u32, packed: bool) -> bool {
    // SAFETY: takes numbers only.
    unsafe { ffi::ovb_entitle_packs(wants, could, packed.into()) != 0 }
}

/// Whether so many CPUs are full, of which so many idled; `full`: they were.
pub fn full(idle: u32, cpus: u32, full: bool) -> bool {
    // SAFETY: takes numbers only.
    unsafe { ffi::ovb_entitle_full(idle, cpus, full.into()) != 0 }
}
