// SPDX-License-Identifier: GPL-2.0-only
//! The result as a table for documents. Who reads it sees what gets worse beside what gets better.

use crate::format::{NONE, cpus_range, fixed, percent, ratio, repetitions, three, time};
use crate::loads;
use crate::schema::{Report, USUAL_REPETITIONS, VARIANTS_OF};
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
    /// All variants beside each other: what each does of the bound, and against the baseline.
    Variants,
    /// A row for each load: the baseline, Overbook, and the best scheduler of others; and their means.
    Loads,
    /// The same of some loads, without means, which say nothing of a choice.
    Choice,
}

impl Kind {
    /// All, by name.
    pub const NAMES: [(&str, Kind); 6] = [
        ("work", Kind::Work),
        ("shares", Kind::Shares),
        ("guests", Kind::Guests),
        ("variants", Kind::Variants),
        ("loads", Kind::Loads),
        ("choice", Kind::Choice),
    ];

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
        listed(&found)
    };
    let rows: Vec<Row> = reports.iter().flat_map(|report| summary::rows(report)).collect();
    format!(
        "Commit {}; kernel {}; QEMU {}. {}. {}",
        // What stands before is the version and the number of commits.
        all(&|report| report.overbook.rsplit('.').next().unwrap_or_default().to_string()),
        all(&|report| report.machine.kernel.clone()),
        all(&|report| report.machine.emulator.clone()),
        repetitions(&rows).trim_end_matches('.').split(';').next().unwrap_or_default(),
        commands(reports),
    )
}

/// "a", "a and b", "a, b and c".
fn listed(of: &[String]) -> String {
    match of {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => of.concat(),
    }
}

/// Options of the run that are in no name: seed and repetitions, where the scenario's file has others.
fn measured(report: &Report) -> String {
    // Behind the scenario may stand the one whose variants it took.
    let own = report.scenario.text.split(VARIANTS_OF).next().unwrap_or_default();
    let file: toml_edit::DocumentMut = own.parse().unwrap_or_default();
    let number = |item: Option<&toml_edit::Item>, otherwise: u64| {
        item.and_then(toml_edit::Item::as_integer).map_or(otherwise, |number| number as u64)
    };
    let seed = number(file.get("seed"), 1);
    let repetitions =
        number(file.get("measure").and_then(|measure| measure.get("repetitions")), USUAL_REPETITIONS);
    let done = report.runs.iter().map(|run| u64::from(run.repetition) + 1).max().unwrap_or(repetitions);
    let mut options = String::new();
    if report.scenario.seed != seed {
        options += &format!(" --seed {}", report.scenario.seed);
    }
    if done != repetitions && report.failure.is_none() {
        options += &format!(" --repetitions {done}");
    }
    options
}

/// The option for the kernel, by its release: without it a run takes the kernel of whoever runs it, if that will do.
fn kernel(release: &str) -> String {
    let series = release.split(|c: char| !c.is_ascii_digit()).take(2).collect::<Vec<_>>().join(".");
    let patched = if release.ends_with("-overbook") { "patched-" } else { "" };
    format!(" --kernel {patched}{series}")
}

/// What measures them again: a command for all that were run alike. A report's name tells how: the scenario, and after
/// each `+` whose variants it took, or a setting.
fn commands(reports: &[&Report]) -> String {
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for report in reports {
        let mut parts = report.scenario.name.split('+');
        let name = parts.next().unwrap_or_default();
        let options = parts.map(|part| match part.contains('=') {
            true => format!(" --set {part}"),
            false => format!(" --variants-of scenarios/*/{part}.toml"),
        });
        let options = options.collect::<String>() + &measured(report) + &kernel(&report.machine.kernel);
        match alike.iter_mut().find(|(known, _)| *known == options) {
            Some((_, names)) => names.push(name),
            None => alike.push((options, vec![name])),
        }
    }
    let command = |(options, names): &(String, Vec<&str>)| {
        let names = if names.len() == 1 { names.concat() } else { format!("{{{}}}", names.join(",")) };
        format!("`overbook lab run scenarios/*/{names}.toml{options}`")
    };
    alike.iter().map(command).collect::<Vec<_>>().join("; ")
}

