// SPDX-License-Identifier: GPL-2.0-only
//! What a host has done: who had which CPUs, who waited, and whether shares are as they are due.

use crate::check::Findings;
use crate::fluid::Node;
use crate::host::IDLE_WEIGHT;
use crate::model::Cost;
use crate::world::{Kind, World};

/// What a host has done.
#[derive(Clone, Debug)]
pub struct Report {
    /// ns that were measured.
    pub window_ns: u64,
    /// Every task.
    pub tasks: Vec<TaskReport>,
    /// Every VM.
    pub vms: Vec<VmReport>,
    /// What was found wrong.
    pub findings: Findings,
    /// Events that were handled.
    pub events: u64,
    /// Switches from one task to another in the window.
    pub switches: u64,
    /// vCPUs that came to another LLC than they ran on last, in the window.
    pub llc_moves: u64,
    /// Digest of the trace.
    pub digest: u64,
    /// IPIs of the last window whose senders wait for receivers that do not know.
    pub lost_relations: u32,
    /// Costs by callback, if they were counted.
    pub costs: Vec<Cost>,
}

/// A task's figures.
#[derive(Clone, Debug)]
pub struct TaskReport {
    /// Its name.
    pub name: String,
    /// CPUs that it had.
    pub cpus: f64,
    /// CPUs that it is entitled to; not known of who sleeps.
    pub due: Option<f64>,
    /// ns.
    pub longest_wait: u64,
    /// Waits after wake-ups, ns, in rising order.
    pub latencies: Vec<u64>,
}

/// A VM's figures.
#[derive(Clone, Debug)]
pub struct VmReport {
    /// Its name.
    pub name: String,
    /// CPUs that its vCPUs had.
    pub cpus: f64,
    /// What they are entitled to; not known of VMs that halt.
    pub due: Option<f64>,
    /// Units of its work per second.
    pub units: f64,
    /// ns.
    pub longest_wait: u64,
    /// What the scheduler has booked for it, ns, since the start, and the truth.
    pub booked: (u64, u64),
    /// Entries that the scheduler has for its process.
    pub entries: u32,
}

/// Entitlements of all tasks of a host, as far as they are known: of those that always want to run.
fn entitlements(world: &World) -> Vec<Option<f64>> {
    let mut nodes: Vec<Node> = world
        .groups
        .iter()
        .map(|(_, parent, weight, limit)| Node { limit: *limit, ..Node::group(*parent, *weight) })
        .collect();
    let window = world.window() as f64;
    let mut of_task = Vec::new();
    let mut known = Vec::new();
    for task in &world.tasks {
        let always = match task.spec.kind {
            Kind::Hog => task.alive,
            Kind::Vcpu(vm, _) => task.alive && world.vms[vm].spec.pattern.always_wants(),
            _ => false,
        };
        let ran = (task.ran - task.ran_before) as f64 / window;
        // Who sleeps gets what it took: it wanted no more, or its wait is checked elsewhere.
        let weight = if task.spec.policy == 5 { IDLE_WEIGHT } else { f64::from(task.spec.weight) };
        let mut node = Node::task(task.spec.group.unwrap_or(0), weight, if always { 1.0 } else { ran });
        node.cpus = task.spec.cpus.clone();
        if matches!(task.spec.kind, Kind::RealTime(..)) {
            node.weight = 1e9;
        }
        of_task.push(nodes.len());
        known.push(always);
        nodes.push(node);
    }
    let got = crate::fluid::shares(&nodes, world.host.cpus);
    of_task.iter().zip(known).map(|(at, known)| known.then_some(got[*at])).collect()
}

impl World {
    /// What it has done, with what is wrong about its shares added to the findings.
    pub fn report(&mut self) -> Report {
        let due = entitlements(self);
        let window = self.window().max(1) as f64;
        let tasks: Vec<TaskReport> = self
            .tasks
            .iter()
            .zip(&due)
            .map(|(task, due)| {
                let mut latencies = task.latencies.clone();
                latencies.sort_unstable();
                TaskReport {
                    name: task.spec.name.clone(),
                    cpus: (task.ran - task.ran_before) as f64 / window,
                    due: *due,
                    longest_wait: task.longest_wait.max(task.waits_since.map_or(0, |since| self.now - since)),
                    latencies,
                }
            })
            .collect();
        let vms = self.vm_reports(&tasks);
        self.check_shares(&tasks, &vms);
        self.check_booked(&vms);
        Report {
            window_ns: self.window(),
            tasks,
            vms,
            findings: self.findings.clone(),
            events: self.events,
            switches: self.switches,
            llc_moves: self.llc_moves,
            digest: self.trace.digest(),
            lost_relations: self.model.lost_relations(),
            costs: self.model.costs(),
        }
    }

