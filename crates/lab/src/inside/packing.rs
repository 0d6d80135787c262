// SPDX-License-Identifier: GPL-2.0-only
//! The short check of the guest scheduler, for machines of any shape: it packs as the topology has it, leaves alone
//! what is bound, and gives everything back. What must come out is found here from sysfs, not asked of the scheduler.

use super::cpusets::Group;
use super::guest::{Guest, Injected, PATIENCE, Worker, places, preferred, stats, wait};
use super::kernel::complaints;
use crate::machine::describe::{self, online_cpus, parse_cpus, scheduler_state};
use crate::machine::shape::Shape;
use crate::machine::task;
use crate::protocol::Event;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

const CGROUPS: &str = "/sys/fs/cgroup";

/// What sysfs says of the machine.
struct Topology {
    /// CPUs that tasks come to by themselves.
    shared: BTreeSet<u32>,
    cores: Vec<BTreeSet<u32>>,
    nodes: Vec<BTreeSet<u32>>,
    /// The first core with a tick.
    house: BTreeSet<u32>,
}

fn list(file: &str) -> BTreeSet<u32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    parse_cpus(text.trim()).unwrap_or_default().into_iter().collect()
}

impl Topology {
    fn read() -> Result<Topology> {
        let isolated = list(&format!("{CGROUPS}/cpuset.cpus.isolated"));
        let tickless = list("/sys/devices/system/cpu/nohz_full");
        let shared: BTreeSet<u32> =
            online_cpus()?.into_iter().filter(|cpu| !isolated.contains(cpu)).collect();
        let core =
            |cpu: &u32| list(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
        let mut cores: Vec<BTreeSet<u32>> = shared.iter().map(core).collect();
        cores.dedup();
        let node = |n: u32| list(&format!("/sys/devices/system/node/node{n}/cpulist"));
        let nodes = (0..64).map(node).filter(|cpus| !cpus.is_empty()).collect();
        let house =
            cores.iter().find(|core| !core.is_subset(&tickless)).cloned().context("no CPU has ticks")?;
        Ok(Topology { shared, cores, nodes, house })
    }

    /// What is wrong with these preferred CPUs, of which there should be so many.
    fn fault(&self, preferred: &BTreeSet<u32>, many: usize) -> Option<String> {
        let mine: BTreeSet<u32> = preferred.intersection(&self.shared).copied().collect();
        if mine.len() != many {
            return Some(format!("{} CPUs are preferred, and {many} are served", mine.len()));
        }
        if let Some(core) = self.cores.iter().find(|core| !core.is_subset(&mine) && !core.is_disjoint(&mine))
        {
            return Some(format!("siblings {core:?} are parted"));
        }
        let of_nodes: Vec<usize> = self.nodes.iter().map(|node| node.intersection(&mine).count()).collect();
        if of_nodes.iter().any(|n| *n != of_nodes[0]) {
            return Some(format!("nodes have {of_nodes:?} preferred CPUs"));
        }
        (!self.house.is_subset(&mine)).then(|| format!("{:?} keeps house, and is not preferred", self.house))
    }
}

fn preferred_cpus() -> BTreeSet<u32> {
    describe::preferred_cpus().unwrap_or_default().into_iter().collect()
}

/// A real-time task that sleeps on a CPU, and looks now and then.
fn real_time(cpu: u32) {
    thread::spawn(move || {
        if task::bind(0, &[cpu]).is_err() || task::set_policy(libc::SCHED_FIFO, 1).is_err() {
            return;
        }
        loop {
            thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Says every step that holds.
///
/// # Errors
/// The first one that does not.
pub fn check(shape: &Shape, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    let mut say = |text: &str| say(Event::Log(text.into()));
    fs::write(format!("{CGROUPS}/cgroup.subtree_control"), "+cpuset")
        .context("the kernel has no cpuset controller")?;
    if !shape.isolated.is_empty() {
        let group = format!("{CGROUPS}/isolated");
        fs::create_dir(&group)?;
        fs::write(format!("{group}/cpuset.cpus"), shape.isolated)?;
        fs::write(format!("{group}/cpuset.cpus.partition"), "isolated")?;
    }
    let machine = Topology::read()?;
    let shared: Vec<u32> = machine.shared.iter().copied().collect();
    let (first, last) = (shared[0], shared[shared.len() - 1]);
    let steal = Injected::start(shared.len(), first)?;
    let mut guest = Guest::start(&["--enforce", "sched-ext", "--interval-ms", "100", "--stand-by", "2"])?;
    let all: BTreeSet<u32> = online_cpus()?.into_iter().collect();
    guest.wait_for_load("load, and prefer all CPUs", || Ok(preferred_cpus() == all))?;
    let free: Vec<Worker> = shared.iter().map(|_| Worker::start(&[])).collect::<Result<_>>()?;
    real_time(last);
    let everywhere =
        || -> Result<BTreeSet<u32>> { Ok(places(&free)?.into_iter().map(|cpu| cpu as u32).collect()) };
    guest.wait(PATIENCE, "use all CPUs", || Ok(everywhere()? == machine.shared))?;

    // Only while it packs: with them EEVDF has more tasks than CPUs, and need not use every CPU for those that may
    // run anywhere.
    let bound = Worker::start(&[last])?;
    let in_cpuset = if shape.cpuset.is_empty() { None } else { Some(in_cpuset(shape.cpuset)?) };
    steal.set(50);
    let half = shared.len() / 2;
    // A shrink may be taken back, as the stand-in for a host is late at times, and is tried again later.
    let pack = |guest: &mut Guest, what: &str| -> Result<()> {
        let mut fault = None;
        let packed = guest.wait(3 * PATIENCE, what, || {
            fault = machine.fault(&preferred_cpus(), half);
            Ok(fault.is_none())
        });
        packed.with_context(|| fault.unwrap_or_default())
    };
    pack(&mut guest, "pack")?;
    guest.wait(PATIENCE, "run tasks on preferred CPUs only", || {
        // Now and then one core more is tried.
        let (before, found, after) = (preferred_cpus(), everywhere()?, preferred_cpus());
        Ok(before == after && found.is_subset(&before))
    })?;
    say(&format!("half is stolen: {} of {} stay, and tasks run there only", preferred(), shared.len()))?;

    for worker in [&bound].into_iter().chain(&in_cpuset) {
        let used = worker.used_within(Duration::from_millis(500));
        ensure!(used > 0.2, "a task bound elsewhere had {used} of a CPU");
    }
    guest.wait(PATIENCE, "count real-time tasks", || Ok(stats()?["real_time"].as_u64() > Some(0)))?;
    ensure!(stats()?["outside"].as_u64() > Some(0), "tasks bound elsewhere were not counted");
    say("what is bound elsewhere runs there; real-time tasks there are counted")?;

    drop(bound);
    drop(in_cpuset);
    steal.set(0);
    guest.wait(PATIENCE, "prefer all again", || Ok(preferred_cpus() == all))?;
    guest.wait(PATIENCE, "use all again", || Ok(everywhere()? == machine.shared))?;
    steal.set(50);
    pack(&mut guest, "pack again")?;
    ensure!(scheduler_state()? == "enabled", "with steal, it does not schedule");
    guest.kill()?;
    wait(PATIENCE, "leave after kill -9", || Ok(scheduler_state()? == "disabled" && preferred().is_empty()))?;
    wait(PATIENCE, "use all CPUs", || Ok(everywhere()? == machine.shared))?;
    if let Some(line) = complaints()? {
        bail!("the kernel complains: {line}");
    }
    say(
        "steal is over: all come back; kill -9 while packed: EEVDF uses all CPUs; the kernel had no complaint",
    )
}

/// A worker in a cpuset of its own.
fn in_cpuset(cpus: &str) -> Result<Worker> {
    let bound = Group::new("bound")?;
    bound.set(cpus)?;
    Ok(bound.worker)
}
