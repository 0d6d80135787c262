// SPDX-License-Identifier: GPL-2.0-only
//! CPUs: sets of them that tasks are bound to, LLCs, and CPUs that a higher class takes.

use super::MS;
use super::setup::{Setup, hogs_have_cpus, least_units, shares, wakes_within};
use crate::guest::Pattern;
use crate::report::Report;
use crate::world::{Change, Host, Kind, kernel};
use anyhow::Result;

pub(super) fn pools(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, llcs: 2, bounds: shares(0.06), ..Host::default() })?;
    for pool in 0..2 {
        let cpus: Vec<u32> = (4 * pool..4 * pool + 4).collect();
        for (name, weight) in [("light", 100), ("heavy", 300)] {
            setup.hogs(&format!("{name}{pool}-"), 6, |spec| {
                spec.weight = weight;
                spec.cpus = Some(cpus.clone());
            });
        }
    }
    for cpu in 0..8 {
        setup.task(&format!("kthread{cpu}"), Kind::Sleeper(50_000, 5 * MS), |spec| {
            spec.cpus = Some(vec![cpu])
        });
    }
    let mut report = setup.run(500, 2500);
    wakes_within(&mut report, "kthread", 10, 12_000.0);
    Ok(report)
}

/// Tasks that are bound push hogs away, which find idle CPUs.
pub(super) fn pushed_away(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, ..Host::default() })?;
    setup.hogs("hog", 4, |_| {});
    for cpu in 0..4 {
        setup.task(&format!("bound{cpu}"), Kind::Sleeper(30 * MS, 40 * MS), |spec| {
            spec.cpus = Some(vec![cpu])
        });
    }
    let mut report = setup.run(100, 1100);
    hogs_have_cpus(&mut report);
    wakes_within(&mut report, "bound", 50, 5000.0);
    Ok(report)
}

pub(super) fn four_llcs(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 16, llcs: 4, nodes: 2, ..Host::default() })?;
    setup.hogs("hog", 14, |_| {});
    for i in 0..4 {
        setup.vm(&format!("vm{i}"), 4, [Pattern::Lock, Pattern::Sleeper][i % 2], |_| {});
    }
    // An LLC whose tasks all stay there, and more of them than elsewhere.
    setup.hogs("there", 4, |spec| spec.cpus = Some((4..8).collect()));
    Ok(setup.run(100, 1100))
}

/// LLCs that have enough to do leave each other's tasks alone.
pub(super) fn two_llcs(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup =
        Setup::new(object, Host { cpus: 8, llcs: 2, traced: 200 * MS..700 * MS, ..Host::default() })?;
    setup.hogs("hog", 26, |_| {});
    for i in 0..4 {
        setup.task(&format!("sleeper{i}"), Kind::Sleeper(300_000, 3 * MS), |_| {});
    }
    setup.world.run(700 * MS);
    let mut runs = setup.world.trace.runs.clone();
    runs.sort_by_key(|(_, task, from, _)| (*task, *from));
    let moves =
        runs.windows(2).filter(|pair| pair[0].1 == pair[1].1 && pair[0].0 / 4 != pair[1].0 / 4).count();
    let mut report = setup.run(200, 700);
    if moves > 50 {
        report
            .findings
            .add("moves", || format!("{moves} moves between LLCs in half a second; the bound is 50"));
    }
    Ok(report)
}

/// Each VM of four has the room that it needs in one of two LLCs, and stays there.
pub(super) fn homes(object: Option<Vec<u8>>) -> Result<Report> {
    homes_on(object, (0..8).collect(), false, 350.0)
}

/// The same of VMs in a group each, which age on all their CPUs.
pub(super) fn homes_of_groups(object: Option<Vec<u8>>) -> Result<Report> {
    homes_on(object, (0..8).collect(), true, 370.0)
}

/// The same of VMs that leave the first CPU of each LLC to others.
pub(super) fn homes_in_a_pool(object: Option<Vec<u8>>) -> Result<Report> {
    homes_on(object, vec![1, 2, 3, 5, 6, 7], false, 380.0)
}

