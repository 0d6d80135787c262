// SPDX-License-Identifier: GPL-2.0-only
//! Loads side by side: the baseline, Overbook, and the best scheduler of others, each against the bound.
//!
//! The baseline is a scenario's first variant, a scheduler of others a variant whose name begins with `scx_`, and
//! Overbook the first variant that is neither. In [`PACKED`] guests pack, too.

use crate::format::{NONE, percent, ratio};
use crate::schema::Report;
use crate::summary::{self, Row};

/// What names of variants with schedulers of others begin with.
const OTHERS: &str = "scx_";

/// The variant in which guests run `overbook guest` as well.
const PACKED: &str = "host-guest";

/// What one load did in one boot. VMs that do the same work count together.
pub struct Load {
    /// Of the scenario with its settings, and of the work if VMs do several.
    pub name: String,
    /// Whether that is in words, and no name of a file.
    pub in_words: bool,
    /// The kernel's own scheduler.
    pub baseline: Row,
    /// Overbook, if it ended well.
    pub ours: Option<Row>,
    /// Overbook, and guests that ask for no more than they can have, if that was measured and ended well.
    pub packed: Option<Row>,
    /// Whoever of the others did most.
    pub best: Option<Row>,
    /// Those that did not end well.
    pub failed: Vec<String>,
}

/// The loads of these reports, in their order.
pub fn loads(reports: &[&Report]) -> Vec<Load> {
    reports.iter().flat_map(|report| of_report(report)).collect()
}

fn of_report(report: &Report) -> Vec<Load> {
    let rows = summary::rows_per_load(report);
    let baselines: Vec<&Row> = rows.iter().filter(|row| row.is_baseline).collect();
    let others: Vec<&str> =
        report.variants.iter().map(|v| v.name.as_str()).filter(|name| name.starts_with(OTHERS)).collect();
    let ours = report.variants.iter().skip(1).map(|v| v.name.as_str()).find(|name| !name.starts_with(OTHERS));
    let packed = report.variants.iter().map(|v| v.name.as_str()).find(|name| *name == PACKED);
    let alone = baselines.len() == 1;
    // One that was thrown out once has no figures, whatever it did before.
    let has_failed = |name: &str| report.runs.iter().any(|run| run.variant == name && run.error.is_some());
    let load = |baseline: &&Row| {
        let of = |variant: &str| {
            let mut rows = rows.iter().filter(|row| row.variant == variant && !has_failed(variant));
            rows.find(|row| row.group == baseline.group).cloned()
        };
        let rate = |row: &Row| if row.rate.is_finite() { row.rate } else { 0.0 };
        let found = others.iter().filter_map(|variant| of(variant));
        Load {
            name: if alone {
                report.scenario.label()
            } else {
                format!("{}: {}", report.scenario.label(), baseline.group)
            },
            in_words: report.scenario.name.contains(' '),
            ours: ours.and_then(of),
            packed: of(PACKED),
            best: found.max_by(|a, b| rate(a).total_cmp(&rate(b))),
            failed: ours
                .iter()
                .chain(&packed)
                .chain(&others)
                .filter(|v| of(v).is_none())
                .map(ToString::to_string)
                .collect(),
            baseline: (*baseline).clone(),
        }
    };
    baselines.iter().map(load).collect()
}

/// Mean and least of the shares of the bound.
pub fn mean_and_least(shares: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let shares: Vec<f64> = shares.filter(|share| share.is_finite()).collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    (!shares.is_empty()).then(|| (shares.iter().sum::<f64>() / shares.len() as f64, least))
}

/// The cells of a table, the last row of which has means and least.
pub fn cells(loads: &[Load]) -> Vec<Vec<String>> {
    let share = |row: &Option<Row>| row.as_ref().map_or(NONE.into(), |row| percent(row.of_bound));
    let mut rows: Vec<Vec<String>> = loads
        .iter()
        .map(|load| {
            vec![
                if load.in_words { load.name.clone() } else { format!("`{}`", load.name) },
                percent(load.baseline.of_bound),
                share(&load.ours),
                load.ours.as_ref().map_or(NONE.into(), ratio),
                load.packed.as_ref().map_or(NONE.into(), ratio),
                share(&load.best),
                load.best.as_ref().map_or(NONE.into(), |row| format!("{}, {}", row.variant, ratio(row))),
                if load.failed.is_empty() { NONE.into() } else { load.failed.join(", ") },
            ]
        })
        .collect();
    let sum = |of: &dyn Fn(&Load) -> Option<f64>| {
        mean_and_least(loads.iter().filter_map(of)).map_or(NONE.into(), |(mean, least)| {
            format!("{}; least {}", percent(Some(mean)), percent(Some(least)))
        })
    };
    rows.push(vec![
        "mean".into(),
        sum(&|load| load.baseline.of_bound),
        sum(&|load| load.ours.as_ref()?.of_bound),
        NONE.into(),
        NONE.into(),
        sum(&|load| load.best.as_ref()?.of_bound),
        NONE.into(),
        NONE.into(),
    ]);
    rows
}