    fn vm_reports(&self, tasks: &[TaskReport]) -> Vec<VmReport> {
        let seconds = self.window().max(1) as f64 / 1e9;
        let mut vms = Vec::new();
        for vm in &self.vms {
            let ids: Vec<usize> = vm.vcpus.iter().map(|vcpu| vcpu.task as usize).collect();
            let (booked, entries) = self.model.booked(vm.tgid);
            let truth = ids.iter().map(|id| self.tasks[*id].ran).sum();
            vms.push(VmReport {
                name: vm.spec.name.clone(),
                cpus: ids.iter().map(|id| tasks[*id].cpus).sum(),
                due: ids.iter().map(|id| tasks[*id].due).sum(),
                units: vm.vcpus.iter().map(|vcpu| vcpu.units).sum::<u64>() as f64 / seconds,
                longest_wait: ids.iter().map(|id| tasks[*id].longest_wait).max().unwrap_or(0),
                booked: (booked, truth),
                entries,
            });
        }
        vms
    }

    /// Finds tasks and VMs that had other shares than are due, as far as the host has a bound for that.
    fn check_shares(&mut self, tasks: &[TaskReport], vms: &[VmReport]) {
        let Some(limit) = self.host.bounds.share else { return };
        let alone = tasks
            .iter()
            .zip(&self.tasks)
            .filter(|(_, task)| !matches!(task.spec.kind, Kind::Vcpu(..)))
            .filter_map(|(report, _)| Some((&report.name, report.cpus, report.due?)));
        for (name, cpus, due) in alone.chain(vms.iter().filter_map(|vm| Some((&vm.name, vm.cpus, vm.due?)))) {
            if (cpus - due).abs() > limit * due {
                self.findings.add("share", || {
                    format!(
                        "{name} has {cpus:.3} CPUs where {due:.3} are due ({:+.1} %)",
                        (cpus / due - 1.0) * 100.0
                    )
                });
            }
        }
    }

    /// Finds VMs of which the scheduler has booked another time than they ran.
    fn check_booked(&mut self, vms: &[VmReport]) {
        for vm in vms {
            let (booked, truth) = vm.booked;
            // Either end of a turn is seen some microseconds apart.
            if booked > truth + truth / 50 + 10_000_000 {
                self.findings
                    .add("overbooked", || format!("{} has run {truth} ns, and {booked} are booked", vm.name));
            }
        }
        if !self.host.bounds.booked {
            return;
        }
        // Each CPU may have a turn that is not booked yet, and VMs are found when a first turn has ended.
        let turn = self.model.get::<u64>("slice_ns", 0).unwrap_or(0);
        let slack = (4 * turn).max(40_000_000) * u64::from(self.host.cpus);
        for (vm, own) in vms.iter().zip(&self.vms) {
            let (booked, truth) = vm.booked;
            // A turn that has not ended may be long: whoever has a CPU to himself keeps it.
            let running =
                own.vcpus.iter().map(|vcpu| &self.tasks[vcpu.task as usize]).filter(|task| task.on_cpu);
            let unended: u64 = running.map(|task| task.ran - task.ran_when_came).sum();
            if booked > truth + slack || (truth > booked + unended + slack && booked > 0) {
                self.findings.add("booked", || {
                    format!(
                        "{} has run {:.1} ms, and {:.1} are booked",
                        vm.name,
                        truth as f64 / 1e6,
                        booked as f64 / 1e6
                    )
                });
            }
            if vm.entries > 1 {
                self.findings
                    .add("entries", || format!("{} is {} VMs to the scheduler", vm.name, vm.entries));
            }
        }
    }
}
