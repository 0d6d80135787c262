// SPDX-License-Identifier: GPL-2.0-only
//! Groups that come, go and change, and what is in which.

use super::setup::*;

/// Places that the scheduler has for groups: OVB_MAX_NODES. Once all were given away, those come again that are free.
const NODES: u64 = 16384;

pub(super) fn late_load() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    for (name, vcpus) in [("large", 3), ("small", 2)] {
        let group = Some(world.group(0, 100));
        let tgid = world.leader(name, group);
        world.vm(VmSpec { tgid, group, ..VmSpec::new(name, vcpus, Pattern::Compute) });
    }
    let report = measured(&mut world, SECOND, 3 * SECOND);
    let had = report.vms[0].cpus;
    ((had - 1.0).abs() > 0.02).then(|| format!("of two groups alike one has {had:.2} CPUs of 2"))
}

/// A VM of two vCPUs in a group of weight 100 that moves to a group of weight 300 at half a second; the number of its old
/// group.
fn moving_vm(world: &mut World) -> usize {
    let (old, new) = (world.group(0, 100), world.group(0, 300));
    let main = Kind::Sleeper(20_000, 50 * MS);
    let tgid = world.process(TaskSpec { group: Some(old), ..TaskSpec::new("main", main) });
    let vm = world.vm(VmSpec { tgid, group: Some(old), ..VmSpec::new("mover", 2, Pattern::Compute) });
    // Its process's first task is the world's.
    for task in world.vcpu_tasks(vm).into_iter().chain([0]) {
        world.at(500 * MS, Change::Group(task, new));
    }
    old
}

pub(super) fn vm_moves() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    moving_vm(&mut world);
    let other = Some(world.group(0, 100));
    hogs(&mut world, 2, "hog", None, other);
    let report = measured(&mut world, SECOND, 3 * SECOND);
    let had = report.vms[0].cpus;
    ((had - 1.5).abs() > 0.05)
        .then(|| format!("a VM that moved to a group of weight 300 has {had:.2} CPUs of 1.5"))
}

/// Nothing is known of the group of a vCPU that was real-time when the scheduler was loaded.
pub(super) fn a_real_time_vcpu() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let above = world.group(0, 100);
    let [one, other] = [world.group(above, 100), world.group(above, 100)];
    let beside = Some(world.group(0, 100));
    let vm = VmSpec { group: Some(one), real_time: 1, ..VmSpec::new("vm", 4, Pattern::Ipi) };
    world.vm(VmSpec { halt_ns: 50_000, ..vm });
    hogs(&mut world, 4, "other", None, Some(other));
    hogs(&mut world, 4, "beside", None, beside);
    let report = measured(&mut world, SECOND, 4 * SECOND);
    // The real-time vCPU spins, and leaves three CPUs to the two groups of the root.
    let (had, _) = of(&report, "beside");
    println!("beside a VM with a real-time vCPU a group has {had:.2} CPUs of 1.5");
    ((had - 1.5).abs() > 0.08)
        .then(|| format!("beside a VM with a real-time vCPU a group has {had:.2} CPUs of 1.5"))
}

pub(super) fn a_vms_group_goes() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let old = moving_vm(&mut world);
    world.at(600 * MS, Change::EndGroup(old));
    world.run(700 * MS);
    // As after many groups: the next one has the place of the one that went.
    world.tune("nodes_used", NODES, false).unwrap();
    let other = Some(world.group(0, 100));
    hogs(&mut world, 2, "stranger", None, other);
    let report = measured(&mut world, SECOND, 3 * SECOND);
    let had = report.vms[0].cpus;
    ((had - 1.5).abs() > 0.05)
        .then(|| format!("a VM whose old group went has {had:.2} CPUs of 1.5 beside a stranger"))
}

/// The groups that come when all places are taken, and one below such a group that has a place again.
pub(super) fn more_than_places() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let (above, beside) = (world.group(0, 100), world.group(0, 100));
    let ends = world.group(0, 100);
    for _ in 4..NODES {
        world.group(0, 100);
    }
    let late = world.group(above, 100);
    world.run(MS);
    world.at(2 * MS, Change::EndGroup(ends));
    world.run(3 * MS);
    let below = world.group(late, 100);
    hogs(&mut world, 4, "late", None, Some(late));
    hogs(&mut world, 4, "below", None, Some(below));
    hogs(&mut world, 2, "beside", None, Some(beside));
    let report = measured(&mut world, SECOND, 3 * SECOND);
    let (had, _) = of(&report, "beside");
    ((had - 1.0).abs() > 0.05)
        .then(|| format!("beside a group without a place another has {had:.2} CPUs of 1"))
}

/// The kernel removes a group whose tasks are about to end. One of them is counted there until it does, and the next group
/// has the place.
pub(super) fn a_dying_tasks_group_goes() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let (above, other) = (world.group(0, 100), Some(world.group(0, 100)));
    let old = world.group(above, 100);
    let dying = hogs(&mut world, 1, "dying", None, Some(old))[0];
    world.tune("nodes_used", NODES, false).unwrap();
    world.at(100 * MS, Change::EndGroup(old));
    world.run(150 * MS);
    let [heir, _] = ["heir", "beside"].map(|name| {
        let group = Some(world.group(above, 100));
        hogs(&mut world, 1, name, None, group)[0]
    });
    hogs(&mut world, 2, "other", None, other);
    world.at(300 * MS, Change::End(dying));
    world.at(500 * MS, Change::End(heir));
    let (had, _) = of(&measured(&mut world, SECOND, 4 * SECOND), "beside");
    ((had - 1.0).abs() > 0.05).then(|| format!("a group whose neighbour has ended has {had:.2} CPUs of 1"))
}

