// SPDX-License-Identifier: GPL-2.0-only
//! VMs, by what their vCPUs wait for.

use super::MS;
use super::setup::{Setup, least_units, shares, wakes_within};
use crate::guest::Pattern;
use crate::report::Report;
use crate::world::{Change, Host};
use anyhow::Result;
use overbook_policy::class::Class;

/// Two VMs of a pattern, of four vCPUs each, on four CPUs.
pub(super) fn two_vms(object: Option<Vec<u8>>, pattern: Pattern, least: f64) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.05), ..Host::default() })?;
    for name in ["vm-a", "vm-b"] {
        setup.vm(name, 4, pattern, |_| {});
    }
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "vm", least);
    Ok(report)
}

pub(super) fn locks(object: Option<Vec<u8>>) -> Result<Report> {
    two_vms(object, Pattern::Lock, 2950.0)
}

pub(super) fn tickets(object: Option<Vec<u8>>) -> Result<Report> {
    two_vms(object, Pattern::Ticket, 1550.0)
}

pub(super) fn barriers(object: Option<Vec<u8>>) -> Result<Report> {
    two_vms(object, Pattern::Barrier, 370.0)
}

/// Of long phases, beside a VM that computes: whoever waits for siblings that all run, so that KVM finds nobody, gives its
/// CPU up all the same. The VM has its share of one CPU, 20 ms a phase.
pub(super) fn phases(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 2, bounds: shares(0.05), ..Host::default() })?;
    setup.vm("phases", 2, Pattern::Barrier, |spec| spec.outside_ns = 10 * MS);
    setup.vm("computing", 2, Pattern::Compute, |_| {});
    let mut report = setup.run(300, 4300);
    least_units(&mut report, "phases", 46.0);
    Ok(report)
}

pub(super) fn ipis(object: Option<Vec<u8>>) -> Result<Report> {
    two_vms(object, Pattern::Ipi, 7100.0)
}

pub(super) fn shootdowns(object: Option<Vec<u8>>) -> Result<Report> {
    two_vms(object, Pattern::Shootdown, 6200.0)
}

/// Where nobody sees IPIs, the sender says whom it waits for.
pub(super) fn yields_by_name(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    for name in ["vm-a", "vm-b"] {
        setup.vm(name, 4, Pattern::KernelReceiver, |spec| spec.pv_yield = true);
    }
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "vm", 3000.0);
    Ok(report)
}

pub(super) fn receivers(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    setup.vm("kernel", 4, Pattern::KernelReceiver, |_| {});
    setup.vm("user", 4, Pattern::UserReceiver, |_| {});
    setup.vm("halted", 4, Pattern::HaltedReceiver, |_| {});
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "kernel", 2420.0);
    least_units(&mut report, "user", 2350.0);
    least_units(&mut report, "halted", 5000.0);
    Ok(report)
}

/// A sender is answered while it leaves its guest: it must not wait for an answer that has come.
pub(super) fn slow_exits(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { exit_ns: 40_000, ..Host::default() })?;
    setup.vm("kernel", 4, Pattern::KernelReceiver, |_| {});
    setup.vm("user", 4, Pattern::UserReceiver, |_| {});
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "kernel", 2700.0);
    least_units(&mut report, "user", 2750.0);
    Ok(report)
}

pub(super) fn halting(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    setup.vm("messages", 4, Pattern::Messages, |_| {});
    setup.vm("halted", 4, Pattern::HaltedReceiver, |_| {});
    setup.vm("sleeper", 4, Pattern::Sleeper, |_| {});
    setup.hogs("hog", 2, |_| {});
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "messages", 4000.0);
    least_units(&mut report, "halted", 4300.0);
    least_units(&mut report, "sleeper", 2600.0);
    Ok(report)
}

/// A VM whose vCPUs yield all the time has no more than its share, and little less: a vCPU that gives its CPU up, as no
/// sibling can use it, does not use what is due to it.
pub(super) fn yields_beside_hogs(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.06), ..Host::default() })?;
    setup.vm("shootdown", 4, Pattern::Shootdown, |_| {});
    setup.vm("lock", 4, Pattern::Lock, |_| {});
    setup.hogs("hog", 4, |_| {});
    Ok(setup.run(300, 1800))
}

pub(super) fn large_vm(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 16, ..Host::default() })?;
    setup.vm("lock", 16, Pattern::Lock, |spec| spec.critical_ns = 20_000);
    setup.vm("shootdown", 32, Pattern::Shootdown, |_| {});
    let mut report = setup.run(100, 300);
    least_units(&mut report, "lock", 27_500.0);
    least_units(&mut report, "shootdown", 15_000.0);
    Ok(report)
}

/// vCPUs of one VM that may use different CPUs, as `vcpupin` makes them.
pub(super) fn pinned_vcpus(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    for vm in 0..2 {
        setup.vm(&format!("vm{vm}"), 8, [Pattern::Lock, Pattern::Ipi][vm], |_| {});
    }
    for task in 0..16 {
        let first = task % 4;
        setup.world.at(1 + u64::from(task), Change::Affinity(task, vec![first, (first + 1) % 4]));
    }
    Ok(setup.run(200, 1200))
}

/// A latency VM is served at once within its due, a batch VM waits, and both have what they would have as normal ones.
pub(super) fn classes(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.02), ..Host::default() })?;
    for (name, pattern, outside_ns, class) in [
        ("serves", Pattern::Sleeper, 300_000, Class::Latency),
        ("computes", Pattern::Compute, 300_000, Class::Normal),
        ("builds", Pattern::Sleeper, 2 * MS, Class::Batch),
    ] {
        let group = Some(setup.world.group(0, 100));
        setup.vm(name, 4, pattern, |spec| {
            (spec.group, spec.class, spec.outside_ns) = (group, class, outside_ns);
        });
    }
    let mut report = setup.run(500, 2500);
    wakes_within(&mut report, "serves", 10, 150.0);
    let of = |name: &str| report.vms.iter().find(|vm| vm.name == name).map_or(0.0, |vm| vm.cpus);
    let (serves, builds) = (of("serves"), of("builds"));
    if serves < 0.88 || builds < 1.46 {
        report.findings.add("share", || format!("who serves has {serves:.3} CPUs, who builds {builds:.3}"));
    }
    // Who builds must not preempt: with three vCPUs per CPU it waits for a slice of others now and then.
    let waits = report.tasks.iter().filter(|task| task.name.starts_with("builds"));
    let late = waits.filter_map(|task| task.latencies.get(task.latencies.len() * 99 / 100)).max();
    if late.is_none_or(|ns| *ns < 5 * MS) {
        report.findings.add("latency", || format!("a batch VM waits for {late:?} ns only as it wakes up"));
    }
    Ok(report)
}

/// Whoever waits for an answer gets it, however many wait for the same vCPU.
pub(super) fn many_senders(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host::default())?;
    setup.vm("vm", 64, Pattern::Ipi, |spec| spec.outside_ns = 20_000);
    let mut lost = 0;
    for at in 1..=50 {
        setup.world.run(at * 20 * MS);
        lost = lost.max(setup.world.report().lost_relations);
    }
    let mut report = setup.run(1000, 1100);
    if lost > 0 {
        report
            .findings
            .add("relations", || format!("{lost} senders wait for receivers that do not know of it"));
    }
    Ok(report)
}
