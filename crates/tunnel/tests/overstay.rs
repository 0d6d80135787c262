// SPDX-License-Identifier: GPL-2.0-only
//! A vCPU overstays while all who are due can wait (`overstay.bpf.h`), and for no longer. Slices are of 3 ms, and end at
//! ticks every 4 ms: two that take turns on a CPU change 250 times a second, and 50 times if both overstay.

use overbook_policy::class::Class;
use overbook_tunnel::check::Bounds;
use overbook_tunnel::{Change, Host, Kind, Pattern, Report, TaskSpec, VmSpec, World};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn world(cpus: u32) -> World {
    let bounds = Bounds { wait_ns: None, ..Bounds::default() };
    World::new(Host { cpus, bounds, ..Host::default() }).unwrap()
}

fn computing(world: &mut World, name: &str, class: Class) -> usize {
    world.vm(VmSpec { class, ..VmSpec::new(name, 2, Pattern::Compute) })
}

fn measured(mut world: World) -> Report {
    world.measure_from(300 * MS);
    world.run(300 * MS + SECOND);
    let report = world.report();
    assert!(report.findings.lines().is_empty(), "{:?}", report.findings.lines());
    report
}

/// The longest wait of any vCPU of a VM, ms.
fn longest(report: &Report, vm: &str) -> u64 {
    report.vms.iter().find(|own| own.name == vm).unwrap().longest_wait / MS
}

#[test]
fn vms_that_compute_change_seldom() {
    let mut world = world(2);
    for name in ["a", "b"] {
        computing(&mut world, name, Class::Normal);
    }
    let report = measured(world);
    assert!(report.switches <= 110, "{} switches", report.switches);
    assert_eq!((longest(&report, "a"), longest(&report, "b")), (20, 20));
}

/// In an LLC of many CPUs, whose queue is as long; and where vCPUs are pinned, two to a CPU.
#[test]
fn so_they_do_on_many_cpus_and_where_they_are_pinned() {
    let mut large = world(16);
    for name in ["a", "b"] {
        large.vm(VmSpec::new(name, 16, Pattern::Compute));
    }
    let report = measured(large);
    assert!(report.switches <= 16 * 100, "{} switches", report.switches);
    let mut pinned = world(2);
    for name in ["a", "b"] {
        let vm = computing(&mut pinned, name, Class::Normal);
        for (cpu, task) in pinned.vcpu_tasks(vm).into_iter().enumerate() {
            pinned.at(0, Change::Affinity(task, vec![cpu as u32]));
        }
    }
    let report = measured(pinned);
    assert!(report.switches <= 110, "{} switches", report.switches);
}

/// In a group of its own a VM ages by all that its vCPUs run, and in the root by a share of it.
#[test]
fn so_they_do_in_a_group_each() {
    for cpus in [4, 16] {
        let mut world = world(cpus);
        for name in ["a", "b"] {
            let group = world.group(0, 100);
            world.vm(VmSpec { group: Some(group), ..VmSpec::new(name, cpus, Pattern::Compute) });
        }
        let report = measured(world);
        let switches = report.switches / u64::from(cpus);
        assert!(switches <= 60, "{switches} switches on a CPU");
        assert!(
            longest(&report, "a").max(longest(&report, "b")) <= 24,
            "for longer than six slices and a tick"
        );
    }
}

/// However many VMs want a CPU, nobody waits for two turns of all others.
#[test]
fn nobody_waits_for_longer_where_there_are_more() {
    let mut world = world(2);
    for name in ["a", "b", "c", "d"] {
        computing(&mut world, name, Class::Normal);
    }
    let report = measured(world);
    for name in ["a", "b", "c", "d"] {
        assert!(longest(&report, name) <= 28, "{name} waits for {} ms", longest(&report, name));
    }
}

/// Nobody overstays beside a latency VM, nor does it itself.
#[test]
fn a_latency_vm_is_not_kept_waiting() {
    let mut world = world(2);
    computing(&mut world, "fast", Class::Latency);
    computing(&mut world, "other", Class::Normal);
    let report = measured(world);
    assert!(longest(&report, "fast") <= 8, "it waits for {} ms", longest(&report, "fast"));
    assert!(longest(&report, "other") <= 8, "the other waits for {} ms", longest(&report, "other"));
}

/// Nor beside tasks that are no vCPUs, nor where a VM has one vCPU.
#[test]
fn ordinary_tasks_and_lone_vcpus_take_turns_as_ever() {
    let mut beside = world(2);
    computing(&mut beside, "vm", Class::Normal);
    for i in 0..2 {
        beside.task(TaskSpec::new(&format!("hog{i}"), Kind::Hog));
    }
    assert!(measured(beside).switches >= 480);
    let mut alone = world(2);
    for i in 0..4 {
        alone.vm(VmSpec::new(&format!("vm{i}"), 1, Pattern::Compute));
    }
    assert!(measured(alone).switches >= 480);
}

/// A device's interrupt for a vCPU that was preempted ends it. Who was ahead once is so for good, so turns are of two slices.
#[test]
fn whoever_has_an_interrupt_to_take_is_not_kept_waiting() {
    let mut world = world(2);
    let vms = ["a", "b"].map(|name| computing(&mut world, name, Class::Normal));
    let tasks: Vec<u32> = vms.iter().flat_map(|vm| world.vcpu_tasks(*vm)).collect();
    for ms in 0..1300 {
        for task in &tasks {
            world.at(ms * MS, Change::DeviceIrq(0, *task));
        }
    }
    let report = measured(world);
    assert!(report.switches >= 240, "{} switches", report.switches);
    assert!(longest(&report, "a") <= 8 && longest(&report, "b") <= 8);
}

/// Who wakes up beside VMs that overstay waits for two ticks at most, and not for six slices.
#[test]
fn who_wakes_up_is_not_kept_waiting() {
    let mut world = world(2);
    for name in ["a", "b"] {
        computing(&mut world, name, Class::Normal);
    }
    world.vm(VmSpec::new("serves", 2, Pattern::Sleeper));
    let report = measured(world);
    assert!(longest(&report, "serves") <= 8, "it waits for {} ms", longest(&report, "serves"));
}

/// A VM with one runnable vCPU, which sleeps now and then, has what it is due, and not three quarters of that.
#[test]
fn a_lone_vcpu_is_not_kept_waiting() {
    let mut world = world(4);
    world.vm(VmSpec::new("a", 4, Pattern::Compute));
    let times = VmSpec { outside_ns: 6 * MS, halt_ns: 2 * MS, ..VmSpec::new("alone", 1, Pattern::Sleeper) };
    world.vm(times);
    let report = measured(world);
    let cpus = report.vms.iter().find(|vm| vm.name == "alone").unwrap().cpus;
    assert!(cpus > 0.65, "{cpus} CPUs");
    assert!(longest(&report, "alone") <= 8, "it waits for {} ms", longest(&report, "alone"));
}

/// Nor does it stand behind those who were kept waiting: with a vCPU and twelve others it would do half as much.
#[test]
fn who_wakes_up_is_not_behind_those_who_were_kept_waiting() {
    let mut world = world(4);
    for name in ["a", "b", "c"] {
        world.vm(VmSpec::new(name, 4, Pattern::Compute));
    }
    world.vm(VmSpec::new("serves", 1, Pattern::Sleeper));
    let report = measured(world);
    let units = report.vms.iter().find(|vm| vm.name == "serves").unwrap().units;
    assert!(units >= 650.0, "{units} units a second");
    assert!(longest(&report, "serves") <= 8, "it waits for {} ms", longest(&report, "serves"));
}
