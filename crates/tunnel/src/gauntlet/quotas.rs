// SPDX-License-Identifier: GPL-2.0-only
//! Groups' `cpu.max`.

use super::MS;
use super::setup::{Setup, has_cpus, shares};
use crate::check::Bounds;
use crate::guest::Pattern;
use crate::report::Report;
use crate::world::{Change, Host};
use anyhow::Result;

/// Groups run for what their `cpu.max` allows them, nested, VMs and others, and the rest goes to whoever can use it. Of two
/// siblings, the one that may not run is no rival of the other.
pub(super) fn quotas(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.05), ..Host::default() })?;
    let (alone, outer, of_vm) =
        (setup.world.group(0, 100), setup.world.group(0, 100), setup.world.group(0, 100));
    let inner = [setup.world.group(outer, 100), setup.world.group(outer, 100)];
    setup.hogs("alone", 4, |spec| spec.group = Some(alone));
    for (nth, group) in inner.into_iter().enumerate() {
        setup.hogs(&format!("inner{nth}-"), 2, |spec| spec.group = Some(group));
    }
    setup.vm("vm", 4, Pattern::Compute, |spec| spec.group = Some(of_vm));
    setup.hogs("free", 3, |_| {});
    for (at, group, quota) in
        [(1, alone, 200_000), (1, outer, 60_000), (1, of_vm, 70_000), (150, alone, 50_000)]
    {
        setup.world.at(at * MS, Change::Bandwidth(group, 100_000, quota));
    }
    setup.world.at(200 * MS, Change::Bandwidth(inner[0], 100_000, 20_000));
    let mut report = setup.run(1000, 4000);
    for (name, limit) in [("alone", 0.5), ("inner0", 0.2), ("inner", 0.6), ("vm", 0.7)] {
        let had: f64 = report.tasks.iter().filter(|t| t.name.starts_with(name)).map(|t| t.cpus).sum();
        if (had / limit - 1.0).abs() > 0.02 {
            report.findings.add("limit", || format!("{name} has {had:.3} CPUs where {limit} are allowed"));
        }
    }
    Ok(report)
}

/// Who has used a limit up runs on at once when it is raised, and not when a long period ends.
pub(super) fn changed_quota(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.16), ..Host::default() })?;
    let group = setup.world.group(0, 100);
    setup.hogs("limited", 4, |spec| spec.group = Some(group));
    setup.world.at(MS, Change::Bandwidth(group, 1_000_000, 100_000));
    setup.world.at(100 * MS, Change::Bandwidth(group, 1_000_000, 8_000_000));
    let mut report = setup.run(110, 700);
    let had: f64 = report.tasks.iter().map(|task| task.cpus).sum();
    if had < 3.9 {
        report.findings.add("limit", || format!("4 tasks whose limit was raised have {had:.3} of 4 CPUs"));
    }
    Ok(report)
}

/// A limit holds for tasks of groups that are deeper than the scheduler follows.
pub(super) fn far_quota(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.16), ..Host::default() })?;
    let top = setup.world.group(0, 100);
    let bottom = (0..15).fold(top, |above, _| setup.world.group(above, 100));
    setup.hogs("deep", 4, |spec| spec.group = Some(bottom));
    setup.world.at(MS, Change::Bandwidth(top, 100_000, 50_000));
    let mut report = setup.run(500, 2000);
    let had: f64 = report.tasks.iter().map(|task| task.cpus).sum();
    if (had / 0.5 - 1.0).abs() > 0.02 {
        report.findings.add("limit", || format!("a group of 0.5 CPUs has {had:.3}"));
    }
    Ok(report)
}

/// Who is parked when the last limit is lifted runs on.
pub(super) fn last_quota(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.16), ..Host::default() })?;
    let group = setup.world.group(0, 100);
    setup.hogs("limited", 4, |spec| spec.group = Some(group));
    setup.world.at(MS, Change::Bandwidth(group, 100_000, 20_000));
    setup.world.at(260 * MS, Change::Bandwidth(group, 100_000, u64::MAX));
    let mut report = setup.run(400, 1000);
    let had: f64 = report.tasks.iter().map(|task| task.cpus).sum();
    if had < 3.9 {
        report.findings.add("limit", || format!("4 tasks without a limit any more have {had:.3} of 4 CPUs"));
    }
    Ok(report)
}

/// CPUs that a group of four hogs with a `cpu.max` of half a CPU has if the first timers cannot be had.
pub(super) fn without_timers(object: Option<Vec<u8>>, refused: u32) -> Result<(Report, f64)> {
    let host = Host { no_timers: refused, bounds: shares(0.16), ..Host::default() };
    let mut setup = Setup::new(object, host)?;
    let group = setup.world.group(0, 100);
    setup.hogs("limited", 4, |spec| spec.group = Some(group));
    setup.world.at(MS, Change::Bandwidth(group, 100_000, 50_000));
    let report = setup.run(1000, 3000);
    let had = report.tasks.iter().map(|task| task.cpus).sum();
    Ok((report, had))
}

/// There is no memory for a timer at once, and then there is: limits hold.
pub(super) fn late_timer(object: Option<Vec<u8>>) -> Result<Report> {
    let (mut report, had) = without_timers(object, 3)?;
    if (had / 0.5 - 1.0).abs() > 0.02 {
        report.findings.add("limit", || format!("the group has {had:.3} CPUs where 0.5 are allowed"));
    }
    Ok(report)
}

/// There is never memory for a timer: nobody is limited, as nobody would run again.
pub(super) fn no_timer(object: Option<Vec<u8>>) -> Result<Report> {
    let (mut report, had) = without_timers(object, u32::MAX)?;
    report.findings = report.findings.without("share");
    if had < 3.9 {
        report.findings.add("limit", || format!("without a timer the group has {had:.3} of 4 CPUs"));
    }
    Ok(report)
}

/// A group that may run again does so although more tasks than are looked at at once stay parked.
pub(super) fn crowd_of_throttled(object: Option<Vec<u8>>) -> Result<Report> {
    let bounds = Bounds { wait_ns: None, idle_ns: None, share: None, booked: false };
    let mut setup = Setup::new(object, Host { bounds, ..Host::default() })?;
    let (throttled, freed) = (setup.world.group(0, 100), setup.world.group(0, 100));
    setup.world.at(MS, Change::Bandwidth(throttled, 1_000_000, 1000));
    setup.world.at(MS, Change::Bandwidth(freed, 100_000, 50_000));
    setup.hogs("parked", 1100, |spec| spec.group = Some(throttled));
    setup.world.run(20 * MS);
    setup.hogs("freed", 1, |spec| spec.group = Some(freed));
    let mut report = setup.run(1000, 2000);
    has_cpus(&mut report, "freed0", 0.5);
    Ok(report)
}
