// SPDX-License-Identifier: GPL-2.0-only
//! How long who is runnable waits.

use super::setup::*;
use overbook_policy::class::Class;

pub(super) fn a1_bound_kthread() -> Option<String> {
    let mut world = World::new(host(8, 1)).unwrap();
    hogs(&mut world, 40, "crowd", Some((4..8).collect()), None);
    hogs(&mut world, 5, "light", Some((0..4).collect()), None);
    let kthread = TaskSpec { cpus: Some(vec![0]), ..TaskSpec::new("kthread", Kind::Sleeper(50_000, 5 * MS)) };
    world.task(kthread);
    let report = measured(&mut world, 2 * SECOND, 6 * SECOND);
    let kthread = task(&report, "kthread");
    let median = kthread.latencies.get(kthread.latencies.len() / 2).copied().unwrap_or(kthread.longest_wait);
    (median > 20 * MS).then(|| {
        format!(
            "a bound kthread waits for {} ms in the median, {} at worst",
            median / MS,
            kthread.longest_wait / MS
        )
    })
}

pub(super) fn a5() -> Option<String> {
    let mut world = World::new(host(8, 2)).unwrap();
    hogs(&mut world, 6, "left", Some((0..8).collect()), None);
    hogs(&mut world, 24, "right", Some((4..8).collect()), None);
    // The clock of a light LLC is far ahead of a crowded one's.
    let mover = world.task(TaskSpec { cpus: Some((0..4).collect()), ..TaskSpec::new("mover", Kind::Hog) });
    hogs(&mut world, 4, "here", Some((0..4).collect()), None);
    world.at(3 * SECOND, Change::Affinity(mover, (4..8).collect()));
    let report = measured(&mut world, 2900 * MS, 4 * SECOND);
    let wait = task(&report, "mover").longest_wait;
    // Nearly eight tasks share a CPU there: three rounds of 3 to 4 ms each.
    (wait > 100 * MS).then(|| format!("a task that moves to another LLC waits for {} ms", wait / MS))
}

pub(super) fn a7() -> Option<String> {
    let mut world = World::new(host(16, 1)).unwrap();
    hogs(&mut world, 32, "hog", None, None);
    // Of little weight: whenever it runs, its deadline is the latest of all.
    world.task(TaskSpec { weight: 10, ..TaskSpec::new("light", Kind::Hog) });
    for i in 0..8 {
        world.task(TaskSpec::new(&format!("waker{i}"), Kind::Periodic(500_000, 20 * MS)));
    }
    let report = measured(&mut world, 200 * MS, 2 * SECOND);
    let wakers = report.tasks.iter().filter(|task| task.name.starts_with("waker"));
    let worst = wakers.filter_map(|task| task.latencies.last()).max().unwrap();
    (*worst > 400_000)
        .then(|| format!("with 16 CPUs to choose from, one of 8 that wake up waits for {} µs", worst / 1000))
}

/// Who wakes up beside a group that runs on all LLCs waits no longer than where all CPUs are one LLC.
pub(super) fn beside_a_wide_group() -> Option<String> {
    let late = |llcs| {
        let mut world = World::new(host(32, llcs)).unwrap();
        let wide = Some(world.group(0, 100));
        hogs(&mut world, 64, "hog", None, wide);
        let group = Some(world.group(0, 100));
        mean_wait_of_wakers(&mut world, 16, None, group)
    };
    let (one, eight) = (late(1), late(8));
    println!("a woken task waits {eight} ns with 8 LLCs, {one} with one");
    (eight > 2 * one).then(|| format!("{eight} ns with 8 LLCs, {one} with one"))
}

/// Whether vCPUs are in the VM's group or in one of their own below it changes nothing for others.
pub(super) fn vcpus_in_a_group_below() -> Option<String> {
    let late = |below: bool| {
        let mut world = World::new(host(4, 1)).unwrap();
        let group = world.group(0, 100);
        let [threads, vcpus] = [world.group(group, 100), world.group(group, 100)];
        let main = Kind::Sleeper(20_000, 50 * MS);
        let main =
            TaskSpec { group: Some(if below { threads } else { group }), ..TaskSpec::new("main", main) };
        let tgid = world.process(main);
        let vcpus = Some(if below { vcpus } else { group });
        world.vm(VmSpec { tgid, group: vcpus, ..VmSpec::new("vm", 8, Pattern::Compute) });
        let sleepers = Some(world.group(0, 100));
        world.vm(VmSpec { group: sleepers, ..VmSpec::new("halts", 4, Pattern::Sleeper) });
        let group = Some(world.group(0, 100));
        mean_wait_of_wakers(&mut world, 4, None, group)
    };
    let (flat, nested) = (late(false), late(true));
    println!("a woken task waits {nested} ns beside vCPUs in a group below, {flat} otherwise");
    (nested > 2 * flat).then(|| format!("{nested} ns with vCPUs in a group below, {flat} without"))
}

