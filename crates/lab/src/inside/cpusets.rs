// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest` keeps tasks on preferred CPUs by cpusets: on a machine of two cores of two siblings each.

use super::guest::{Guest, Injected, PATIENCE, Worker, places, preferred, stats, wait};
use super::kernel::complaints;
use crate::machine::describe::scheduler_state;
use crate::machine::task;
use anyhow::{Result, bail, ensure};
use overbook_cli::affinity;
use overbook_cli::cpulist::Cpus;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

const CGROUPS: &str = "/sys/fs/cgroup";

/// A top-level cgroup with a task that always wants a CPU.
pub(super) struct Group {
    name: &'static str,
    pub worker: Worker,
}

impl Group {
    pub fn new(name: &'static str) -> Result<Group> {
        let dir = format!("{CGROUPS}/{name}");
        fs::create_dir(&dir)?;
        fs::write(format!("{dir}/cgroup.type"), "threaded")?;
        let worker = Worker::start(&[])?;
        fs::write(format!("{dir}/cgroup.threads"), worker.tid.to_string())?;
        Ok(Group { name, worker })
    }

    fn cpus(&self) -> Result<String> {
        let text = fs::read_to_string(format!("{CGROUPS}/{}/cpuset.cpus", self.name))?;
        Ok(text.trim().to_string())
    }

    pub fn set(&self, cpus: &str) -> Result<()> {
        fs::write(format!("{CGROUPS}/{}/cpuset.cpus", self.name), format!("{cpus}\n"))?;
        Ok(())
    }
}

/// Whether top-level cgroups have cpusets.
fn enabled() -> Result<bool> {
    Ok(fs::read_to_string(format!("{CGROUPS}/cgroup.subtree_control"))?.contains("cpuset"))
}

/// Where kernel threads may run that may be moved at all.
fn of_kernel_threads() -> Result<BTreeSet<Cpus>> {
    let movable = fs::read_dir("/proc")?.flatten().filter_map(|entry| {
        let stat = Stat::from_file(entry.path().join("stat")).ok()?;
        let has = |flag: StatFlags| stat.flags & flag.bits() != 0;
        let may_move = has(StatFlags::PF_KTHREAD) && !has(StatFlags::PF_NO_SETAFFINITY);
        (may_move && stat.policy == Some(0)).then(|| affinity::of(stat.pid)).and_then(Result::ok)
    });
    Ok(movable.collect())
}

/// Says every step that holds.
///
/// # Errors
/// The first one that does not.
pub fn check(say: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    let machine = Machine::start()?;
    let guest = machine.packs()?;
    say("cpusets: half is stolen, and tasks run on one core, kernel threads among them; EEVDF schedules")?;
    machine.is_killed(guest)?;
    say("cpusets: kill -9 while packed: all is as it was")?;
    let late = machine.keeps_what_others_want()?;
    say(
        "cpusets: CPUs that others ask for are theirs, as far as they are preferred, and all of them afterwards; cgroups \
         that come are found",
    )?;
    let guest = machine.comes_back()?;
    say("cpusets: steal is over: all is as it was")?;
    machine.spares_a_partition(guest, &late)?;
    if let Some(line) = complaints()? {
        bail!("the kernel complains: {line}");
    }
    say("cpusets: a partition keeps its CPU; the kernel had no complaint")
}

/// Starts one that enforces by cpusets.
fn start() -> Result<Guest> {
    Guest::start(&["--enforce", "cpuset", "--interval-ms", "100"])
}

fn all() -> BTreeSet<Cpus> {
    BTreeSet::from([Cpus::from([0, 1, 2, 3])])
}

/// Steal that is injected, and groups with a task each.
struct Machine {
    steal: Injected,
    groups: Vec<Group>,
}

impl Machine {
    fn start() -> Result<Machine> {
        let steal = Injected::start(4, 0)?;
        let groups = ["a.slice", "b.slice", "c.slice", "d.slice"].into_iter().map(Group::new);
        let groups = groups.collect::<Result<_>>()?;
        ensure!(!enabled()?, "this machine has cpusets already");
        ensure!(of_kernel_threads()? == all(), "kernel threads are bound already");
        Ok(Machine { steal, groups })
    }

    /// CPUs that tasks of the groups use.
    fn places(&self) -> Result<Vec<i32>> {
        places(self.groups.iter().map(|group| &group.worker))
    }

    /// What the groups have. Some kernels let one with tasks go back to nothing, which is all.
    fn cpus(&self) -> Result<Vec<String>> {
        let all = |cpus: String| if cpus.is_empty() { "0-3".into() } else { cpus };
        self.groups.iter().map(|group| group.cpus().map(all)).collect()
    }

