// SPDX-License-Identifier: GPL-2.0-only
//! Figures of one piece of the time: of this host's VMs, and of guests of our own.

use overbook_observe::far::Far;
use overbook_observe::window::{VmRow, Window};
use overbook_report::schema::Run;
use overbook_report::stats::{median, merge, quantile_ns};
use serde::Serialize;
use std::collections::BTreeMap;

/// VMs by their numbers: their names stay here.
#[derive(Default)]
pub struct Numbers(BTreeMap<i32, usize>);

impl Numbers {
    /// `vm1`, `vm2`, … in the order in which they were seen.
    pub fn of(&mut self, pid: i32) -> String {
        let next = self.0.len() + 1;
        format!("vm{}", self.0.entry(pid).or_insert(next))
    }
}

/// One piece of the time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Piece {
    /// Who scheduled: `EEVDF`, `overbook`, or another of sched_ext's.
    pub scheduler: String,
    /// What this host's VMs did; nothing if there are none.
    pub host: Option<HostPiece>,
    /// What guests of our own did; nothing if none were run.
    pub bench: Option<BenchPiece>,
}

/// What VMs did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostPiece {
    /// Length, s.
    pub seconds: f64,
    /// CPUs that they wanted and had; what is burnt in spins, if that is seen.
    pub wanted: f64,
    /// See `wanted`.
    pub used: f64,
    /// See `wanted`.
    pub burnt: Option<f64>,
    /// Mean ready time of their vCPUs, in percent.
    pub ready_percent: f64,
    /// Each of them.
    pub vms: Vec<VmPiece>,
}

/// A VM.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VmPiece {
    /// `vm1`, `vm2`, …
    pub name: String,
    /// vCPUs.
    pub vcpus: usize,
    /// CPUs.
    pub run: f64,
    /// Mean ready time of the vCPUs, in percent.
    pub ready_percent: f64,
    /// CPUs burnt in spins.
    pub burnt: Option<f64>,
    /// Per second: spins, directed yields that KVM tried, and, under Overbook, that it delivered.
    pub spins: Option<f64>,
    /// See `spins`.
    pub yields: Option<f64>,
    /// Of the yields, in percent, how many gave way.
    pub yields_ok_percent: Option<f64>,
    /// See `spins`.
    pub delivered: Option<f64>,
}

/// Mean share of the time that vCPUs waited, in percent.
fn ready_percent(rows: &[VmRow]) -> f64 {
    let vcpus: usize = rows.iter().map(|vm| vm.vcpus.len()).sum();
    let waited: f64 = rows.iter().map(|vm| vm.wait).sum();
    if vcpus > 0 { 100.0 * waited / vcpus as f64 } else { 0.0 }
}

impl HostPiece {
    /// Of a window, without names.
    pub fn of(window: &Window, numbers: &mut Numbers) -> HostPiece {
        let vm = |row: &VmRow| VmPiece {
            name: numbers.of(row.pid),
            vcpus: row.vcpus.len(),
            run: row.run,
            ready_percent: ready_percent(std::slice::from_ref(row)),
            burnt: row.spin,
            spins: row.spins,
            yields: row.yields,
            yields_ok_percent: row.yields_ok_percent,
            delivered: row.delivered,
        };
        HostPiece {
            seconds: window.seconds,
            wanted: window.sum(|vm| vm.run + vm.wait),
            used: window.sum(|vm| vm.run),
            burnt: window.burnt(),
            ready_percent: ready_percent(&window.vms),
            vms: window.vms.iter().map(vm).collect(),
        }
    }
}

/// What guests of our own did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchPiece {
    /// What they do ([docs/scenarios.md]).
    pub pattern: String,
    /// VMs and their vCPUs.
    pub vms: usize,
    /// See `vms`.
    pub vcpus: usize,
    /// Length, s.
    pub seconds: f64,
    /// One unit of work, and how many of them a second each VM did.
    pub unit: String,
    /// See `unit`.
    pub rate: f64,
    /// CPUs that they used.
    pub used: f64,
    /// Waits for siblings as the guests saw them, ns: of half of them, and of one in a hundred, at least so long.
    pub wait_p50_ns: u64,
    /// See `wait_p50_ns`.
    pub wait_p99_ns: u64,
    /// Exits for PAUSE, and directed yields that were tried, per second; nothing without probes.
    pub pause_exits: Option<f64>,
    /// See `pause_exits`.
    pub yields: Option<f64>,
    /// Counters of the host and of the scheduler, per run.
    pub counters: BTreeMap<String, f64>,
}

