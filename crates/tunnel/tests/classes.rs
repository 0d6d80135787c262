// SPDX-License-Identifier: GPL-2.0-only
//! Classes of VMs (`policy/class.h`): shares do not depend on them, waits do, and what is promised is kept.

use overbook_policy::class::Class::{self, Batch, Latency, Normal};
use overbook_tunnel::check::Bounds;
use overbook_tunnel::{Change, Host, Kind, Pattern, Report, TaskSpec, VmSpec, World};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// The default.
const PATIENCE: u64 = 10 * SECOND;

fn world(hz: u32, share: Option<f64>, set: &[(&str, u64)]) -> World {
    let bounds = Bounds { share, wait_ns: None, ..Bounds::default() };
    let set = set.iter().map(|(name, value)| ((*name).to_string(), *value)).collect();
    World::new(Host { hz, bounds, set, ..Host::default() }).unwrap()
}

/// A VM of four vCPUs in a group of its own.
fn vm(world: &mut World, name: &str, weight: u32, pattern: Pattern, class: Class) -> usize {
    let group = Some(world.group(0, weight));
    world.vm(VmSpec { class, group, ..VmSpec::new(name, 4, pattern) })
}

fn measured(mut world: World, from: u64, until: u64) -> Report {
    world.measure_from(from);
    world.run(until);
    world.report()
}

/// A wait after a wake-up that so many of 1,000 are not longer than, ns, of all vCPUs of a VM.
fn wake(report: &Report, vm: &str, per_mille: usize) -> u64 {
    let own = report.tasks.iter().filter(|task| task.name.starts_with(&format!("{vm}/")));
    let mut all: Vec<u64> = own.flat_map(|task| task.latencies.iter().copied()).collect();
    all.sort_unstable();
    all[all.len() * per_mille / 1000]
}

fn of<'a>(report: &'a Report, vm: &str) -> &'a overbook_tunnel::report::VmReport {
    report.vms.iter().find(|own| own.name == vm).unwrap()
}

/// Three VMs of equal weight, and of weights far apart; with long ticks, and with short ones.
#[test]
fn shares_do_not_depend_on_classes() {
    let cases: [(u32, [u32; 3], [Class; 3], f64); 5] = [
        (250, [100; 3], [Latency, Normal, Batch], 0.01),
        (1000, [100; 3], [Latency, Normal, Batch], 0.01),
        (1000, [100; 3], [Latency, Latency, Batch], 0.01),
        (1000, [100, 200, 400], [Latency, Normal, Batch], 0.02),
        (1000, [400, 200, 100], [Latency, Normal, Batch], 0.02),
    ];
    for (hz, weights, classes, limit) in cases {
        for pattern in [Pattern::Compute, Pattern::Lock, Pattern::Ipi] {
            let mut world = world(hz, Some(limit), &[]);
            for (i, class) in classes.into_iter().enumerate() {
                vm(&mut world, ["a", "b", "c"][i], weights[i], pattern, class);
            }
            let report = measured(world, 500 * MS, 3500 * MS);
            let wrong = report.findings.lines();
            assert!(wrong.is_empty(), "{hz} Hz, {pattern:?}, {weights:?}, {classes:?}: {wrong:?}");
        }
    }
}

