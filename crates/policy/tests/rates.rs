// SPDX-License-Identifier: GPL-2.0-only
//! Rates: exact enough in every size of group, down any tree, and for any time.

mod common;

use common::cases;
use overbook_policy::rates::*;
use overbook_policy::{OVB_WEIGHT_MAX, OVB_WEIGHT_NICE_0, weighted};
use proptest::prelude::*;

/// A ratio's error, of 1, as b is rounded to 16 bits.
const RATIO: f64 = 1.0 / 65536.0 + 1e-8;
/// A group's members, or a path down its tree, together.
const SUM: f64 = 1e-4;
/// The largest and the smallest rate.
const MAX: f64 = (u32::MAX as f64) / (1u64 << OVB_RATE_SHIFT_MIN) as f64;
const MIN: f64 = 1.0 / (1u64 << (OVB_RATE_SHIFT_MAX - 31)) as f64;

/// A rate as a number: exact, as its mantissa has 32 bits.
fn value(rate: u64) -> f64 {
    (rate >> 32) as f64 / 2f64.powi(rate as u32 as i32)
}

/// How far a rate is from an exact one, of 1.
fn error(rate: u64, exact: f64) -> f64 {
    (value(rate) / exact - 1.0).abs()
}

/// Numbers of all lengths.
fn number() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0u32..32).prop_map(|(n, shift)| (n >> shift).max(1))
}

fn weight() -> impl Strategy<Value = u32> {
    1u32..=OVB_WEIGHT_MAX
}

/// A tenant's own weight, and down the tree a member's weight and its siblings'; none so small that its rate is out of
/// bounds.
fn tree() -> impl Strategy<Value = (u32, Vec<(u32, u32)>)> {
    let level = (weight(), prop_oneof![Just(0), 0u32..1_000_000]);
    (weight(), prop::collection::vec(level, 1..=8)).prop_filter("too small a share", |(own, levels)| {
        parts(levels) * 1024.0 / f64::from(*own).min(1024.0) < MAX * 0.999
    })
}

/// Of how many parts who is down there has one.
fn parts(levels: &[(u32, u32)]) -> f64 {
    levels.iter().map(|(weight, rivals)| f64::from(weight + rivals) / f64::from(*weight)).product()
}

/// A group's rate: of its own weight, divided among some.
fn group() -> impl Strategy<Value = u64> {
    (weight(), 1u32..100).prop_map(|(weight, share)| times(of(weight), share, 1))
}

