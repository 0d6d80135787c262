// SPDX-License-Identifier: GPL-2.0-only
//! Who has which share of the CPUs.

use super::setup::*;

pub(super) fn a1() -> Option<String> {
    let mut world = World::new(host(8, 1)).unwrap();
    hogs(&mut world, 12, "bound", Some((0..6).collect()), None);
    for i in 0..8 {
        let hog = TaskSpec::new(&format!("free{i}"), Kind::Hog);
        world.at(5 * SECOND, Change::Begin(Box::new(hog)));
    }
    off(&measured(&mut world, 5200 * MS, 6200 * MS), "bound")
}

pub(super) fn a4() -> Option<String> {
    let mut world = World::new(host(16, 2)).unwrap();
    let mut all = hogs(&mut world, 30, "many", Some((0..8).collect()), None);
    all.extend(hogs(&mut world, 9, "few", Some((8..16).collect()), None));
    for task in all {
        world.at(SECOND, Change::Affinity(task, (0..16).collect()));
    }
    off(&measured(&mut world, 3 * SECOND, 5 * SECOND), "few")
}

pub(super) fn a8() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let above = world.group(0, 100);
    let (a, b) = (world.group(above, 100), world.group(above, 100));
    hogs(&mut world, 4, "steady", None, Some(a));
    hogs(&mut world, 4, "raised", None, Some(b));
    world.at(SECOND, Change::GroupWeight(b, 400));
    off(&measured(&mut world, 1200 * MS, 3 * SECOND), "raised")
}

pub(super) fn a9() -> Option<String> {
    let mut world = World::new(host(64, 1)).unwrap();
    let (machine, system) = (world.group(0, 100), world.group(0, 100));
    for vm in 0..125 {
        let group = world.group(machine, 100);
        let mut spec = VmSpec::new(&format!("vm{vm}"), 16, Pattern::Compute);
        (spec.group, spec.groups_below) = (Some(group), 16);
        spec.outside_ns = 50 * MS;
        world.vm(spec);
    }
    hogs(&mut world, 64, "system", None, Some(system));
    off(&measured(&mut world, 500 * MS, 1500 * MS), "system")
}

/// Nobody earns time by yielding: a VM that does nothing else has its share beside one that computes.
pub(super) fn a12() -> Option<String> {
    (1..10).find_map(|seed| {
        let slow = Host { seed, interleave: 50, pause_ns: 500, dwell_in: Some(c"atomic"), ..host(4, 1) };
        let mut world = World::new(slow).unwrap();
        world.vm(VmSpec::new("a", 8, Pattern::Shootdown));
        world.vm(VmSpec::new("b", 8, Pattern::Compute));
        let report = measured(&mut world, 100 * MS, 1100 * MS);
        let vm = &report.vms[1];
        let due = vm.due?;
        (vm.cpus < 0.95 * due).then(|| format!("b has {:.2} CPUs of {due:.2} (seed {seed})", vm.cpus))
    })
}

pub(super) fn a14() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    hogs(&mut world, 12, "hog", None, None);
    let stuck = world.task(TaskSpec::new("stuck", Kind::Hog));
    world.at(100 * MS, Change::Migration(stuck, true));
    off(&measured(&mut world, 200 * MS, 2 * SECOND), "stuck")
}

/// nice counts among the tasks of a group, too.
pub(super) fn nice_in_a_group() -> Option<String> {
    [(100, 1), (100, 10), (8668, 100)].into_iter().find_map(|(heavy, light)| {
        let mut world = World::new(host(1, 1)).unwrap();
        let group = Some(world.group(0, 100));
        world.task(TaskSpec { weight: heavy, group, ..TaskSpec::new("heavy", Kind::Hog) });
        world.task(TaskSpec { weight: light, group, ..TaskSpec::new("light", Kind::Hog) });
        let (had, due) = of(&measured(&mut world, 2 * SECOND, 12 * SECOND), "light");
        println!("who weighs {light} beside {heavy} in a group has {had:.4} CPUs where {due:.4} are due");
        (had > 2.0 * due + 0.002)
            .then(|| format!("{light} beside {heavy} has {had:.4} CPUs where {due:.4} are due"))
    })
}

/// Where a pool has fallen far behind the tide, who comes new begins where its pool is.
pub(super) fn newcomer() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let [left, right] = [vec![0, 1], vec![2, 3]];
    for name in ["a", "b"] {
        let group = world.group(0, 100);
        hogs(&mut world, 2, name, Some(left.clone()), Some(group));
    }
    let group = world.group(0, 100);
    hogs(&mut world, 2, "c", Some(right), Some(group));
    world.run(20 * SECOND);
    let group = world.group(0, 100);
    hogs(&mut world, 2, "new", Some(left), Some(group));
    off(&measured(&mut world, 21 * SECOND, 25 * SECOND), "new")
}

