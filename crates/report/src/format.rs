// SPDX-License-Identifier: GPL-2.0-only
//! How figures are written, in tables and pages alike.

use crate::stats::{FEWEST_PAIRS, Ratio};
use crate::summary::Row;

/// What stands where there is no figure.
pub const NONE: &str = "–";

/// A time with three significant digits.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "0".into(),
        1..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} µs", three(ns as f64 / 1e3)),
        1_000_000..=999_999_999 => format!("{} ms", three(ns as f64 / 1e6)),
        _ => format!("{} s", three(ns as f64 / 1e9)),
    }
}

/// A number with so many decimals; what rounds to zero has no sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(digits) if digits.bytes().all(|b| matches!(b, b'0' | b'.')) => digits.into(),
        _ => text,
    }
}

/// The same with a sign, but for zero.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    let zero = text.bytes().all(|b| matches!(b, b'0' | b'.'));
    if zero || text.starts_with('-') { text } else { format!("+{text}") }
}

/// A number with about three significant digits, and no fewer than its integer part has.
pub fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.01 => format!("{value:.1e}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A count that may be large: `123`, `45600`, `1.23 M`; one that nobody knows is no number.
pub fn count(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => NONE.into(),
        v if v >= 1e9 => format!("{} G", three(value / 1e9)),
        v if v >= 1e6 => format!("{} M", three(value / 1e6)),
        v if v < 0.005 => "0".into(),
        _ => three(value),
    }
}

/// A share as per cent.
pub fn percent(share: Option<f64>) -> String {
    share.filter(|s| s.is_finite()).map_or_else(|| NONE.into(), |s| format!("{} %", fixed(s * 100.0, 1)))
}

/// `part` of `whole` as whole per cent.
pub fn part(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{} %", fixed(part / whole * 100.0, 0)) } else { NONE.into() }
}

/// `±0.7 %`.
pub fn spread(row: &Row) -> String {
    row.spread_percent.map_or_else(|| NONE.into(), |spread| format!("±{spread:.1} %"))
}

/// `1.234 [1.200, 1.260]`; `baseline` is the text of a row that has no ratio because it is the baseline.
pub fn ratio(row: &Row, is_baseline: bool) -> String {
    match row.ratio {
        None if is_baseline => "baseline".into(),
        None => NONE.into(),
        Some(Ratio { point, .. }) if !point.is_finite() => NONE.into(),
        Some(Ratio { point, interval: Some((low, high)) }) => format!("{point:.3} [{low:.3}, {high:.3}]"),
        Some(Ratio { point, interval: None }) => format!("{point:.3}"),
    }
}

/// `1.92..2.01`: the least and the most CPUs that any VM of the row used.
pub fn cpus_range(row: &Row) -> String {
    format!("{:.2}..{:.2}", row.cpus_used.1, row.cpus_used.2)
}

/// What the columns of the main table mean, as far as their names do not say.
pub fn legend(rows: &[Row]) -> String {
    let fewest = rows.iter().map(|row| row.repetitions).min().unwrap_or_default();
    let most = rows.iter().map(|row| row.repetitions).max().unwrap_or_default();
    let repetitions = match (fewest, most) {
        (1, 1) => "One repetition".to_string(),
        (a, b) if a == b => format!("Medians of {a} repetitions"),
        (a, b) => format!("Medians of {a} to {b} repetitions"),
    };
    let lacks = rows.iter().any(|row| row.ratio.is_some_and(|ratio| ratio.interval.is_none()));
    let interval = if lacks {
        format!("no interval with fewer than {FEWEST_PAIRS} pairs")
    } else {
        "[ ] 95 % interval, paired bootstrap".to_string()
    };
    format!("{repetitions}; ± half of the range; {interval}; max of all repetitions.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(time(1_234), "1.23 µs");
        assert_eq!(time(12_345_678), "12.3 ms");
        assert_eq!(time(9_999_000), "10.0 ms");
        assert_eq!(three(1234.5), "1234");
        assert_eq!(three(0.0), "0");
        assert_eq!(three(-0.0), "0");
        assert_eq!(count(4_200_000.0), "4.20 M");
        assert_eq!(part(1.0, 0.0), NONE);
        assert_eq!(percent(Some(f64::NAN)), NONE);
        assert_eq!(percent(Some(-0.0001)), "0.0 %");
        assert_eq!([fixed(-0.004, 2), fixed(-1.5, 1), fixed(-0.0, 0)], ["0.00", "-1.5", "0"]);
        assert_eq!(
            [signed(-0.001, 2), signed(0.001, 2), signed(1.0, 1), signed(-1.0, 1)],
            ["0.00", "0.00", "+1.0", "-1.0"]
        );
    }

    #[test]
    fn the_legend_says_why_there_is_no_interval() {
        let mut report = crate::summary::sample();
        assert!(
            legend(&crate::summary::rows(&report)).contains("5 repetitions; ± half of the range; [ ] 95 %")
        );
        report.runs.retain(|run| run.repetition < 2);
        assert!(legend(&crate::summary::rows(&report)).contains("no interval with fewer than 3 pairs"));
    }
}
