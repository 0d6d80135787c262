// SPDX-License-Identifier: GPL-2.0-only
//! Hosts that are being set up, and bounds of figures.

use super::MS;
use crate::check::Bounds;
use crate::guest::{Pattern, VmSpec};
use crate::report::Report;
use crate::world::{Change, Host, Kind, TaskSpec, World};
use anyhow::Result;

/// A host that is being set up.
pub(super) struct Setup {
    pub(super) world: World,
}

impl Setup {
    pub(super) fn new(object: Option<Vec<u8>>, host: Host) -> Result<Setup> {
        Ok(Setup { world: World::new(Host { object, ..host })? })
    }

    pub(super) fn task(&mut self, name: &str, kind: Kind, change: impl FnOnce(&mut TaskSpec)) -> u32 {
        let mut spec = TaskSpec::new(name, kind);
        change(&mut spec);
        self.world.task(spec)
    }

    pub(super) fn hogs(&mut self, name: &str, n: u32, change: impl Fn(&mut TaskSpec)) {
        for i in 0..n {
            self.task(&format!("{name}{i}"), Kind::Hog, &change);
        }
    }

    pub(super) fn vm(
        &mut self,
        name: &str,
        vcpus: u32,
        pattern: Pattern,
        change: impl FnOnce(&mut VmSpec),
    ) -> usize {
        let mut spec = VmSpec::new(name, vcpus, pattern);
        change(&mut spec);
        self.world.vm(spec)
    }

    /// Lets everybody be placed anew at a time: whoever begins alone, with the whole weight of its group, keeps that for
    /// as long as it keeps its CPU.
    pub(super) fn yield_all(&mut self, ms: u64) {
        for cpu in 0..self.world.host.cpus {
            self.world.at(ms * MS, Change::Yield(cpu));
        }
    }

    /// Runs for so many ms, and measures from a time on.
    pub(super) fn run(mut self, from_ms: u64, until_ms: u64) -> Report {
        self.world.measure_from(from_ms * MS);
        self.world.run(until_ms * MS);
        self.check_marks();
        self.world.report()
    }

    /// Finds fault with what the scheduler remembers of vCPUs, if it is not so.
    pub(super) fn check_marks(&mut self) {
        // Programs that were interrupted shall end.
        for _ in 0..1000 {
            if self.world.cpus.iter().all(|cpu| cpu.busy.is_none()) {
                break;
            }
            self.world.run(self.world.now + 1000);
        }
        let World { model, vms, tasks, findings, host, .. } = &mut self.world;
        // Of a VM that the scheduler takes for two, nothing is right.
        for vm in vms.iter().filter(|vm| model.booked(vm.tgid).1 == 1) {
            let alive = vm.vcpus.iter().filter(|vcpu| tasks[vcpu.task as usize].alive);
            let known: Vec<u32> =
                alive.map(|vcpu| vcpu.task).filter(|task| model.marks(*task) & 1 != 0).collect();
            // Who sleeps and wakes is tried again, whatever there was no memory for.
            if host.starve > 0 && !vm.spec.pattern.always_wants() && known.len() < vm.vcpus.len() {
                findings.add("marks", || format!("{} vCPUs of {} are known", known.len(), vm.spec.name));
            }
            for task in &known {
                let (marks, name) = (model.marks(*task), &tasks[*task as usize].spec.name);
                let queued = model.dsq_of(*task) != u64::MAX;
                let wrong = [
                    (marks & 2 != 0 && !queued, "is marked as queued, and is not"),
                    (marks & 4 != 0 && !queued, "has been queued for long, and is not"),
                    (
                        (marks & 8 != 0) != model.is_runnable(*task),
                        "is mistaken for one that wants to run, or not",
                    ),
                    ((marks >> 8 & 0xfff) as usize != known.len(), "has a VM with a wrong number of vCPUs"),
                ];
                for (_, what) in wrong.iter().filter(|(is, _)| *is) {
                    findings.add("marks", || format!("{name} {what}"));
                }
            }
        }
    }
}

/// Finds fault with a VM that does less than `least` units per second.
pub(super) fn least_units(report: &mut Report, name: &str, least: f64) {
    for vm in report.vms.iter().filter(|vm| vm.name.starts_with(name)) {
        if vm.units < least {
            report.findings.add("throughput", || {
                format!("{} does {:.0} units per second; the bound is {least:.0}", vm.name, vm.units)
            });
        }
    }
}

/// Finds fault with hogs that do not have a CPU each, where there are enough.
pub(super) fn hogs_have_cpus(report: &mut Report) {
    for task in report.tasks.iter().filter(|task| task.name.starts_with("hog")) {
        if task.cpus < 0.97 {
            report
                .findings
                .add("share", || format!("{} has {:.3} CPUs beside idle ones", task.name, task.cpus));
        }
    }
}

/// Finds fault with a VM or a task that has a twentieth more or less than so many CPUs, or a twentieth of a CPU.
pub(super) fn has_cpus(report: &mut Report, name: &str, due: f64) {
    let vm = report.vms.iter().find(|vm| vm.name == name).map(|vm| vm.cpus);
    let had = vm.or_else(|| report.tasks.iter().find(|task| task.name == name).map(|task| task.cpus));
    if had.is_none_or(|had| (had - due).abs() > 0.05 * due.min(1.0)) {
        report.findings.add("share", || format!("{name} has {had:?} CPUs where {due} are due"));
    }
}

/// Finds fault with a wait after a wake-up that is longer than `most_us` in so many of 1,000 cases.
pub(super) fn wakes_within(report: &mut Report, name: &str, per_mille: usize, most_us: f64) {
    for task in report.tasks.iter().filter(|task| task.name.starts_with(name)) {
        let at = task.latencies.len() * (1000 - per_mille) / 1000;
        let Some(us) = task.latencies.get(at).map(|ns| *ns as f64 / 1e3) else {
            report.findings.add("latency", || format!("{} was never woken", task.name));
            continue;
        };
        if us > most_us {
            report.findings.add("latency", || {
                format!(
                    "{} waits for {us:.0} µs in {per_mille} of 1,000 wake-ups; the bound is {most_us:.0}",
                    task.name
                )
            });
        }
    }
}

/// Finds fault with more than so many switches per second and CPU.
pub(super) fn most_switches(report: &mut Report, cpus: u32, seconds: f64, most: f64) {
    let rate = report.switches as f64 / f64::from(cpus) / seconds;
    if rate > most {
        report
            .findings
            .add("switches", || format!("{rate:.0} switches per second and CPU; the bound is {most:.0}"));
    }
}

pub(super) fn shares(limit: f64) -> Bounds {
    Bounds { share: Some(limit), wait_ns: Some(300 * MS), ..Bounds::default() }
}
