// SPDX-License-Identifier: GPL-2.0-only
//! `turn.h`: turns of tenants, and where their members stand. All times may wrap.

pub use crate::ffi::{OVB_LAG_TURNS, OVB_OVERSTAY_SLICES, OVB_WAIT_SLICES};

pure! {
    /// What a tenant gets by running on all CPUs that it can use.
    reach = ovb_reach(slice: u64, runnable: u32, cpus: u32) -> u64;
    /// The earliest virtual time of a tenant that comes to be queued; `slept` is 0 or 1.
    earliest = ovb_earliest(level: u64, slice: u64, turn: u64, slept: u32) -> u64;
    /// How many slices of its tenant may go by between two of a member's.
    between = ovb_between(members: u32, total: u32, weight: u32) -> u32;
    /// The latest place of a tenant's member in a queue.
    latest = ovb_latest(level: u64, slice: u64, between: u32) -> u64;
    /// How far a member stands from its tenant's deadline.
    member_bias = ovb_member_bias(behind: i64, slice: u64) -> i64;
    /// A member's time, brought near to the members' clock; `woken` is 0 or 1.
    member_time = ovb_member_time(time: u64, clock: u64, slice: u64, woken: u32) -> u64;
    /// What a pool's offset must grow by.
    lift = ovb_lift(level: u64, tide: u64, most: u64) -> u64;
}

/// Whether somebody who was preempted has waited for so long, ns, that nobody overstays any more.
pub fn waited_enough(waited: u64, slice: u64) -> bool {
    // SAFETY: as in `pure!`.
    unsafe { crate::ffi::ovb_waited_enough(waited, slice) != 0 }
}

/// Whether the only runnable task of a VM, which went to sleep so long ago, ns, is likely to sleep soon again.
pub fn sleeps_often(slept_ago: u64, slice: u64) -> bool {
    // SAFETY: as in `pure!`.
    unsafe { crate::ffi::ovb_sleeps_often(slept_ago, slice) != 0 }
}

/// Whether a vCPU whose key is later than the first's by `ahead` may stay although its slice is over; `first_reach` is the
/// [`reach`] of the first's tenant; virtual ns.
pub fn may_overstay(ahead: u64, first_reach: u64) -> bool {
    // SAFETY: as in `pure!`.
    unsafe { crate::ffi::ovb_may_overstay(ahead, first_reach) != 0 }
}

/// Whether the turn that ends at `deadline` is over, or was never one of this length.
pub fn over(vtime: u64, deadline: u64, turn: u64) -> bool {
    // SAFETY: as in `pure!`.
    unsafe { crate::ffi::ovb_turn_over(vtime, deadline, turn) != 0 }
}