proptest! {
    #![proptest_config(cases(50_000))]

    #[test]
    fn ratios_are_exact_to_a_part_in_65536(a in number(), b in number()) {
        let exact = (f64::from(a) / f64::from(b)).clamp(MIN, MAX);
        let rate = ratio(a, b);
        prop_assert!(error(rate, exact) <= RATIO, "{} is not {exact}", value(rate));
        prop_assert!(rate >> 63 == 1, "the top bit is not set");
        prop_assert!((OVB_RATE_SHIFT_MIN..=OVB_RATE_SHIFT_MAX).contains(&(rate as u32)));
    }

    #[test]
    fn whole_words_are_exact_as_well(a: u32, b: u32) {
        let exact = (f64::from(a.max(1)) / f64::from(b.max(1))).clamp(MIN, MAX);
        prop_assert!(error(ratio(a, b), exact) <= RATIO);
    }

    #[test]
    fn short_numbers_are_exact_to_the_mantissa(a in number(), b in 1u32..1 << 16) {
        let exact = (f64::from(a) / f64::from(b)).clamp(MIN, MAX);
        prop_assert!(error(ratio(a, b), exact) < 2f64.powi(-30));
    }

    #[test]
    fn ratios_are_in_order(a in number(), b in number(), c in number()) {
        prop_assert!(value(ratio(a.min(b), c)) <= value(ratio(a.max(b), c)));
        prop_assert!(value(ratio(c, a.max(b))) <= value(ratio(c, a.min(b))));
    }

    #[test]
    fn products_are_exact(c in number(), d in number(), (a, b) in (number(), number()).prop_filter(
        "a part out of bounds is not mended by the product",
        |(a, b)| (MIN..MAX).contains(&(f64::from(*a) / f64::from(*b))),
    )) {
        let rate = ratio(c, d);
        let exact = (value(rate) * f64::from(a) / f64::from(b)).clamp(MIN, MAX);
        let product = times(rate, a, b);
        prop_assert!(error(product, exact) <= RATIO, "{} is not {exact}", value(product));
        prop_assert!(product >> 63 == 1, "the top bit is not set");
        prop_assert!((OVB_RATE_SHIFT_MIN..=OVB_RATE_SHIFT_MAX).contains(&(product as u32)));
    }

    #[test]
    fn a_tree_may_be_walked_in_any_order((own, levels) in tree()) {
        let down = |rate: u64, (weight, rivals): &(u32, u32)| times(rate, weight + rivals, *weight);
        let walked = levels.iter().fold(of(own), down);
        let back = levels.iter().rev().fold(of(own), down);
        prop_assert!(error(back, value(walked)) < 1e-8, "{} and {}", value(walked), value(back));
        // As the scheduler does it: the shares first, from the leaf, and the weight at last.
        let (first, rest) = levels.split_first().unwrap();
        let shares = rest.iter().fold(ratio(first.0 + first.1, first.0), down);
        let last = times(shares, OVB_WEIGHT_NICE_0, own);
        prop_assert!(error(last, value(walked)) < 1e-8, "{} and {}", value(last), value(walked));
        let exact = parts(&levels) * f64::from(OVB_WEIGHT_NICE_0) / f64::from(own);
        let most = (levels.len() + 1) as f64 * RATIO;
        prop_assert!(error(walked, exact) < most, "{} is not {exact}", value(walked));
    }

    /// What the members may run together is what their group may, whatever they weigh.
    #[test]
    fn shares_add_up_to_the_group(rate in group(), weights in prop::collection::vec(weight(), 1..300)) {
        let total: u32 = weights.iter().sum();
        let lightest = *weights.iter().min().unwrap();
        prop_assume!(value(rate) * f64::from(total) / f64::from(lightest) < MAX);
        let sum: f64 = weights.iter().map(|w| 1.0 / value(times(rate, total, *w))).sum();
        prop_assert!((sum * value(rate) - 1.0).abs() < SUM, "{sum} of {}", 1.0 / value(rate));
    }

    /// So one of 8,000 alike is as exact as one of two: by its rate, and by its virtual time.
    #[test]
    fn large_groups_are_as_exact_as_small_ones(rate in group(), weight in weight(), n in prop_oneof![Just(2u32), 2..8000u32, Just(8000)]) {
        prop_assume!(value(rate) * f64::from(n) < MAX);
        let member = times(rate, n * weight, weight);
        let exact = value(rate) * f64::from(n);
        prop_assert!(error(member, exact) < RATIO, "one of {n}: {} is not {exact}", value(member));
        prop_assert!((f64::from(n) / value(member) * value(rate) - 1.0).abs() < SUM);
        // All of them run for 3 ms, one after the other, and each for itself.
        let (alone, all) = (age(member, 3_000_000), age(rate, 3_000_000 * u64::from(n)));
        prop_assert!((alone as f64 / all as f64 - 1.0).abs() < RATIO + 2.0 / all as f64, "{alone} and {all}");
    }

    #[test]
    fn time_ages_exactly(a in number(), b in number(), ns: u64) {
        let rate = ratio(a, b);
        let exact = (u128::from(ns) * u128::from(rate >> 32)) >> (rate as u32);
        prop_assert_eq!(age(rate, ns), u64::try_from(exact).unwrap_or(u64::MAX));
    }

    #[test]
    fn more_time_is_more_age(a in number(), b in number(), ns: u64, more: u64) {
        let rate = ratio(a, b);
        prop_assert!(age(rate, ns) <= age(rate, ns.saturating_add(more)));
        prop_assert_eq!(age(rate, 0), 0);
    }

    /// Time booked in pieces loses less than 1 ns for each.
    #[test]
    fn pieces_add_up(weight in weight(), pieces in prop::collection::vec(0u64..1 << 40, 1..50)) {
        let rate = of(weight);
        let parts: u64 = pieces.iter().map(|ns| age(rate, *ns)).sum();
        let whole = age(rate, pieces.iter().sum());
        prop_assert!(parts <= whole && whole - parts < pieces.len() as u64);
    }

    #[test]
    fn heavier_ages_slower(a in weight(), b in weight(), ns: u64) {
        prop_assert!(age(of(a.max(b)), ns) <= age(of(a.min(b)), ns));
    }

    /// Members by weight, tenants by rate: the two say the same.
    #[test]
    fn weights_and_rates_agree(weight in weight(), ns in 0u64..1 << 45) {
        let (by_rate, by_weight) = (age(of(weight), ns), weighted(ns, weight));
        prop_assert!(by_rate.abs_diff(by_weight) <= 2 + by_rate / 16_384, "{by_rate} and {by_weight}");
    }
}

#[test]
fn nice_0_ages_as_time_goes() {
    for ns in [0, 1, 3_000_000, u64::MAX] {
        assert_eq!(age(of(OVB_WEIGHT_NICE_0), ns), ns);
        // A rate that nobody has set yet.
        assert_eq!(age(0, ns), ns);
    }
}

#[test]
fn ages_saturate() {
    let fastest = ratio(u32::MAX, 1);
    assert_eq!(value(fastest), MAX);
    assert_eq!(age(fastest, u64::MAX), u64::MAX);
    assert_eq!(age(fastest, 1 << 41), u64::MAX);
    assert!(age(fastest, 1 << 39) < u64::MAX);
}

#[test]
fn the_corners_are_within_bounds() {
    let corners =
        [0, 1, 2, 0x7fff, 0x8000, 0xffff, 0x10000, 0x10001, 0x7fff_ffff, 0x8000_0000, u32::MAX - 1, u32::MAX];
    for a in corners {
        for b in corners {
            let exact = (f64::from(a.max(1)) / f64::from(b.max(1))).clamp(MIN, MAX);
            assert!(error(ratio(a, b), exact) <= RATIO, "{a} by {b}");
        }
    }
}

proptest! {
    /// Another weight at any level shows.
    #[test]
    fn inputs_that_differ_have_another_word(
        levels in prop::collection::vec((0u64..1 << 40, 1u32..102_401), 1..12),
        at in any::<prop::sample::Index>(),
        total in 0u64..1 << 40,
        weight in 1u32..102_401,
    ) {
        let word = |levels: &[(u64, u32)]| levels.iter().fold(0, |below, (total, weight)| inputs(below, *total, *weight));
        let mut other = levels.clone();
        other[at.index(levels.len())] = (total, weight);
        prop_assert_eq!(word(&levels) == word(&other), levels == other);
    }
}