/// A table, without the columns in which there is nothing.
fn grid(head: &[&str], rows: &[Vec<String>]) -> String {
    let empty = |cell: &String| cell == NONE || *cell == format!("{NONE} → {NONE}");
    let shown = |column: &usize| rows.is_empty() || rows.iter().any(|row| !empty(&row[*column]));
    let columns: Vec<usize> = (0..head.len()).filter(shown).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        columns.iter().map(|column| format!("| {} ", cell(*column))).collect::<String>() + "|\n"
    };
    let mut text = line(&|column| head[column].into()) + &"|---".repeat(columns.len()) + "|\n";
    for row in rows {
        text += &line(&|column| row[column].clone());
    }
    text
}

/// The table of a kind.
pub fn table(kind: Kind, reports: &[&Report]) -> String {
    match kind {
        Kind::Work => work(reports),
        Kind::Shares => shares(reports),
        Kind::Guests => reports.iter().map(|report| guests(report)).collect::<Vec<_>>().join("\n"),
        Kind::Variants => variants(reports),
        Kind::Loads => grid(&loads::HEAD, &loads::cells(&loads::loads(reports))),
        Kind::Choice => {
            let mut rows = loads::cells(&loads::loads(reports));
            rows.pop();
            grid(&loads::HEAD, &rows)
        }
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
    let mut rows = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.row.is_baseline) {
        let Some(baseline) = beside(&outcomes, outcome) else { continue };
        let pair = |of: &dyn Fn(&Row) -> String| format!("{} → {}", of(&baseline.row), of(&outcome.row));
        rows.push(vec![
            name_of(reports[outcome.scenario], outcome),
            format!("{} {}", pair(&|row| three(row.rate)), outcome.row.unit),
            ratio(&outcome.row),
            pair(&|row| percent(row.of_bound)),
            pair(&cpus_range),
            fixed(outcome.row.entitled_cpus, 2),
            pair(&wait),
        ]);
    }
    let work = ["scenario", "work per s and VM", "ratio [range]", "of bound"];
    grid(&[&work[..], &["CPUs of each VM", "due", "guests' waits, p99"]].concat(), &rows)
}

/// What a variant does of the bound, and in brackets against the baseline.
fn variants(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let mut names: Vec<&str> = Vec::new();
    for outcome in &outcomes {
        if !names.contains(&outcome.row.variant.as_str()) {
            names.push(&outcome.row.variant);
        }
    }
    let mut rows: Vec<Vec<String>> = Vec::new();
    for baseline in outcomes.iter().filter(|outcome| outcome.row.is_baseline) {
        let mut row = vec![format!("`{}`", baseline.name)];
        row.extend(names.iter().map(|name| {
            let of = |o: &&Outcome| {
                o.row.variant == *name && beside(&outcomes, o).is_some_and(|b| std::ptr::eq(b, baseline))
            };
            let Some(outcome) = outcomes.iter().find(of) else { return NONE.into() };
            match (percent(outcome.row.of_bound), ratio(&outcome.row)) {
                (_, ratio) if ratio == NONE => NONE.into(),
                (bound, _) if outcome.row.is_baseline => bound,
                (bound, ratio) if bound == NONE => ratio,
                (bound, ratio) => format!("{bound}; {ratio}"),
            }
        }));
        rows.push(row);
    }
    let mut text = grid(&[&["scenario"], &names[..]].concat(), &rows);
    for report in reports {
        for why in summary::failed(report) {
            let _ = writeln!(text, "\n`{}`: {why}", report.scenario.name);
        }
    }
    text
}

