// SPDX-License-Identifier: GPL-2.0-only
//! Kernel threads follow tasks. They are in the root cgroup, which has no cpuset to narrow, so their affinity is. It is
//! worth it: RCU's alone wakes up some hundred times a second, mostly on a vCPU that has nothing else to do, which then
//! takes a CPU from one that has.

use crate::cpusets::narrowed;
use crate::realtime::{LOOK_EVERY, PROC, is_real_time};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use overbook_cli::affinity;
use overbook_cli::cpulist::{self, Cpus};
use overbook_scheduler::topology;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What kernel threads had, by their IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved(BTreeMap<i32, Affinity>);

/// An affinity that is changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Affinity {
    /// CPUs that it had, as a list; empty: all.
    before: String,
    /// CPUs that it has got since: what stands there, and what comes next.
    given: Vec<String>,
}

impl Affinity {
    /// Whether a thread that has these of the online CPUs has what it was given. The kernel says nothing of CPUs that are
    /// not online.
    fn is_ours(&self, now: &Cpus, online: &Cpus) -> bool {
        let given = self.given.iter().flat_map(|text| cpulist::parse(text));
        given.map(|given| given.intersection(online).copied().collect::<Cpus>()).any(|given| given == *now)
    }
}

/// The online CPUs.
fn online() -> Cpus {
    topology::online().and_then(|text| cpulist::parse(&text)).unwrap_or_default()
}

impl Moved {
    /// Puts back what nobody else has changed meanwhile. Threads that are gone need nothing.
    pub fn restore(&mut self) {
        let online = online();
        for (thread, affinity) in std::mem::take(&mut self.0) {
            let now = affinity::of(thread);
            if now.is_ok_and(|now| affinity.is_ours(&now, &online)) && is_movable(thread) {
                // CPUs that come later are among all.
                let all = affinity.before.is_empty().then(topology::possible);
                bind(thread, all.as_ref().unwrap_or(&affinity.before));
            }
        }
    }

    /// Has a thread that has these of the online CPUs keep to `wanted`; whether that changes something. What somebody else
    /// has given it meanwhile is what it is to have.
    fn plan(&mut self, thread: i32, now: &Cpus, online: &Cpus, wanted: &Cpus) -> bool {
        let text = cpulist::format(now);
        let before = match self.0.get(&thread).filter(|affinity| affinity.is_ours(now, online)) {
            Some(ours) => ours.before.clone(),
            None if now == online => String::new(),
            None => text.clone(),
        };
        let Some(next) = narrowed(&before, wanted).filter(|next| *next != text) else { return false };
        self.0.insert(thread, Affinity { before, given: vec![text, next] });
        true
    }
}

/// Has kernel threads follow.
pub struct KernelThreads {
    /// Where processes are: `/proc`.
    proc: PathBuf,
    /// By process ID: whether it is a kernel thread that may be moved.
    known: BTreeMap<i32, bool>,
    /// What is to be done next.
    due: BTreeSet<i32>,
    wanted: Cpus,
    /// When threads were last looked at: those that come are found later, as long as the preferred CPUs are the same.
    looked: Option<Instant>,
}

impl KernelThreads {
    /// Nothing is moved yet.
    pub fn new(proc: &Path) -> KernelThreads {
        KernelThreads {
            proc: proc.into(),
            known: BTreeMap::new(),
            due: BTreeSet::new(),
            wanted: Cpus::new(),
            looked: None,
        }
    }

