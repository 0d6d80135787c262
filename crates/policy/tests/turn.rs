// SPDX-License-Identifier: GPL-2.0-only
//! Turns: their length, their end, and how far anybody may stand from the others, at every place of the clock.

mod common;

use common::{cases, start};
use overbook_policy::turn::*;
use overbook_policy::{OVB_WEIGHT_MAX, OVB_WEIGHT_NICE_0, rates, vtime_before, vtime_diff};
use proptest::prelude::*;

const LAG: u64 = OVB_LAG_TURNS as u64;

/// Slices of 0.1 ms to 1 s, aged or not.
fn slice() -> impl Strategy<Value = u64> {
    100_000u64..1_000_000_000
}

/// Differences of virtual time: near, and a day of weight 1.
fn apart() -> impl Strategy<Value = i64> {
    prop_oneof![-10_000_000_000i64..10_000_000_000, -(1i64 << 56)..1i64 << 56]
}

#[test]
fn who_was_preempted_waits_for_six_slices_at_most() {
    assert!(!waited_enough(0, 3) && !waited_enough(17, 3) && waited_enough(18, 3));
}

#[test]
fn who_slept_within_twelve_slices_sleeps_often() {
    assert!(sleeps_often(0, 3) && sleeps_often(35, 3) && !sleeps_often(36, 3));
}

proptest! {
    #![proptest_config(cases(50_000))]

    /// Of two VMs of one rate, with so many vCPUs and CPUs, one runs on all of these: it gets ahead of the other by what it may,
    /// and by a slice on each CPU after that at most; and the other waits for six slices, and one more at most.
    #[test]
    fn nobody_overstays_for_long(slice in slice(), tick in 1u64..1_000_000_000, cpus in 1u64..64, ahead in -30i64..30) {
        let (mut ran, step) = (0, slice.div_ceil(tick) * tick);
        let (reach, first) = (slice * cpus, ahead * slice as i64);
        let ahead_after = |ran: u64| first + (ran * cpus) as i64;
        while !waited_enough(ran, slice) && (ahead_after(ran) < 0 || may_overstay(ahead_after(ran) as u64, reach)) {
            ran += step;
        }
        let (most, longest) = ((reach * u64::from(OVB_OVERSTAY_SLICES)) as i64, slice * u64::from(OVB_WAIT_SLICES));
        prop_assert!(ran < longest + step);
        prop_assert!(first > most || ahead_after(ran) <= most + (step * cpus) as i64);
        prop_assert_eq!(ran > 0, first <= most);
        // Where it begins far behind, the wait ends it and not what it is ahead.
        prop_assert!(first > -6 * reach as i64 || waited_enough(ran, slice));
    }

    #[test]
    fn a_tenant_reaches_a_slice_for_each_at_a_time(slice in slice(), runnable in 0u32..5000, cpus in 0u32..1024) {
        let all = reach(slice, runnable, cpus);
        prop_assert_eq!(all, slice * u64::from(runnable.min(cpus).max(1)));
        // More of either never shortens it.
        prop_assert!(reach(slice, runnable + 1, cpus) >= all);
        prop_assert!(reach(slice, runnable, cpus + 1) >= all);
    }

    #[test]
    fn who_slept_has_a_slice_of_lag_and_others_some_turns(level in start(), slice in slice(), cpus in 1u64..64) {
        let turn = slice * cpus;
        prop_assert_eq!(vtime_diff(level, earliest(level, slice, turn, 1)), slice as i64);
        prop_assert_eq!(vtime_diff(level, earliest(level, slice, turn, 0)), (turn * LAG) as i64);
        prop_assert!(!vtime_before(earliest(level, slice, turn, 1), earliest(level, slice, turn, 0)));
    }

    /// However many members wait, each of them may wait for a slice of all others.
    #[test]
    fn all_members_may_wait_for_each_other(level in start(), slice in slice(), members in 0u32..1 << 18) {
        let most = vtime_diff(latest(level, slice, members), level);
        prop_assert!(most >= (slice * u64::from(members)) as i64);
        prop_assert!(most > vtime_diff(latest(level, slice, 0), level) || members == 0);
        prop_assert!(vtime_diff(latest(level, slice, members + 1), level) > most);
    }

    /// Who weighs little may wait for as many slices as it weighs less than all; who weighs as much as others, or nothing
    /// that is known, for one of each.
    #[test]
    fn a_light_member_may_wait_for_longer(members in 1u32..5000, total in 0u32.., weight in 0u32..=OVB_WEIGHT_MAX) {
        let slices = between(members, total, weight);
        prop_assert!(slices >= members && slices >= total.checked_div(weight).unwrap_or(0).min(1 << 17));
        prop_assert_eq!(between(members, weight.saturating_mul(members), weight), members);
        prop_assert!(between(members, total, weight.saturating_add(1)) <= slices || weight == 0);
    }

    /// A turn lasts for as long as it was given, not a nanosecond less or more.
    #[test]
    fn a_turn_ends_at_its_deadline(begin in start(), turn in slice(), ran in 0u64..4_000_000_000) {
        let deadline = begin.wrapping_add(turn);
        prop_assert_eq!(over(begin.wrapping_add(ran), deadline, turn), ran >= turn);
        prop_assert!(!over(deadline.wrapping_sub(1), deadline, turn));
        prop_assert!(over(deadline, deadline, turn));
    }

    /// A deadline from elsewhere, or of a turn that was longer, is not waited for.
    #[test]
    fn a_turn_of_another_length_is_over(vtime in start(), turn in slice(), ahead in prop_oneof![0u64..4_000_000_000, 0u64..1 << 62]) {
        prop_assert_eq!(over(vtime, vtime.wrapping_add(ahead), turn), ahead == 0 || ahead > 2 * turn);
        prop_assert!(over(vtime, vtime.wrapping_sub(ahead), turn));
    }

    #[test]
    fn a_bias_is_from_a_slice_before_to_two_after(behind: i64, slice in slice()) {
        let bias = member_bias(behind, slice);
        prop_assert!(-(slice as i64) <= bias && bias <= 2 * slice as i64);
        if -(slice as i64) <= behind && behind <= 2 * slice as i64 {
            prop_assert_eq!(bias, behind);
        }
    }

    #[test]
    fn who_has_run_more_goes_later(a in apart(), b in apart(), slice in slice()) {
        prop_assert!(member_bias(a.min(b), slice) <= member_bias(a.max(b), slice));
    }

    #[test]
    fn a_member_is_near_to_the_clock(clock in start(), time: u64, slice in slice(), woken in 0u32..2) {
        let lag = vtime_diff(member_time(time, clock, slice, woken), clock);
        let least = if woken == 1 { slice } else { slice * LAG };
        prop_assert!(-(least as i64) <= lag && lag <= (slice * LAG) as i64, "{lag}");
    }

    #[test]
    fn a_member_that_is_near_keeps_its_time(clock in start(), off in apart(), slice in slice(), woken in 0u32..2) {
        let time = clock.wrapping_add(off as u64);
        let brought = member_time(time, clock, slice, woken);
        let most = (slice * LAG) as i64;
        let least = if woken == 1 { -(slice as i64) } else { -most };
        prop_assert_eq!(vtime_diff(brought, clock), off.clamp(least, most));
        // Once is enough.
        prop_assert_eq!(member_time(brought, clock, slice, woken), brought);
    }

    #[test]
    fn members_keep_their_order(clock in start(), a in apart(), b in apart(), slice in slice(), woken in 0u32..2) {
        let brought = |off: i64| member_time(clock.wrapping_add(off as u64), clock, slice, woken);
        prop_assert!(!vtime_before(brought(a.max(b)), brought(a.min(b))));
    }

    #[test]
    fn a_pool_is_lifted_as_far_as_needed(tide in start(), off in apart(), most in 0u64..1 << 40) {
        let level = tide.wrapping_add(off as u64);
        let lift = lift(level, tide, most);
        let behind = vtime_diff(tide, level.wrapping_add(lift));
        prop_assert!(behind <= most as i64, "{behind} behind");
        prop_assert_eq!(lift > 0, -off > most as i64, "lifted without need");
        if lift > 0 {
            prop_assert_eq!(behind, most as i64, "lifted too far");
        }
    }
}

