// SPDX-License-Identifier: GPL-2.0-only
//! `cpu.max`.

use super::setup::*;

pub(super) fn a10() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let group = world.group(0, 100);
    hogs(&mut world, 4, "limited", None, Some(group));
    hogs(&mut world, 4, "other", None, None);
    world.at(100 * MS, Change::Bandwidth(group, 100_000, 50_000));
    off(&measured(&mut world, 200 * MS, 2 * SECOND), "limited")
}

pub(super) fn a_quota_outside() -> Option<String> {
    let mut world = guest(4, 1);
    let group = world.group(0, 100);
    hogs(&mut world, 1, "limited", Some(vec![3]), Some(group));
    world.at(100 * MS, Change::Bandwidth(group, 100_000, 20_000));
    world.at(100 * MS, Change::Prefer(vec![0, 1]));
    off(&measured(&mut world, 200 * MS, 2 * SECOND), "limited")
}

/// Who has used a `cpu.max` is no rival of the groups beside it, as under EEVDF.
pub(super) fn beside_parked() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    let group = world.group(0, 100);
    let (limited, free) = (world.group(group, 100), world.group(group, 100));
    hogs(&mut world, 1, "limited", None, Some(limited));
    hogs(&mut world, 1, "free", None, Some(free));
    hogs(&mut world, 1, "root", None, None);
    world.at(10 * MS, Change::Bandwidth(limited, 100_000, 5_000));
    off(&measured(&mut world, SECOND, 4 * SECOND), "free")
}

/// Who was preempted in an RCU read section runs on until it is out, though its `cpu.max` is used up.
pub(super) fn parked_in_a_section() -> Option<String> {
    let mut world = World::new(host(1, 1)).unwrap();
    let group = world.group(0, 1000);
    let hog = hogs(&mut world, 1, "limited", None, Some(group))[0];
    hogs(&mut world, 2, "root", None, None);
    world.at(10 * MS, Change::Bandwidth(group, 1_000_000, 5_000));
    world.at(5 * MS, Change::RcuSection(hog, true));
    let (had, _) = of(&measured(&mut world, 100 * MS, 900 * MS), "limited");
    (had < 0.2).then(|| format!("a task inside a section has {had:.2} CPUs"))
}

/// A crowd whose little `cpu.max` is used up many times over, as who has waited for long runs, does not wait until the kernel's
/// watchdog ends the scheduler; beside others that leave it next to nothing neither.
pub(super) fn a_crowd() -> Option<String> {
    [(300, 0), (300, 8), (600, 8)].into_iter().find_map(|(crowd, rivals)| {
        let mut world = World::new(host(4, 1)).unwrap();
        let (group, other) = (world.group(0, 1), world.group(0, 10_000));
        hogs(&mut world, rivals, "hog", None, Some(other));
        hogs(&mut world, crowd, "limited", None, Some(group));
        world.at(MS, Change::Bandwidth(group, 100_000, 1_000));
        let report = measured(&mut world, 0, 90 * SECOND);
        let wait = report.tasks.iter().map(|task| task.longest_wait).max().unwrap();
        let words = format!("one of {crowd} waits for {} s beside {rivals} hogs", wait / SECOND);
        println!("with a hundredth of a CPU {words}");
        (wait > 28 * SECOND).then_some(words)
    })
}

/// A group gets no more than its `cpu.max` because its tasks lose their patience, and is not in debt for that.
pub(super) fn an_impatient_crowd() -> Option<String> {
    let mut machine = host(4, 1);
    machine.set.push(("patience_ns".into(), 100 * MS));
    let mut world = World::new(machine).unwrap();
    let group = world.group(0, 100);
    hogs(&mut world, 64, "limited", None, Some(group));
    hogs(&mut world, 4, "free", None, None);
    world.at(MS, Change::Bandwidth(group, 100_000, 5_000));
    let (had, _) = of(&measured(&mut world, SECOND, 41 * SECOND), "limited");
    ((had - 0.05).abs() > 0.01).then(|| format!("a group has {had:.3} CPUs where 0.05 are allowed"))
}

/// A crowd whose `cpu.max` is filled up again stands as who wakes up: it does not come before all others until each of it has run.
pub(super) fn back_from_parking() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let (limited, free) = (world.group(0, 100), world.group(0, 100));
    hogs(&mut world, 300, "limited", None, Some(limited));
    hogs(&mut world, 4, "free", None, Some(free));
    world.at(MS, Change::Bandwidth(limited, 100_000, 40_000));
    let report = measured(&mut world, SECOND, 6 * SECOND);
    let free = report.tasks.iter().filter(|task| task.name.starts_with("free"));
    let wait = free.map(|task| task.longest_wait).max().unwrap();
    println!("beside 300 tasks that come back to their quota one waits for {} ms", wait / MS);
    (wait > 40 * MS)
        .then(|| format!("beside a crowd that comes back to its quota one waits for {} ms", wait / MS))
}

/// While nobody is let go the timer of `cpu.max` does not look at all who are parked each time.
pub(super) fn many_parked() -> Option<String> {
    [300, 1500].into_iter().find_map(|tasks| {
        let mut world = World::new(host(2, 1)).unwrap();
        let group = world.group(0, 100);
        hogs(&mut world, tasks, "limited", None, Some(group));
        // The group owes for many periods.
        world.at(MS, Change::Bandwidth(group, 1_000_000, 1_000));
        world.run(2 * SECOND);
        world.count_costs(true);
        world.run(6 * SECOND);
        let report = world.report();
        let calls = report.costs.iter().find(|cost| cost.name == "timer").map_or(0, |cost| cost.kfuncs);
        println!("with {tasks} parked the timer makes {} calls each time", calls / 4000);
        // It still has to look now and then.
        let as_many_as_needed = (4000..400_000).contains(&calls);
        (!as_many_as_needed)
            .then(|| format!("with {tasks} parked the timer makes {} calls each time", calls / 4000))
    })
}

/// What two groups below one with a `cpu.max` have of it goes by their weights, beside others and alone.
pub(super) fn below_a_limited_group() -> Option<String> {
    [(0, false), (4, false), (4, true)].into_iter().find_map(|(rivals, together)| {
        let mut world = World::new(host(2, 1)).unwrap();
        let limited = world.group(0, 100);
        let (light, heavy) = (world.group(limited, 100), world.group(limited, 1000));
        hogs(&mut world, 3, "light", None, Some(light));
        hogs(&mut world, 3, "heavy", None, Some(heavy));
        let group = together.then(|| world.group(0, 100));
        hogs(&mut world, rivals, "rival", None, group);
        world.at(MS, Change::Bandwidth(limited, 100_000, 30_000));
        let (had, due) = of(&measured(&mut world, SECOND, 9 * SECOND), "light");
        println!("below a limited group the light one has {had:.3} CPUs of {due:.3}");
        ((had - due).abs() > 0.1 * due + 0.02)
            .then(|| format!("the light one has {had:.3} CPUs where {due:.3} are due"))
    })
}