/// A woken task finds whom it may preempt wherever in its LLC that one runs, on large hosts too.
pub(super) fn victim_in_a_large_host() -> Option<String> {
    let late = |cpus| {
        let mut world = World::new(host(cpus, cpus / 8)).unwrap();
        let here: Vec<u32> = (0..8).collect();
        hogs(&mut world, 8, "hog", Some(here.clone()), None);
        mean_wait_of_wakers(&mut world, 6, Some(here), None)
    };
    let (small, large) = (late(64), late(128));
    println!("a woken task waits {large} ns with 128 CPUs, {small} with 64");
    (large > small + small / 4).then(|| format!("{large} ns with 128 CPUs, {small} with 64"))
}

/// A VM that is bound to the CPUs of an LLC wants CPUs there, and nowhere else: others have their homes where it is not.
pub(super) fn home_beside_a_bound_vm() -> Option<String> {
    [(0..4).collect(), (4..8).collect()].into_iter().find_map(beside_bound)
}

fn beside_bound(cpus: Vec<u32>) -> Option<String> {
    let mut world = World::new(host(8, 2)).unwrap();
    let spec = |name, cpus, work, halt| VmSpec {
        cpus,
        outside_ns: work,
        halt_ns: halt,
        ..VmSpec::new(name, 4, Pattern::Sleeper)
    };
    world.vm(spec("bound", Some(cpus), MS, MS));
    world.run(SECOND);
    world.vm(spec("free", None, 3 * MS, MS));
    let report = measured(&mut world, 2 * SECOND, 4 * SECOND);
    let (bound, free) = (mean_wait(&report, "bound"), mean_wait(&report, "free"));
    println!(
        "vCPUs that wake up wait {bound} and {free} ns, and change their LLC {} times",
        report.llc_moves
    );
    (report.llc_moves > 100).then(|| {
        format!(
            "a bound VM's vCPUs wait {bound} ns after they wake up, and vCPUs change their LLC {} times",
            report.llc_moves
        )
    })
}

/// VMs that leave some CPUs to the host stay in an LLC each as well as others.
pub(super) fn home_without_a_first_cpu() -> Option<String> {
    let moves = |cpus: Option<Vec<u32>>, vcpus| {
        let mut world = World::new(host(8, 2)).unwrap();
        for (i, pattern) in
            [Pattern::Barrier, Pattern::Compute, Pattern::Barrier, Pattern::Compute].into_iter().enumerate()
        {
            world.vm(VmSpec { cpus: cpus.clone(), ..VmSpec::new(&format!("vm{i}"), vcpus, pattern) });
        }
        let report = measured(&mut world, SECOND / 5, SECOND);
        (report.llc_moves, report.vms.iter().map(|vm| vm.units as u64).collect::<Vec<_>>())
    };
    let (all, some) = (moves(None, 3), moves(Some(vec![1, 2, 3, 5, 6, 7]), 3));
    println!("{all:?} on all CPUs, {some:?} without the first of each LLC");
    (some.0 > 50).then(|| format!("{} moves between LLCs, {} on all CPUs", some.0, all.0))
}

/// Of an LLC where a VM may use two CPUs only, these are no home: its queue is elsewhere.
pub(super) fn home_of_two_cpus() -> Option<String> {
    let late = |cpus: Vec<u32>| {
        let mut world = World::new(host(12, 2)).unwrap();
        let group = Some(world.group(0, 100));
        hogs(&mut world, cpus.len() as u32, "hog", Some(cpus.clone()), group);
        for i in 0..2 {
            let halts = VmSpec::new(&format!("vm{i}"), 4, Pattern::Sleeper);
            world.vm(VmSpec { cpus: Some(cpus.clone()), outside_ns: MS, halt_ns: 3 * MS, ..halts });
        }
        mean_wait(&measured(&mut world, SECOND, 3 * SECOND), "vm")
    };
    let (mixed, whole) = (late((4..12).collect()), late((6..12).collect()));
    println!("vCPUs that wake up wait {mixed} ns where two CPUs are of another LLC, {whole} otherwise");
    (mixed > 2 * whole + 5_000).then(|| format!("{mixed} ns, and {whole} in one LLC"))
}

