// SPDX-License-Identifier: GPL-2.0-only
//! The result as a table for documents. Who reads it sees what gets worse beside what gets better.

use crate::format::{NONE, cpus_range, fixed, percent, ratio, repetitions, three, time};
use crate::schema::Report;
use crate::summary::{self, Outcome, Row};
use std::fmt::Write;

/// What a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work, waits, and how soon a task of the host runs.
    Work,
    /// Work, and the CPUs that each VM had.
    Shares,
    /// Linux guests, each in a row: work, CPUs, steal, preferred CPUs.
    Guests,
}

impl Kind {
    /// All, by name.
    pub const NAMES: [(&str, Kind); 3] =
        [("work", Kind::Work), ("shares", Kind::Shares), ("guests", Kind::Guests)];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }
}

/// Where the figures come from, in a sentence: commit, kernel, emulator, and the command that measures them again.
pub fn source(reports: &[&Report]) -> String {
    let all = |of: &dyn Fn(&Report) -> String| {
        let mut found: Vec<String> = reports.iter().map(|report| of(report)).collect();
        found.sort_unstable();
        found.dedup();
        found.join(" and ")
    };
    let rows: Vec<Row> = reports.iter().flat_map(|report| summary::rows(report)).collect();
    let names: Vec<&str> = reports.iter().map(|report| report.scenario.name.as_str()).collect();
    let names = if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(",")) };
    format!(
        "Commit {}; kernel {}; QEMU {}. {}. `overbook lab run scenarios/{names}.toml`",
        // What stands before is the version and the number of commits.
        all(&|report| report.overbook.rsplit('.').next().unwrap_or_default().to_string()),
        all(&|report| report.machine.kernel.clone()),
        all(&|report| report.machine.emulator.clone()),
        repetitions(&rows).trim_end_matches('.').split(';').next().unwrap_or_default(),
    )
}

/// The table of a kind.
pub fn table(kind: Kind, reports: &[&Report]) -> String {
    match kind {
        Kind::Work => work(reports),
        Kind::Shares => shares(reports),
        Kind::Guests => reports.iter().map(|report| guests(report)).collect::<Vec<_>>().join("\n"),
    }
}

/// An outcome beside its baseline.
fn beside<'a>(outcomes: &'a [Outcome], outcome: &Outcome) -> Option<&'a Outcome> {
    outcomes.iter().find(|o| o.row.is_baseline && o.name == outcome.name && o.scenario == outcome.scenario)
}

/// The scenario, the VMs if they differ, and the variant if there are several.
fn name_of(report: &Report, outcome: &Outcome) -> String {
    match report.variants.len() {
        0..=2 => format!("`{}`", outcome.name),
        _ => format!("`{}`, {}", outcome.name, outcome.row.variant),
    }
}

fn shares(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let mut text = String::from(
        "| scenario | work per s and VM | ratio [95 %] | of bound | CPUs of each VM | due | guests' waits, p99 |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes.iter().filter(|outcome| !outcome.row.is_baseline) {
        let Some(baseline) = beside(&outcomes, outcome) else { continue };
        let pair = |of: &dyn Fn(&Row) -> String| format!("{} → {}", of(&baseline.row), of(&outcome.row));
        let cells = [
            name_of(reports[outcome.scenario], outcome),
            format!("{} {}", pair(&|row| three(row.rate)), outcome.row.unit),
            ratio(&outcome.row),
            pair(&|row| percent(row.of_bound)),
            pair(&cpus_range),
            fixed(outcome.row.entitled_cpus, 2),
            pair(&wait),
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn guests(report: &Report) -> String {
    let mut text = String::from(
        "| variant | guest | work per s | ratio [95 %] | CPUs | steal | preferred CPUs |\n|---|---|---|---|---|---|---|\n",
    );
    for row in summary::rows_per_vm(report) {
        let counter = |what: &str| {
            let name = format!("{}: {what}", row.group);
            summary::host_counter(report, &row.variant, &name)
        };
        let steal = counter("steal, % of its vCPUs' time").map(|steal| steal / 100.0);
        let preferred = counter("preferred CPUs, mean").map_or(NONE.into(), |cpus| fixed(cpus, 2));
        let cells = [
            row.variant.clone(),
            row.group.clone(),
            format!("{} {}", three(row.rate), row.unit),
            ratio(&row),
            fixed(row.cpus_used.0, 2),
            percent(steal),
            preferred,
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn wait(row: &Row) -> String {
    if row.wait.max_ns == 0 { NONE.into() } else { time(row.wait_ns.1) }
}

/// Counters of an ordinary task of the host: how late it runs after it was woken up.
const WAKE_UPS: [&str; 2] = ["host task: wake-up p50 ns", "host task: wake-up p99 ns"];

/// A row for every scenario and variant but the baselines, which stand before the arrows.
fn work(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let mut text = String::from(
        "| scenario | work per s and VM | ratio [95 %] | of bound | guests' waits, p99 | a host task's wake-up, median | p99 |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes.iter().filter(|outcome| !outcome.row.is_baseline) {
        if let Some(baseline) = beside(&outcomes, outcome) {
            let _ = writeln!(text, "| {} |", cells(reports, baseline, outcome).join(" | "));
        }
    }
    text
}

fn cells(reports: &[&Report], baseline: &Outcome, outcome: &Outcome) -> Vec<String> {
    let report = reports[outcome.scenario];
    let pair = |of: &dyn Fn(&Row) -> String| format!("{} → {}", of(&baseline.row), of(&outcome.row));
    let wake_up = |counter: &'static str| {
        move |row: &Row| {
            summary::host_counter(report, &row.variant, counter).map_or(NONE.into(), |ns| time(ns as u64))
        }
    };
    vec![
        name_of(report, outcome),
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
        let text = table(Kind::Work, &[&report]);
        let row = text.lines().nth(2).unwrap();
        let expected = "| `sample` | 1,003 → 1,404 locks | 1.400 [1.400, 1.400] | 66.9 % → 93.6 % | 5.00 µs → 5.00 µs | 68.0 µs → 166 µs | – → – |";
        assert_eq!(row, expected);
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn each_kind_has_a_row_of_as_many_cells_as_its_head() {
        let report = summary::sample();
        for (name, kind) in Kind::NAMES {
            assert_eq!(Kind::named(name), Some(kind));
            let text = table(kind, &[&report]);
            let cells: Vec<usize> = text.lines().map(|line| line.matches('|').count()).collect();
            assert!(cells.len() > 2 && cells.iter().all(|n| *n == cells[0]), "{name}: {text}");
        }
        assert_eq!(Kind::named("nothing"), None);
    }

    #[test]
    fn the_source_names_the_commit_and_the_command() {
        let mut report = summary::sample();
        report.overbook = "0.1.0+git20261123.192314.268.5c9525cccd".into();
        let said = source(&[&report]);
        assert!(said.starts_with("Commit 5c9525cccd; "), "{said}");
        assert!(said.ends_with("`overbook lab run scenarios/sample.toml`"), "{said}");
    }
}