    /// Finds out what keeps them on these CPUs, and says in `moved` what that changes; whether it changes anything.
    pub fn survey(&mut self, wanted: &Cpus, moved: &mut Moved) -> bool {
        self.due.clear();
        if self.wanted == *wanted && self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return false;
        }
        self.looked = Some(Instant::now());
        self.wanted.clone_from(wanted);
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let threads: BTreeSet<i32> =
            entries.flat_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let online = online();
        self.known.retain(|thread, _| threads.contains(thread));
        moved.0.retain(|thread, _| threads.contains(thread));
        for thread in threads {
            if *self.known.entry(thread).or_insert_with(|| is_movable(thread))
                && affinity::of(thread).is_ok_and(|now| moved.plan(thread, &now, &online, wanted))
            {
                self.due.insert(thread);
            }
        }
        !self.due.is_empty()
    }

    /// Does what the survey has found.
    pub fn follow(&mut self, moved: &mut Moved) {
        for thread in std::mem::take(&mut self.due) {
            let Some(affinity) = moved.0.get_mut(&thread) else { continue };
            // It may have ended, and its ID be another's, or have lost its freedom.
            let next = affinity.given.pop().filter(|next| is_movable(thread) && bind(thread, next));
            match next {
                Some(next) => affinity.given = vec![next],
                None => drop(self.known.insert(thread, false)),
            }
        }
    }

    /// Puts all back.
    pub fn release(&mut self, moved: &mut Moved) {
        moved.restore();
        self.due.clear();
        self.wanted.clear();
    }
}

/// Whether a task is a kernel thread that may be moved: not one of a CPU or a workqueue, nor a real-time one, whose place
/// somebody has thought about.
fn is_movable(thread: i32) -> bool {
    Stat::from_file(format!("{PROC}/{thread}/stat")).is_ok_and(|stat| {
        let has = |flag: StatFlags| stat.flags & flag.bits() != 0;
        has(StatFlags::PF_KTHREAD) && !has(StatFlags::PF_NO_SETAFFINITY) && !is_real_time(&stat)
    })
}

/// Whether the kernel lets a thread have a list of CPUs.
fn bind(thread: i32, cpus: &str) -> bool {
    let mut set = CpuSet::new();
    for cpu in cpulist::parse(cpus).unwrap_or_default() {
        // One that is too large for a mask is not online.
        let _ = set.set(cpu);
    }
    sched_setaffinity(Pid::from_raw(thread), &set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_had_is_kept_and_what_others_gave_it_counts() {
        let mut moved = Moved::default();
        let mut plan_among = |now: &str, wanted: &str, online: &str| {
            let [now, wanted, online] = [now, wanted, online].map(|text| cpulist::parse(text).unwrap());
            let changes = moved.plan(7, &now, &online, &wanted);
            (changes, moved.0.get(&7).map(|affinity| (affinity.before.clone(), affinity.given.clone())))
        };
        let mut plan = |now: &str, wanted: &str| plan_among(now, wanted, "0-3");
        let is =
            |before: &str, given: [&str; 2]| Some((before.to_string(), given.map(String::from).to_vec()));
        assert_eq!(plan("0-3", "0-3"), (false, None), "nothing to do");
        assert_eq!(plan("0-3", "0-1"), (true, is("", ["0-3", "0-1"])));
        assert_eq!(plan("0-1", "0-2"), (true, is("", ["0-1", "0-2"])), "not what it had before");
        assert_eq!(plan("2-3", "0-2"), (true, is("2-3", ["2-3", "2"])), "somebody else's choice");
        assert_eq!(plan("2", "0"), (true, is("2-3", ["2", "2-3"])), "none of its own is preferred");
        assert_eq!(plan("2-3", "3"), (true, is("2-3", ["2-3", "3"])));
        assert_eq!(plan_among("2", "2", "0,2"), (false, is("2-3", ["2-3", "3"])), "CPU 3 has gone");
    }

    #[test]
    fn who_is_no_kernel_thread_stays() {
        let own = std::process::id() as i32;
        assert!(!is_movable(own) && !is_movable(0));
        let now = affinity::of(own).unwrap();
        let text = cpulist::format(&now);
        let mut moved = Moved([(own, Affinity { before: "0".into(), given: vec![text] })].into());
        moved.restore();
        assert!(moved == Moved::default() && affinity::of(own).unwrap() == now, "its ID is another's by now");
    }
}
