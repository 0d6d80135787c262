// SPDX-License-Identifier: GPL-2.0-only
//! What the published yield rules promise: bounded shifts, no gain from yielding, wrap safety.
//! PROPTEST_CASES raises the number of cases; `PROPTEST_CASES=1000000` takes some seconds.

mod common;

use common::cases;
use overbook_policy::*;
use proptest::prelude::*;

fn slice() -> impl Strategy<Value = u64> {
    100_000u64..1_000_000_000
}

proptest! {
    #![proptest_config(cases(100_000))]

    #[test]
    fn forfeit_moves_forward_by_a_slice_at_most(now: u64, lag in -(1i64 << 40)..1i64 << 40, slice in slice()) {
        let vtime = now.wrapping_sub(lag as u64);
        let mut place = Place { vtime, deadline: vtime.wrapping_add(slice) };
        let moved = forfeit(&mut place, now, slice);
        prop_assert_eq!(moved, lag >= 0);
        let shift = place.vtime.wrapping_sub(vtime);
        prop_assert_eq!(shift, if moved { slice } else { 0 });
        prop_assert_eq!(place.deadline.wrapping_sub(place.vtime), slice);
    }

    #[test]
    fn credit_never_exceeds_a_slice_of_lag(now: u64, ahead in -(1i64 << 40)..1i64 << 40, slice in slice(), n in 0u32..10_000) {
        let vtime = now.wrapping_add(ahead as u64);
        let credited = credit(vtime, now, slice, n);
        // Never later than before, and never more than a slice of lag that was not there.
        prop_assert!(!vtime_before(vtime, credited));
        if ahead <= 0 {
            prop_assert_eq!(credited, vtime);
        } else {
            let lag = now.wrapping_sub(credited);
            prop_assert!((1..=slice).contains(&lag));
        }
    }

    #[test]
    fn credit_grows_with_the_queue(slice in slice(), a in 0u32..1000, b in 0u32..1000) {
        prop_assert!(credit_margin(slice, a.min(b)) <= credit_margin(slice, a.max(b)));
    }

    #[test]
    fn strict_is_the_least_shift_that_the_target_wins_by(yielder: u64, ahead in -(1i64 << 40)..1i64 << 40, gran in 0u64..1 << 32) {
        let target = yielder.wrapping_add(ahead as u64);
        let moved = strict(yielder, target, gran);
        prop_assert!(!vtime_before(moved, yielder));
        prop_assert!(strict_accepts(target, moved, gran));
        if moved != yielder {
            prop_assert!(!strict_accepts(target, moved.wrapping_sub(1), gran), "less would have done");
            prop_assert!(vtime_before(moved, target) || gran == 0);
        }
    }

    #[test]
    fn proportional_penalties_shrink_upwards(slice in slice(), depth in 1u32..=OVB_MAX_LEVELS, weight in 1u32..=OVB_WEIGHT_MAX, rivals in 0u32..10_000_000) {
        let mut chain = Chain { depth, ..Chain::default() };
        for level in &mut chain.level {
            (level.weight, level.total_weight) = (weight, weight + rivals);
        }
        let (levels, penalty) = proportional(&chain, &[1; MAX_LEVELS], slice);
        prop_assert!(levels <= depth as usize && penalty[0] == 0);
        let own = weighted(slice, weight);
        for (i, shift) in penalty[..levels].iter().enumerate().skip(1) {
            prop_assert!(*shift <= own, "more than a slice");
            prop_assert!(i < 2 || *shift <= penalty[i - 1]);
        }
    }
}

#[test]
fn shares_are_fractions() {
    assert_eq!(share(1024, 1024), OVB_SHARE_ONE);
    assert_eq!(share(1024, 4096), OVB_SHARE_ONE / 4);
    assert_eq!(share(5, 0), OVB_SHARE_ONE);
    assert_eq!(share(1 << 20, u32::MAX), OVB_SHARE_ONE >> 12);
}
