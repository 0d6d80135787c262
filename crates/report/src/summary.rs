// SPDX-License-Identifier: GPL-2.0-only
//! From runs to rows: one row per variant and VM, or per variant and group of VMs that do the same.

use crate::schema::{KvmCounters, Report, Run, VcpuResult, VmResult, WaitHistogram};
use crate::stats::{self, Ratio};
use std::collections::BTreeMap;

/// A bound that exceeds the baseline by less than this share leaves no loss to win back.
const LOSS_WORTH_WINNING: f64 = 0.01;

/// VMs of one pattern, size and entitlement under one variant. All figures are medians over the repetitions.
#[derive(Clone, Debug)]
pub struct Row {
    /// Variant.
    pub variant: String,
    /// The others are compared with this one.
    pub is_baseline: bool,
    /// VM, or what the VMs of the group have in common.
    pub group: String,
    /// VMs in the group.
    pub vms: usize,
    /// Repetitions that count.
    pub repetitions: usize,
    /// Name of one unit of work.
    pub unit: String,
    /// Units of work per second and VM.
    pub rate: f64,
    /// Slowest and fastest repetition.
    pub rate_range: (f64, f64),
    /// Spread of the rate over the repetitions, per cent; `None` with fewer than two.
    pub spread_percent: Option<f64>,
    /// Against the baseline; `None` for the baseline itself, or if it has no repetition in common.
    pub ratio: Option<Ratio>,
    /// Units of work per second and VM that could be had without waiting.
    pub bound: Option<f64>,
    /// Rate as a share of the bound.
    pub of_bound: Option<f64>,
    /// The part won back of what the baseline loses against the bound.
    pub won_back: Option<f64>,
    /// Waits of all repetitions together; its maximum is that of the worst repetition.
    pub wait: WaitHistogram,
    /// Median over the repetitions of the median and of the 99th percentile of waits, in ns.
    pub wait_ns: (u64, u64),
    /// CPUs used per VM, and the smallest and largest of any VM in any repetition.
    pub cpus_used: (f64, f64, f64),
    /// CPU time per unit of work, of what it takes alone ([`crate::schema::VmBound::cpu_ns_per_unit`]). Where CPUs are
    /// what limits the bound, a share of it is lost by this, and the rest by CPUs that were not used.
    pub cost: Option<f64>,
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
    /// Tried ones on another runqueue.
    pub other_rq: f64,
    /// Switches of vCPU threads.
    pub switches: f64,
    /// Moves of vCPU threads between CPUs.
    pub migrations: f64,
    /// Steal as the guest saw it, in CPUs.
    pub steal_cpus: f64,
}

/// VMs that share a row: its name, and their places in a run.
type Group = (String, Vec<usize>);

/// Rows in the order of the variants, within a variant in that of the VMs; VMs that do the same share one.
pub fn rows(report: &Report) -> Vec<Row> {
    rows_of(report, groups(report))
}

/// The same with one row for each VM.
pub fn rows_per_vm(report: &Report) -> Vec<Row> {
    let vms = report.runs.iter().find(|run| run.error.is_none()).map_or(&[][..], |run| &run.vms);
    rows_of(report, vms.iter().enumerate().map(|(place, vm)| (vm.name.clone(), vec![place])).collect())
}

/// The same with one row for all VMs that do the same work, whatever else they are.
pub fn rows_per_load(report: &Report) -> Vec<Row> {
    let vms = report.runs.iter().find(|run| run.error.is_none()).map_or(&[][..], |run| &run.vms);
    let mut groups: Vec<Group> = Vec::new();
    for (place, vm) in vms.iter().enumerate() {
        // Of a Linux guest it is a program in this guest.
        let load = vm.pattern.strip_suffix(&format!(" in {}", vm.name)).unwrap_or(&vm.pattern);
        match groups.iter_mut().find(|(known, _)| *known == load) {
            Some((_, members)) => members.push(place),
            None => groups.push((load.into(), vec![place])),
        }
    }
    rows_of(report, groups)
}

