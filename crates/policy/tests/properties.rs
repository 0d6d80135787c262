// SPDX-License-Identifier: GPL-2.0-only
//! What the policies promise, over arbitrary input. PROPTEST_CASES raises the number of cases.

mod common;

use common::cases;
use overbook_policy::*;
use proptest::prelude::*;

/// Granularities as schedulers have them: base slices of 0.1 to 100 ms at any weight.
fn gran() -> impl Strategy<Value = u64> {
    1_000u64..10_000_000_000
}

proptest! {
    #![proptest_config(cases(100_000))]

    #[test]
    fn sums_saturate(a: u64, b: u64) {
        prop_assert_eq!(add_sat(a, b), a.saturating_add(b));
    }

    #[test]
    fn products_are_exact(a: u64, b: u64, shift in 0u32..64) {
        let product = u128::from(a) * u128::from(b);
        prop_assert_eq!(mul_hi(a, b), (product >> 64) as u64);
        prop_assert_eq!(mul_shr_sat(a, b, shift), u64::try_from(product >> shift).unwrap_or(u64::MAX));
    }

    #[test]
    fn tenths_are_exact(a: u64, small in 0u64..1000) {
        prop_assert_eq!(div10(a), a / 10);
        prop_assert_eq!(div10(small), small / 10);
        prop_assert_eq!(div10(u64::MAX - small), (u64::MAX - small) / 10);
    }

    #[test]
    fn order_survives_the_wrap(base: u64, ahead in 1u64..1 << 62) {
        let later = base.wrapping_add(ahead);
        prop_assert!(vtime_before(base, later) && !vtime_before(later, base));
        prop_assert_eq!(vtime_diff(later, base), ahead as i64);
        prop_assert_eq!(vtime_max(base, later), later);
        prop_assert_eq!(vtime_gap(later, base), ahead);
        prop_assert_eq!(vtime_gap(base, later), 0);
    }

    #[test]
    fn weighted_time_is_below_the_exact_one_by_little(ns in 0u64..1 << 50, weight in 1u32..=OVB_WEIGHT_MAX) {
        let exact = u128::from(ns) * 1024 / u128::from(weight);
        let got = u128::from(weighted(ns, weight));
        prop_assert!(got <= exact);
        let error = exact - got;
        prop_assert!(error <= 1 + exact * u128::from(weight) / (1 << 32) + 1, "{} of {}", error, exact);
    }

    #[test]
    fn heavier_ages_slower(ns in 0u64..1 << 50, a in 1u32..=OVB_WEIGHT_MAX, b in 1u32..=OVB_WEIGHT_MAX) {
        let (light, heavy) = (a.min(b), a.max(b));
        // The reciprocal of nice 0 is not used, so that its neighbours may differ by the rounding.
        let slack = weighted(ns, light) / 1_000_000 + 2;
        prop_assert!(weighted(ns, heavy) <= weighted(ns, light) + slack);
    }

    #[test]
    fn cgroup_weights_grow_and_stay_in_range(a in 1u32..=10_000, b in 1u32..=10_000) {
        let (low, high) = (weight_from_cgroup(a.min(b)), weight_from_cgroup(a.max(b)));
        prop_assert!((1..=OVB_WEIGHT_MAX).contains(&low) && low <= high && high <= OVB_WEIGHT_MAX);
    }

    #[test]
    fn a_used_limit_opens_after_its_interval_only(start: u64, later in 0u64..1 << 40, interval in 1u64..1 << 40) {
        let mut limit = RateLimit::default();
        prop_assert!(ratelimit_open(&limit, start, interval));
        ratelimit_use(&mut limit, start);
        prop_assert_eq!(ratelimit_open(&limit, start.wrapping_add(later), interval), later > interval);
    }

    #[test]
    fn penalties_keep_to_their_bounds(gran in gran(), gap: u64, n in 2u32..100, reversal: bool) {
        let (low, high) = (deboost_baseline(gran, n), deboost_cap(gran, n));
        let penalty = deboost_penalty(gran, gap, n, reversal);
        prop_assert!(low <= penalty && penalty <= high);
        prop_assert!(high <= 6 * gran);
        let published = deboost_penalty_published(gran, gap, n, reversal);
        prop_assert!(gran <= published && published <= high);
    }

    #[test]
    fn penalties_grow_with_the_gap(gran in gran(), a: u64, b: u64, n in 2u32..100, reversal: bool) {
        let (near, far) = (a.min(b), a.max(b));
        prop_assert!(deboost_penalty(gran, near, n, reversal) <= deboost_penalty(gran, far, n, reversal));
    }

    #[test]
    fn a_reversal_never_pays_more(gran in gran(), gap: u64, n in 2u32..100) {
        prop_assert!(deboost_penalty(gran, gap, n, true) <= deboost_penalty(gran, gap, n, false));
    }

    #[test]
    fn one_penalty_per_interval(start: u64, steps in prop::collection::vec(0u64..4_000_000, 1..40), n in 2u32..20) {
        let mut state = DeboostState::default();
        let (mut now, mut last) = (start, None);
        for (i, step) in steps.iter().enumerate() {
            now = now.wrapping_add(*step);
            let call = DeboostCall {
                now, source: i as i32 % 3, target: 9, gran: 700_000, gap: 5, nr_queued: n, valid: 1,
                interval: OVB_DEBOOST_INTERVAL_NS.into(), reversal: OVB_DEBOOST_REVERSAL_NS.into(),
            };
            if deboost(&mut state, &call) > 0 {
                if let Some(last) = last {
                    prop_assert!(now.wrapping_sub(last) > u64::from(OVB_DEBOOST_INTERVAL_NS));
                }
                last = Some(now);
            }
        }
        prop_assert!(last.is_some());
    }

    #[test]
    fn members_are_counted(bits: u64) {
        prop_assert_eq!(popcount(bits), bits.count_ones());
    }
}
