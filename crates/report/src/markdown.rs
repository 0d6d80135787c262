// SPDX-License-Identifier: GPL-2.0-only
//! The result as a table for documents. Who reads it sees what gets worse beside what gets better.

use crate::format::{NONE, percent, ratio, three, time};
use crate::schema::Report;
use crate::summary::{self, Outcome, Row};
use std::fmt::Write;

/// Counters of an ordinary task of the host: how late it runs after it was woken up.
const WAKE_UPS: [&str; 2] = ["host task: wake-up p50 ns", "host task: wake-up p99 ns"];

/// A row for every scenario and variant but the baselines, which stand before the arrows.
pub fn table(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let mut text = String::from(
        "| scenario | work per s and VM | ratio [95 %] | of bound | guests' waits, p99 | a host task's wake-up, median | p99 |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes.iter().filter(|outcome| !outcome.row.is_baseline) {
        let same =
            |o: &&Outcome| o.row.is_baseline && o.name == outcome.name && o.scenario == outcome.scenario;
        if let Some(baseline) = outcomes.iter().find(same) {
            let _ = writeln!(text, "| {} |", cells(reports, baseline, outcome).join(" | "));
        }
    }
    text
}

fn cells(reports: &[&Report], baseline: &Outcome, outcome: &Outcome) -> Vec<String> {
    let report = reports[outcome.scenario];
    let pair = |of: &dyn Fn(&Row) -> String| format!("{} → {}", of(&baseline.row), of(&outcome.row));
    let mut name = format!("`{}`", outcome.name);
    if report.variants.len() > 2 {
        let _ = write!(name, ", {}", outcome.row.variant);
    }
    let wait = |row: &Row| if row.wait.max_ns == 0 { NONE.into() } else { time(row.wait_ns.1) };
    let wake_up = |counter: &'static str| {
        move |row: &Row| {
            summary::host_counter(report, &row.variant, counter).map_or(NONE.into(), |ns| time(ns as u64))
        }
    };
    vec![
        name,
        format!("{} {}", pair(&|row| three(row.rate)), outcome.row.unit),
        ratio(&outcome.row),
        pair(&|row| percent(row.of_bound)),
        pair(&wait),
        pair(&wake_up(WAKE_UPS[0])),
        pair(&wake_up(WAKE_UPS[1])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_both_sides() {
        let mut report = summary::sample();
        for run in &mut report.runs {
            let late = if run.variant == "ours" { 166_000.0 } else { 68_000.0 };
            run.extra.insert(WAKE_UPS[0].into(), late);
        }
        let text = table(&[&report]);
        let row = text.lines().nth(2).unwrap();
        let expected = "| `sample` | 1,003 → 1,404 locks | 1.400 [1.400, 1.400] | 66.9 % → 93.6 % | 5.00 µs → 5.00 µs | 68.0 µs → 166 µs | – → – |";
        assert_eq!(row, expected);
        assert_eq!(text.lines().count(), 3);
    }
}
