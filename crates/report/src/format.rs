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

/// A number with about three significant digits, and no fewer than its integer part has, which come in groups.
pub fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 0.01 => format!("{value:.1e}"),
        v if v < 9.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => grouped(value),
    }
}

/// A whole number: `3,254,120`.
fn grouped(value: f64) -> String {
    let text = format!("{value:.0}");
    let digits = text.trim_start_matches('-').len();
    let mut grouped = String::new();
    for (nth, c) in text.chars().enumerate() {
        let left = text.len() - nth;
        if c.is_ascii_digit() && left % 3 == 0 && left < digits {
            grouped.push(',');
        }
        grouped.push(c);
    }
    grouped
}

/// A count, of any size in one unit, so that a column can be read: `123`, `45,600`, `1,230,000`; one that nobody
/// knows is no number.
pub fn count(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => NONE.into(),
        v if v < 0.005 => "0".into(),
        _ => three(value),
    }
}

/// A counter of a host or a scheduler; times are told by its name, which loses its unit.
pub fn counter(name: &str, value: Option<f64>) -> String {
    match value {
        None => NONE.into(),
        Some(ns) if name.ends_with(" ns") && ns.is_finite() => time(ns.round() as u64),
        Some(value) => count(value),
    }
}

/// The name of a counter as tables have it.
pub fn counter_name(name: &str) -> &str {
    name.strip_suffix(" ns").unwrap_or(name)
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

/// `1.234 [1.200, 1.260]`.
pub fn ratio(row: &Row) -> String {
    match row.ratio {
        None if row.is_baseline => "baseline".into(),
        None => NONE.into(),
        Some(Ratio { point, .. }) if !point.is_finite() => NONE.into(),
        Some(Ratio { point, range: Some((low, high)) }) => format!("{point:.3} [{low:.3}, {high:.3}]"),
        Some(Ratio { point, range: None }) => format!("{point:.3}"),
    }
}

/// `1.92–2.01`: the least and the most CPUs that any VM of the row used.
pub fn cpus_range(row: &Row) -> String {
    format!("{:.2}–{:.2}", row.cpus_used.1, row.cpus_used.2)
}

/// How many repetitions stand behind the figures.
pub fn repetitions(rows: &[Row]) -> String {
    let fewest = rows.iter().map(|row| row.repetitions).min().unwrap_or_default();
    let most = rows.iter().map(|row| row.repetitions).max().unwrap_or_default();
    let repetitions = match (fewest, most) {
        (1, 1) => "One repetition".to_string(),
        (a, b) if a == b => format!("Medians of {a} repetitions"),
        (a, b) => format!("Medians of {a} to {b} repetitions"),
    };
    let lacks = rows.iter().any(|row| row.ratio.is_some_and(|ratio| ratio.range.is_none()));
    let range = if lacks { format!("; fewer than {FEWEST_PAIRS} have no range") } else { String::new() };
    format!("{repetitions}{range}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(time(1_234), "1.23 µs");
        assert_eq!(time(12_345_678), "12.3 ms");
        assert_eq!(time(9_999_000), "10.0 ms");
        assert_eq!(three(1234.5), "1,234");
        assert_eq!([three(123.4), three(-123.4), three(-123_456.0)], ["123", "-123", "-123,456"]);
        assert_eq!(three(0.0), "0");
        assert_eq!(three(-0.0), "0");
        assert_eq!([count(68_398.0), count(3_254_120.0)], ["68,398", "3,254,120"]);
        assert_eq!(
            [counter("wake-up ns", Some(1.79e6)), counter("x", Some(1.79e6))],
            ["1.79 ms", "1,790,000"]
        );
        assert_eq!([counter_name("wake-up ns"), counter_name("wake-ups")], ["wake-up", "wake-ups"]);
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
    fn few_repetitions_are_said() {
        let mut report = crate::summary::sample();
        assert_eq!(repetitions(&crate::summary::rows(&report)), "Medians of 5 repetitions.");
        report.runs.retain(|run| run.repetition < 2);
        let text = repetitions(&crate::summary::rows(&report));
        assert_eq!(text, "Medians of 2 repetitions; fewer than 3 have no range.");
    }
}
