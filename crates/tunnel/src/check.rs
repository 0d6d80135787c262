// SPDX-License-Identifier: GPL-2.0-only
//! What must hold while a host runs.

use crate::fluid::Node;
use crate::world::{Kind, Report, TaskReport, VmReport, World};
use std::collections::BTreeMap;

/// Bounds that a host must keep; `None` is not checked.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Longest time that a runnable task may wait, ns.
    pub wait_ns: Option<u64>,
    /// Longest time that a CPU may idle beside a task that waits and may run there, ns.
    pub idle_ns: Option<u64>,
    /// Greatest difference between a tenant's time and its entitlement, of the entitlement.
    pub share: Option<f64>,
    /// Whether what the scheduler books for each VM must be what its vCPUs ran.
    pub booked: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { wait_ns: Some(1_000_000_000), idle_ns: Some(8_000_000), share: None, booked: true }
    }
}

/// What was found wrong, each kind once with its first words and how often.
#[derive(Clone, Debug, Default)]
pub struct Findings(BTreeMap<&'static str, (String, u64)>);

impl Findings {
    /// Adds one of a kind.
    pub fn add(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        self.0.entry(kind).and_modify(|(_, times)| *times += 1).or_insert_with(|| (what(), 1));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is one of a kind.
    pub fn has(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    /// All but those of a kind.
    #[must_use]
    pub fn without(mut self, kind: &str) -> Findings {
        self.0.remove(kind);
        self
    }

    /// Each kind with its first words and how often it was found.
    pub fn lines(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|(kind, (what, times))| match times {
                1 => format!("{kind}: {what}"),
                _ => format!("{kind}: {what} ({times} times)"),
            })
            .collect()
    }
}

/// Entitlements of all tasks of a host, as far as they are known: of those that always want to run.
fn entitlements(world: &World) -> Vec<Option<f64>> {
    let mut nodes: Vec<Node> = world
        .groups
        .iter()
        .map(|(_, parent, weight, limit)| Node { limit: *limit, ..Node::group(*parent, f64::from(*weight)) })
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
        let weight = if task.spec.policy == 5 { 0.3 } else { f64::from(task.spec.weight) };
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

/// The figures of a host, with what is wrong about its shares added to the findings.
pub(crate) fn report(world: &mut World) -> Report {
    let due = entitlements(world);
    let window = world.window().max(1) as f64;
    let tasks: Vec<TaskReport> = world
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
                longest_wait: task.longest_wait.max(task.waits_since.map_or(0, |since| world.now - since)),
                latencies,
            }
        })
        .collect();
    let mut vms = Vec::new();
    for vm in &world.vms {
        let ids: Vec<usize> = vm.vcpus.iter().map(|vcpu| vcpu.task as usize).collect();
        let (booked, entries) = world.model.booked(vm.tgid);
        let truth = ids.iter().map(|id| world.tasks[*id].ran).sum();
        vms.push(VmReport {
            name: vm.spec.name.clone(),
            cpus: ids.iter().map(|id| tasks[*id].cpus).sum(),
            due: ids.iter().map(|id| tasks[*id].due).sum(),
            units: vm.vcpus.iter().map(|vcpu| vcpu.units).sum::<u64>() as f64 / (window / 1e9),
            longest_wait: ids.iter().map(|id| tasks[*id].longest_wait).max().unwrap_or(0),
            booked: (booked, truth),
            entries,
        });
    }
    if let Some(limit) = world.host.bounds.share {
        let loose: Vec<(String, f64, f64)> = tasks
            .iter()
            .zip(&world.tasks)
            .filter(|(_, task)| !matches!(task.spec.kind, Kind::Vcpu(..)))
            .filter_map(|(report, _)| Some((report.name.clone(), report.cpus, report.due?)))
            .chain(vms.iter().filter_map(|vm| Some((vm.name.clone(), vm.cpus, vm.due?))))
            .collect();
        for (name, cpus, due) in loose {
            if (cpus - due).abs() > limit * due {
                world.findings.add("share", || {
                    format!(
                        "{name} has {cpus:.3} CPUs where {due:.3} are due ({:+.1} %)",
                        (cpus / due - 1.0) * 100.0
                    )
                });
            }
        }
    }
    for vm in &vms {
        let (booked, truth) = vm.booked;
        // Either end of a turn is seen some microseconds apart.
        if booked > truth + truth / 50 + 10_000_000 {
            world
                .findings
                .add("overbooked", || format!("{} has run {truth} ns, and {booked} are booked", vm.name));
        }
    }
    if world.host.bounds.booked {
        for (vm, own) in vms.iter().zip(&world.vms) {
            let (booked, truth) = vm.booked;
            // A turn that has not ended may be long: whoever has a CPU to himself keeps it.
            let running =
                own.vcpus.iter().map(|vcpu| &world.tasks[vcpu.task as usize]).filter(|task| task.on_cpu);
            let unended: u64 = running.map(|task| task.ran - task.ran_when_came).sum();
            // Each CPU may have a turn that is not booked yet, and VMs are found when a first turn has ended.
            let turn = world.model.get::<u64>("slice_ns", 0).unwrap_or(0);
            let slack = (4 * turn).max(40_000_000) * u64::from(world.host.cpus);
            if booked > truth + slack || (truth > booked + unended + slack && booked > 0) {
                world.findings.add("booked", || {
                    format!(
                        "{} has run {:.1} ms, and {:.1} are booked",
                        vm.name,
                        truth as f64 / 1e6,
                        booked as f64 / 1e6
                    )
                });
            }
            if vm.entries > 1 {
                world
                    .findings
                    .add("entries", || format!("{} is {} VMs to the scheduler", vm.name, vm.entries));
            }
        }
    }
    let (events, switches) = world.counters();
    Report {
        window_ns: world.window(),
        tasks,
        vms,
        findings: world.findings.clone(),
        events,
        switches,
        llc_moves: world.llc_moves,
        digest: world.trace.digest(),
        lost_relations: world.model.lost_relations(),
        costs: world.model.costs(),
    }
}
