// SPDX-License-Identifier: GPL-2.0-only
//! The few statistics that reports need.

use crate::schema::WaitHistogram;
use std::collections::BTreeMap;

/// Pairs below which no range is told: that of two holds the truth as often as not.
pub const FEWEST_PAIRS: usize = 3;

/// Median; the mean of the middle two for an even number, 0 for none.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Quantile (0 to 1) of samples, linear between neighbours; 0 for none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    at(&sorted, q)
}

/// [`quantile`] of sorted samples.
fn at(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = last as f64 * q.clamp(0.0, 1.0);
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    // Exact where both are the same, so that constant samples have constant quantiles.
    if low == high { low } else { low + (high - low) * place.fract() }
}

/// Half of the range as per cent of the median: what a reader expects of "± %", honest with few samples, where a
/// standard deviation would pretend to know a distribution. 0 for fewer than two samples.
pub fn spread_percent(values: &[f64]) -> f64 {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let median = median(values);
    if median > 0.0 && high > low { (high - low) / 2.0 / median * 100.0 } else { 0.0 }
}

/// A ratio of medians, and how far repetitions differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the variant over median of the baseline.
    pub point: f64,
    /// The least and the greatest ratio of a repetition; `None` with fewer than [`FEWEST_PAIRS`] pairs. The median of very
    /// many repetitions lies between those of n with a probability of 1 − 2^(1 − n): 75 % for three, 97 % for six.
    pub range: Option<(f64, f64)>,
}

/// Of variant and baseline of the same repetitions, which share a seed.
pub fn ratio(pairs: &[(f64, f64)]) -> Ratio {
    let (variant, baseline): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let of = |variant: f64, baseline: f64| if baseline > 0.0 { variant / baseline } else { f64::NAN };
    let point = of(median(&variant), median(&baseline));
    if pairs.len() < FEWEST_PAIRS || point.is_nan() {
        return Ratio { point, range: None };
    }
    let ratios = pairs.iter().map(|(a, b)| of(*a, *b)).filter(|ratio| ratio.is_finite());
    // Medians of both may be those of different repetitions, so the point may lie outside all.
    let range = ratios.fold((point, point), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    Ratio { point, range: Some(range) }
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

/// Quantile (0 to 1) of a histogram in ns: the upper bound of the bucket where it falls, but never more than the
/// longest wait; 0 for an empty one.
pub fn quantile_ns(histogram: &WaitHistogram, q: f64) -> u64 {
    let total: u64 = histogram.buckets.iter().map(|(_, count)| count).sum();
    let rank = (total as f64 * q).ceil().max(1.0) as u64;
    let mut seen = 0;
    for (upper, count) in &histogram.buckets {
        seen += count;
        if seen >= rank {
            return (*upper).min(histogram.max_ns.max(1));
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
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.75), 2.5);
        assert_eq!(spread_percent(&[10.0]), 0.0);
        assert_eq!(ratio(&[(1.0, 0.0); 4]).range, None);
        let rounded_up = WaitHistogram { buckets: vec![(1000, 1), (1064, 1)], max_ns: 1010 };
        assert_eq!(quantile_ns(&rounded_up, 1.0), 1010);
        assert_eq!(quantile_ns(&WaitHistogram::default(), 0.5), 0);
        assert_eq!(spread_percent(&[9.0, 10.0, 11.0]), 10.0);
        assert_eq!(ratio(&[(2.0, 1.0), (4.0, 2.0)]), Ratio { point: 2.0, range: None });
        let three = ratio(&[(2.0, 1.0), (3.0, 2.0), (9.0, 3.0)]);
        assert_eq!(three, Ratio { point: 1.5, range: Some((1.5, 3.0)) });
    }

    proptest! {
        #[test]
        fn ranges_hold_the_point_and_do_not_depend_on_units(
            pairs in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 3..12), scale in 0.1f64..10.0,
        ) {
            let first = ratio(&pairs);
            let (low, high) = first.range.unwrap();
            prop_assert!(low <= first.point && first.point <= high);
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * scale, b * scale)).collect();
            let scaled = ratio(&scaled);
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
            let (scaled_low, scaled_high) = scaled.range.unwrap();
            prop_assert!(near(scaled.point, first.point) && near(scaled_low, low) && near(scaled_high, high));
        }

        /// Runs differ by a few per cent, as those of the lab do.
        #[test]
        fn ranges_hold_the_gain(
            noise in prop::collection::vec((0.97f64..1.03, 0.97f64..1.03), 3..12), gain in 0.5f64..3.0,
        ) {
            let pairs: Vec<_> = noise.iter().map(|(a, b)| (1e4 * gain * a, 1e4 * b)).collect();
            let Ratio { point, range } = ratio(&pairs);
            let (low, high) = range.unwrap();
            prop_assert!(low <= point && point <= high, "{point} is not in [{low}, {high}]");
            prop_assert!(low >= 0.94 * gain && high <= 1.07 * gain);
        }

        #[test]
        fn quantiles_are_ordered_and_within(values in prop::collection::vec(0.0f64..1e9, 1..40), a in 0.0f64..=1.0, b in 0.0f64..=1.0) {
            let (low, high) = (quantile(&values, a.min(b)), quantile(&values, a.max(b)));
            prop_assert!(low <= high * (1.0 + 1e-12));
            prop_assert!(quantile(&values, 0.0) <= low && high <= quantile(&values, 1.0));
        }

        #[test]
        fn a_constant_gain_is_certain(base in prop::collection::vec(1.0f64..100.0, 3..12), gain in 0.5f64..3.0) {
            let pairs: Vec<_> = base.iter().map(|b| (b * gain, *b)).collect();
            let Ratio { point, range } = ratio(&pairs);
            let (low, high) = range.unwrap();
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
