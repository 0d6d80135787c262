// SPDX-License-Identifier: GPL-2.0-only
//! All that changes while everybody runs.

use super::MS;
use super::setup::{Setup, has_cpus, shares};
use crate::check::Bounds;
use crate::guest::{Pattern, VmSpec};
use crate::report::Report;
use crate::world::{Change, Host, Kind, TaskSpec};
use anyhow::Result;

/// VMs and tasks come, go, and come again.
pub(super) fn come_and_go(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 4, llcs: 2, ..Host::default() })?;
    setup.hogs("hog", 2, |_| {});
    // Two of its vCPUs end, and two stay.
    setup.vm("shrinks", 4, Pattern::Compute, |_| {});
    for task in [3, 4] {
        setup.world.at(300 * MS + u64::from(task), Change::End(task));
    }
    let mut next = 6;
    for round in 0..8_u64 {
        let at = 100 * MS * round + MS;
        let pattern =
            [Pattern::Lock, Pattern::Ipi, Pattern::Messages, Pattern::Shootdown][round as usize % 4];
        setup.world.at(at, Change::BeginVm(Box::new(VmSpec::new(&format!("vm{round}"), 4, pattern))));
        setup.world.at(at + MS, Change::Begin(Box::new(TaskSpec::new(&format!("brief{round}"), Kind::Hog))));
        for task in next..next + 5 {
            setup.world.at(at + 150 * MS, Change::End(task));
        }
        next += 5;
    }
    Ok(setup.run(200, 1200))
}

/// Weights, groups, classes and affinities change while everybody runs.
pub(super) fn changes(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.05), ..Host::default() })?;
    let (a, b) = (setup.world.group(0, 100), setup.world.group(0, 100));
    for i in 0..12 {
        setup.task(&format!("hog{i}"), Kind::Hog, |spec| spec.group = Some(if i < 6 { a } else { b }));
    }
    for i in 0..6_u64 {
        let at = (50 + 20 * i) * MS;
        let task = i as u32;
        setup.world.at(at, Change::Weight(task, 300, 0));
        setup.world.at(at + MS, Change::Group(task, b));
        setup.world.at(at + 2 * MS, Change::Affinity(task, vec![task % 4]));
        setup.world.at(at + 9 * MS, Change::Weight(task, 100, 5));
        setup.world.at(at + 60 * MS, Change::Weight(task, 200, 0));
        setup.world.at(at + 70 * MS, Change::Affinity(task, vec![0, 1, 2, 3]));
        setup.world.at(at + 80 * MS, Change::Group(task, a));
        setup.world.at(at + 81 * MS, Change::Yield(task % 4));
    }
    Ok(setup.run(500, 2500))
}

/// Allocations fail now and then, and nobody is lost for it.
pub(super) fn no_memory(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { starve: 3, ..Host::default() })?;
    let group = setup.world.group(0, 100);
    setup.hogs("hog", 8, |spec| spec.group = Some(group));
    setup.vm("vm", 4, Pattern::Ipi, |_| {});
    setup.vm("messages", 4, Pattern::Messages, |_| {});
    for i in 0..4 {
        setup.task(&format!("sleeper{i}"), Kind::Sleeper(200_000, 2 * MS), |_| {});
    }
    Ok(setup.run(100, 600))
}

/// Programs of several CPUs, interleaved at their calls.
pub(super) fn races(object: Option<Vec<u8>>) -> Result<Report> {
    let mut last = None;
    for seed in 1..13 {
        let interleave = [2, 8][seed as usize % 2];
        let host = Host { seed, interleave, cpus: 6, llcs: 2, ..Host::default() };
        let mut setup = Setup::new(object.clone(), host)?;
        setup.vm("lock", 4, Pattern::Lock, |_| {});
        setup.vm("shootdown", 4, Pattern::Shootdown, |_| {});
        // Its vCPUs wake each other all the time.
        setup.vm("messages", 6, Pattern::Messages, |spec| spec.outside_ns = 20_000);
        for i in 0..4 {
            setup.task(&format!("sleeper{i}"), Kind::Sleeper(200_000, MS), |_| {});
        }
        let mut report = setup.run(0, 100);
        // Two vCPUs that are found at once make two VMs: a fault that is known.
        report.findings = report.findings.without("entries");
        if !report.findings.is_empty() {
            return Ok(report);
        }
        last = Some(report);
    }
    last.ok_or_else(|| anyhow::anyhow!("no seed was tried"))
}

/// A VM that leaves the group that it shares has what is due to it in the other: with the leader of its process or without,
/// and with its vCPUs in one group there or in two.
fn vm_moves(object: Option<Vec<u8>>, leads: bool, apart: bool) -> Result<Report> {
    let bounds = Bounds { share: None, ..Bounds::default() };
    let mut setup = Setup::new(object, Host { cpus: 2, bounds, ..Host::default() })?;
    let (old, new) = (setup.world.group(0, 100), setup.world.group(0, 300));
    let below = if apart { [setup.world.group(new, 100), setup.world.group(new, 100)] } else { [new; 2] };
    // As QEMU's main thread, which wakes up all the time.
    let leader = TaskSpec { group: Some(old), ..TaskSpec::new("leader", Kind::Sleeper(20_000, 50 * MS)) };
    let tgid = if leads { setup.world.process(leader) } else { 0 };
    let mover = setup.vm("mover", 2, Pattern::Compute, |spec| (spec.tgid, spec.group) = (tgid, Some(old)));
    setup.vm("sibling", 2, Pattern::Compute, |spec| spec.group = Some(old));
    for (task, group) in setup.world.vcpu_tasks(mover).into_iter().zip(below) {
        setup.world.at(300 * MS, Change::Group(task, group));
    }
    // Its leader last, as whoever moves threads one by one may have it.
    if leads {
        setup.world.at(300 * MS, Change::Group(0, new));
    }
    let mut report = setup.run(500, 1500);
    has_cpus(&mut report, "mover", 1.5);
    Ok(report)
}

pub(super) fn moving_process(object: Option<Vec<u8>>) -> Result<Report> {
    vm_moves(object, true, false)
}

pub(super) fn moving_vcpus(object: Option<Vec<u8>>) -> Result<Report> {
    vm_moves(object, false, false)
}

pub(super) fn parting_vcpus(object: Option<Vec<u8>>) -> Result<Report> {
    vm_moves(object, false, true)
}