fn rows_of(report: &Report, groups: Vec<Group>) -> Vec<Row> {
    let variants = report.variants.iter();
    variants.flat_map(|v| groups.iter().filter_map(|group| row(report, &v.name, group))).collect()
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

/// A counter's name, and its medians by variant; none where it was not counted.
pub type Counter = (String, Vec<Option<f64>>);

/// Counters of the whole host and of the schedulers: name, and the median for each variant that has it.
pub fn host_counters(report: &Report) -> Vec<Counter> {
    let all: Vec<Vec<BTreeMap<String, f64>>> = report
        .variants
        .iter()
        .map(|v| runs_of(report, &v.name).into_iter().map(counters_of).collect())
        .collect();
    let mut names: Vec<&String> = all.iter().flatten().flat_map(BTreeMap::keys).collect();
    names.sort_unstable();
    names.dedup();
    let median = |name: &String, runs: &Vec<BTreeMap<String, f64>>| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.get(name).copied()).collect();
        (!values.is_empty()).then(|| stats::median(&values))
    };
    names.iter().map(|name| ((*name).clone(), all.iter().map(|runs| median(name, runs)).collect())).collect()
}

/// Those of [`host_counters`] that are not zero throughout, and how many are.
pub fn telling_counters(report: &Report) -> (Vec<Counter>, usize) {
    let all = host_counters(report);
    let many = all.len();
    let tells = |values: &[Option<f64>]| values.iter().flatten().any(|value| *value != 0.0);
    let told: Vec<_> = all.into_iter().filter(|(_, values)| tells(values)).collect();
    let zero = many - told.len();
    (told, zero)
}

/// Median of one of [`host_counters`] under a variant.
pub fn host_counter(report: &Report, variant: &str, counter: &str) -> Option<f64> {
    let place = report.variants.iter().position(|v| v.name == variant)?;
    let (_, values) = host_counters(report).into_iter().find(|(name, _)| name == counter)?;
    values.get(place).copied().flatten()
}

/// A row with its place among the results of several scenarios.
pub struct Outcome {
    /// Place of its scenario.
    pub scenario: usize,
    /// Name of the scenario, and of the VMs if they do not all do the same.
    pub name: String,
    /// The row.
    pub row: Row,
}

/// The rows of several reports, with the variants of the same VMs one below the other.
pub fn outcomes(reports: &[&Report]) -> Vec<Outcome> {
    let mut found = Vec::new();
    for (scenario, report) in reports.iter().enumerate() {
        let rows = rows(report);
        let mut groups: Vec<&str> = Vec::new();
        for row in rows.iter().filter(|row| row.is_baseline).chain(&rows) {
            if !groups.contains(&row.group.as_str()) {
                groups.push(&row.group);
            }
        }
        for group in &groups {
            let name = match groups.len() {
                1 => report.scenario.label(),
                _ => format!("{}: {group}", report.scenario.label()),
            };
            let of_group = rows.iter().filter(|row| row.group == *group);
            found.extend(of_group.map(|row| Outcome { scenario, name: name.clone(), row: row.clone() }));
        }
    }
    found
}

/// What came out, in a sentence for each variant: where it does more work than the baseline, and where less.
pub fn headline(outcomes: &[Outcome]) -> Vec<String> {
    let mut variants: Vec<&str> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.row.is_baseline) {
        if !variants.contains(&outcome.row.variant.as_str()) {
            variants.push(&outcome.row.variant);
        }
    }
    let baseline = outcomes.iter().find(|o| o.row.is_baseline).map_or("the baseline", |o| &o.row.variant);
    variants.into_iter().map(|variant| verdict(outcomes, variant, baseline)).collect()
}

/// What a sentence says of scenarios, in this order.
const VERDICTS: [&str; 5] = [
    "more work each time",
    "less work each time",
    "now more and now less",
    "no less and no more",
    "too few repetitions to tell",
];

fn verdict(outcomes: &[Outcome], variant: &str, baseline: &str) -> String {
    let mut names = VERDICTS.map(|_| Vec::new());
    for outcome in outcomes.iter().filter(|outcome| outcome.row.variant == variant) {
        let Some(ratio) = outcome.row.ratio.filter(|ratio| ratio.point.is_finite()) else { continue };
        let nth = match ratio.range {
            Some((low, _)) if low > 1.0 => 0,
            Some((_, high)) if high < 1.0 => 1,
            Some((low, high)) if low < 1.0 && high > 1.0 => 2,
            Some(_) => 3,
            None => 4,
        };
        names[nth].push(format!("{} ({:.3})", outcome.name, ratio.point));
    }
    let parts: Vec<String> = VERDICTS
        .iter()
        .zip(names)
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} in {}", names.join(", ")))
        .collect();
    match parts.is_empty() {
        true => format!("{variant} against {baseline}: nothing to compare"),
        false => format!("{variant} against {baseline}: {}", parts.join("; ")),
    }
}