/// Whoever changes between the classes all the time has no more of it.
#[test]
fn changes_of_class_earn_nothing() {
    let mut world = world(1000, Some(0.02), &[]);
    let changing = vm(&mut world, "changing", 100, Pattern::Compute, Latency);
    vm(&mut world, "steady", 100, Pattern::Compute, Normal);
    for nth in 0..300 {
        let class = [Batch, Latency, Normal][nth as usize % 3];
        world.at((200 + 10 * nth) * MS, Change::Class(changing, class));
    }
    let wrong = measured(world, 500 * MS, 3000 * MS).findings.lines();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A VM that serves requests, one that computes, and one that builds: both others' classes are given.
fn mixed(serves_ns: u64, serves: Class, builds: Class) -> Report {
    let mut world = world(250, None, &[]);
    for (name, pattern, outside_ns, class) in [
        ("serves", Pattern::Sleeper, serves_ns, serves),
        ("computes", Pattern::Compute, 300_000, Normal),
        ("builds", Pattern::Sleeper, 2 * MS, builds),
    ] {
        let group = Some(world.group(0, 100));
        world.vm(VmSpec { class, group, outside_ns, ..VmSpec::new(name, 4, pattern) });
    }
    let report = measured(world, 500 * MS, 3500 * MS);
    // For docs/classes.md: `cargo test --release -p overbook-tunnel --test classes -- --nocapture --test-threads 1`.
    println!("| serves {} µs, {}; builds {} |", serves_ns / 1000, serves.name(), builds.name());
    for vm in ["serves", "computes", "builds"] {
        let (cpus, longest) = (of(&report, vm).cpus, of(&report, vm).longest_wait / 1000);
        let (p90, p99) =
            if vm == "computes" { (0, 0) } else { (wake(&report, vm, 900), wake(&report, vm, 990)) };
        println!("| {vm} | {cpus:.3} | {} | {} | {longest} |", p90 / 1000, p99 / 1000);
    }
    println!("{} switches", report.switches);
    report
}

/// Within what it is due, a latency VM's vCPUs run as they wake up; others' work suffers no loss.
#[test]
fn latency_is_served_at_once_within_its_due() {
    for serves_ns in [100_000, 300_000] {
        let (normal, latency) = (mixed(serves_ns, Normal, Normal), mixed(serves_ns, Latency, Normal));
        let (before, after) = (wake(&normal, "serves", 990), wake(&latency, "serves", 990));
        assert!(before > 50_000 && after < 20_000, "p99 {before} -> {after} ns");
        assert!(of(&latency, "serves").longest_wait < of(&normal, "serves").longest_wait / 2);
        // What it does not use is shared by the others as ever.
        for other in ["computes", "builds"] {
            let (had, has) = (of(&normal, other).cpus, of(&latency, other).cpus);
            assert!((has / had - 1.0).abs() < 0.03, "{other}: {had} -> {has} CPUs");
        }
    }
}

/// Beyond what it is due nobody waits for it: it has its share, and no more.
#[test]
fn latency_takes_no_more_than_its_due() {
    let report = mixed(2 * MS, Latency, Normal);
    let (serves, computes) = (of(&report, "serves").cpus, of(&report, "computes").cpus);
    assert!(serves < 1.01 * 4.0 / 3.0 && computes > 0.99 * 4.0 / 3.0, "{serves} and {computes} CPUs");
}

/// A batch VM waits for longer itself; those beside it wait for less, and all have what they had.
#[test]
fn batch_gives_way() {
    let (normal, batch) = (mixed(300_000, Normal, Normal), mixed(300_000, Normal, Batch));
    let wakes = |vm: &str| (wake(&normal, vm, 990), wake(&batch, vm, 990));
    let ((own, own_now), (other, other_now)) = (wakes("builds"), wakes("serves"));
    assert!(own_now > own && other_now < other, "{own} -> {own_now}, {other} -> {other_now} ns");
    for vm in ["serves", "computes", "builds"] {
        let (had, has) = (of(&normal, vm).cpus, of(&batch, vm).cpus);
        assert!((has / had - 1.0).abs() < 0.03, "{vm}: {had} -> {has} CPUs");
    }
}

/// Where classes may be, a host of normal VMs is the same to the last event.
#[test]
fn normal_is_as_without_classes() {
    let run = |classes: u64| {
        let mut world = world(250, None, &[("some_classes", classes)]);
        for (name, pattern) in [("lock", Pattern::Lock), ("mail", Pattern::Messages), ("ipi", Pattern::Ipi)] {
            vm(&mut world, name, 100, pattern, Normal);
        }
        let report = measured(world, 100 * MS, 600 * MS);
        (report.events, report.switches, report.digest)
    };
    assert_eq!(run(0), run(1));
}

/// VMs of the least weight beside hogs of the greatest, which by weight alone had a CPU now and then: eight vCPUs per CPU.
/// Beside so many SCHED_IDLE tasks that one of them has always waited for too long.
fn longest_of_the_least(class: Class, idle_hogs: u32) -> u64 {
    let bounds = Bounds { wait_ns: None, ..Bounds::default() };
    let mut world = World::new(Host { cpus: 2, bounds, ..Host::default() }).unwrap();
    let heavy = world.group(0, 10_000);
    for i in 0..8 {
        let name = format!("heavy{i}");
        let hog = TaskSpec { group: Some(heavy), ..TaskSpec::new(&name, Kind::Hog) };
        // A VM is known, and has its class, once it has run.
        world.at(500 * MS, Change::Begin(Box::new(hog)));
    }
    for i in 0..idle_hogs {
        world.task(TaskSpec { policy: 5, ..TaskSpec::new(&format!("idle{i}"), Kind::Hog) });
    }
    for i in 0..4 {
        vm(&mut world, &format!("light{i}"), 1, Pattern::Compute, class);
    }
    let report = measured(world, SECOND, 3 * class.promise(PATIENCE));
    report.vms.iter().map(|vm| vm.longest_wait).max().unwrap()
}

#[test]
fn promises_are_kept() {
    for (class, idle_hogs) in Class::ALL.into_iter().map(|class| (class, 0)).chain([(Normal, 60)]) {
        let longest = longest_of_the_least(class, idle_hogs);
        println!("{}: {} ms", class.name(), longest / MS);
        // It would be kept without a promise otherwise.
        let kept = longest > class.patience(PATIENCE) && longest <= class.promise(PATIENCE);
        assert!(kept, "{class:?}, {idle_hogs} SCHED_IDLE tasks: {longest} ns");
    }
}
