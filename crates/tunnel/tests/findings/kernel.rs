// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel forbids, and what a look may cost.

use super::setup::*;

pub(super) fn a2() -> Option<String> {
    let mut world = guest(8, 8);
    hogs(&mut world, 8, "hog", None, None);
    world.at(SECOND, Change::Prefer(vec![0, 1, 2, 3]));
    world.measure_from(2 * SECOND);
    world.run(3 * SECOND);
    let outside = (4..8).filter(|cpu| world.runs(*cpu)).count();
    (outside > 0).then(|| format!("{outside} CPUs that are not preferred run tasks that may run elsewhere"))
}

pub(super) fn a3() -> Option<String> {
    let mut world = World::new(host(8, 2)).unwrap();
    world.count_costs(true);
    hogs(&mut world, 300, "pool", Some((0..4).collect()), None);
    world.task(TaskSpec { cpus: Some(vec![4, 5]), ..TaskSpec::new("lone", Kind::Sleeper(MS, MS)) });
    let report = measured(&mut world, MS, 300 * MS);
    let most = most_calls(&report, "dispatch");
    (most > 128).then(|| format!("one dispatch passes over {most} tasks and calls"))
}

pub(super) fn a13() -> Option<String> {
    (1..20).find_map(|seed| {
        let dwell_in = Some(c"bpf_iter_scx_dsq_new");
        let mut world = World::new(Host { seed, interleave: 1000, dwell_in, ..host(4, 1) }).unwrap();
        let vm = world.vm(VmSpec::new("vm", 8, Pattern::Shootdown));
        let tasks = world.vcpu_tasks(vm);
        for i in 0..6000 {
            // To two CPUs: on one, it would be queued apart.
            let cpus = if i % 2 == 0 { vec![1, 2] } else { vec![0, 1, 2, 3] };
            world.at(5 * MS + i * 8000, Change::Affinity(tasks[i as usize / 2 % 8], cpus));
        }
        world.run(100 * MS);
        world.findings.lines().into_iter().find(|line| line.contains("not allowed"))
    })
}

pub(super) fn a19() -> Option<String> {
    let mut world = World::new(host(64, 1)).unwrap();
    for i in 0..1040 {
        world.vm(VmSpec { outside_ns: 50 * MS, ..VmSpec::new(&format!("vm{i}"), 1, Pattern::Compute) });
    }
    world.count_costs(true);
    world.run(SECOND);
    let most = most_calls(&world.report(), "stopping");
    (most > 500).then(|| format!("one end of a turn makes {most} calls, with the runqueue locked"))
}
