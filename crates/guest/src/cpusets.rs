// SPDX-License-Identifier: GPL-2.0-only
//! Keeps tasks on preferred CPUs by the cpusets of the top-level cgroups (`system.slice`, `user.slice`, …), and kernel
//! threads, which are in none of these, by their affinity. That costs nothing at a switch or a wake-up: the kernel moves
//! what has to move when a cpuset changes, and EEVDF knows no other CPUs until it changes again.

use crate::enforce::{Choice, Enforcer};
use crate::kthreads::{KernelThreads, Moved};
use crate::machine::{ISOLATED_AT_BOOT, listed};
use crate::realtime::PROC;
use anyhow::{Context, Result};
use overbook_cli::affinity;
use overbook_cli::cpulist::{self, Cpus};
use overbook_scheduler::ending::Refused;
use overbook_scheduler::stats::HostStats;
use overbook_scheduler::topology;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags};
use scx_utils::UserExitInfo;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

/// Where cgroups are.
const ROOT: &str = "/sys/fs/cgroup";

const CPUS: &str = "cpuset.cpus";
const PARTITION: &str = "cpuset.cpus.partition";
/// What partitions have, from Linux 6.7 on.
const EXCLUSIVE: &str = "cpuset.cpus.exclusive.effective";
const CONTROL: &str = "cgroup.subtree_control";
const THREADS: &str = "cgroup.threads";

/// What stands in the cpusets instead of what others have put there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Where the top-level cgroups are.
    pub root: PathBuf,
    /// Whether they had no cpusets before.
    pub enabled: bool,
    /// What a cgroup had before, as a list of CPUs, by its name; empty: all.
    pub before: BTreeMap<String, String>,
    /// What has been written, by the cgroup's name: what stands there, and what comes next.
    pub written: BTreeMap<String, Vec<String>>,
    /// What kernel threads had before.
    #[serde(default)]
    pub kthreads: Moved,
}

impl Changed {
    /// Puts back what nobody else has changed meanwhile, and ends the cpusets if there were none.
    pub fn restore(&mut self) {
        self.restore_cpus();
        self.kthreads.restore();
        if self.enabled && !self.is_needed() {
            // Fails if somebody below has come to need it.
            let _ = fs::write(self.root.join(CONTROL), "-cpuset");
        }
    }

    /// Whether a cgroup has CPUs of its own: others have said so since cpusets were enabled.
    fn is_needed(&self) -> bool {
        let all = [topology::possible(), others(&self.root)];
        let groups = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let lists = groups.filter_map(|group| fs::read_to_string(group.path().join(CPUS)).ok());
        lists.into_iter().any(|list| !list.trim().is_empty() && !all.iter().any(|all| same(&list, all)))
    }

    /// Cgroups that are gone need nothing. What partitions have come to have meanwhile stays theirs.
    fn restore_cpus(&self) {
        let apart = groups(&self.root).map(|(_, apart)| apart).unwrap_or_default();
        for (name, before) in &self.before {
            let file = self.root.join(name).join(CPUS);
            if fs::read_to_string(&file).is_ok_and(|now| self.is_ours(name, &now)) {
                // An empty write is none at all. Kernels do not let a cgroup with tasks go back to nothing; all that there
                // can ever be for them is the same to them. One that had CPUs of its own never has more.
                let _ = match (before.is_empty(), without(before, slice::from_ref(&apart))) {
                    (true, _) => fs::write(&file, "\n").or_else(|_| fs::write(&file, others(&self.root))),
                    (false, Some(left)) => fs::write(&file, format!("{left}\n")),
                    // All of it is a partition's now.
                    (false, None) => Ok(()),
                };
            }
        }
    }

    /// Whether this is what was written there.
    fn is_ours(&self, name: &str, now: &str) -> bool {
        self.written.get(name).is_some_and(|written| written.iter().any(|text| same(text, now)))
    }
}

