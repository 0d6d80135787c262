// SPDX-License-Identifier: GPL-2.0-only
//! Real-time and deadline tasks on CPUs that are not preferred. They are of higher scheduling classes, which no
//! sched_ext scheduler can move, and no interface but their affinity does; so they are counted, and named.

use overbook_cli::cpulist::Cpus;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// include/uapi/linux/sched.h: SCHED_FIFO, SCHED_RR, SCHED_DEADLINE.
const CLASSES: [u32; 3] = [1, 2, 6];

/// Where processes are.
pub(crate) const PROC: &str = "/proc";

/// Between two looks at all of it.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Names of such tasks that ran last on one of these CPUs, may run there, and could run elsewhere; `proc` is `/proc`, and
/// `may_use` says which CPUs a task may run on, if that is known.
pub fn on(cpus: &Cpus, proc: &Path, may_use: &dyn Fn(i32) -> Option<Cpus>) -> Vec<String> {
    let folders = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let numbers = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
        numbers.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let tasks = folders(proc).into_iter().flat_map(|process| folders(&process.join("task")));
    let stats = tasks.filter_map(|task| Stat::from_file(task.join("stat")).ok());
    let may_stay = |task: i32| may_use(task).is_none_or(|own| own.intersection(cpus).next().is_some());
    stats.filter(|stat| stays(stat, cpus) && may_stay(stat.pid)).map(|stat| stat.comm).collect()
}

/// Whether a task is of a higher class.
pub(crate) fn is_real_time(stat: &Stat) -> bool {
    stat.policy.is_some_and(|policy| CLASSES.contains(&policy))
}

fn stays(stat: &Stat, cpus: &Cpus) -> bool {
    let is_on = stat.processor.is_some_and(|cpu| cpus.contains(&(cpu as usize)));
    // Kernel threads that belong to their CPU are on it.
    is_real_time(stat) && is_on && stat.flags & StatFlags::PF_NO_SETAFFINITY.bits() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// include/linux/sched.h: PF_NO_SETAFFINITY.
    const BELONGS_TO_CPU: u64 = 0x0400_0000;

    /// A line of /proc/PID/stat with these fields, and others.
    fn stat(name: &str, flags: u64, cpu: u64, policy: u64) -> String {
        let mut fields: Vec<String> = (3..=52).map(|_| "0".to_string()).collect();
        fields[0] = "S".into();
        for (nth, value) in [(9, flags), (39, cpu), (41, policy)] {
            fields[nth - 3] = value.to_string();
        }
        let task = if name == "kept away" { 13 } else { 12 };
        format!("{task} ({name}) {}\n", fields.join(" "))
    }

    #[test]
    fn those_of_higher_classes_that_could_go_are_named() {
        let proc = tempfile::tempdir().unwrap();
        let tasks = [
            ("1", "10", stat("an (odd) name", 0, 2, 1)),
            ("1", "11", stat("elsewhere", 0, 1, 1)),
            ("1", "12", stat("ordinary", 0, 2, 0)),
            ("1", "13", stat("kept away", 0, 2, 1)),
            ("2", "20", stat("migration/2", BELONGS_TO_CPU, 2, 1)),
            ("2", "21", stat("deadline", 0, 3, 6)),
            ("2", "22", "nonsense".to_string()),
        ];
        for (process, task, stat) in tasks {
            let dir = proc.path().join(process).join("task").join(task);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), stat).unwrap();
        }
        fs::create_dir_all(proc.path().join("self/task/1")).unwrap();
        let may_use = |task: i32| (task == 13).then(|| Cpus::from([0, 1]));
        let mut names = on(&Cpus::from([2, 3]), proc.path(), &may_use);
        names.sort();
        assert_eq!(names, ["an (odd) name", "deadline"]);
        assert!(on(&Cpus::from([7]), proc.path(), &may_use).is_empty());
    }
}