/// A task that is preempted while migration is disabled stays in its pool.
pub(super) fn migration_off_and_on() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let [left, right] = [vec![0, 1], vec![2, 3]];
    let mut toggled = 0;
    for name in ["a", "b"] {
        let group = world.group(0, 100);
        toggled = hogs(&mut world, 2, name, Some(left.clone()), Some(group))[0];
    }
    let group = world.group(0, 100);
    hogs(&mut world, 2, "c", Some(right), Some(group));
    for i in 0..40 {
        world.at(20 * SECOND + i * 100 * MS, Change::Migration(toggled, i % 2 == 0));
    }
    off(&measured(&mut world, 20 * SECOND, 24 * SECOND), "b")
}

/// Each has four fifths of a CPU, and none needs to change its LLC at every slice for that.
pub(super) fn one_more_than_cpus() -> Option<String> {
    let mut world = World::new(host(4, 2)).unwrap();
    for i in 0..5 {
        world.vm(VmSpec::new(&format!("vm{i}"), 1, Pattern::Compute));
    }
    let report = measured(&mut world, SECOND, 3 * SECOND);
    let (most, least) =
        report.vms.iter().fold((0.0f64, 1.0f64), |(most, least), vm| (most.max(vm.cpus), least.min(vm.cpus)));
    let often = report.llc_moves * 5 > report.switches;
    (often || most - least > 0.02).then(|| {
        format!(
            "{} of {} switches are to another LLC; {least:.3} to {most:.3} CPUs",
            report.llc_moves, report.switches
        )
    })
}

/// Who waits among those that are bound to the same CPUs is found by all of these: nobody makes way by going elsewhere.
pub(super) fn bound_alike() -> Option<String> {
    let mut world = World::new(host(5, 1)).unwrap();
    for (name, weight) in [("a", 100), ("b", 400)] {
        let group = Some(world.group(0, weight));
        world.vm(VmSpec { group, cpus: Some((1..5).collect()), ..VmSpec::new(name, 4, Pattern::Lock) });
    }
    world.run(2 * SECOND);
    (world.spread() > 0).then(|| format!("{} are sent to other CPUs", world.spread()))
}

/// Ordinary tasks beside VMs of one group share its time with them.
pub(super) fn tasks_beside_vms() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let group = Some(world.group(0, 100));
    for name in ["a", "b"] {
        world.vm(VmSpec { group, ..VmSpec::new(name, 4, Pattern::Compute) });
    }
    hogs(&mut world, 1, "hog", None, group);
    off(&measured(&mut world, SECOND, 4 * SECOND), "hog")
}

/// A third VM of a group is one of three.
pub(super) fn three_vms() -> Option<String> {
    let mut world = World::new(host(3, 1)).unwrap();
    let group = Some(world.group(0, 100));
    for name in ["a", "b", "c"] {
        world.vm(VmSpec { group, ..VmSpec::new(name, 3, Pattern::Compute) });
    }
    let other = Some(world.group(0, 100));
    hogs(&mut world, 3, "hog", None, other);
    let report = measured(&mut world, SECOND, 4 * SECOND);
    let had: Vec<f64> = report.vms.iter().map(|vm| vm.cpus).collect();
    had.iter()
        .any(|had| (had - 0.5).abs() > 0.05)
        .then(|| format!("VMs have {had:.2?} CPUs where 0.5 are due"))
}

/// A VM of little weight that has CPUs to itself ages fast, and those who share others are not pushed ahead for it, the small
/// ones before the large.
pub(super) fn beside_a_light_vm() -> Option<String> {
    let mut world = World::new(host(6, 1)).unwrap();
    let light = Some(world.group(0, 10));
    let own =
        VmSpec { group: light, cpus: Some((2..6).collect()), ..VmSpec::new("light", 4, Pattern::Compute) };
    world.vm(own);
    for (name, tasks) in [("large", 8), ("small", 1), ("little", 1), ("tiny", 1)] {
        let group = Some(world.group(0, 100));
        hogs(&mut world, tasks, name, Some(vec![0, 1]), group);
    }
    let (had, _) = of(&measured(&mut world, SECOND, 11 * SECOND), "small");
    println!("beside a light VM a small tenant has {had:.2} CPUs of 0.5");
    (had < 0.47)
        .then(|| format!("beside a light VM with CPUs of its own a small tenant has {had:.2} CPUs of 0.5"))
}

