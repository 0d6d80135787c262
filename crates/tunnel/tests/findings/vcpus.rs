// SPDX-License-Identifier: GPL-2.0-only
//! VMs and their vCPUs: how they are found, their spins and interrupts.

use super::setup::*;

pub(super) fn a6() -> Option<String> {
    (1..60).find_map(|seed| {
        let mut world = World::new(Host { seed, interleave: 4, ..host(8, 1) }).unwrap();
        world.vm(VmSpec::new("vm", 8, Pattern::Ipi));
        world.run(20 * MS);
        let entries = world.report().vms[0].entries;
        (entries > 1).then(|| format!("one VM has {entries} entries (seed {seed})"))
    })
}

/// A yield that is taken up makes the kernel look at the CPU where KVM's choice last ran: an IPI, which a scheduler cannot
/// prevent. Who runs there must not lose its turn for it.
pub(super) fn a11() -> Option<String> {
    let mut world = World::new(Host { traced: 200 * MS..SECOND, ..host(8, 1) }).unwrap();
    world.vm(VmSpec::new("vm", 8, Pattern::Lock));
    let other = world.vm(VmSpec::new("other", 8, Pattern::Compute));
    world.run(SECOND);
    let bystanders = world.vcpu_tasks(other);
    let mut runs: Vec<(u32, u32, u64, u64)> = Vec::new();
    for run in world.trace.runs.iter().filter(|run| bystanders.contains(&run.1)) {
        match runs.iter_mut().rev().find(|last| last.0 == run.0) {
            // Looked at, and kept.
            Some(last) if last.1 == run.1 && last.3 == run.2 => last.3 = run.3,
            _ => runs.push(*run),
        }
    }
    let mean = runs.iter().map(|run| run.3 - run.2).sum::<u64>() / runs.len().max(1) as u64;
    (world.yield_kicks < 100 || mean < 2 * MS).then(|| {
        format!("{} CPUs were rescheduled, and a turn there lasts for {} µs", world.yield_kicks, mean / 1000)
    })
}

pub(super) fn a15() -> Option<String> {
    let units = |pv_eoi| {
        let mut world = World::new(host(4, 1)).unwrap();
        for name in ["a", "b"] {
            world.vm(VmSpec { pv_eoi, ..VmSpec::new(name, 4, Pattern::KernelReceiver) });
        }
        measured(&mut world, 100 * MS, 1100 * MS).vms.iter().map(|vm| vm.units).sum::<f64>()
    };
    let (seen, unseen) = (units(false), units(true));
    // KVM learns of such an end at the receiver's next exit, and the sender goes on no sooner.
    (unseen < 0.65 * seen).then(|| format!("{unseen:.0} round trips per second instead of {seen:.0}"))
}

pub(super) fn a16() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    let vm = world.vm(VmSpec::new("vm", 4, Pattern::Compute));
    let tasks = world.vcpu_tasks(vm);
    for i in 0..200 {
        world.at(50 * MS + i * MS, Change::DeviceIrq(i as u32 % 2, tasks[i as usize % 4]));
    }
    world.run(300 * MS);
    let ipis = world.vm_counter(vm, c"ipis");
    (ipis > 0).then(|| format!("a VM that sends nothing is booked {ipis} IPIs"))
}

pub(super) fn a17() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let vm = world.vm(VmSpec::new("a", 16, Pattern::Shootdown));
    world.vm(VmSpec::new("b", 16, Pattern::Compute));
    world.run(3 * SECOND);
    let boosts = world.boosts(vm);
    let (low, high) = (boosts[..4].iter().sum::<u64>(), boosts[12..].iter().sum::<u64>());
    (low > high * 3 / 2)
        .then(|| format!("of alike vCPUs the first four are chosen {low} times, the last four {high}"))
}

pub(super) fn a20() -> Option<String> {
    let mut world = World::new(host(4, 1)).unwrap();
    let first = world.vm(VmSpec { tgid: 4000, ..VmSpec::new("a", 4, Pattern::Lock) });
    world.vm(VmSpec { tgid: 4000, ..VmSpec::new("b", 4, Pattern::Lock) });
    world.run(500 * MS);
    let report = world.report();
    let _ = first;
    (report.vms[0].entries < 2).then(|| "two VMs of one process are one to the scheduler".into())
}

/// With APICv, KVM is not told when a receiver has handled an IPI.
pub(super) fn apicv() -> Option<String> {
    let answered = |apicv| {
        let mut world = World::new(Host { apicv, ..host(4, 1) }).unwrap();
        let vm = world.vm(VmSpec::new("a", 8, Pattern::UserReceiver));
        world.vm(VmSpec::new("b", 8, Pattern::Compute));
        world.run(2 * SECOND);
        world.vm_counter(vm, c"answered picked")
    };
    let (seen, unseen) = (answered(false), answered(true));
    println!("APICv: {unseen} answered instead of {seen}");
    (unseen < seen / 2).then(|| format!("{unseen} vCPUs are known to have been answered, instead of {seen}"))
}

/// A thread of a VMM that sets a vCPU's registers runs no vCPU.
pub(super) fn an_ioctl() -> Option<String> {
    let mut world = World::new(host(2, 1)).unwrap();
    // The world's first task.
    let tgid = world.process(TaskSpec::new("main", Kind::Sleeper(2 * MS, 2 * MS)));
    let vm = world.vm(VmSpec { tgid, ..VmSpec::new("vm", 2, Pattern::Compute) });
    for i in 0..20 {
        world.at(100 * MS + i * 10 * MS, Change::VcpuIoctl(vm, 0, i % 2 == 0));
    }
    let (booked, ran) = measured(&mut world, 0, 2 * SECOND).vms[0].booked;
    (booked > ran + ran / 50)
        .then(|| format!("{} ms are booked for a VM whose vCPUs have run {}", booked / MS, ran / MS))
}

/// A lock whose holder runs is free in a moment, and whoever waits for it keeps its CPU.
pub(super) fn short_spins() -> Option<String> {
    spins_given_up(5000)
}

/// So should they who spin for a moment again and again, if the window is so short that most of these spins exit.
pub(super) fn short_spins_in_a_row() -> Option<String> {
    spins_given_up(1500)
}

/// Nobody is to come for whom a VM of one vCPU might spin, nor does a latency VM leave: they poll, and have their share.
pub(super) fn who_polls() -> Option<String> {
    for (vcpus, class) in [(1, Class::Normal), (2, Class::Latency)] {
        let mut world = World::new(host(vcpus, 1)).unwrap();
        world.vm(VmSpec { class, ..VmSpec::new("polling", vcpus, Pattern::Pause) });
        world.vm(VmSpec::new("computing", vcpus, Pattern::Compute));
        let report = measured(&mut world, 300 * MS, 2300 * MS);
        let (had, due) = (report.vms[0].cpus, f64::from(vcpus) / 2.0);
        if had < 0.9 * due {
            return Some(format!("{vcpus} vCPUs that poll have {had:.2} CPUs where {due:.2} are due"));
        }
    }
    None
}

fn spins_given_up(window_ns: u64) -> Option<String> {
    let mut world = World::new(Host { window_ns, ..host(4, 1) }).unwrap();
    let short = VmSpec { critical_ns: 10_000, outside_ns: 30_000, ..VmSpec::new("locks", 4, Pattern::Lock) };
    let vm = world.vm(short);
    hogs(&mut world, 4, "other", None, None);
    world.run(SECOND);
    let gave_up = world.vm_counter(vm, c"gave up");
    (gave_up > 50).then(|| format!("its spinners gave up {gave_up} times"))
}
