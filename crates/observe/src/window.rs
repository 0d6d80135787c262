// SPDX-License-Identifier: GPL-2.0-only
//! What happened between two snapshots.

use crate::ready;
use crate::snapshot::{Snapshot, VcpuCounters, VmCounters};
use overbook_policy::class::Class;
use overbook_scheduler::stats::{HostStats, TierStats};
use overbook_vms::names::Identity;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One vCPU, in CPUs (1 is all the time). What could not be seen is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VcpuRow {
    /// vCPU id.
    pub id: u32,
    /// On a CPU.
    pub run: f64,
    /// Waiting for one.
    pub wait: f64,
    /// Of `run`: spinning for a sibling.
    pub spin: Option<f64>,
    /// Spins per second.
    pub spins: Option<f64>,
    /// Times per second that a spinning sibling's CPU was handed to it (`overbook host` only).
    pub boosts: Option<f64>,
}

impl VcpuRow {
    /// Ready time: waiting for a CPU, in percent of the window.
    pub fn ready_percent(&self) -> f64 {
        100.0 * self.wait
    }
}

/// One VM, in CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VmRow {
    /// Process.
    pub pid: i32,
    /// As its operators know it: `namespace/name`, or the name.
    pub name: String,
    /// The same in its parts, and who manages it.
    pub who: Identity,
    /// Its class (`overbook host` only).
    pub class: Option<String>,
    /// Sums over the vCPUs.
    pub run: f64,
    /// See [`VcpuRow`].
    pub wait: f64,
    /// See [`VcpuRow`].
    pub spin: Option<f64>,
    /// Spins per second.
    pub spins: Option<f64>,
    /// Directed yields per second that KVM tried, and how many of these the scheduler accepted, in percent.
    pub yields: Option<f64>,
    /// See `yields`.
    pub yields_ok_percent: Option<f64>,
    /// Per second, by `overbook host`: spins after which the CPU went on with a sibling.
    pub delivered: Option<f64>,
    /// Per second, by tier: vCPUs that were picked.
    pub tiers: BTreeMap<String, f64>,
    /// vCPUs.
    pub vcpus: Vec<VcpuRow>,
}

impl VmRow {
    /// Steal that the guest sees, in percent of what it wants.
    pub fn steal_percent(&self) -> f64 {
        percent(self.wait, self.run + self.wait)
    }

    /// Ready time in percent of the window: the mean of the vCPUs'.
    pub fn ready_percent(&self) -> f64 {
        ready::mean(self.vcpus.iter().map(VcpuRow::ready_percent))
    }

    /// Ready time of the vCPU that waits most, in percent of the window.
    pub fn worst_ready_percent(&self) -> f64 {
        ready::worst(self.vcpus.iter().map(VcpuRow::ready_percent))
    }

    /// Spinning, in percent of what it runs.
    pub fn burnt_percent(&self) -> Option<f64> {
        self.spin.map(|spin| percent(spin, self.run))
    }
}

/// The host between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Length.
    pub seconds: f64,
    /// Online CPUs.
    pub cpus: u32,
    /// Who schedules.
    pub scheduler: String,
    /// Why spins and directed yields cannot be seen, if so.
    pub blind: Option<String>,
    /// VMs, those that burn most first.
    pub vms: Vec<VmRow>,
}

impl Window {
    /// From `before` to `after`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Window {
        let seconds = after.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e9;
        let none = VmCounters::default();
        // One that did not answer before has counted since it was loaded.
        let unanswered = before.overbook.is_none() && before.scheduler.starts_with("overbook");
        let scheduler = after.overbook.as_ref().filter(|_| !unanswered);
        let row = |(pid, vm): (&i32, &VmCounters)| {
            let mut row = vm_row(*pid, before.vms.get(pid).unwrap_or(&none), vm, seconds);
            if let Some(now) = scheduler {
                add_scheduler(&mut row, before.overbook.as_ref(), now, seconds);
            }
            row
        };
        let mut vms: Vec<VmRow> = after.vms.iter().map(row).collect();
        vms.sort_by(|a, b| falling(a.spin, b.spin).then(b.run.total_cmp(&a.run)).then(a.pid.cmp(&b.pid)));
        let blind = before.blind().or(after.blind()).map(str::to_string);
        Window { seconds, cpus: after.cpus, scheduler: after.scheduler.clone(), blind, vms }
    }

    /// Sum of a column.
    pub fn sum(&self, of: fn(&VmRow) -> f64) -> f64 {
        sum(self.vms.iter().map(of))
    }

    /// Whether a VM has another class than normal.
    pub fn has_classes(&self) -> bool {
        self.vms.iter().any(|vm| vm.class.as_deref().is_some_and(|class| class != Class::Normal.name()))
    }

    /// CPUs burnt in spins; nothing if they cannot be seen.
    pub fn burnt(&self) -> Option<f64> {
        self.blind.is_none().then(|| self.sum(|vm| vm.spin.unwrap_or(0.0)))
    }
}