/// Titles of the [`cells`].
pub const HEAD: [&str; 8] = [
    "load",
    "EEVDF, of bound",
    "Overbook",
    "ratio [range]",
    "guests pack too, ratio",
    "best of the others",
    "which, ratio",
    "failed",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn with_others() -> Report {
        let mut report = summary::sample();
        report.scenario.name = "sample+rivals+linux.guests=3".into();
        for (name, factor) in [("scx_slow", 0.5), ("scx_fast", 1.2), ("scx_dead", 0.0)] {
            let mut variant = report.variants[1].clone();
            variant.name = name.into();
            report.variants.push(variant);
            let mut runs: Vec<_> = report.runs.iter().filter(|r| r.variant == "eevdf").cloned().collect();
            for run in &mut runs {
                run.variant = name.into();
                run.vms.iter_mut().for_each(|vm| vm.rate *= factor);
                run.error = (name == "scx_dead").then(|| "it died".into());
            }
            report.runs.extend(runs);
        }
        report
    }

    #[test]
    fn the_best_of_the_others_stands_beside_ours() {
        let report = with_others();
        let loads = loads(&[&report]);
        assert_eq!(loads.len(), 1);
        assert_eq!(loads[0].name, "sample, guests=3");
        assert_eq!(loads[0].ours.as_ref().unwrap().variant, "ours");
        assert_eq!(loads[0].best.as_ref().unwrap().variant, "scx_fast");
        assert_eq!(loads[0].failed, ["scx_dead"]);
        let rows = cells(&loads);
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.len() == HEAD.len()), "{rows:?}");
        assert_eq!(rows[1][1], "66.9 %; least 66.9 %");
    }

    #[test]
    fn one_that_was_thrown_out_once_has_failed() {
        let mut report = with_others();
        let run = report.runs.iter_mut().find(|run| run.variant == "scx_fast").unwrap();
        run.error = Some("thrown out".into());
        let load = loads(&[&report]).remove(0);
        assert_ne!(load.best.map(|row| row.variant).as_deref(), Some("scx_fast"));
        assert!(load.failed.contains(&"scx_fast".into()), "{:?}", load.failed);
        let run = report.runs.iter_mut().find(|run| run.variant == "ours").unwrap();
        run.error = Some("thrown out".into());
        let load = loads(&[&report]).remove(0);
        assert!(load.ours.is_none() && load.failed.contains(&"ours".into()), "{:?}", load.failed);
    }

    #[test]
    fn vms_with_other_work_are_other_loads() {
        let mut report = with_others();
        let does = |report: &mut Report, what: [&str; 2]| {
            for (vm, what) in report.runs.iter_mut().flat_map(|run| run.vms.iter_mut().zip(what)) {
                vm.pattern = what.into();
            }
            loads(&[report]).into_iter().map(|load| load.name).collect::<Vec<_>>()
        };
        let other = does(&mut report, ["user-receiver", "halted-receiver"]);
        assert_eq!(other, ["sample, guests=3: user-receiver", "sample, guests=3: halted-receiver"]);
        let name = |place: usize| report.runs[0].vms[place].name.clone();
        let guests = [0, 1].map(|place| format!("make in {}", name(place)));
        assert_eq!(does(&mut report, [&guests[0], &guests[1]]), ["sample, guests=3"]);
    }

    #[test]
    fn what_has_no_figure_has_no_mean() {
        assert_eq!(mean_and_least([f64::NAN].into_iter()), None);
        assert_eq!(mean_and_least([0.5, 1.0].into_iter()), Some((0.75, 0.5)));
    }
}