/// Four VMs that may use these of 8 CPUs, with a vCPU for each of a half; what the first must do.
fn homes_on(object: Option<Vec<u8>>, cpus: Vec<u32>, grouped: bool, units: f64) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, llcs: 2, ..Host::default() })?;
    let bound = (cpus.len() < 8).then_some(&cpus);
    for i in 0..4 {
        let pattern = [Pattern::Barrier, Pattern::Compute][i % 2];
        let group = grouped.then(|| setup.world.group(0, 100));
        setup.vm(&format!("vm{i}"), cpus.len() as u32 / 2, pattern, |spec| {
            spec.cpus = bound.cloned();
            spec.group = group;
        });
    }
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "vm0", units);
    if report.llc_moves > 5 {
        let moves = report.llc_moves;
        report.findings.add("moves", || format!("{moves} moves between LLCs in a second; the bound is 5"));
    }
    Ok(report)
}

/// Tasks that may use CPUs of two LLCs, all of which begin in one, have the same of both.
pub(super) fn pool_on_llcs(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, llcs: 2, bounds: shares(0.06), ..Host::default() })?;
    setup.hogs("hog", 8, |spec| spec.cpus = Some(vec![1, 2, 3]));
    for task in 0..8 {
        setup.world.at(100 * MS + u64::from(task), Change::Affinity(task, vec![1, 2, 3, 5, 6, 7]));
    }
    Ok(setup.run(500, 2500))
}

/// Who spins goes on with a sibling wherever it is queued.
pub(super) fn larger_than_an_llc(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { cpus: 8, llcs: 4, bounds: shares(0.05), ..Host::default() })?;
    for i in 0..4 {
        setup.vm(&format!("vm{i}"), 4, Pattern::Barrier, |_| {});
    }
    let mut report = setup.run(200, 1200);
    least_units(&mut report, "vm", 370.0);
    Ok(report)
}

/// An LLC that has nothing to do takes what waits in another one.
pub(super) fn idle_llc(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { llcs: 2, ..Host::default() })?;
    setup.hogs("hog", 6, |spec| spec.cpus = Some(vec![0, 1]));
    for task in 0..6 {
        setup.world.at(100 * MS + u64::from(task), Change::Affinity(task, vec![0, 1, 2, 3]));
    }
    Ok(setup.run(150, 500))
}

/// Who wakes up in a pool preempts there, and not elsewhere.
pub(super) fn small_pools(object: Option<Vec<u8>>) -> Result<Report> {
    let mut setup = Setup::new(object, Host { bounds: shares(0.06), ..Host::default() })?;
    for pool in 0..2 {
        let cpus = vec![2 * pool, 2 * pool + 1];
        setup.hogs(&format!("hog{pool}-"), 4, |spec| spec.cpus = Some(cpus.clone()));
        for i in 0..2 {
            let sleeper = Kind::Sleeper(200_000, 4 * MS);
            setup.task(&format!("sleeper{pool}-{i}"), sleeper, |spec| spec.cpus = Some(cpus.clone()));
        }
    }
    let mut report = setup.run(300, 1300);
    wakes_within(&mut report, "sleeper", 50, 1000.0);
    Ok(report)
}

/// Whoever loses its CPU to a real-time task goes to another one that idles.
pub(super) fn taken_cpus_of(object: Option<Vec<u8>>, version: i32) -> Result<Report> {
    let mut setup = Setup::new(object, Host { version, ..Host::default() })?;
    for cpu in 0..2 {
        setup.task(&format!("rt{cpu}"), Kind::RealTime(30 * MS, 20 * MS), |spec| spec.cpus = Some(vec![cpu]));
    }
    setup.hogs("hog", 2, |_| {});
    let mut report = setup.run(100, 1100);
    hogs_have_cpus(&mut report);
    Ok(report)
}

pub(super) fn taken_cpus(object: Option<Vec<u8>>) -> Result<Report> {
    taken_cpus_of(object, kernel(6, 18))
}

pub(super) fn taken_cpus_later(object: Option<Vec<u8>>) -> Result<Report> {
    taken_cpus_of(object, kernel(7, 2))
}