/// a of b in percent; 0 of nothing.
pub fn percent(a: f64, b: f64) -> f64 {
    if b > 0.0 { 100.0 * a / b } else { 0.0 }
}

/// The greater first, what is unknown last.
pub fn falling(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}

/// A sum; of nothing it is 0, where std has −0.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// A sum of what is known; unknown where anything is not.
fn sum_of_known(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.try_fold(0.0, |sum, value| value.map(|value| sum + value))
}

fn vm_row(pid: i32, before: &VmCounters, after: &VmCounters, seconds: f64) -> VmRow {
    let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let seen = |now: Option<u64>, then: Option<u64>| now.map(|now| per_second(now, then.unwrap_or(0)));
    let vcpu = |(id, now): (&u32, &VcpuCounters)| {
        // A thread that is new has done all of its work within the window.
        let then = before.vcpus.get(id).filter(|then| then.tid == now.tid).copied().unwrap_or_default();
        // The kernel adds a wait when it ends: what lies before the window is no part of it.
        let run = (per_second(now.run_ns, then.run_ns) / 1e9).min(1.0);
        VcpuRow {
            id: *id,
            run,
            wait: (per_second(now.wait_ns, then.wait_ns) / 1e9).min(1.0 - run),
            spin: seen(now.spin_ns, then.spin_ns).map(|ns| ns / 1e9),
            spins: seen(now.spins, then.spins),
            boosts: None,
        }
    };
    let vcpus: Vec<VcpuRow> = after.vcpus.iter().map(vcpu).collect();
    let column = |of: fn(&VcpuRow) -> f64| sum(vcpus.iter().map(of));
    let yields = seen(after.yields_tried, before.yields_tried);
    let ok = seen(after.yields_ok, before.yields_ok);
    VmRow {
        pid,
        name: after.name.clone(),
        who: after.who.clone(),
        run: column(|v| v.run),
        wait: column(|v| v.wait),
        spin: sum_of_known(vcpus.iter().map(|v| v.spin)),
        spins: sum_of_known(vcpus.iter().map(|v| v.spins)),
        yields,
        // Of none at all, there is no share.
        yields_ok_percent: yields.filter(|y| *y > 0.0).zip(ok).map(|(yields, ok)| percent(ok, yields)),
        vcpus,
        ..VmRow::default()
    }
}

