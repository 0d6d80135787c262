// SPDX-License-Identifier: GPL-2.0-only
//! Two reports side by side.

use crate::format::{signed, three};
use crate::schema::Report;
use crate::summary::{Row, rows, rows_per_vm};
use crate::table::plain;

/// Rates of the same variant and VMs in two reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Variant.
    pub variant: String,
    /// VMs.
    pub group: String,
    /// Rate in the first report.
    pub a: f64,
    /// Rate in the second report, by the clock of the first.
    pub b: f64,
}

/// The comparison of two reports.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// What both have; VMs that do the same together.
    pub pairs: Vec<Pair>,
    /// The same for every VM.
    pub per_vm: Vec<Pair>,
    /// Why the two should not be compared; empty if they may.
    pub warnings: Vec<String>,
    /// What failed, or was measured in one of them only; part of the warnings.
    pub gaps: Vec<String>,
    /// By how much the second boot took its CPUs for faster: its rates are multiplied by that. See [`clocks`].
    pub clocks: f64,
}

impl Pair {
    /// Second against first, per cent; not a number if the first is zero.
    pub fn change_percent(&self) -> f64 {
        if self.a > 0.0 { (self.b / self.a - 1.0) * 100.0 } else { f64::NAN }
    }
}

/// Compares `b` with `a`.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let (rows_a, rows_b) = (rows(a), rows(b));
    let (mut warnings, mut gaps) = (differences(a, b), Vec::new());
    for (which, report) in [("first", a), ("second", b)] {
        if let Some(failure) = &report.failure {
            gaps.push(format!("the {which} report failed: {}", failure.reason));
        }
        if report.instrument.as_ref().is_some_and(|instrument| !instrument.ok) {
            warnings.push(format!("the instrument of the {which} report was out of its limits"));
        }
    }
    gaps.extend(failed(a, "first").chain(failed(b, "second")));
    gaps.extend(missing(&rows_a, &rows_b, "second"));
    gaps.extend(missing(&rows_b, &rows_a, "first"));
    warnings.extend(gaps.iter().cloned());
    let clocks = clocks(a, b);
    let per_vm = pairs(&rows_per_vm(a), &rows_per_vm(b), clocks);
    Comparison { pairs: pairs(&rows_a, &rows_b, clocks), per_vm, warnings, gaps, clocks }
}

/// Clocks of two boots of one machine do not lie further apart, as a part of one.
const FURTHEST: f64 = 0.01;

/// Micro-guests work by the µs, and each boot measures anew how many instructions that is: figures of two boots differ by what
/// these differ, 0.1 to 0.2 %. An emulated machine that counts instructions has CPUs that are equally fast in all boots, so the
/// second's µs can be made the first's. 1 for all others, and where clocks lie further apart: those are other machines. What
/// a guest does besides computing, such as exits, does not follow the clock; there figures are off by as much.
///
/// *Example:* 1,235.2 chunks per second by a clock of 124.34 MIPS are as many instructions as 1,233.6 by one of 124.50.
fn clocks(a: &Report, b: &Report) -> f64 {
    let counts = |report: &Report| {
        let mut vms = report.runs.iter().flat_map(|run| &run.vms);
        report.machine.accel == "tcg-icount" && report.machine.cpu_ips > 0.0 && vms.all(|vm| !vm.kvm.unseen)
    };
    let ratio = b.machine.cpu_ips / a.machine.cpu_ips;
    let alike = a.machine.emulator == b.machine.emulator && (ratio - 1.0).abs() < FURTHEST;
    if counts(a) && counts(b) && alike { ratio } else { 1.0 }
}

/// Variants of which some runs failed, or all: those are in no row.
fn failed<'a>(report: &'a Report, which: &'a str) -> impl Iterator<Item = String> + 'a {
    report.variants.iter().filter_map(move |variant| {
        let runs = || report.runs.iter().filter(|run| run.variant == variant.name);
        let (all, failed) = (runs().count(), runs().filter(|run| run.error.is_some()).count());
        (failed > 0)
            .then(|| format!("{failed} of {all} runs of {} failed in the {which} report", variant.name))
    })
}

fn differences(a: &Report, b: &Report) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            found.push(format!("{what} differs: {a} against {b}"));
        }
    };
    differ("kernel", &a.machine.kernel, &b.machine.kernel);
    differ("CPU model", &a.machine.cpu_model, &b.machine.cpu_model);
    differ("emulator", &a.machine.emulator, &b.machine.emulator);
    differ("acceleration", &a.machine.accel, &b.machine.accel);
    differ("number of CPUs", &a.machine.cpus.to_string(), &b.machine.cpus.to_string());
    differ("state of PLE", &a.machine.ple, &b.machine.ple);
    differ("state of APICv", &a.machine.apicv, &b.machine.apicv);
    differ("scenario", &a.scenario.name, &b.scenario.name);
    differ("dilation", &a.scenario.dilation.to_string(), &b.scenario.dilation.to_string());
    differ("seed", &a.scenario.seed.to_string(), &b.scenario.seed.to_string());
    if a.scenario.name == b.scenario.name && a.scenario.text != b.scenario.text {
        found.push("the scenario's text differs".into());
    }
    found
}

fn same<'a>(row: &Row, others: &'a [Row]) -> Option<&'a Row> {
    others.iter().find(|other| other.variant == row.variant && other.group == row.group)
}

fn pairs(a: &[Row], b: &[Row], clocks: f64) -> Vec<Pair> {
    let pair = |row: &Row| {
        let b = same(row, b)?.rate * clocks;
        Some(Pair { variant: row.variant.clone(), group: row.group.clone(), a: row.rate, b })
    };
    a.iter().filter_map(pair).collect()
}