/// A VM's threads that run elsewhere than its vCPUs do not carry the time of there into the VM's.
pub(super) fn threads_elsewhere() -> Option<String> {
    let mut world = World::new(host(6, 1)).unwrap();
    let elsewhere = Some(vec![0, 1]);
    // Of little weight, it ages fast; the VMs' CPUs lag.
    world.task(TaskSpec { weight: 1, cpus: elsewhere.clone(), ..TaskSpec::new("nice", Kind::Hog) });
    let [with, without] = [100, 100].map(|weight| world.group(0, weight));
    let main = TaskSpec {
        group: Some(with),
        cpus: elsewhere,
        ..TaskSpec::new("main", Kind::Sleeper(20_000, 5 * MS))
    };
    let tgid = world.process(main);
    let cpus: Option<Vec<u32>> = Some((2..6).collect());
    world.vm(VmSpec {
        tgid,
        group: Some(with),
        cpus: cpus.clone(),
        ..VmSpec::new("with", 4, Pattern::Compute)
    });
    world.vm(VmSpec { group: Some(without), cpus, ..VmSpec::new("without", 4, Pattern::Compute) });
    let report = measured(&mut world, SECOND, 11 * SECOND);
    let had = report.vms.iter().find(|vm| vm.name == "with").unwrap().cpus;
    println!("a VM with threads elsewhere has {had:.2} CPUs of 2");
    ((had - 2.0).abs() > 0.1).then(|| format!("a VM with threads elsewhere has {had:.2} CPUs of 2"))
}

/// Who is SCHED_IDLE has what nobody wants: what its group weighs is not taken from the groups beside it.
pub(super) fn beside_sched_idle() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    let above = world.group(0, 100);
    let [busy, idle] = [world.group(above, 100), world.group(above, 100)];
    hogs(&mut world, 1, "busy", None, Some(busy));
    world.task(TaskSpec { policy: 5, group: Some(idle), ..TaskSpec::new("idle", Kind::Hog) });
    hogs(&mut world, 1, "root", None, None);
    let (had, _) = of(&measured(&mut world, SECOND, 6 * SECOND), "busy");
    ((had - 0.5).abs() > 0.03).then(|| format!("beside SCHED_IDLE tasks a group has {had:.3} CPUs of 0.5"))
}

/// Who wakes up in a pool is as far ahead of large groups there as on a host that has no other CPUs.
pub(super) fn large_groups_in_a_small_pool() -> Option<String> {
    let had = |cpus| {
        let mut world = World::new(host(cpus, 1)).unwrap();
        for i in 0..7 {
            let group = Some(world.group(0, 100));
            hogs(&mut world, 16, &format!("hog{i}-"), Some(vec![0, 1]), group);
        }
        let group = Some(world.group(0, 100));
        let sleeper = TaskSpec::new("sleeper", Kind::Sleeper(50 * MS, 300 * MS));
        world.task(TaskSpec { cpus: Some(vec![0, 1]), group, ..sleeper });
        of(&measured(&mut world, SECOND, 21 * SECOND), "sleeper").0
    };
    let (alone, beside) = (had(2), had(16));
    println!("a sleeper beside large groups has {beside:.3} CPUs in a pool, {alone:.3} otherwise");
    (beside > 1.15 * alone).then(|| format!("in a pool it has {beside:.3} CPUs, {alone:.3} otherwise"))
}

/// What SCHED_IDLE tasks of a group have run, on CPUs that nobody else wanted, is not held against its other tasks.
pub(super) fn idle_members() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    let (own, rival) = (world.group(0, 100), world.group(0, 100));
    world.task(TaskSpec { policy: 5, group: Some(own), ..TaskSpec::new("idle", Kind::Hog) });
    for (name, group) in [("plain", own), ("rival", rival)] {
        let hog = TaskSpec { group: Some(group), ..TaskSpec::new(name, Kind::Hog) };
        world.at(20 * SECOND, Change::Begin(Box::new(hog)));
    }
    off(&measured(&mut world, 20 * SECOND, 24 * SECOND), "plain")
}

/// Weights count also where tasks that may run elsewhere stand first in the queue.
pub(super) fn behind_others_sets() -> Option<String> {
    let mut world = guest(4, 1);
    hogs(&mut world, 16, "elsewhere", Some(vec![2, 3]), None);
    for (name, weight) in [("heavy", 1000), ("light0", 100), ("light1", 100)] {
        let spec = TaskSpec::new(name, Kind::Hog);
        world.task(TaskSpec { weight, cpus: Some(vec![0, 1]), ..spec });
    }
    let (had, due) = (of(&measured(&mut world, 2 * SECOND, 6 * SECOND), "heavy").0, 1.0);
    (had < 0.9 * due)
        .then(|| format!("who weighs ten times as much has {had:.2} CPUs where {due:.2} are due"))
}
