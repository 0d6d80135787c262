// SPDX-License-Identifier: GPL-2.0-only
//! Hosts that show a fault, and what is read of them.

pub(super) use overbook_policy::class::Class;
pub(super) use overbook_tunnel::{Change, Host, Kind, Pattern, Report, TaskSpec, VmSpec, World};

use overbook_tunnel::check::Bounds;
use overbook_tunnel::report::TaskReport;

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1000 * MS;

/// Nothing is checked but what the kernel forbids.
fn unchecked() -> Bounds {
    Bounds { wait_ns: None, idle_ns: None, share: None, booked: false }
}

pub(super) fn host(cpus: u32, llcs: u32) -> Host {
    Host { cpus, llcs, bounds: unchecked(), ..Host::default() }
}

/// A machine that may prefer some of its CPUs to others, as a guest does.
pub(super) fn guest(cpus: u32, llcs: u32) -> World {
    World::new(Host { set: vec![("may_prefer".into(), 1)], ..host(cpus, llcs) }).unwrap()
}

pub(super) fn hogs(
    world: &mut World,
    n: u32,
    name: &str,
    cpus: Option<Vec<u32>>,
    group: Option<usize>,
) -> Vec<u32> {
    (0..n)
        .map(|i| {
            world.task(TaskSpec {
                cpus: cpus.clone(),
                group,
                ..TaskSpec::new(&format!("{name}{i}"), Kind::Hog)
            })
        })
        .collect()
}

pub(super) fn measured(world: &mut World, from: u64, to: u64) -> Report {
    world.measure_from(from);
    world.run(to);
    world.report()
}

/// The first task of a name, or whose name begins so.
pub(super) fn task<'a>(report: &'a Report, name: &str) -> &'a TaskReport {
    let named = report.tasks.iter().find(|task| task.name.starts_with(name));
    named.unwrap_or_else(|| panic!("no task is named {name}"))
}

/// Calls of the dearest call of an operation, if costs were counted.
pub(super) fn most_calls(report: &Report, operation: &str) -> u64 {
    let cost = report.costs.iter().find(|cost| cost.name == operation);
    cost.unwrap_or_else(|| panic!("nobody has called {operation}")).most
}

/// CPUs that tasks of a name had, and were due.
pub(super) fn of(report: &Report, name: &str) -> (f64, f64) {
    let list = report.tasks.iter().filter(|task| task.name.starts_with(name));
    list.fold((0.0, 0.0), |(had, due), task| (had + task.cpus, due + task.due.unwrap_or(0.0)))
}

/// Words about a share that is off by more than 5 %.
pub(super) fn off(report: &Report, name: &str) -> Option<String> {
    let (had, due) = of(report, name);
    ((had - due).abs() > 0.05 * due).then(|| format!("{name}: {had:.2} CPUs where {due:.2} are due"))
}

/// Adds tasks that sleep and wake up, and says how long one waits in the mean, ns.
pub(super) fn mean_wait_of_wakers(
    world: &mut World,
    n: u32,
    cpus: Option<Vec<u32>>,
    group: Option<usize>,
) -> u64 {
    for i in 0..n {
        let waker = TaskSpec::new(&format!("waker{i}"), Kind::Sleeper(1_500_000, 4 * MS));
        world.task(TaskSpec { cpus: cpus.clone(), group, ..waker });
    }
    mean_wait(&measured(world, SECOND, 4 * SECOND), "waker")
}

/// How long tasks of a name wait after they wake up, in the mean, ns.
pub(super) fn mean_wait(report: &Report, name: &str) -> u64 {
    let tasks = report.tasks.iter().filter(|task| task.name.starts_with(name));
    let waits: Vec<u64> = tasks.flat_map(|task| task.latencies.clone()).collect();
    waits.iter().sum::<u64>() / waits.len() as u64
}
