// SPDX-License-Identifier: GPL-2.0-only
//! From runs to rows: one row per variant and group of VMs that do the same.

use crate::schema::{KvmCounters, Report, Run, VcpuResult, VmResult, WaitHistogram};
use crate::stats::{self, Ratio};
use std::collections::BTreeMap;

/// A gap between baseline and bound below this share of the bound is no loss to win back.
const LOSS_WORTH_WINNING: f64 = 0.01;

/// VMs of one pattern, size and entitlement under one variant. All figures are medians over the repetitions.
#[derive(Clone, Debug)]
pub struct Row {
    /// Variant.
    pub variant: String,
    /// VM, or what the VMs of the group have in common.
    pub group: String,
    /// VMs in the group.
    pub vms: usize,
    /// Name of one unit of work.
    pub unit: String,
    /// Units of work per second and VM.
    pub rate: f64,
    /// Spread of the rate over the repetitions, per cent.
    pub spread_percent: f64,
    /// Against the baseline; `None` for the baseline itself.
    pub ratio: Option<Ratio>,
    /// Rate as a share of the bound.
    pub of_bound: Option<f64>,
    /// The part won back of what the baseline loses against the bound.
    pub won_back: Option<f64>,
    /// Waits of all repetitions together.
    pub wait: WaitHistogram,
    /// CPUs used per VM, and the smallest and largest of any VM in any repetition.
    pub cpus_used: (f64, f64, f64),
    /// CPUs that one VM is entitled to.
    pub entitled_cpus: f64,
    /// Events per second and VM.
    pub per_second: Counts,
}

/// Events per second and VM.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Turns of guest spin loops (one PAUSE each).
    pub spins: f64,
    /// PAUSE exits.
    pub pause_exits: f64,
    /// All exits.
    pub exits: f64,
    /// Calls of `kvm_vcpu_on_spin`.
    pub on_spin: f64,
    /// Directed yields tried.
    pub tried: f64,
    /// Directed yields that gave way.
    pub ok: f64,
    /// Tried ones on the yielder's runqueue.
    pub same_rq: f64,
    /// Switches of vCPU threads.
    pub switches: f64,
    /// Moves of vCPU threads between CPUs.
    pub migrations: f64,
    /// Steal as the guest saw it, in CPUs.
    pub steal_cpus: f64,
}

/// Rows in the order of the variants; within a variant in the order of the VMs.
pub fn rows(report: &Report) -> Vec<Row> {
    let groups = groups(report);
    let baseline = report.variants.first().map(|v| v.name.as_str()).unwrap_or_default();
    let mut rows = Vec::new();
    for variant in &report.variants {
        for (group, members) in &groups {
            if let Some(row) = row(report, &variant.name, baseline, group, members) {
                rows.push(row);
            }
        }
    }
    rows
}

/// Failed runs: variant, repetition and reason.
pub fn failed(report: &Report) -> Vec<String> {
    let failed = report.runs.iter().filter_map(|run| Some((run, run.error.as_ref()?)));
    failed.map(|(run, why)| format!("{}, repetition {}: {why}", run.variant, run.repetition + 1)).collect()
}

/// Good runs of a variant.
pub fn runs_of<'a>(report: &'a Report, variant: &str) -> Vec<&'a Run> {
    report.runs.iter().filter(|run| run.variant == variant && run.error.is_none()).collect()
}

/// VMs that do the same, by their places in a run.
fn groups(report: &Report) -> Vec<(String, Vec<usize>)> {
    let Some(run) = report.runs.iter().find(|run| run.error.is_none()) else { return Vec::new() };
    let mut groups: Vec<(String, String, Vec<usize>)> = Vec::new();
    for (place, vm) in run.vms.iter().enumerate() {
        let kind = format!("{} {} {:.3}", vm.pattern, vm.vcpus.len(), vm.entitled_cpus);
        match groups.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, _, members)) => members.push(place),
            None => groups.push((kind, vm.name.clone(), vec![place])),
        }
    }
    let name = |vm: &VmResult, first: &str, n: usize| match n {
        1 => first.to_string(),
        _ => format!("{n} × {} {}", vm.vcpus.len(), vm.pattern),
    };
    groups
        .into_iter()
        .map(|(_, first, members)| (name(&run.vms[members[0]], &first, members.len()), members))
        .collect()
}

