// SPDX-License-Identifier: GPL-2.0-only
//! The few statistics that reports need.

use crate::schema::WaitHistogram;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

/// Resamples of the bootstrap: enough for two digits of a 95 % interval.
const RESAMPLES: usize = 2000;

/// Median; the mean of the middle two for an even number, 0 for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Half of the range as per cent of the median: what a reader expects of "± %", honest with few samples.
pub fn spread_percent(values: &[f64]) -> f64 {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let median = median(values);
    if median > 0.0 && high > low { (high - low) / 2.0 / median * 100.0 } else { 0.0 }
}

/// A ratio of medians with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the variant over median of the baseline.
    pub point: f64,
    /// Interval; `None` with fewer than three pairs, which say nothing about spread.
    pub interval: Option<(f64, f64)>,
}

/// Paired percentile bootstrap: `pairs` holds variant and baseline of the same repetition, which share a seed.
/// The same pairs and seed give the same interval.
pub fn ratio(pairs: &[(f64, f64)], seed: u64) -> Ratio {
    let of = |chosen: &[(f64, f64)]| {
        let (variant, baseline): (Vec<f64>, Vec<f64>) = chosen.iter().copied().unzip();
        let below = median(&baseline);
        if below > 0.0 { median(&variant) / below } else { f64::NAN }
    };
    let point = of(pairs);
    if pairs.len() < 3 || point.is_nan() {
        return Ratio { point, interval: None };
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut resample = || {
        let chosen: Vec<(f64, f64)> =
            pairs.iter().map(|_| pairs[random.random_range(0..pairs.len())]).collect();
        of(&chosen)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| resample()).filter(|r| r.is_finite()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| ratios.get(((ratios.len() - 1) as f64 * q).round() as usize).copied().unwrap_or(point);
    Ratio { point, interval: Some((at(0.025), at(0.975))) }
}

/// Adds histograms.
pub fn merge<'a>(histograms: impl IntoIterator<Item = &'a WaitHistogram>) -> WaitHistogram {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    let mut max_ns = 0;
    for histogram in histograms {
        for (upper, count) in &histogram.buckets {
            *buckets.entry(*upper).or_default() += count;
        }
        max_ns = max_ns.max(histogram.max_ns);
    }
    WaitHistogram { buckets: buckets.into_iter().collect(), max_ns }
}

/// Quantile (0 to 1) of a histogram in ns: the upper bound of the bucket where it falls.
pub fn quantile_ns(histogram: &WaitHistogram, q: f64) -> u64 {
    let total: u64 = histogram.buckets.iter().map(|(_, count)| count).sum();
    let rank = (total as f64 * q).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (upper, count) in &histogram.buckets {
        seen += count;
        if seen >= rank {
            return *upper;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_cases() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(spread_percent(&[9.0, 10.0, 11.0]), 10.0);
        assert_eq!(ratio(&[(2.0, 1.0), (4.0, 2.0)], 1), Ratio { point: 2.0, interval: None });
    }

    proptest! {
        // Each case resamples thousands of times.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn intervals_hold_the_point_and_repeat(
            pairs in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 3..12), seed: u64, scale in 0.1f64..10.0,
        ) {
            let first = ratio(&pairs, seed);
            let (low, high) = first.interval.unwrap();
            prop_assert!(low <= high);
            prop_assert_eq!(first, ratio(&pairs, seed));
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * scale, b * scale)).collect();
            prop_assert!((ratio(&scaled, seed).point - first.point).abs() < 1e-9 * first.point);
        }

        #[test]
        fn a_constant_gain_is_certain(base in prop::collection::vec(1.0f64..100.0, 3..12), gain in 0.5f64..3.0) {
            let pairs: Vec<_> = base.iter().map(|b| (b * gain, *b)).collect();
            let Ratio { point, interval } = ratio(&pairs, 7);
            let (low, high) = interval.unwrap();
            prop_assert!((point - gain).abs() < 1e-9 && (low - gain).abs() < 1e-9 && (high - gain).abs() < 1e-9);
        }

        #[test]
        fn merging_keeps_counts_and_orders_quantiles(
            a in prop::collection::btree_map(0u64..1000, 1u64..50, 0..20),
            b in prop::collection::btree_map(0u64..1000, 1u64..50, 0..20),
        ) {
            let of = |m: &BTreeMap<u64, u64>| WaitHistogram {
                buckets: m.iter().map(|(k, v)| (*k, *v)).collect(),
                max_ns: m.keys().last().copied().unwrap_or(0),
            };
            let merged = merge([&of(&a), &of(&b)]);
            let sum = |h: &WaitHistogram| h.buckets.iter().map(|(_, c)| c).sum::<u64>();
            prop_assert_eq!(sum(&merged), sum(&of(&a)) + sum(&of(&b)));
            prop_assert!(quantile_ns(&merged, 0.5) <= quantile_ns(&merged, 0.99));
            prop_assert!(quantile_ns(&merged, 1.0) <= merged.max_ns);
        }
    }
}
