// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that sleep and wake up, and the classes of tasks.

use super::MS;
use super::setup::{Setup, shares, wakes_within};
use crate::check::Bounds;
use crate::guest::Pattern;
use crate::report::Report;
use crate::world::{Change, Host, Kind, TaskSpec};
use anyhow::Result;

pub(super) fn sleepers(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.05), ..Host::default() })?;
    setup.hogs("hog", 8, |_| {});
    for i in 0..4 {
        setup.task(&format!("anywhere{i}"), Kind::Sleeper(200_000, 4 * MS), |_| {});
        setup.task(&format!("bound{i}"), Kind::Sleeper(100_000, 5 * MS), |spec| spec.cpus = Some(vec![i]));
    }
    let mut report = setup.run(300, 2300);
    wakes_within(&mut report, "anywhere", 50, 1000.0);
    wakes_within(&mut report, "bound", 50, 1000.0);
    Ok(report)
}

/// Nobody waits where there are CPUs enough.
pub(super) fn room_for_all(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, llcs: 2, ..Host::default() })?;
    setup.hogs("hog", 2, |_| {});
    for i in 0..4 {
        setup.task(&format!("sleeper{i}"), Kind::Sleeper(500_000, MS), |_| {});
    }
    let mut report = setup.run(100, 600);
    wakes_within(&mut report, "sleeper", 20, 50.0);
    Ok(report)
}

/// Who has had a CPU to itself for long does not pay for it when somebody comes.
pub(super) fn long_alone(object: Option<Vec<u8>>) -> Result<Report> {
    let bounds = Bounds { wait_ns: Some(30 * MS), ..Bounds::default() };
    let mut setup = Setup::new(object, Host { cpus: 1, bounds, ..Host::default() })?;
    setup.hogs("first", 1, |_| {});
    setup.world.at(1000 * MS, Change::Begin(Box::new(TaskSpec::new("second", Kind::Hog))));
    Ok(setup.run(900, 2000))
}

/// A long sleep earns a slice, and no more: nobody waits for all that a task has not run.
pub(super) fn long_sleeps(object: Option<Vec<u8>>) -> Result<Report> {
    let bounds = Bounds { wait_ns: Some(60 * MS), ..Bounds::default() };
    let mut setup = Setup::new(object, Host { cpus: 2, bounds, ..Host::default() })?;
    setup.hogs("hog", 2, |_| {});
    for i in 0..4 {
        setup.task(&format!("sleeper{i}"), Kind::Sleeper(300 * MS, 1000 * MS), |_| {});
    }
    Ok(setup.run(500, 4000))
}

pub(super) fn real_time(object: Option<Vec<u8>>) -> Result<Report> {
    let bounds = Bounds { wait_ns: Some(100 * MS), ..Bounds::default() };
    let mut setup = Setup::new(object, Host { bounds, ..Host::default() })?;
    for cpu in 0..2 {
        setup.task(&format!("rt{cpu}"), Kind::RealTime(20 * MS, 10 * MS), |spec| spec.cpus = Some(vec![cpu]));
    }
    setup.hogs("hog", 4, |_| {});
    setup.vm("vm", 4, Pattern::Messages, |_| {});
    for i in 0..3 {
        setup.task(&format!("sleeper{i}"), Kind::Sleeper(100_000, 2 * MS), |_| {});
    }
    let mut report = setup.run(100, 1600);
    wakes_within(&mut report, "sleeper", 10, 40_000.0);
    Ok(report)
}

/// `SCHED_IDLE` runs where nobody else would, and now and then.
pub(super) fn sched_idle(object: Option<Vec<u8>>) -> Result<Report> {
    let set = vec![("idle_patience_ns".to_string(), 200 * MS)];
    let mut setup = Setup::new(object, Host { set, bounds: shares(0.05), ..Host::default() })?;
    setup.hogs("hog", 6, |_| {});
    setup.hogs("idle", 2, |spec| spec.policy = 5);
    setup.task("bound-idle", Kind::Hog, |spec| {
        spec.policy = 5;
        spec.cpus = Some(vec![1]);
    });
    let mut report = setup.run(300, 2300);
    // Their own entitlement is next to nothing: what they have is a matter of patience.
    report.findings = report.findings.without("share");
    for task in &report.tasks {
        let idle = task.name.contains("idle");
        let due = task.due.unwrap_or(0.0);
        if idle && (task.cpus > 0.08 || task.cpus < 0.001) || !idle && (task.cpus / due - 1.0).abs() > 0.07 {
            report
                .findings
                .add("share", || format!("{} has {:.4} CPUs beside SCHED_IDLE", task.name, task.cpus));
        }
    }
    Ok(report)
}

/// A host task that sleeps most of the time runs at once, whatever VMs do to each other's vCPUs.
pub(super) fn wake_ups(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    for name in ["vm-a", "vm-b", "vm-c"] {
        setup.vm(name, 4, Pattern::Shootdown, |_| {});
    }
    setup.task("sleeper", Kind::Sleeper(3_000, 312_000), |_| {});
    let mut report = setup.run(200, 1200);
    wakes_within(&mut report, "sleeper", 10, 100.0);
    Ok(report)
}

/// Nor does it wait for the turn of a VM that a CPU is about to go on with when it is told of the wake-up.
pub(super) fn wake_ups_at_yields(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { interleave: 2, ..Host::default() })?;
    for name in ["vm-a", "vm-b"] {
        setup.vm(name, 4, Pattern::Ipi, |_| {});
    }
    setup.task("sleeper", Kind::Sleeper(3_000, 312_000), |_| {});
    let mut report = setup.run(200, 1200);
    wakes_within(&mut report, "sleeper", 10, 100.0);
    Ok(report)
}