/// The top-level cgroups that take part, and the CPUs of those that do not: partitions, which have CPUs of their own. To give
/// any of these to another cgroup ends the partition on many kernels (`cpus_allowed_validate_change()` of
/// kernel/cgroup/cpuset.c).
fn groups(root: &Path) -> std::io::Result<(Vec<String>, Cpus)> {
    let (mut names, mut apart) = (Vec::new(), Cpus::new());
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        // A root has some ninety files: to try to open something below each would cost more than all the rest.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let group = entry.path();
        let partition = fs::read_to_string(group.join(PARTITION)).unwrap_or_default();
        if !["", "member"].contains(&partition.trim()) {
            apart.extend([CPUS, EXCLUSIVE].into_iter().flat_map(|file| listed(&group.join(file))));
        } else if group.join("cgroup.procs").exists() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok((names, apart))
}

/// All CPUs that there can ever be, but for those of partitions and those that are isolated from the boot on, where no task
/// comes by itself.
fn others(root: &Path) -> String {
    let apart = groups(root).map(|(_, apart)| apart).unwrap_or_default();
    all_but(&topology::possible(), &[apart, listed(Path::new(ISOLATED_AT_BOOT))])
}

fn all_but(possible: &str, apart: &[Cpus]) -> String {
    without(possible, apart).unwrap_or_else(|| possible.into())
}

/// A list of CPUs without some; nothing if none is left.
fn without(list: &str, apart: &[Cpus]) -> Option<String> {
    let all = cpulist::parse(list).unwrap_or_default();
    let left: Cpus = all.into_iter().filter(|cpu| !apart.iter().any(|cpus| cpus.contains(cpu))).collect();
    (!left.is_empty()).then(|| cpulist::format(&left))
}

/// A task of a cgroup, or of one below it, that may run on these CPUs only.
fn bound_to(group: &Path, cpus: &Cpus) -> Option<i32> {
    let threads = fs::read_to_string(group.join(THREADS)).unwrap_or_default();
    let is_bound = |thread: &i32| affinity::of(*thread).is_ok_and(|own| own.is_subset(cpus));
    threads.lines().flat_map(str::parse).find(is_bound).or_else(|| {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.into_iter().find_map(|folder| bound_to(&folder.path(), cpus))
    })
}

fn same(one: &str, other: &str) -> bool {
    one.trim() == other.trim()
        || matches!((cpulist::parse(one), cpulist::parse(other)), (Ok(a), Ok(b)) if a == b)
}

/// What becomes of the CPUs that a cgroup or a task has (empty: all): those among `wanted`, or all if none is. `None`: it
/// is not known what it has, or nothing is wanted.
pub(crate) fn narrowed(before: &str, wanted: &Cpus) -> Option<String> {
    let own = cpulist::parse(before).ok()?;
    let left: Cpus = own.intersection(wanted).copied().collect();
    let cpus = match (own.is_empty(), left.is_empty()) {
        (true, _) => wanted,
        (false, true) => &own,
        (false, false) => &left,
    };
    (!cpus.is_empty()).then(|| cpulist::format(cpus))
}

/// How many processes are in the root cgroup, but for the kernel's own and this one.
fn in_root(root: &Path, proc: &Path) -> usize {
    let processes = fs::read_to_string(root.join("cgroup.procs")).unwrap_or_default();
    let is_apart = |process: &&str| {
        let stat = Stat::from_file(proc.join(process).join("stat"));
        let is_of_the_kernel = |stat: Stat| stat.flags & StatFlags::PF_KTHREAD.bits() != 0;
        process.parse() != Ok(std::process::id()) && stat.is_ok_and(|stat| !is_of_the_kernel(stat))
    };
    processes.lines().filter(is_apart).count()
}

/// What a kernel does with tasks that have an affinity of their own, if it is not what docs/guest.md promises: before 6.2 a
/// change of a cpuset makes it forget the affinity (8f9ea86fdf99 "sched: Always preserve the user requested cpumask").
fn forgets_affinity(release: &str) -> Option<String> {
    let (series, _) = overbook_scheduler::faults::parse(release)?;
    (series < (6, 2)).then(|| {
        format!(
            "Linux {release} forgets the affinity of tasks when a cpuset changes: bind by cpuset (AllowedCPUs=) what has to \
             stay bound, or boot 6.2 or later"
        )
    })
}