fn counters_of(run: &Run) -> BTreeMap<String, f64> {
    let seconds = run.window_ns.max(1) as f64 / 1e9;
    let mut counters = run.extra.clone();
    counters.insert("host: context switches per s".into(), run.context_switches as f64 / seconds);
    counters.insert("vCPUs: moves between CPUs per s".into(), run.migrations as f64 / seconds);
    counters
}

/// VMs that do the same.
fn groups(report: &Report) -> Vec<Group> {
    let Some(run) = report.runs.iter().find(|run| run.error.is_none()) else { return Vec::new() };
    let mut kinds: Vec<(String, Vec<usize>)> = Vec::new();
    for (place, vm) in run.vms.iter().enumerate() {
        let kind = format!("{} {} {:.3}", vm.pattern, vm.vcpus.len(), vm.entitled_cpus);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, members)) => members.push(place),
            None => kinds.push((kind, vec![place])),
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    for (_, members) in kinds {
        let vm = &run.vms[members[0]];
        let mut name = match members.len() {
            1 => vm.name.clone(),
            n => format!("{n} × {} {}", vm.vcpus.len(), vm.pattern),
        };
        // Groups that differ only in what they are entitled to.
        if groups.iter().any(|(known, _)| *known == name) {
            name = format!("{name}, {:.2} CPUs", vm.entitled_cpus);
        }
        groups.push((name, members));
    }
    groups
}

/// Mean over the members of a group, of one run.
fn mean_of(run: &Run, members: &[usize], of: impl Fn(&VmResult) -> f64) -> f64 {
    members.iter().filter_map(|i| run.vms.get(*i)).map(of).sum::<f64>() / members.len() as f64
}

fn row(report: &Report, variant: &str, (group, members): &Group) -> Option<Row> {
    let baseline = &report.variants.first()?.name;
    let is_baseline = variant == baseline;
    let runs = runs_of(report, variant);
    let first = runs.first()?.vms.get(*members.first()?)?;
    let rates: Vec<f64> = runs.iter().map(|run| mean_of(run, members, |vm| vm.rate)).collect();
    let rate = stats::median(&rates);
    let base: BTreeMap<u32, f64> = runs_of(report, baseline)
        .iter()
        .map(|run| (run.repetition, mean_of(run, members, |vm| vm.rate)))
        .collect();
    let pairs: Vec<(f64, f64)> = runs
        .iter()
        .zip(&rates)
        .filter_map(|(run, rate)| Some((*rate, *base.get(&run.repetition)?)))
        .collect();
    let base_rate = stats::median(&base.values().copied().collect::<Vec<f64>>());
    let bound = bound(report, runs.first()?, members);
    let to_win = bound
        .filter(|bound| !is_baseline && !base.is_empty() && *bound > base_rate * (1.0 + LOSS_WORTH_WINNING));
    let waits: Vec<WaitHistogram> = runs
        .iter()
        .map(|run| {
            stats::merge(
                members
                    .iter()
                    .filter_map(|i| run.vms.get(*i))
                    .flat_map(|vm| vm.vcpus.iter().map(|vcpu| &vcpu.wait)),
            )
        })
        .collect();
    let wait_at = |q: f64| {
        stats::median(&waits.iter().map(|wait| stats::quantile_ns(wait, q) as f64).collect::<Vec<f64>>())
            as u64
    };
    let used: Vec<f64> = runs
        .iter()
        .flat_map(|run| members.iter().filter_map(|i| run.vms.get(*i)).map(|vm| vm.cpus_used))
        .collect();
    let mean_used: Vec<f64> = runs.iter().map(|run| mean_of(run, members, |vm| vm.cpus_used)).collect();
    Some(Row {
        variant: variant.into(),
        is_baseline,
        group: group.clone(),
        vms: members.len(),
        repetitions: runs.len(),
        unit: first.unit.clone(),
        rate,
        rate_range: range(&rates),
        spread_percent: (rates.len() > 1).then(|| stats::spread_percent(&rates)),
        ratio: (!is_baseline && !pairs.is_empty()).then(|| stats::ratio(&pairs)),
        bound,
        of_bound: bound.map(|bound| rate / bound),
        won_back: to_win.map(|bound| (rate - base_rate) / (bound - base_rate)),
        wait: stats::merge(&waits),
        wait_ns: (wait_at(0.5), wait_at(0.99)),
        cpus_used: (stats::median(&mean_used), range(&used).0, range(&used).1),
        cost: cost(report, &runs, members),
        entitled_cpus: first.entitled_cpus,
        per_second: counts(&runs, members),
    })
}

