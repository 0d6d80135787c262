// SPDX-License-Identifier: GPL-2.0-only
//! What happened between two snapshots.

use crate::snapshot::{Snapshot, VcpuCounters, VmCounters};
use overbook_host::stats::{HostStats, TierStats};
use serde::Serialize;
use std::collections::BTreeMap;

/// One vCPU, in CPUs (1 is all the time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct VcpuRow {
    /// vCPU id.
    pub id: u32,
    /// On a CPU.
    pub run: f64,
    /// Waiting for one.
    pub wait: f64,
    /// Of `run`: spinning for a sibling.
    pub spin: f64,
    /// Spins per second.
    pub spins: f64,
    /// Times per second that a spinning sibling's CPU was handed to it (`overbook host` only).
    pub boosts: f64,
}

/// One VM, in CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VmRow {
    /// Process.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Sums over the vCPUs.
    pub run: f64,
    /// See [`VcpuRow`].
    pub wait: f64,
    /// See [`VcpuRow`].
    pub spin: f64,
    /// Spins per second.
    pub spins: f64,
    /// Directed yields per second that KVM tried, and how many of these gave way, in percent.
    pub yields: f64,
    /// See `yields`.
    pub yields_ok_percent: f64,
    /// Per second, by `overbook host`: nominated vCPUs that ran next.
    pub delivered: f64,
    /// Per second, by tier: delivered.
    pub tiers: BTreeMap<String, f64>,
    /// vCPUs.
    pub vcpus: Vec<VcpuRow>,
}

impl VmRow {
    /// Steal that the guest sees, in percent of what it wants.
    pub fn steal_percent(&self) -> f64 {
        percent(self.wait, self.run + self.wait)
    }

    /// Spinning, in percent of what it runs.
    pub fn burnt_percent(&self) -> f64 {
        percent(self.spin, self.run)
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
    /// VMs, those that burn most first.
    pub vms: Vec<VmRow>,
}

impl Window {
    /// From `before` to `after`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Window {
        let seconds = after.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e9;
        let none = VmCounters::default();
        let row = |(pid, vm): (&i32, &VmCounters)| {
            let mut row = vm_row(*pid, before.vms.get(pid).unwrap_or(&none), vm, seconds);
            if let (Some(now), then) = (&after.overbook, &before.overbook) {
                add_scheduler(&mut row, then.as_ref(), now, seconds);
            }
            row
        };
        let mut vms: Vec<VmRow> = after.vms.iter().map(row).collect();
        vms.sort_by(|a, b| b.spin.total_cmp(&a.spin).then(b.run.total_cmp(&a.run)).then(a.pid.cmp(&b.pid)));
        Window { seconds, cpus: after.cpus, scheduler: after.scheduler.clone(), vms }
    }

    /// Sum of a column.
    pub fn sum(&self, of: fn(&VmRow) -> f64) -> f64 {
        self.vms.iter().map(of).sum()
    }
}

/// a of b in percent; 0 of nothing.
pub fn percent(a: f64, b: f64) -> f64 {
    if b > 0.0 { 100.0 * a / b } else { 0.0 }
}

fn vm_row(pid: i32, before: &VmCounters, after: &VmCounters, seconds: f64) -> VmRow {
    let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    let vcpu = |(id, now): (&u32, &VcpuCounters)| {
        // A thread that is new has done all of its work within the window.
        let then = before.vcpus.get(id).filter(|then| then.tid == now.tid).copied().unwrap_or_default();
        VcpuRow {
            id: *id,
            run: per_second(now.run_ns, then.run_ns) / 1e9,
            wait: per_second(now.wait_ns, then.wait_ns) / 1e9,
            spin: per_second(now.spin_ns, then.spin_ns) / 1e9,
            spins: per_second(now.spins, then.spins),
            boosts: 0.0,
        }
    };
    let vcpus: Vec<VcpuRow> = after.vcpus.iter().map(vcpu).collect();
    let sum = |of: fn(&VcpuRow) -> f64| vcpus.iter().map(of).sum();
    let yields = per_second(after.yields_tried, before.yields_tried);
    VmRow {
        pid,
        name: after.name.clone(),
        run: sum(|v| v.run),
        wait: sum(|v| v.wait),
        spin: sum(|v| v.spin),
        spins: sum(|v| v.spins),
        yields,
        yields_ok_percent: percent(per_second(after.yields_ok, before.yields_ok), yields),
        vcpus,
        ..VmRow::default()
    }
}

/// What only `overbook host` knows.
fn add_scheduler(row: &mut VmRow, before: Option<&HostStats>, after: &HostStats, seconds: f64) {
    let pid = row.pid as u32;
    let Some(now) = after.vms.get(&pid) else { return };
    let then = before.and_then(|stats| stats.vms.get(&pid)).cloned().unwrap_or_default();
    let per_second = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
    row.delivered = per_second(now.delivered, then.delivered);
    let none = TierStats::default();
    row.tiers = now
        .tiers
        .iter()
        .map(|(name, tier)| {
            let before = then.tiers.get(name).unwrap_or(&none);
            (name.clone(), per_second(tier.delivered, before.delivered))
        })
        .collect();
    for vcpu in &mut row.vcpus {
        let boosts =
            |stats: &overbook_host::stats::VmStats| stats.vcpus.get(&vcpu.id).map_or(0, |v| v.boosts);
        vcpu.boosts = per_second(boosts(now), boosts(&then));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_ns: u64, tid: i32, run_ns: u64, spin_ns: u64) -> Snapshot {
        let vcpu = VcpuCounters { tid, run_ns, wait_ns: run_ns, spin_ns, spins: spin_ns / 1000 };
        let vm = VmCounters {
            name: "web1".into(),
            vcpus: BTreeMap::from([(0, vcpu), (1, VcpuCounters { tid: tid + 1, ..vcpu })]),
            yields_tried: at_ns / 1_000_000,
            yields_ok: at_ns / 2_000_000,
        };
        Snapshot { at_ns, cpus: 4, scheduler: "EEVDF".into(), vms: BTreeMap::from([(7, vm)]), overbook: None }
    }

    #[test]
    fn rows_are_rates_of_the_window() {
        let (before, after) =
            (snapshot(0, 10, 0, 0), snapshot(2_000_000_000, 10, 1_000_000_000, 200_000_000));
        let window = Window::between(&before, &after);
        let row = &window.vms[0];
        assert_eq!((row.run, row.wait, row.spin), (1.0, 1.0, 0.2));
        assert_eq!((row.steal_percent(), row.burnt_percent()), (50.0, 20.0));
        assert_eq!((row.yields, row.yields_ok_percent), (1000.0, 50.0));
        assert_eq!(window.sum(|vm| vm.run), 1.0);
    }

    #[test]
    fn a_new_thread_of_an_old_id_counts_from_its_start() {
        let before = snapshot(0, 10, 5_000_000_000, 0);
        let after = snapshot(1_000_000_000, 20, 500_000_000, 0);
        assert_eq!(Window::between(&before, &after).vms[0].run, 1.0);
    }
}
