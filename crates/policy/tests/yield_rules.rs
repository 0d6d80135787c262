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
    fn a_paid_credit_is_a_part_of_the_whole(now: u64, ahead in 0u64..1 << 40, slice in slice(), n in 0u32..10_000, paid in 0u64..1 << 40) {
        let vtime = now.wrapping_add(ahead);
        let (whole, part) = (credit(vtime, now, slice, n), credit_paid(vtime, now, slice, n, paid));
        prop_assert_eq!(vtime.wrapping_sub(part), vtime.wrapping_sub(whole).min(paid));
    }

    #[test]
    fn credit_grows_with_the_queue(slice in slice(), a in 0u32..1000, b in 0u32..1000) {
        prop_assert!(credit_margin(slice, a.min(b)) <= credit_margin(slice, a.max(b)));
    }

    #[test]
    fn proportional_penalties_shrink_upwards(slice in slice(), depth in 1usize..8, weight in 1u32..=OVB_WEIGHT_MAX, rivals in 0u32..10_000_000) {
        let (mut held, mut before) = (OVB_SHARE_ONE, weighted(slice, weight));
        for _ in 0..depth {
            held = proportional_share(held, weight, weight + rivals);
            let penalty = proportional(weighted(slice, weight), held);
            prop_assert!(held <= OVB_SHARE_ONE && penalty <= before);
            before = penalty;
        }
    }

    #[test]
    fn a_share_is_nearly_the_quotient(weight in 1u32.., more in 0u32..) {
        let total = weight.saturating_add(more);
        let exact = f64::from(weight) / f64::from(total);
        let share = f64::from(share(weight, total)) / f64::from(OVB_SHARE_ONE);
        // Rounded down, and both cut to 17 bits.
        prop_assert!((share - exact).abs() < 1.0 / 16384.0, "{share} for {exact}");
    }
}

#[test]
fn shares_are_fractions() {
    assert_eq!(share(1024, 1024), OVB_SHARE_ONE);
    assert_eq!(share(1024, 4096), OVB_SHARE_ONE / 4);
    assert_eq!(share(5, 0), OVB_SHARE_ONE);
    assert_eq!(share(1 << 20, u32::MAX), OVB_SHARE_ONE >> 12);
}