fn missing(rows: &[Row], others: &[Row], where_: &str) -> Vec<String> {
    let lost = rows.iter().filter(|row| same(row, others).is_none());
    lost.map(|row| format!("{} of {} is missing in the {where_} report", row.variant, row.group)).collect()
}

/// What a report measured: its scenario, its variants and their VMs.
pub fn measured(report: &Report) -> String {
    let rows = rows(report);
    let list = |of: &dyn Fn(&Row) -> &str| {
        let mut names: Vec<&str> = Vec::new();
        for name in rows.iter().map(of) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    };
    let scenario = &report.scenario.name;
    if rows.is_empty() {
        return format!("nothing of scenario {scenario}");
    }
    format!("scenario {scenario} (variants: {}; VMs: {})", list(&|row| &row.variant), list(&|row| &row.group))
}

/// What stands in the table of [`render`].
const LEGEND: &str = "Figures are medians of the repetitions, of work per second and VM.\n";

/// The comparison for a terminal.
pub fn render(comparison: &Comparison) -> String {
    let mut text: String = comparison.warnings.iter().map(|w| format!("CAREFUL: {w}\n")).collect();
    let row = |pair: &Pair| {
        let change = pair.change_percent();
        let change =
            if change.is_nan() { crate::format::NONE.into() } else { format!("{} %", signed(change, 2)) };
        vec![pair.variant.clone(), pair.group.clone(), three(pair.a), three(pair.b), change]
    };
    let header = ["variant", "VMs", "first, per s", "second, per s", "change"];
    text += &plain(&header, 2, comparison.pairs.iter().map(row));
    text.push('\n');
    // Otherwise every group is one VM, and the table would say it twice.
    if comparison.per_vm.len() > comparison.pairs.len() {
        text += &format!("\n{}\n", plain(&header, 2, comparison.per_vm.iter().map(row)));
    }
    if comparison.clocks != 1.0 {
        let change = signed((comparison.clocks - 1.0) * 100.0, 2);
        text += &format!("\nThe second's are by the first's clock ({change} %): see docs/lab.md.\n");
    }
    text + "\n" + LEGEND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_equals_itself_and_differences_are_named() {
        let a = crate::summary::sample();
        let same = compare(&a, &a);
        assert!(same.warnings.is_empty());
        assert_eq!((same.pairs.len(), same.per_vm.len()), (2, 4));
        assert!(same.pairs.iter().chain(&same.per_vm).all(|pair| pair.change_percent() == 0.0));
        let mut b = a.clone();
        b.machine.kernel = "7.2".into();
        b.variants.pop();
        let text = render(&compare(&a, &b));
        assert!(text.ends_with("medians of the repetitions, of work per second and VM.\n"), "{text}");
        assert!(text.contains("kernel differs: 6.18 against 7.2"));
        assert!(text.contains("ours of 2 × 4 lock is missing in the second report"));
        assert!(render(&compare(&b, &a)).contains("missing in the first report"));
    }

    #[test]
    fn work_of_two_boots_is_compared_by_one_clock() {
        let mut a = crate::summary::sample();
        (a.machine.accel, a.machine.cpu_ips) = ("tcg-icount".into(), 124e6);
        let mut b = a.clone();
        // It took its CPUs for faster, and so each unit for more instructions.
        b.machine.cpu_ips *= 1.005;
        b.runs.iter_mut().flat_map(|run| &mut run.vms).for_each(|vm| vm.rate /= 1.005);
        let comparison = compare(&a, &b);
        assert!(comparison.pairs.iter().all(|pair| pair.change_percent().abs() < 1e-6));
        assert!(render(&comparison).contains("first's clock (+0.50 %)"));
        b.machine.accel = "tcg-parallel".into();
        assert!(compare(&a, &b).pairs.iter().all(|pair| pair.change_percent() < -0.4));
        a.runs[0].vms[0].kvm.unseen = true;
        b.machine.accel = "tcg-icount".into();
        assert_eq!(compare(&a, &b).clocks, 1.0, "Linux guests have clocks of their own");
        a.runs[0].vms[0].kvm.unseen = false;
        assert!(compare(&a, &b).clocks > 1.0);
        b.machine.cpu_ips *= 2.0;
        assert_eq!(compare(&a, &b).clocks, 1.0, "that is another machine");
    }

    #[test]
    fn runs_that_failed_are_gaps() {
        let a = crate::summary::sample();
        let mut b = a.clone();
        let run = b.runs.iter_mut().find(|run| run.variant == "ours").unwrap();
        run.error = Some("thrown out".into());
        assert_eq!(compare(&a, &b).gaps, ["1 of 5 runs of ours failed in the second report"]);
        // In no row of either, it would be missed nowhere.
        for run in b.runs.iter_mut().filter(|run| run.variant == "ours") {
            run.error = Some("did not load".into());
        }
        let all = |which| format!("5 of 5 runs of ours failed in the {which} report");
        assert_eq!(compare(&b, &b).gaps, ["first", "second"].map(all));
    }

    #[test]
    fn what_was_measured_is_told() {
        let mut report = crate::summary::sample();
        assert_eq!(measured(&report), "scenario sample (variants: eevdf, ours; VMs: 2 × 4 lock)");
        report.runs.clear();
        assert_eq!(measured(&report), "nothing of scenario sample");
    }

    #[test]
    fn figures_that_should_not_be_believed_are_not_compared_silently() {
        let a = crate::summary::sample();
        let mut b = a.clone();
        b.instrument.as_mut().unwrap().ok = false;
        b.scenario.text = "other".into();
        b.scenario.seed = 9;
        let warnings = compare(&a, &b).warnings.join("\n");
        assert!(
            warnings.contains("out of its limits")
                && warnings.contains("text differs")
                && warnings.contains("seed")
        );
    }
}