fn guests(report: &Report) -> String {
    let mut rows = Vec::new();
    for row in summary::rows_per_vm(report) {
        let counter = |what: &str| {
            let name = format!("{}: {what}", row.group);
            summary::host_counter(report, &row.variant, &name)
        };
        let steal = counter("steal, % of its vCPUs' time").map(|steal| steal / 100.0);
        let preferred = counter("preferred CPUs, mean").map_or(NONE.into(), |cpus| fixed(cpus, 2));
        rows.push(vec![
            row.variant.clone(),
            row.group.clone(),
            format!("{} {}", three(row.rate), row.unit),
            ratio(&row),
            fixed(row.cpus_used.0, 2),
            percent(steal),
            preferred,
        ]);
    }
    let work = ["variant", "guest", "work per s", "ratio [range]"];
    grid(&[&work[..], &["CPUs", "steal", "preferred CPUs"]].concat(), &rows)
}

fn wait(row: &Row) -> String {
    if row.wait.max_ns == 0 { NONE.into() } else { time(row.wait_ns.1) }
}

/// Counters of an ordinary task of the host: how late it runs after it was woken up.
const WAKE_UPS: [&str; 2] = ["host task: wake-up p50 ns", "host task: wake-up p99 ns"];

/// A row for every scenario and variant but the baselines, which stand before the arrows.
fn work(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let others = outcomes.iter().filter(|outcome| !outcome.row.is_baseline);
    let rows = others.filter_map(|outcome| Some(cells(reports, beside(&outcomes, outcome)?, outcome)));
    let work = ["scenario", "work per s and VM", "ratio [range]", "of bound", "CPU time per unit, of alone"];
    let waits = ["guests' waits, p99", "a host task's wake-up, median", "p99"];
    grid(&[&work[..], &waits].concat(), &rows.collect::<Vec<_>>())
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
        pair(&|row| row.cost.map_or(NONE.into(), |cost| fixed(cost, 2))),
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
        let expected = "| `sample` | 1,003 → 1,404 locks | 1.400 [1.400, 1.400] | 66.9 % → 93.6 % | 5.00 µs → 5.00 µs | 68.0 µs → 166 µs |";
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
        report.scenario.text = "seed = 0\n[measure]\nrepetitions = 5\n".into();
        report.machine.kernel = "6.18.15+deb13-cloud-amd64".into();
        let said = source(&[&report]);
        assert!(said.starts_with("Commit 5c9525cccd; "), "{said}");
        assert!(said.ends_with("`overbook lab run scenarios/*/sample.toml --kernel 6.18`"), "{said}");
        assert_eq!(kernel("7.3.4-overbook"), " --kernel patched-7.3");
        assert_eq!(kernel("6.18.15+deb13-cloud-amd64"), " --kernel 6.18");
        let mut other = report.clone();
        other.scenario.name = "sample+rivals+linux.guests=3".into();
        let said = source(&[&report, &other]);
        let options = "--variants-of scenarios/*/rivals.toml --set linux.guests=3 --kernel 6.18`";
        assert!(said.ends_with(&format!("; `overbook lab run scenarios/*/sample.toml {options}")), "{said}");
        // Those of the scenario whose variants it took are not its own.
        let own = report.scenario.text.clone();
        report.scenario.text =
            format!("{own}\n{VARIANTS_OF}x.toml:\n\nseed = 9\n[measure]\nrepetitions = 2\n");
        assert!(source(&[&report]).ends_with("sample.toml --kernel 6.18`"), "{}", source(&[&report]));
        // What the file does not say is said.
        report.scenario.seed = 7;
        report.runs.retain(|run| run.repetition < 2);
        assert!(
            source(&[&report]).ends_with("sample.toml --seed 7 --repetitions 2 --kernel 6.18`"),
            "{}",
            source(&[&report])
        );
    }

    #[test]
    fn variants_stand_beside_each_other() {
        let mut report = summary::sample();
        report.runs[0].error = Some("it died".into());
        let why = summary::failed(&report).join("");
        let text = table(Kind::Variants, &[&report]);
        assert!(text.starts_with("| scenario | "), "{text}");
        assert!(text.lines().nth(2).unwrap().starts_with("| `sample` | 66.9 % | 93.6 %; 1.400"), "{text}");
        assert!(text.ends_with(&format!("\n`sample`: {why}\n")), "{text}");
    }
}