/// What only `overbook host` knows.
fn add_scheduler(row: &mut VmRow, before: Option<&HostStats>, after: &HostStats, seconds: f64) {
    let pid = row.pid as u32;
    let Some(now) = after.vms.get(&pid) else { return };
    let then = before.and_then(|stats| stats.vms.get(&pid)).cloned().unwrap_or_default();
    // Its answer may come late, and says when it was.
    let earlier = before.map(|stats| stats.at_ns).filter(|then| (1..after.at_ns).contains(then));
    let seconds = earlier.map_or(seconds, |then| (after.at_ns - then) as f64 / 1e9);
    let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    row.delivered = Some(per_second(now.delivered, then.delivered));
    row.class = Some(now.class.clone()).filter(|class| !class.is_empty());
    let none = TierStats::default();
    row.tiers = now
        .tiers
        .iter()
        .map(|(name, tier)| {
            let before = then.tiers.get(name).unwrap_or(&none);
            (name.clone(), per_second(tier.picked, before.picked))
        })
        .collect();
    for vcpu in &mut row.vcpus {
        let boosts =
            |stats: &overbook_scheduler::stats::VmStats| stats.vcpus.get(&vcpu.id).map_or(0, |v| v.boosts);
        vcpu.boosts = Some(per_second(boosts(now), boosts(&then)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_scheduler::stats::VmStats;

    fn snapshot(at_ns: u64, tid: i32, run_ns: u64, spin_ns: u64) -> Snapshot {
        let (spin_ns, spins) = (Some(spin_ns), Some(spin_ns / 1000));
        let vcpu = VcpuCounters { tid, run_ns, wait_ns: run_ns, spin_ns, spins };
        let vm = VmCounters {
            name: "web1".into(),
            vcpus: BTreeMap::from([(0, vcpu), (1, VcpuCounters { tid: tid + 1, ..vcpu })]),
            yields_tried: Some(at_ns / 1_000_000),
            yields_ok: Some(at_ns / 2_000_000),
            ..VmCounters::default()
        };
        let vms = BTreeMap::from([(7, vm)]);
        Snapshot { at_ns, cpus: 4, scheduler: "EEVDF".into(), vms, ..Snapshot::default() }
    }

    #[test]
    fn rows_are_rates_of_the_window() {
        let (before, after) =
            (snapshot(0, 10, 0, 0), snapshot(2_000_000_000, 10, 1_000_000_000, 200_000_000));
        let window = Window::between(&before, &after);
        let row = &window.vms[0];
        assert_eq!((row.run, row.wait, row.spin), (1.0, 1.0, Some(0.2)));
        assert_eq!((row.steal_percent(), row.burnt_percent()), (50.0, Some(20.0)));
        // Two vCPUs that waited for half of the window each: steal is of what they want, ready of the window.
        assert_eq!((row.ready_percent(), row.worst_ready_percent()), (50.0, 50.0));
        assert_eq!((row.yields, row.yields_ok_percent), (Some(1000.0), Some(50.0)));
        assert_eq!((row.delivered, row.vcpus[0].boosts), (None, None));
        assert_eq!(window.sum(|vm| vm.run), 1.0);
    }

    #[test]
    fn a_new_thread_of_an_old_id_counts_from_its_start() {
        let before = snapshot(0, 10, 5_000_000_000, 0);
        let after = snapshot(1_000_000_000, 20, 500_000_000, 0);
        assert_eq!(Window::between(&before, &after).vms[0].run, 1.0);
    }

    #[test]
    fn a_wait_that_began_earlier_is_no_more_than_the_window() {
        let before = snapshot(0, 10, 0, 0);
        let mut after = snapshot(1_000_000_000, 10, 250_000_000, 0);
        for vcpu in after.vms.get_mut(&7).unwrap().vcpus.values_mut() {
            vcpu.wait_ns = 1_330_000_000;
        }
        let row = &Window::between(&before, &after).vms[0];
        assert_eq!((row.vcpus[0].run, row.vcpus[0].wait, row.wait), (0.25, 0.75, 1.5));
    }

    /// What it has counted since it was loaded, days ago maybe, is not of this window.
    #[test]
    fn a_scheduler_that_did_not_answer_once_has_no_rates() {
        let ours = |delivered| {
            let vm = VmStats { delivered, ..VmStats::default() };
            Some(HostStats { vms: BTreeMap::from([(7, vm)]), ..HostStats::default() })
        };
        let rate = |before: Option<HostStats>, scheduler: &str| {
            let (mut from, mut to) = (snapshot(0, 10, 0, 0), snapshot(1_000_000_000, 10, 0, 0));
            (from.overbook, from.scheduler) = (before, scheduler.into());
            (to.overbook, to.scheduler) = (ours(900), "overbook".into());
            Window::between(&from, &to).vms[0].delivered
        };
        assert_eq!(rate(None, "overbook"), None);
        assert_eq!((rate(ours(600), "overbook"), rate(None, "EEVDF")), (Some(300.0), Some(900.0)));
    }

    /// A host that is busy keeps the scheduler's answer waiting.
    #[test]
    fn a_late_answer_is_of_its_own_time() {
        let ours = |at_ns, delivered| {
            let vm = VmStats { delivered, ..VmStats::default() };
            Some(HostStats { at_ns, vms: BTreeMap::from([(7, vm)]), ..HostStats::default() })
        };
        let (mut from, mut to) = (snapshot(0, 10, 0, 0), snapshot(1_000_000_000, 10, 0, 0));
        (from.overbook, to.overbook) = (ours(5_000_000_000, 100), ours(7_000_000_000, 700));
        assert_eq!(Window::between(&from, &to).vms[0].delivered, Some(300.0));
    }

    #[test]
    fn sums_of_nothing_are_zero_and_not_less() {
        assert!(Window::default().sum(|vm| vm.run).is_sign_positive());
        let none =
            Snapshot { at_ns: 1, vms: BTreeMap::from([(7, VmCounters::default())]), ..Snapshot::default() };
        assert!(Window::between(&none, &none).vms[0].run.is_sign_positive());
    }
}