/// What a VM of a group counts in a second, medians over the runs.
fn counts(runs: &[&Run], members: &[usize]) -> Counts {
    let per_vm = |of: &dyn Fn(&VmResult) -> u64| {
        let per_second =
            |run: &&Run| mean_of(run, members, |vm| of(vm) as f64) * 1e9 / run.window_ns.max(1) as f64;
        stats::median(&runs.iter().map(per_second).collect::<Vec<f64>>())
    };
    let per_vcpu = |of: fn(&VcpuResult) -> u64| per_vm(&move |vm| vm.vcpus.iter().map(of).sum());
    // What one repetition could not see is no figure of the row.
    let unseen =
        runs.iter().any(|run| members.iter().filter_map(|i| run.vms.get(*i)).any(|vm| vm.kvm.unseen));
    let per_kvm =
        |of: fn(&KvmCounters) -> u64| if unseen { f64::NAN } else { per_vm(&move |vm| of(&vm.kvm)) };
    Counts {
        spins: per_vcpu(|v| v.spins),
        pause_exits: per_kvm(|k| k.exits.get("pause").copied().unwrap_or(0)),
        exits: per_kvm(|k| k.exits.values().sum()),
        on_spin: per_kvm(|k| k.on_spin),
        tried: per_kvm(|k| k.yield_tried),
        ok: per_kvm(|k| k.yield_ok),
        same_rq: per_kvm(|k| k.yield_same_rq),
        other_rq: per_kvm(|k| k.yield_other_rq),
        switches: per_vcpu(|v| v.voluntary_switches + v.involuntary_switches),
        migrations: per_vcpu(|v| v.migrations),
        steal_cpus: per_vcpu(|v| v.steal_ns) / 1e9,
    }
}

/// Mean bound of the members; `None` unless each has one.
fn bound(report: &Report, run: &Run, members: &[usize]) -> Option<f64> {
    let of = |place: &usize| {
        let name = &run.vms.get(*place)?.name;
        report.bounds.iter().find(|bound| bound.vm == *name && bound.rate > 0.0).map(|bound| bound.rate)
    };
    let rates: Option<Vec<f64>> = members.iter().map(of).collect();
    rates.map(|rates| rates.iter().sum::<f64>() / rates.len() as f64)
}

/// Median over the runs of what a unit of work cost, of what it costs alone; `None` unless that is known of each member.
fn cost(report: &Report, runs: &[&Run], members: &[usize]) -> Option<f64> {
    let of = |vm: &VmResult| {
        let alone = report.bounds.iter().find(|bound| bound.vm == vm.name)?.cpu_ns_per_unit;
        (alone > 0.0 && vm.rate > 0.0).then(|| vm.cpus_used * 1e9 / vm.rate / alone)
    };
    let in_run = |run: &&Run| {
        let costs: Option<Vec<f64>> = members.iter().map(|place| of(run.vms.get(*place)?)).collect();
        costs.map(|costs| costs.iter().sum::<f64>() / costs.len() as f64)
    };
    let costs: Option<Vec<f64>> = runs.iter().map(in_run).collect();
    costs.filter(|costs| !costs.is_empty()).map(|costs| stats::median(&costs))
}

fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    (low, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
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
        assert!((ratio.point - 1.4).abs() < 0.01 && ratio.range.is_some());
        assert!(rows[1].won_back.unwrap() > 0.7);
        assert_eq!(rows[0].per_second.pause_exits, 50.0);
        let mut blind = sample();
        blind.runs.iter_mut().flat_map(|run| &mut run.vms).for_each(|vm| vm.kvm.unseen = true);
        let row = &super::rows(&blind)[0];
        assert!(row.per_second.pause_exits.is_nan() && row.per_second.tried.is_nan());
        assert_eq!(crate::format::count(row.per_second.pause_exits), crate::format::NONE);
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

    #[test]
    fn each_vm_has_its_row_too() {
        let rows = rows_per_vm(&sample());
        let names: Vec<&str> = rows.iter().map(|row| row.group.as_str()).collect();
        assert_eq!(names, ["vm1", "vm2", "vm1", "vm2"]);
        assert_eq!((rows[0].rate, rows[1].rate), (1002.0, 1004.0));
        assert_eq!(rows[0].rate_range, (1000.0, 1004.0));
        assert_eq!((rows[0].repetitions, rows[0].wait_ns), (5, (1000, 5000)));
    }

    #[test]
    fn nothing_is_won_back_where_nothing_is_lost() {
        let mut report = sample();
        report.bounds.iter_mut().for_each(|bound| bound.rate = 1010.0);
        let row = rows(&report).pop().unwrap();
        assert!(row.won_back.is_none() && row.of_bound.unwrap() > 1.3);
        report.bounds.pop();
        assert!(rows(&report)[1].of_bound.is_none(), "a bound of half of the group is none");
    }

    #[test]
    fn what_a_unit_costs_is_compared_with_what_it_costs_alone() {
        let mut report = sample();
        assert!(rows(&report)[0].cost.is_none(), "nobody knows what it costs alone");
        // Two CPUs did some 1003 units a second, 2 ms each; alone a unit takes half of that.
        report.bounds.iter_mut().for_each(|bound| bound.cpu_ns_per_unit = 1e6);
        let costs: Vec<f64> = rows(&report).iter().map(|row| row.cost.unwrap()).collect();
        assert!((costs[0] - 1.994).abs() < 1e-3 && (costs[1] - 1.994 / 1.4).abs() < 1e-2, "{costs:?}");
        report.runs[0].vms[0].rate = 0.0;
        assert!(rows(&report)[0].cost.is_none(), "no work has no price");
    }

    #[test]
    fn few_repetitions_have_no_range_and_one_has_no_spread() {
        let mut report = sample();
        report.runs.retain(|run| run.repetition == 0);
        let row = rows(&report).pop().unwrap();
        assert!(row.spread_percent.is_none() && row.ratio.unwrap().range.is_none());
        report.runs.remove(0);
        assert!(rows(&report)[0].ratio.is_none(), "no repetition in common");
    }

    #[test]
    fn the_headline_says_where_there_is_more_work_and_where_less() {
        let (mut good, mut bad) = (sample(), sample());
        good.scenario.name = "good".into();
        bad.scenario.name = "bad".into();
        for run in bad.runs.iter_mut().filter(|run| run.variant == "ours") {
            run.vms.iter_mut().for_each(|vm| vm.rate /= 2.0);
        }
        let both = outcomes(&[&good, &bad]);
        let names: Vec<(&str, &str)> =
            both.iter().map(|o| (o.name.as_str(), o.row.variant.as_str())).collect();
        assert_eq!(names, [("good", "eevdf"), ("good", "ours"), ("bad", "eevdf"), ("bad", "ours")]);
        let expected =
            "ours against eevdf: more work each time in good (1.400); less work each time in bad (0.700)";
        assert_eq!(headline(&both), [expected]);
        good.runs.retain(|run| run.repetition == 0);
        let one = headline(&outcomes(&[&good])).pop().unwrap();
        assert_eq!(one, "ours against eevdf: too few repetitions to tell in good (1.400)");
        good.runs.retain(|run| run.variant == "eevdf");
        assert!(headline(&outcomes(&[&good])).is_empty());
    }

    #[test]
    fn vms_that_differ_are_named_and_stand_together() {
        let mut report = sample();
        report.runs.iter_mut().for_each(|run| run.vms[1].pattern = "ipi".into());
        let outcomes = outcomes(&[&report]);
        let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
        assert_eq!(names, ["sample: vm1", "sample: vm1", "sample: vm2", "sample: vm2"]);
    }

    #[test]
    fn counters_of_schedulers_are_medians_of_their_variants() {
        let mut report = sample();
        report.runs[7].extra.insert("boosts".into(), 3.0);
        let found = host_counters(&report);
        assert_eq!(found[0], ("boosts".to_string(), vec![None, Some(3.0)]));
        assert_eq!(host_counter(&report, "ours", "boosts"), Some(3.0));
        assert_eq!(host_counter(&report, "eevdf", "boosts"), None);
        assert_eq!(found.len(), 3);
        let (told, zero) = telling_counters(&report);
        assert_eq!((told.len(), zero), (1, 2), "switches and moves of the sample are zero");
    }
}