/// The top-level cgroups' cpusets.
pub struct Cpusets {
    changed: Changed,
    /// What is to be written next.
    due: BTreeMap<String, String>,
    /// Cgroups that keep their CPUs, and were named in the log.
    refused: BTreeSet<String>,
    kthreads: KernelThreads,
}

impl Cpusets {
    /// This machine's; nothing is changed yet.
    ///
    /// # Errors
    /// There are none; one sentence.
    pub fn of_this_machine() -> Result<Cpusets, Refused> {
        Cpusets::new(Path::new(ROOT), Path::new(PROC))
    }

    /// Those below a folder, and the kernel threads of a /proc.
    fn new(root: &Path, proc: &Path) -> Result<Cpusets, Refused> {
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if !controllers.split_whitespace().any(|name| name == "cpuset") {
            return Err(Refused(format!(
                "{} has no cpuset controller of cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, or use \
                 --enforce sched-ext",
                root.display()
            )));
        }
        let release = nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned());
        if let Some(why) = forgets_affinity(&release.unwrap_or_default()) {
            log::warn!("{why}");
        }
        let apart = in_root(root, proc);
        if apart > 0 {
            log::warn!(
                "processes in the root cgroup: {apart}. It has no cpuset to narrow, so they stay on all CPUs: move them to a \
                 cgroup below it, or use --enforce sched-ext"
            );
        }
        let changed = Changed { root: root.into(), ..Changed::default() };
        Ok(Cpusets {
            changed,
            due: BTreeMap::new(),
            refused: BTreeSet::new(),
            kthreads: KernelThreads::new(proc),
        })
    }

    /// Whether a cgroup is left alone, as one of its tasks is bound to isolated CPUs. In a cpuset without these the kernel
    /// would have it run elsewhere; in one with them, other tasks would come there.
    fn is_left_alone(&mut self, name: &str, isolated: &Cpus) -> bool {
        if isolated.is_empty() || self.changed.written.contains_key(name) {
            return false;
        }
        let Some(task) = bound_to(&self.changed.root.join(name), isolated) else { return false };
        if self.refused.insert(name.into()) {
            log::warn!(
                "{name} keeps its CPUs, as its task {task} is bound to isolated ones ({}): move what is bound there to a \
                 slice of its own",
                cpulist::format(isolated)
            );
        }
        true
    }

    fn enabled(&self) -> bool {
        let control = fs::read_to_string(self.changed.root.join(CONTROL)).unwrap_or_default();
        control.split_whitespace().any(|name| name == "cpuset")
    }
}

impl Enforcer for Cpusets {
    fn survey(&mut self, choice: &Choice) -> Result<bool> {
        self.due.clear();
        if choice.all {
            return Ok(false);
        }
        if !self.enabled() {
            self.changed.enabled = true;
        }
        let root = &self.changed.root;
        let (names, apart) = groups(root).with_context(|| format!("cannot read {}", root.display()))?;
        let is_shared = |cpu: &usize| !choice.isolated.contains(cpu) && !apart.contains(cpu);
        let wanted: Cpus = choice.preferred.iter().copied().filter(is_shared).collect();
        for name in names {
            if self.is_left_alone(&name, &choice.isolated) {
                continue;
            }
            let now = fs::read_to_string(self.changed.root.join(&name).join(CPUS)).unwrap_or_default();
            // What somebody else has written there meanwhile is what the cgroup is to have.
            if !self.changed.is_ours(&name, &now) {
                self.changed.before.insert(name.clone(), now.trim().into());
                self.changed.written.remove(&name);
            }
            match narrowed(&self.changed.before[&name], &wanted) {
                Some(cpus) if !same(&cpus, &now) => self.due.insert(name, cpus),
                _ => None,
            };
        }
        // The keeper has to know both: it may be needed before the write, or after.
        for (name, cpus) in &self.due {
            self.changed.written.entry(name.clone()).or_default().push(cpus.clone());
        }
        let threads = self.kthreads.survey(&wanted, &mut self.changed.kthreads);
        Ok(threads || !self.due.is_empty())
    }

    fn undo(&self) -> Option<Changed> {
        Some(self.changed.clone())
    }