/// Patience counts from when a task began to wait, whatever is changed of it meanwhile: the kernel's watchdog counts so too.
pub(super) fn changed_while_it_waits() -> Option<String> {
    let mut machine = host(1, 1);
    machine.set.push(("patience_ns".into(), SECOND));
    let mut world = World::new(machine).unwrap();
    for i in 0..40 {
        world.task(TaskSpec { weight: 10_000, ..TaskSpec::new(&format!("heavy{i}"), Kind::Hog) });
    }
    let light = world.task(TaskSpec { weight: 1, ..TaskSpec::new("light", Kind::Hog) });
    for i in 0..40 {
        world.at(i * 200 * MS, Change::Weight(light, 1, 0));
    }
    longest_wait(&mut world, "light", 1500 * MS)
}

/// Where a pool has always somebody who has waited for too long, others of a CPU's queues have their looks too.
pub(super) fn beside_a_crowded_pool() -> Option<String> {
    let mut machine = host(3, 1);
    machine.set.push(("patience_ns".into(), SECOND));
    let mut world = World::new(machine).unwrap();
    hogs(&mut world, 1000, "crowd", Some(vec![0, 1]), None);
    world.task(TaskSpec { cpus: Some(vec![0]), weight: 1, ..TaskSpec::new("bound", Kind::Hog) });
    longest_wait(&mut world, "bound", 2 * SECOND)
}

/// However many lose their patience, nobody waits until the kernel's watchdog ends the scheduler: tasks of the least weight,
/// and `SCHED_IDLE` ones.
pub(super) fn crowds_without_patience() -> Option<String> {
    let spec = |policy| TaskSpec { policy, weight: 1, ..TaskSpec::new("light", Kind::Hog) };
    [("weight 1", spec(0)), ("SCHED_IDLE", spec(5))].into_iter().find_map(|(name, spec)| {
        let mut world = World::new(host(2, 1)).unwrap();
        for i in 0..100 {
            world.task(TaskSpec { weight: 10_000, ..TaskSpec::new(&format!("hog{i}"), Kind::Hog) });
        }
        for _ in 0..600 {
            world.task(spec.clone());
        }
        let report = measured(&mut world, 0, 90 * SECOND);
        let wait = report.tasks.iter().map(|task| task.longest_wait).max().unwrap();
        let words = format!("one of 600 of {name} waits for {} s", wait / SECOND);
        println!("{words} beside hogs");
        (wait > 28 * SECOND).then_some(words)
    })
}

/// A batch vCPU, which may wait for 20 s, is not outranked by a crowd that may wait for ten, and has waited longer beyond that.
pub(super) fn batch_in_a_crowd() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let group = Some(world.group(0, 1));
    let batch = VmSpec { class: Class::Batch, group, ..VmSpec::new("batch", 1, Pattern::Compute) };
    world.vm(batch);
    for i in 0..100 {
        world.task(TaskSpec { weight: 10_000, ..TaskSpec::new(&format!("hog{i}"), Kind::Hog) });
    }
    for _ in 0..600 {
        world.task(TaskSpec { weight: 1, ..TaskSpec::new("light", Kind::Hog) });
    }
    let report = measured(&mut world, 0, 90 * SECOND);
    let wait = task(&report, "batch").longest_wait;
    println!("a batch vCPU waits for {} s in a crowd", wait / SECOND);
    (wait > 23 * SECOND).then(|| format!("a batch vCPU waits for {} s", wait / SECOND))
}

/// Words about a task that waits for longer than `most` ns in eight seconds.
fn longest_wait(world: &mut World, name: &str, most: u64) -> Option<String> {
    let report = measured(world, 0, 8 * SECOND);
    let wait = task(&report, name).longest_wait;
    (wait > most).then(|| format!("{name} waits for {} ms", wait / MS))
}