fn row(report: &Report, variant: &str, baseline: &str, group: &str, members: &[usize]) -> Option<Row> {
    let runs = runs_of(report, variant);
    let first = runs.first()?.vms.get(*members.first()?)?;
    let in_run = |run: &Run, of: &dyn Fn(&VmResult) -> f64| {
        members.iter().filter_map(|i| run.vms.get(*i)).map(of).sum::<f64>() / members.len() as f64
    };
    let medians = |of: &dyn Fn(&VmResult) -> f64| {
        stats::median(&runs.iter().map(|run| in_run(run, of)).collect::<Vec<f64>>())
    };
    let rates: Vec<f64> = runs.iter().map(|run| in_run(run, &|vm| vm.rate)).collect();
    let rate = stats::median(&rates);
    let base: BTreeMap<u32, f64> =
        runs_of(report, baseline).iter().map(|run| (run.repetition, in_run(run, &|vm| vm.rate))).collect();
    let pairs: Vec<(f64, f64)> = runs
        .iter()
        .zip(&rates)
        .filter_map(|(run, rate)| Some((*rate, *base.get(&run.repetition)?)))
        .collect();
    let bounds = members.iter().filter_map(|i| {
        let name = &runs.first()?.vms.get(*i)?.name;
        report.bounds.iter().find(|bound| bound.vm == *name).map(|bound| bound.rate)
    });
    let bounds: Vec<f64> = bounds.collect();
    let bound = (bounds.len() == members.len()).then(|| bounds.iter().sum::<f64>() / bounds.len() as f64);
    let base_rate = stats::median(&base.values().copied().collect::<Vec<f64>>());
    let is_baseline = variant == baseline;
    let won_back = bound.filter(|bound| !is_baseline && bound - base_rate > LOSS_WORTH_WINNING * bound);
    let used: Vec<f64> = runs
        .iter()
        .flat_map(|run| members.iter().filter_map(|i| run.vms.get(*i)).map(|vm| vm.cpus_used))
        .collect();
    let everything = runs.iter().flat_map(|run| members.iter().filter_map(|i| run.vms.get(*i)));
    let wait = stats::merge(everything.flat_map(|vm| vm.vcpus.iter().map(|vcpu| &vcpu.wait)));
    let window = |vm: &VmResult| if vm.rate > 0.0 { vm.work as f64 / vm.rate } else { f64::INFINITY };
    let seconds = stats::median(&runs.iter().map(|run| run.window_ns as f64 / 1e9).collect::<Vec<f64>>());
    let per_vcpu = |of: fn(&VcpuResult) -> u64| {
        medians(&move |vm: &VmResult| {
            let seconds = if window(vm).is_finite() { window(vm) } else { seconds };
            vm.vcpus.iter().map(of).sum::<u64>() as f64 / seconds
        })
    };
    let per_kvm = |of: fn(&KvmCounters) -> u64| medians(&move |vm: &VmResult| of(&vm.kvm) as f64 / seconds);
    Some(Row {
        variant: variant.into(),
        group: group.into(),
        vms: members.len(),
        unit: first.unit.clone(),
        rate,
        spread_percent: stats::spread_percent(&rates),
        ratio: (!is_baseline).then(|| stats::ratio(&pairs, report.scenario.seed)),
        of_bound: bound.map(|bound| rate / bound),
        won_back: won_back.map(|bound| (rate - base_rate) / (bound - base_rate)),
        wait,
        cpus_used: (
            medians(&|vm| vm.cpus_used),
            used.iter().copied().fold(f64::INFINITY, f64::min),
            used.iter().copied().fold(0.0, f64::max),
        ),
        entitled_cpus: first.entitled_cpus,
        per_second: Counts {
            spins: per_vcpu(|v| v.spins),
            pause_exits: per_kvm(|k| k.exits.get("pause").copied().unwrap_or(0)),
            exits: per_kvm(|k| k.exits.values().sum()),
            on_spin: per_kvm(|k| k.on_spin),
            tried: per_kvm(|k| k.yield_tried),
            ok: per_kvm(|k| k.yield_ok),
            same_rq: per_kvm(|k| k.yield_same_rq),
            switches: per_vcpu(|v| v.voluntary_switches + v.involuntary_switches),
            migrations: per_vcpu(|v| v.migrations),
            steal_cpus: per_vcpu(|v| v.steal_ns) / 1e9,
        },
    })
}

