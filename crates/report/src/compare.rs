// SPDX-License-Identifier: GPL-2.0-only
//! Two reports side by side.

use crate::schema::Report;
use crate::summary::rows;
use crate::table::{plain, three};

/// Rates of the same variant and VMs in two reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Variant.
    pub variant: String,
    /// VMs.
    pub group: String,
    /// Rate in the first report.
    pub a: f64,
    /// Rate in the second report.
    pub b: f64,
}

/// The comparison of two reports.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// What both have.
    pub pairs: Vec<Pair>,
    /// Why the two should not be compared; empty if they may.
    pub warnings: Vec<String>,
}

impl Pair {
    /// Second against first, per cent.
    pub fn change_percent(&self) -> f64 {
        if self.a > 0.0 { (self.b / self.a - 1.0) * 100.0 } else { f64::NAN }
    }
}

/// Compares `b` with `a`.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let mut found = Comparison::default();
    let mut differ = |what: &str, a: String, b: String| {
        if a != b {
            found.warnings.push(format!("{what} differs: {a} against {b}"));
        }
    };
    differ("kernel", a.machine.kernel.clone(), b.machine.kernel.clone());
    differ("CPU model", a.machine.cpu_model.clone(), b.machine.cpu_model.clone());
    differ("acceleration", a.machine.accel.clone(), b.machine.accel.clone());
    differ("scenario", a.scenario.name.clone(), b.scenario.name.clone());
    differ("dilation", a.scenario.dilation.to_string(), b.scenario.dilation.to_string());
    differ("seed", a.scenario.seed.to_string(), b.scenario.seed.to_string());
    if a.scenario.name == b.scenario.name && a.scenario.text != b.scenario.text {
        found.warnings.push("the scenario's text differs".into());
    }
    let others = rows(b);
    for row in rows(a) {
        match others.iter().find(|other| other.variant == row.variant && other.group == row.group) {
            Some(other) => {
                found.pairs.push(Pair { variant: row.variant, group: row.group, a: row.rate, b: other.rate })
            }
            None => found
                .warnings
                .push(format!("{} of {} is missing in the second report", row.variant, row.group)),
        }
    }
    found
}

/// The comparison for a terminal.
pub fn render(comparison: &Comparison) -> String {
    let mut text: String =
        comparison.warnings.iter().map(|w| format!("NOT THE SAME EXPERIMENT: {w}\n")).collect();
    let rows = comparison.pairs.iter().map(|pair| {
        let change = format!("{:+.2} %", pair.change_percent());
        vec![pair.variant.clone(), pair.group.clone(), three(pair.a), three(pair.b), change]
    });
    text += &plain(&["variant", "VMs", "first, per s", "second, per s", "change"], 2, rows);
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_equals_itself_and_differences_are_named() {
        let a = crate::summary::sample();
        let same = compare(&a, &a);
        assert!(same.warnings.is_empty());
        assert!(same.pairs.iter().all(|pair| pair.change_percent() == 0.0));
        let mut b = a.clone();
        b.machine.kernel = "7.2".into();
        b.variants.pop();
        let text = render(&compare(&a, &b));
        assert!(
            text.contains("kernel differs: 6.18 against 7.2")
                && text.contains("ours of 2 × 4 lock is missing")
        );
    }
}