/// VMs whose groups lie in each other are paid once.
pub(super) fn nested_vms() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let outer = world.group(0, 100);
    let inner = world.group(outer, 100);
    world.vm(VmSpec { group: Some(inner), ..VmSpec::new("inner", 4, Pattern::Compute) });
    world.run(100 * MS);
    let outer_vm =
        VmSpec { group: Some(outer), groups_below: 4, ..VmSpec::new("outer", 4, Pattern::Compute) };
    world.vm(outer_vm);
    let other = Some(world.group(0, 100));
    hogs(&mut world, 4, "hog", None, other);
    let (had, _) = of(&measured(&mut world, SECOND, 4 * SECOND), "hog");
    ((had - 2.0).abs() > 0.1).then(|| format!("a group beside the one of two VMs has {had:.2} CPUs of 2"))
}

/// A VM with a node of its own that comes to another VM's group shares it.
pub(super) fn a_vm_that_joins_another() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let [shared, own, other] = [100, 100, 100].map(|weight| world.group(0, weight));
    let main = TaskSpec { group: Some(shared), ..TaskSpec::new("main", Kind::Sleeper(20_000, 50 * MS)) };
    let tgid = world.process(main);
    let joins = world.vm(VmSpec { tgid, group: Some(shared), ..VmSpec::new("joins", 4, Pattern::Compute) });
    world.vm(VmSpec { group: Some(shared), ..VmSpec::new("stays", 4, Pattern::Compute) });
    world.vm(VmSpec { group: Some(own), ..VmSpec::new("own", 4, Pattern::Compute) });
    hogs(&mut world, 4, "hog", None, Some(other));
    for task in world.vcpu_tasks(joins).into_iter().chain([world.vcpu_tasks(joins)[0] - 1]) {
        world.at(500 * MS, Change::Group(task, own));
    }
    let (had, _) = of(&measured(&mut world, SECOND, 4 * SECOND), "hog");
    ((had - 4.0 / 3.0).abs() > 0.05).then(|| format!("a group beside them has {had:.2} CPUs of 1.33"))
}

/// A group with `cpu.idle` (`CPUWeight=idle` of systemd) weighs next to nothing; and 100 when that ends, but keeps its weight
/// if it had none.
pub(super) fn idle_groups() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let (idle, other) = (world.group(0, 400), world.group(0, 400));
    hogs(&mut world, 4, "idle", None, Some(idle));
    hogs(&mut world, 4, "other", None, Some(other));
    for (at, group, is) in [(1, other, false), (1, idle, true), (2000, idle, false)] {
        world.at(at * MS, Change::GroupIdle(group, is));
    }
    // The very weight that it had before, as systemd writes it: sched_ext does not tell of that.
    world.at(4 * SECOND + MS, Change::GroupWeight(idle, 400));
    let (first, due) = of(&measured(&mut world, 100 * MS, 1900 * MS), "idle");
    let (second, fair) = of(&measured(&mut world, 2100 * MS, 4 * SECOND), "idle");
    let (third, half) = of(&measured(&mut world, 4100 * MS, 6 * SECOND), "idle");
    let words = format!(
        "a group with cpu.idle has {first:.3} CPUs where {due:.3} are due, then {second:.2}, {fair:.2}, then {third:.2}, {half:.2}"
    );
    println!("{words}");
    (first > 0.05 || (second - 0.8).abs() > 0.04 || (third - 2.0).abs() > 0.1).then_some(words)
}

/// A VM whose vCPUs sleep while its group's weight is raised has its due when they wake up, and not what it owes by the little
/// that it weighed.
pub(super) fn raised_asleep() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    let (light, other) = (world.group(0, 100), world.group(0, 100));
    let sleeper =
        TaskSpec { group: Some(light), ..TaskSpec::new("sleeper", Kind::Sleeper(40 * MS, 400 * MS)) };
    world.task(sleeper);
    hogs(&mut world, 2, "other", None, Some(other));
    world.at(1, Change::GroupIdle(light, true));
    for second in 1..60 {
        world.at(second * 500 * MS, Change::GroupIdle(light, second % 2 == 0));
    }
    let report = measured(&mut world, 100 * MS, 30 * SECOND);
    let task = task(&report, "sleeper");
    println!("a task whose group is raised and lowered waits {} ms at the worst", task.longest_wait / MS);
    (task.longest_wait > 3 * SECOND).then(|| format!("a sleeper waits for {} ms", task.longest_wait / MS))
}

/// A VM that moves while its leader sleeps is a tenant of its new group all the same. By `cgroup.procs` the leader is first.
pub(super) fn moves_while_its_leader_sleeps() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let (old, new) = (world.group(0, 100), world.group(0, 300));
    // The world's first task.
    let tgid = world.leader("leader", Some(old));
    let vm = world.vm(VmSpec { tgid, group: Some(old), ..VmSpec::new("mover", 2, Pattern::Compute) });
    for task in [0].into_iter().chain(world.vcpu_tasks(vm)) {
        world.at(500 * MS, Change::Group(task, new));
    }
    let other = Some(world.group(0, 100));
    hogs(&mut world, 2, "hog", None, other);
    let had = measured(&mut world, SECOND, 3 * SECOND).vms[0].cpus;
    ((had - 1.5).abs() > 0.05)
        .then(|| format!("a VM whose leader slept as it moved has {had:.2} CPUs of 1.5"))
}