/// One of those who share a CPU.
struct Tenant {
    rate: u64,
    vtime: u64,
    deadline: u64,
    ran: u64,
}

proptest! {
    #![proptest_config(cases(500))]

    /// The rules together, on one CPU, as the scheduler applies them: the tenant with the earliest deadline runs, and its
    /// turn ends when its virtual time has come there. Each has its share, to a turn and what is run beyond one.
    #[test]
    fn every_tenant_has_its_share(
        begin in start(),
        weights in prop::collection::vec(10u32..=OVB_WEIGHT_MAX, 2..12),
        slices in prop::collection::vec(1u64..=100, 500..1500),
    ) {
        const SLICE: u64 = 3_000_000;
        let mut tenants: Vec<Tenant> = weights.iter().map(|weight| {
            let rate = rates::of(*weight);
            Tenant { rate, vtime: begin, deadline: begin.wrapping_add(rates::age(rate, SLICE)), ran: 0 }
        }).collect();
        let mut total = 0;
        for part in slices {
            // Slices end early, by hundredths.
            let used = SLICE / 100 * part;
            let next = tenants.iter_mut().reduce(|best, t| if vtime_before(t.deadline, best.deadline) { t } else { best });
            let t = next.unwrap();
            t.ran += used;
            total += used;
            t.vtime = t.vtime.wrapping_add(rates::age(t.rate, used));
            let turn = rates::age(t.rate, SLICE);
            if over(t.vtime, t.deadline, turn) {
                t.deadline = t.vtime.wrapping_add(turn);
            }
        }
        let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        // In virtual time: nobody is further from another than a turn of each and a slice's overrun.
        for a in &tenants {
            for b in &tenants {
                let (turn_a, turn_b) = (rates::age(a.rate, SLICE), rates::age(b.rate, SLICE));
                let gap = vtime_diff(a.vtime, b.vtime);
                prop_assert!(gap <= (2 * turn_a + turn_b) as i64, "{gap} beyond turns of {turn_a} and {turn_b}");
            }
        }
        for (t, weight) in tenants.iter().zip(&weights) {
            let due = total as f64 * f64::from(*weight) / sum as f64;
            let bound = (3 * SLICE * weights.len() as u64) as f64 + due / 10_000.0;
            prop_assert!((t.ran as f64 - due).abs() <= bound, "{} of {due} ns", t.ran);
        }
    }
}

/// The header's example: a VM of weight 4096 beside a task.
#[test]
fn a_heavy_vm_and_a_task_have_turns_of_the_same_age() {
    let slice = 3_000_000;
    assert_eq!(rates::age(rates::of(4096), slice), 750_000);
    assert_eq!(rates::age(rates::of(4096), reach(slice, 4, 4)), slice);
    assert_eq!(rates::age(rates::of(OVB_WEIGHT_NICE_0), slice), slice);
}