impl BenchPiece {
    /// Of a run.
    pub fn of(run: &Run) -> BenchPiece {
        let seconds = run.window_ns.max(1) as f64 / 1e9;
        let first = run.vms.first().cloned().unwrap_or_default();
        let waits = merge(run.vms.iter().flat_map(|vm| &vm.vcpus).map(|vcpu| &vcpu.wait));
        let seen = run.vms.iter().all(|vm| !vm.kvm.unseen);
        let sum = |of: &dyn Fn(&overbook_report::schema::VmResult) -> u64| {
            seen.then(|| run.vms.iter().map(of).sum::<u64>() as f64 / seconds)
        };
        BenchPiece {
            pattern: first.pattern,
            unit: first.unit,
            vms: run.vms.len(),
            vcpus: run.vms.iter().map(|vm| vm.vcpus.len()).sum(),
            seconds,
            rate: run.vms.iter().map(|vm| vm.rate).sum::<f64>() / run.vms.len().max(1) as f64,
            used: run.vms.iter().map(|vm| vm.cpus_used).sum(),
            wait_p50_ns: quantile_ns(&waits, 0.5),
            wait_p99_ns: quantile_ns(&waits, 0.99),
            pause_exits: sum(&|vm| vm.kvm.exits.get("pause").copied().unwrap_or(0)),
            yields: sum(&|vm| vm.kvm.yield_tried),
            counters: run.extra.clone(),
        }
    }
}

/// A figure under both schedulers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// What it is.
    pub what: String,
    /// Median of the pieces under what was there.
    pub before: f64,
    /// Median of those under Overbook.
    pub overbook: f64,
    /// The second by the first; nothing where that is 0.
    pub ratio: Option<f64>,
    /// Pieces of each.
    pub pieces: (usize, usize),
}

/// All figures that there are under both.
pub fn compare(pieces: &[Piece]) -> Vec<Compared> {
    let mut values: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let mut put = |what: String, ours: bool, value: f64| {
        let (before, overbook) = values.entry(what).or_default();
        if ours { overbook.push(value) } else { before.push(value) }
    };
    for piece in pieces {
        let ours = piece.scheduler == "overbook";
        if let Some(host) = &piece.host {
            put("VMs of this host: ready time, %".into(), ours, host.ready_percent);
            put("VMs of this host: CPUs used".into(), ours, host.used);
            if let Some(burnt) = host.burnt {
                put("VMs of this host: CPUs burnt".into(), ours, burnt);
            }
        }
        if let Some(bench) = &piece.bench {
            put(format!("bench {}: {} per s and VM", bench.pattern, bench.unit), ours, bench.rate);
            put(format!("bench {}: wait p99, ns", bench.pattern), ours, bench.wait_p99_ns as f64);
        }
    }
    let both =
        values.into_iter().filter(|(_, (before, overbook))| !before.is_empty() && !overbook.is_empty());
    both.map(|(what, (before, overbook))| {
        let (first, second) = (median(&before), median(&overbook));
        let ratio = (first > 0.0).then(|| second / first);
        Compared { what, before: first, overbook: second, ratio, pieces: (before.len(), overbook.len()) }
    })
    .collect()
}

/// How far, without names.
pub fn far(mut far: Far, numbers: &mut Numbers) -> Far {
    for driver in &mut far.drivers {
        driver.name = numbers.of(driver.pid);
        driver.pid = 0;
    }
    far.scheduler = super::known_scheduler(&far.scheduler).into();
    far
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(scheduler: &str, ready_percent: f64, rate: f64) -> Piece {
        let host = HostPiece { ready_percent, ..HostPiece::default() };
        let bench =
            BenchPiece { pattern: "lock".into(), unit: "locks".into(), rate, ..BenchPiece::default() };
        Piece { scheduler: scheduler.into(), host: Some(host), bench: Some(bench) }
    }

    #[test]
    fn only_what_was_seen_under_both_is_compared() {
        let pieces = [piece("EEVDF", 4.0, 100.0), piece("overbook", 3.0, 120.0), piece("EEVDF", 6.0, 100.0)];
        let all = compare(&pieces);
        let of = |what: &str| all.iter().find(|compared| compared.what == what).unwrap();
        let ready = of("VMs of this host: ready time, %");
        assert_eq!((ready.before, ready.overbook, ready.ratio, ready.pieces), (5.0, 3.0, Some(0.6), (2, 1)));
        assert_eq!(of("bench lock: locks per s and VM").ratio, Some(1.2));
        // Nobody saw spins, and nobody waited.
        assert!(all.iter().all(|compared| !compared.what.contains("burnt")));
        assert_eq!(of("bench lock: wait p99, ns").ratio, None);
        assert!(compare(&pieces[..1]).is_empty());
    }

    #[test]
    fn schedulers_of_others_have_no_names() {
        let all = ["EEVDF", "overbook_0.2.4", "acme_sched_2"].map(crate::evidence::known_scheduler);
        assert_eq!(all, ["EEVDF", "overbook", "another of sched_ext"]);
    }

    #[test]
    fn vms_keep_their_numbers() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.of(70), numbers.of(7), numbers.of(70)], ["vm1", "vm2", "vm1"]);
    }
}