/// A task that is changed while it runs on another CPU does not count as running where it is changed: who wakes up there
/// waits no longer.
pub(super) fn changed_from_another_cpu() -> Option<String> {
    let late = |changes| {
        let mut world = World::new(host(2, 1)).unwrap();
        let bound = |cpu, spec| TaskSpec { cpus: Some(vec![cpu]), ..spec };
        world.task(bound(0, TaskSpec::new("hog", Kind::Hog)));
        let heavy = world.task(bound(1, TaskSpec { weight: 10_000, ..TaskSpec::new("heavy", Kind::Hog) }));
        for i in 0..changes {
            world.at(SECOND + i * 200_000, Change::Weight(heavy, 10_000, 0));
        }
        mean_wait_of_wakers(&mut world, 1, Some(vec![0]), None)
    };
    let (alone, beside) = (late(0), late(15_000));
    println!("a woken task waits {beside} ns where another is changed all the time, {alone} otherwise");
    (beside > 2 * alone).then(|| format!("{beside} ns where another is changed, {alone} otherwise"))
}

/// A SCHED_IDLE task that has waited for too long runs for a slice, however many wake up beside it.
pub(super) fn an_idle_task_that_is_rescued() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    hogs(&mut world, 6, "hog", None, None);
    for i in 0..40 {
        world.task(TaskSpec::new(&format!("waker{i}"), Kind::Sleeper(20_000, 2 * MS)));
    }
    world.task(TaskSpec { policy: 5, ..TaskSpec::new("idle", Kind::Hog) });
    let report = measured(&mut world, SECOND, 21 * SECOND);
    let had = task(&report, "idle").cpus * 20e3;
    println!("a SCHED_IDLE task has {had:.1} ms in 20 s");
    // Once a second, a slice of 3 ms.
    (had < 30.0).then(|| format!("a SCHED_IDLE task that waits for a second has {had:.1} ms in 20 s"))
}

/// A task that has lost its patience has a slice, whoever wakes up meanwhile.
pub(super) fn overdue_beside_wakers() -> Option<String> {
    let mut machine = host(1, 1);
    machine.set.push(("patience_ns".into(), SECOND));
    let mut world = World::new(machine).unwrap();
    hogs(&mut world, 16, "hog", None, None);
    for i in 0..4 {
        let group = Some(world.group(0, 100));
        let main = TaskSpec::new(&format!("main{i}"), Kind::Sleeper(20_000, 2 * MS));
        let tgid = world.process(TaskSpec { group, ..main });
        world.vm(VmSpec { group, tgid, ..VmSpec::new(&format!("vm{i}"), 1, Pattern::Compute) });
    }
    world.task(TaskSpec { weight: 1, ..TaskSpec::new("light", Kind::Hog) });
    let report = measured(&mut world, SECOND, 21 * SECOND);
    let had = task(&report, "light").cpus * 20e3;
    println!("a task that loses its patience once a second has {had:.1} ms in 20 s");
    (had < 80.0).then(|| format!("who loses its patience once a second has {had:.1} ms in 20 s"))
}

/// A new task has the CPU of a SCHED_IDLE one at once.
pub(super) fn begun_beside_sched_idle() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    world.task(TaskSpec { policy: 5, ..TaskSpec::new("idle", Kind::Hog) });
    world.run(101 * MS + 300_000);
    for i in 0..20 {
        world.task(TaskSpec::new(&format!("begun{i}"), Kind::Sleeper(100_000, SECOND)));
        world.run(101 * MS + 300_000 + (i + 1) * 10 * MS);
    }
    let report = world.report();
    let begun = report.tasks.iter().filter(|task| task.name.starts_with("begun"));
    let longest = begun.map(|task| task.longest_wait).max().unwrap_or(0);
    println!("a new task waits {longest} ns beside a SCHED_IDLE one");
    (longest > 500_000).then(|| format!("a new task waits {longest} ns beside a SCHED_IDLE one"))
}

/// Whose CPU a real-time task takes goes before who may wait, on another CPU, as if it had just woken up.
pub(super) fn taken_by_real_time() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    hogs(&mut world, 1, "hog", None, None);
    world.task(TaskSpec { cpus: Some(vec![0]), ..TaskSpec::new("rt", Kind::RealTime(10 * MS, 10 * MS)) });
    world.task(TaskSpec::new("sleeper", Kind::Sleeper(MS, 4 * MS)));
    let wait = task(&measured(&mut world, 100 * MS, 4 * SECOND), "sleeper").longest_wait;
    println!("whose CPU is taken waits for {wait} ns");
    (wait > 500_000).then(|| format!("whose CPU is taken waits for {wait} ns beside a hog"))
}