    fn prefer(&mut self, choice: &Choice) -> Result<()> {
        if choice.all {
            // They may be needed again soon, and others may use them by now.
            self.changed.restore_cpus();
            self.changed.before.clear();
            self.changed.written.clear();
            self.kthreads.release(&mut self.changed.kthreads);
            return Ok(());
        }
        let root = self.changed.root.clone();
        if self.changed.enabled && !self.enabled() {
            fs::write(root.join(CONTROL), "+cpuset")
                .with_context(|| format!("the kernel enables no cpusets in {}", root.display()))?;
        }
        for (name, cpus) in std::mem::take(&mut self.due) {
            match fs::write(root.join(&name).join(CPUS), &cpus) {
                // It has become a partition. It may also have gone meanwhile.
                Err(why) if root.join(&name).exists() => {
                    // What stood there still does, and is ours if it was.
                    let written = self.changed.written.get_mut(&name);
                    if written.is_none_or(|written| written.pop().is_none() || written.is_empty()) {
                        self.changed.written.remove(&name);
                    }
                    if self.refused.insert(name.clone()) {
                        log::warn!("{name} keeps its CPUs: {why}");
                    }
                }
                _ => drop(self.changed.written.insert(name, vec![cpus])),
            }
        }
        self.kthreads.follow(&mut self.changed.kthreads);
        Ok(())
    }

    fn period(&mut self, _: &Choice) -> Result<()> {
        Ok(())
    }

    fn is_active(&self) -> bool {
        !self.changed.written.is_empty()
    }

    fn may_end(&self) -> bool {
        false
    }

    fn ended(&self) -> bool {
        false
    }

    fn is_outdated(&self, online: &Cpus) -> bool {
        let now = topology::online().and_then(|list| cpulist::parse(&list));
        now.is_ok_and(|now| now != *online)
    }

