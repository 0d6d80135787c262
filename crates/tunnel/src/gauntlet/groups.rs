// SPDX-License-Identifier: GPL-2.0-only
//! Shares by weight: tasks, groups, groups in groups.

use super::MS;
use super::setup::{Setup, most_switches, shares};
use crate::guest::Pattern;
use crate::report::Report;
use crate::world::{Host, Kind};
use anyhow::Result;

pub(super) fn hogs_by_weight(object: Option<Vec<u8>>) -> Result<Report> {
    // With ticks of 1 ms, turns may end when they should.
    let mut setup = Setup::new(object, Host { hz: 1000, bounds: shares(0.02), ..Host::default() })?;
    setup.hogs("light", 6, |_| {});
    setup.hogs("heavy", 2, |spec| spec.weight = 200);
    setup.hogs("heaviest", 2, |spec| spec.weight = 300);
    let mut report = setup.run(300, 2300);
    most_switches(&mut report, 4, 2.3, 400.0);
    Ok(report)
}

/// A group has its share however many tasks are in it.
pub(super) fn groups_by_size(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.01), ..Host::default() })?;
    for (name, n) in [("few", 6), ("many", 12)] {
        let group = setup.world.group(0, 100);
        setup.hogs(name, n, |spec| spec.group = Some(group));
    }
    Ok(setup.run(500, 3500))
}

/// Weights at three levels below the root; a tenth of a CPU is a turn now and then.
pub(super) fn deep_groups(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.1), ..Host::default() })?;
    let top = [setup.world.group(0, 100), setup.world.group(0, 200)];
    for (nth, weight) in [100, 300].into_iter().enumerate() {
        let middle = setup.world.group(top[0], weight);
        for (deeper, weight) in [100, 200].into_iter().enumerate() {
            let leaf = setup.world.group(middle, weight);
            setup.hogs(&format!("deep{nth}{deeper}-"), 3, |spec| spec.group = Some(leaf));
        }
    }
    setup.hogs("shallow", 6, |spec| spec.group = Some(top[1]));
    Ok(setup.run(1000, 5000))
}

pub(super) fn nested_groups(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.05), ..Host::default() })?;
    let (a, b) = (setup.world.group(0, 100), setup.world.group(0, 300));
    let (c, d) = (setup.world.group(b, 100), setup.world.group(b, 200));
    for (group, n) in [(a, 6), (c, 6), (d, 6)] {
        setup.hogs(&format!("in{group}-"), n, |spec| spec.group = Some(group));
    }
    // Who sleeps in a group leaves its share to the others there, and none of it for good.
    setup.task("sleeper", Kind::Sleeper(20_000, 5 * MS), |spec| spec.group = Some(c));
    setup.yield_all(20);
    Ok(setup.run(500, 6500))
}

pub(super) fn group_per_vcpu(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.03), ..Host::default() })?;
    for (name, weight) in [("light", 100), ("heavy", 200)] {
        let group = setup.world.group(0, weight);
        setup.vm(name, 4, Pattern::Compute, |spec| {
            spec.group = Some(group);
            spec.groups_below = 4;
        });
    }
    setup.yield_all(20);
    Ok(setup.run(500, 2500))
}