/// SCHED_IDLE tasks that may use only CPUs which are not preferred wait in the LLC's queue for such tasks.
pub(super) fn idle_tasks_bound_outside() -> Option<String> {
    let mut world = guest(4, 1);
    hogs(&mut world, 2, "hog", None, None);
    for i in 0..3 {
        let idle = TaskSpec::new(&format!("idle{i}"), Kind::Hog);
        world.task(TaskSpec { policy: 5, cpus: Some(vec![2, 3]), ..idle });
    }
    // Not so those that may run on others, too, however long they wait.
    world.task(TaskSpec { policy: 5, ..TaskSpec::new("free", Kind::Hog) });
    hogs(&mut world, 2, "bound", Some(vec![2]), None);
    world.at(100 * MS, Change::Prefer(vec![0, 1]));
    let report = measured(&mut world, 200 * MS, 25 * SECOND);
    let waits: Vec<u64> = (0..3).map(|i| task(&report, &format!("idle{i}")).longest_wait / MS).collect();
    // Two hogs have two preferred CPUs; it has a slice of each second of one.
    let free = of(&report, "free").0;
    println!("SCHED_IDLE tasks bound to CPUs that are not preferred: {waits:?} ms; a free one has {free:.4}");
    (waits.iter().any(|wait| *wait > 2000) || free > 0.01).then(|| {
        format!("SCHED_IDLE tasks bound there wait for {waits:?} ms, and one that is not has {free:.4}")
    })
}

/// Who wakes a task by a socket or a pipe keeps its CPU while others idle. Linux 7 offers the waker's.
pub(super) fn woken_synchronously() -> Option<String> {
    let machine = Host { sync: true, version: 7 << 16 | 3 << 8, ..host(2, 1) };
    let mut world = World::new(machine).unwrap();
    hogs(&mut world, 1, "hog", Some(vec![0]), None);
    world.task(TaskSpec::new("woken", Kind::Periodic(500_000, 5 * MS)));
    let (had, _) = of(&measured(&mut world, 100 * MS, SECOND), "hog");
    println!("beside an idle CPU a hog has {had:.3} CPUs");
    (had < 0.98).then(|| format!("a hog has {had:.3} CPUs beside one that idles"))
}

/// Patience holds on CPUs that are not preferred, too: the kernel's watchdog looks there as well.
pub(super) fn bound_outside() -> Option<String> {
    let mut world = guest(4, 1);
    let bound = |name: &str, cpus: Vec<u32>, weight| TaskSpec {
        cpus: Some(cpus),
        weight,
        ..TaskSpec::new(name, Kind::Hog)
    };
    for i in 0..2 {
        world.task(bound(&format!("heavy{i}"), vec![3], 8000));
        world.task(bound(&format!("heavier{i}"), vec![2], 8000));
    }
    world.task(bound("light", vec![3], 2));
    // It waits in the LLC's queue when both of its CPUs lose preference.
    world.task(bound("on two", vec![2, 3], 2));
    world.at(100 * MS, Change::Prefer(vec![0, 1]));
    let report = measured(&mut world, 200 * MS, 25 * SECOND);
    let waits = ["light", "on two"].map(|name| task(&report, name).longest_wait / MS);
    println!("bound to CPUs that are not preferred: {waits:?} ms");
    waits.iter().any(|wait| *wait > 11_000).then(|| format!("who is bound there waits for {waits:?} ms"))
}

/// Two members of a group that has slept begin on two CPUs at once: it keeps a slice of its lag all the same. Beside two who
/// begin 20 ms apart a hog waits for 24 ms.
pub(super) fn two_come_at_once() -> Option<String> {
    let mut world = World::new(Host { interleave: 2, pause_ns: 20_000, ..host(2, 1) }).unwrap();
    let (busy, sleepy) = (world.group(0, 100), world.group(0, 100));
    for cpu in 0..2 {
        let hog = TaskSpec::new(&format!("hog{cpu}"), Kind::Hog);
        world.task(TaskSpec { cpus: Some(vec![cpu]), group: Some(busy), ..hog });
        for wave in 1..40 {
            // Each runs once, and sleeps for ever.
            let brief = TaskSpec::new("brief", Kind::Sleeper(40 * MS, 1000 * SECOND));
            let brief = TaskSpec { cpus: Some(vec![cpu]), group: Some(sleepy), ..brief };
            world.at(wave * SECOND / 2, Change::Begin(Box::new(brief)));
        }
    }
    let report = measured(&mut world, SECOND / 4, 20 * SECOND);
    let hogs = report.tasks.iter().filter(|task| task.name.starts_with("hog"));
    let wait = hogs.map(|task| task.longest_wait).max().unwrap();
    println!("beside two who begin at once a hog waits for {} ms", wait / MS);
    (wait > 30 * MS).then(|| format!("beside two who begin at once a hog waits for {} ms", wait / MS))
}