/// A made-up report for tests.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    use crate::schema::{Instrument, TurnRow, VariantInfo, VmBound};
    let vm = |name: &str, rate: f64| VmResult {
        name: name.into(),
        pattern: "lock".into(),
        unit: "locks".into(),
        work: rate as u64,
        rate,
        cpus_used: 2.0,
        entitled_cpus: 2.0,
        kvm: KvmCounters {
            exits: BTreeMap::from([("pause".into(), 50)]),
            on_spin: 50,
            ..KvmCounters::default()
        },
        vcpus: vec![
            VcpuResult {
                wait: WaitHistogram { buckets: vec![(1000, 9), (5000, 1)], max_ns: 5000 },
                ..VcpuResult::default()
            };
            4
        ],
    };
    let mut report = Report { schema: crate::schema::SCHEMA, ..Report::default() };
    report.scenario.name = "sample".into();
    report.scenario.title = "A <sample>".into();
    report.machine.kernel = "6.18".into();
    report.instrument = Some(Instrument {
        ok: true,
        turns: vec![TurnRow { name: "turn".into(), p50_ns: 1, limit_ns: 5, ..TurnRow::default() }],
        ..Instrument::default()
    });
    for (name, factor) in [("eevdf", 1.0), ("ours", 1.4)] {
        report.variants.push(VariantInfo { name: name.into(), about: String::new() });
        for repetition in 0..5u32 {
            let rate = factor * (1000.0 + f64::from(repetition));
            let vms = vec![vm("vm1", rate), vm("vm2", rate + 2.0)];
            report.runs.push(Run {
                variant: name.into(),
                repetition,
                window_ns: 1_000_000_000,
                vms,
                ..Run::default()
            });
        }
    }
    report.bounds = ["vm1", "vm2"]
        .map(|vm| VmBound { vm: vm.into(), rate: 1500.0, share_cpus: 2.0, ..VmBound::default() })
        .into();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_vms_share_a_row_and_ratios_are_paired() {
        let rows = rows(&sample());
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].group.as_str(), rows[0].vms), ("2 × 4 lock", 2));
        assert!((rows[0].rate - 1003.0).abs() < 1e-9);
        assert!(rows[0].ratio.is_none() && rows[0].won_back.is_none());
        let ratio = rows[1].ratio.unwrap();
        assert!((ratio.point - 1.4).abs() < 0.01 && ratio.interval.is_some());
        assert!(rows[1].won_back.unwrap() > 0.7);
        assert_eq!(rows[0].per_second.pause_exits, 50.0);
        assert_eq!(stats::quantile_ns(&rows[0].wait, 0.5), 1000);
    }

    #[test]
    fn failed_runs_do_not_count() {
        let mut report = sample();
        report.runs[0].error = Some("boom".into());
        report.runs[0].vms[0].rate = 1e9;
        assert!(rows(&report)[0].rate < 2000.0);
        assert_eq!(failed(&report), ["eevdf, repetition 1: boom"]);
    }
}