    fn set_slice(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn leave(&mut self) -> Option<UserExitInfo> {
        self.changed.restore();
        self.changed = Changed { root: std::mem::take(&mut self.changed.root), ..Changed::default() };
        None
    }

    fn stats(&self) -> Result<HostStats> {
        Ok(HostStats::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree like systemd's; files that the kernel would make are made here.
    fn tree(groups: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        fs::write(dir.path().join(CONTROL), "cpuset cpu\n").unwrap();
        for (name, cpus, partition) in groups {
            let group = dir.path().join(name);
            fs::create_dir(&group).unwrap();
            fs::write(group.join("cgroup.procs"), "").unwrap();
            fs::write(group.join(CPUS), format!("{cpus}\n")).unwrap();
            fs::write(group.join(PARTITION), format!("{partition}\n")).unwrap();
        }
        dir
    }

    fn choice(preferred: &str) -> Choice {
        let preferred = cpulist::parse(preferred).unwrap();
        let all = preferred.len() == 8;
        Choice { preferred, isolated: Cpus::from([7]), all, patience: 10 }
    }

    fn prefer(cpusets: &mut Cpusets, cpus: &str) {
        cpusets.survey(&choice(cpus)).unwrap();
        cpusets.prefer(&choice(cpus)).unwrap();
    }

    /// A partition that is made while a cgroup is narrowed keeps its CPUs when that one has its own back.
    #[test]
    fn what_a_partition_has_taken_stays_its_own() {
        let dir =
            tree(&[("a.slice", "0,1", "member"), ("b.slice", "2,3", "member"), ("c.slice", "4,5", "member")]);
        let cpus = |name: &str| fs::read_to_string(dir.path().join(name).join(CPUS)).unwrap();
        let all = || ["a.slice", "b.slice", "c.slice"].map(cpus);
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0,2,4,7");
        assert_eq!(all(), ["0", "2", "4"]);
        for (name, cpus) in [("d", "3\n"), ("e", "0-1\n")] {
            let partition = dir.path().join(name);
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("cgroup.procs"), "").unwrap();
            fs::write(partition.join(CPUS), cpus).unwrap();
            fs::write(partition.join(PARTITION), "root\n").unwrap();
        }
        prefer(&mut cpusets, "0-7");
        assert_eq!(all(), ["0", "2\n", "4-5\n"]);
    }

    #[test]
    fn groups_are_narrowed_and_restored() {
        let dir = tree(&[
            ("a.slice", "", "member"),
            ("b.slice", "1,5", "member"),
            ("c.slice", "6", "member"),
            ("d", "7", "isolated"),
        ]);
        let cpus =
            |name: &str| fs::read_to_string(dir.path().join(name).join(CPUS)).unwrap().trim().to_string();
        let all = || ["a.slice", "b.slice", "c.slice", "d"].map(cpus);
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0-7");
        assert_eq!(all(), ["", "1,5", "6", "7"], "nothing to enforce");
        assert!(!cpusets.is_active());

        prefer(&mut cpusets, "0-3,7");
        assert_eq!(
            all(),
            ["0-3", "1", "6", "7"],
            "own CPUs are kept as far as they are preferred, partitions always"
        );
        assert!(cpusets.is_active() && !cpusets.survey(&choice("0-3,7")).unwrap(), "all is done");
        prefer(&mut cpusets, "0-5,7");
        assert_eq!(all(), ["0-5", "1,5", "6", "7"]);
        prefer(&mut cpusets, "5-7");
        prefer(&mut cpusets, "0,7");
        assert_eq!(all(), ["0", "1,5", "6", "7"], "of whose own none is preferred has all of them again");
        prefer(&mut cpusets, "0-5,7");

        // Others change theirs, and new ones come.
        fs::write(dir.path().join("b.slice").join(CPUS), "2-3").unwrap();
        let new = dir.path().join("e.slice");
        fs::create_dir(&new).unwrap();
        fs::write(new.join("cgroup.procs"), "").unwrap();
        fs::write(new.join(CPUS), "\n").unwrap();
        assert!(cpusets.survey(&choice("0-2,7")).unwrap());
        cpusets.prefer(&choice("0-2,7")).unwrap();
        assert_eq!((all(), cpus("e.slice")), (["0-2", "2", "6", "7"].map(String::from), "0-2".into()));
        // Whoever is told before a write can put all back without it, and after it.
        assert!(cpusets.survey(&choice("0-1,7")).unwrap());
        let mut undo: Changed =
            serde_json::from_str(&serde_json::to_string(&cpusets.undo()).unwrap()).unwrap();
        fs::write(dir.path().join("a.slice").join(CPUS), "4").unwrap();
        undo.restore();
        assert_eq!((all(), cpus("e.slice")), (["4", "2-3", "6", "7"].map(String::from), String::new()));
    }

    /// On kernels that let siblings take a partition's CPUs, the partition would be none any more.
    #[test]
    fn partitions_keep_their_cpus() {
        let dir =
            tree(&[("a.slice", "", "member"), ("d", "6", "root"), ("e", "4", "isolated invalid (no CPUs)")]);
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0-2,4,6-7");
        let now = fs::read_to_string(dir.path().join("a.slice").join(CPUS)).unwrap();
        assert_eq!(now, "0-2", "7 is isolated, 4 and 6 are of partitions");
        fs::write(dir.path().join("d").join(EXCLUSIVE), "5-6\n").unwrap();
        assert_eq!(groups(dir.path()).unwrap().1, Cpus::from([4, 5, 6]));
        assert_eq!(all_but("0-7", &[Cpus::from([4, 5, 6]), Cpus::from([0])]), "1-3,7");
        assert_eq!(all_but("0-1", &[Cpus::from([0, 1])]), "0-1");
    }

    #[test]
    fn who_has_a_task_on_isolated_cpus_is_left_alone() {
        let dir = tree(&[("a.slice", "", "member"), ("b.slice", "", "member")]);
        let below = dir.path().join("a.slice/packets.service");
        fs::create_dir(&below).unwrap();
        fs::write(below.join(THREADS), format!("{}\n", std::process::id())).unwrap();
        let isolated = affinity::of(0).unwrap();
        let choice = Choice { preferred: Cpus::from([5000]), isolated, all: false, patience: 10 };
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        cpusets.survey(&choice).unwrap();
        cpusets.prefer(&choice).unwrap();
        let now =
            ["a.slice", "b.slice"].map(|name| fs::read_to_string(dir.path().join(name).join(CPUS)).unwrap());
        assert_eq!(now, ["\n", "5000"]);
    }

    #[test]
    fn what_stood_before_a_refused_write_is_still_put_back() {
        let dir = tree(&[("a.slice", "", "member")]);
        let file = dir.path().join("a.slice").join(CPUS);
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0-3");
        cpusets.survey(&choice("0-1")).unwrap();
        // A folder refuses writes to everybody.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        cpusets.prefer(&choice("0-1")).unwrap();
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "0-3\n").unwrap();
        assert!(cpusets.is_active());
        cpusets.survey(&choice("0-1")).unwrap();
        cpusets.leave();
        assert_eq!(fs::read_to_string(&file).unwrap(), "\n");
    }

    #[test]
    fn leaving_puts_all_back() {
        let dir = tree(&[("a.slice", "", "member"), ("b.slice", "1,5", "member")]);
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0-1");
        assert!(cpusets.leave().is_none() && !cpusets.is_active());
        for (name, before) in [("a.slice", "\n"), ("b.slice", "1,5\n")] {
            assert_eq!(fs::read_to_string(dir.path().join(name).join(CPUS)).unwrap(), before);
        }
        assert_eq!(cpusets.undo().unwrap().before.len(), 0);
    }

    #[test]
    fn cpusets_that_others_need_stay_enabled() {
        let dir = tree(&[("a.slice", "", "member"), ("b.slice", "", "member")]);
        let control = dir.path().join(CONTROL);
        fs::write(&control, "cpu\n").unwrap();
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        prefer(&mut cpusets, "0-3");
        fs::write(dir.path().join("b.slice").join(CPUS), "1\n").unwrap();
        cpusets.leave();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+cpuset");
        let mut cpusets = Cpusets::new(dir.path(), Path::new("")).unwrap();
        fs::write(&control, "cpu\n").unwrap();
        fs::write(dir.path().join("b.slice").join(CPUS), "\n").unwrap();
        prefer(&mut cpusets, "0-3");
        cpusets.leave();
        assert_eq!(fs::read_to_string(&control).unwrap(), "-cpuset");
    }

    #[test]
    fn processes_of_the_root_cgroup_are_counted() {
        let dir = tree(&[]);
        for (process, flags) in [(1, 0), (2, StatFlags::PF_KTHREAD.bits()), (std::process::id(), 0)] {
            let folder = dir.path().join(process.to_string());
            fs::create_dir(&folder).unwrap();
            let rest = vec!["0"; 43].join(" ");
            fs::write(folder.join("stat"), format!("{process} (name) S 0 0 0 0 0 {flags} {rest}\n")).unwrap();
        }
        let processes = format!("1\n2\n{}\n77\n", std::process::id());
        fs::write(dir.path().join("cgroup.procs"), processes).unwrap();
        assert_eq!(in_root(dir.path(), dir.path()), 1);
    }

    /// Also while it is set up, which takes a while.
    #[test]
    fn cpus_that_come_after_the_machine_was_read_are_noticed() {
        let online = cpulist::parse(&topology::online().unwrap()).unwrap();
        let cpusets = Cpusets::new(tree(&[]).path(), Path::new("")).unwrap();
        assert!(!cpusets.is_outdated(&online));
        let without_last = online.iter().copied().take(online.len() - 1).collect();
        assert!(cpusets.is_outdated(&without_last));
        let with_another = online.iter().copied().chain([5000]).collect();
        assert!(cpusets.is_outdated(&with_another));
    }

    #[test]
    fn kernels_before_6_2_are_warned_of() {
        assert!(forgets_affinity("6.1.0-28-amd64").is_some_and(|why| why.contains("6.1.0-28-amd64")));
        assert!(
            ["6.2.0", "6.18.15+deb13-cloud-amd64", "7.3.4"].iter().all(|r| forgets_affinity(r).is_none())
        );
    }

    #[test]
    fn without_cpusets_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        let why = Cpusets::new(dir.path(), Path::new("")).err().unwrap().to_string();
        assert!(why.contains("no cpuset controller") && !why.contains('\n'), "{why}");
    }
}