/// Real-time tasks have all CPUs of an LLC: who waits there is taken over before the kernel's watchdog looks.
pub(super) fn an_llc_taken_by_real_time() -> Option<String> {
    let mut world = World::new(host(4, 2)).unwrap();
    for cpu in 0..2 {
        let kind = Kind::RealTime(100 * SECOND, MS);
        world.task(TaskSpec { cpus: Some(vec![cpu]), ..TaskSpec::new(&format!("rt{cpu}"), kind) });
    }
    let idle = TaskSpec { policy: 5, cpus: Some(vec![0, 1]), ..TaskSpec::new("idle", Kind::Hog) };
    let idle = world.task(idle);
    hogs(&mut world, 4, "hog", Some(vec![2, 3]), None);
    // It stays in that LLC's queue.
    world.at(100 * MS, Change::Affinity(idle, (0..4).collect()));
    let wait = task(&measured(&mut world, 200 * MS, 40 * SECOND), "idle").longest_wait;
    println!("a SCHED_IDLE task in an LLC of real-time tasks waits for {} ms", wait / MS);
    (wait > 4 * SECOND).then(|| format!("a SCHED_IDLE task there waits for {} ms", wait / MS))
}

/// Who slept keeps one slice of its lag, also where a SCHED_IDLE task of its group has run meanwhile.
pub(super) fn asleep_beside_sched_idle() -> Option<String> {
    let wait = |idlers: usize| {
        let mut world = World::new(host(1, 1)).unwrap();
        let group = Some(world.group(0, 100));
        let sleeper = TaskSpec::new("sleeper", Kind::Sleeper(60 * MS, 300 * MS));
        world.task(TaskSpec { group, ..sleeper });
        for _ in 0..idlers {
            world.task(TaskSpec { policy: 5, group, ..TaskSpec::new("idle", Kind::Hog) });
        }
        let other = Some(world.group(0, 100));
        hogs(&mut world, 1, "hog", None, other);
        let report = measured(&mut world, SECOND, 20 * SECOND);
        report.tasks.iter().find(|task| task.name.starts_with("hog")).unwrap().longest_wait
    };
    let (alone, beside) = (wait(0), wait(1));
    println!("a hog waits for a sleeper for {} ms, beside a SCHED_IDLE task {} ms", alone / MS, beside / MS);
    (beside > alone + 4 * MS).then(|| format!("it waits for {} ms instead of {}", beside / MS, alone / MS))
}

/// A CPU whose queue holds somebody idles no longer because the first of all queues may not run there, as in a guest, where
/// sets of CPUs have no queues.
pub(super) fn beside_who_may_not_run_here() -> Option<String> {
    let mut world = guest(4, 1);
    for i in 0..8 {
        let pair = TaskSpec::new(&format!("pair{i}"), Kind::Hog);
        world.task(TaskSpec { weight: 10_000, cpus: Some(vec![2, 3]), ..pair });
    }
    let bound = TaskSpec::new("bound", Kind::Sleeper(20 * MS, MS));
    world.task(TaskSpec { weight: 1, cpus: Some(vec![0]), ..bound });
    let (had, _) = of(&measured(&mut world, SECOND, 3 * SECOND), "bound");
    println!("alone on a CPU, behind others that may not run there, a task has {had:.2}");
    (had < 0.9).then(|| format!("alone on its CPU a task has {had:.2}"))
}

/// A CPU that regains preference while it idles takes who waits for others, though nobody is queued anew.
pub(super) fn preferred_again() -> Option<String> {
    let mut world = guest(2, 1);
    for i in 0..2 {
        let bound = TaskSpec::new(&format!("bound{i}"), Kind::Hog);
        world.task(TaskSpec { weight: 10_000, cpus: Some(vec![1]), ..bound });
    }
    world.task(TaskSpec { weight: 1, ..TaskSpec::new("free", Kind::Hog) });
    world.at(100 * MS, Change::Prefer(vec![1]));
    world.at(300 * MS, Change::Prefer(vec![0, 1]));
    let (had, _) = of(&measured(&mut world, 301 * MS, 800 * MS), "free");
    println!("when its CPU is preferred again, a task has {had:.2}");
    (had < 0.9).then(|| format!("a CPU that is preferred again idles: a task has {had:.2} of it"))
}