    fn packs(&self) -> Result<Guest> {
        let mut guest = start()?;
        guest.wait(PATIENCE, "prefer all CPUs", || Ok(preferred() == "0-3"))?;
        guest.wait(PATIENCE, "use all CPUs", || Ok(self.places()?.len() == 4))?;
        ensure!(!enabled()?, "without steal, cpusets have been enabled");
        self.steal.set(50);
        guest.wait(PATIENCE, "prefer one core", || Ok(preferred() == "0-1"))?;
        guest.wait(PATIENCE, "keep tasks there", || Ok(self.places()?.iter().all(|cpu| *cpu < 2)))?;
        ensure!(scheduler_state()? == "disabled", "a scheduler has been loaded");
        // Now and then one core more is tried, and then there is nothing to enforce.
        guest.wait(PATIENCE, "say that it is at work", || Ok(stats()?["scheduling"] == 1))?;
        guest.wait(PATIENCE, "keep kernel threads there", || {
            Ok(of_kernel_threads()? == [Cpus::from([0, 1])].into())
        })?;
        ensure!(
            task::bind(self.groups[0].worker.tid, &[3]).is_err(),
            "a task could bind itself to a CPU that is not preferred"
        );
        Ok(guest)
    }

    fn is_killed(&self, guest: Guest) -> Result<()> {
        guest.kill()?;
        // With the controller its files go, and what they say.
        wait(PATIENCE, "put cpusets back after kill -9", || Ok(preferred().is_empty() && !enabled()?))?;
        wait(PATIENCE, "let kernel threads go after kill -9", || Ok(of_kernel_threads()? == all()))?;
        wait(PATIENCE, "use all CPUs", || Ok(self.places()?.len() == 4))
    }

    /// Returns a group that came while tasks were kept from CPUs.
    fn keeps_what_others_want(&self) -> Result<Group> {
        let mut guest = start()?;
        guest.wait(PATIENCE, "prefer one core again", || Ok(preferred() == "0-1" && enabled()?))?;
        self.groups[1].set("2-3")?;
        self.groups[2].set("1-2")?;
        guest.wait(PATIENCE, "keep to what others want", || {
            Ok(self.groups[1].cpus()? == "2-3"
                && self.groups[2].cpus()? == "1"
                && self.places()?.iter().any(|cpu| *cpu >= 2))
        })?;
        let late = Group::new("e.slice")?;
        guest.wait(PATIENCE, "find a cgroup that came late", || Ok(late.cpus()? == "0-1"))?;
        drop(guest);
        wait(PATIENCE, "leave what others want", || Ok(self.cpus()? == ["0-3", "2-3", "1-2", "0-3"]))?;
        Ok(late)
    }

    fn comes_back(&self) -> Result<Guest> {
        self.groups[2].set("0-3")?;
        let mut guest = start()?;
        guest.wait(PATIENCE, "prefer one core", || {
            Ok(preferred() == "0-1" && self.groups[0].cpus()? == "0-1")
        })?;
        self.steal.set(0);
        guest.wait(PATIENCE, "prefer all again", || {
            let all_is_as_it_was =
                self.cpus()? == ["0-3", "2-3", "0-3", "0-3"] && of_kernel_threads()? == all();
            Ok(preferred() == "0-3" && all_is_as_it_was)
        })?;
        guest.wait(PATIENCE, "use all again", || Ok(self.places()?.len() == 4))?;
        let wants = self.groups[0].worker.used_within(Duration::from_millis(500));
        ensure!(wants > 0.1, "a task had {wants} of a CPU");
        Ok(guest)
    }

    /// CPU 3 becomes a partition's; a cgroup that had no CPUs of its own comes.
    fn spares_a_partition(&self, mut guest: Guest, late: &Group) -> Result<()> {
        for group in self.groups.iter().chain([late]) {
            group.set("0-2")?;
        }
        let partition = format!("{CGROUPS}/apart");
        fs::create_dir(&partition)?;
        fs::write(format!("{partition}/cpuset.cpus"), "3")?;
        fs::write(format!("{partition}/cpuset.cpus.partition"), "root")?;
        let is_one = || -> Result<bool> {
            Ok(fs::read_to_string(format!("{partition}/cpuset.cpus.partition"))?.trim() == "root")
        };
        ensure!(is_one()?, "there is no partition");
        let last = Group::new("f.slice")?;
        self.steal.set(50);
        guest.wait(PATIENCE, "prefer less than all", || {
            Ok(stats()?["scheduling"] == 1 && !last.cpus()?.is_empty())
        })?;
        ensure!(is_one()?, "a partition has lost its CPU to {:?}", last.cpus()?);
        self.steal.set(0);
        guest.wait(PATIENCE, "prefer all once more", || {
            Ok(preferred() == "0-3" && ["", "0-2"].contains(&&*last.cpus()?))
        })?;
        ensure!(is_one()?, "a partition has lost its CPU at the end");
        drop(guest);
        ensure!(enabled()?, "cpusets of others are gone");
        fs::write(format!("{partition}/cpuset.cpus.partition"), "member")?;
        fs::remove_dir(partition)?;
        for group in self.groups.iter().chain([late, &last]) {
            group.set("0-3")?;
        }
        Ok(())
    }
}
