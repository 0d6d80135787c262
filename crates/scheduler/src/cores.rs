// SPDX-License-Identifier: GPL-2.0-only
//! Core scheduling: tasks with a cookie share a core with their like alone.
//!
//! As soon as one task of a host has a cookie, a CPU picks for all threads of its core, and holds their locks as one. By
//! its source, 6.18 then takes such a lock twice when a scheduler moves a task between queues (`scx_dsq_move()`), which
//! hangs the core for ever; 7.3 throws the scheduler out if the task may not run on the CPU that picks. So no scheduler
//! of ours is loaded there.

use std::fs;

/// Whether the kernel keeps a cookie for a thread (0: this one); nothing where it has no core scheduling, or does not tell.
pub fn cookie(tid: i32) -> Option<bool> {
    let mut cookie: u64 = 0;
    // SAFETY: the kernel writes eight bytes, and nothing where it refuses; 0 is PIDTYPE_PID, one thread.
    let answer =
        unsafe { libc::prctl(libc::PR_SCHED_CORE, libc::PR_SCHED_CORE_GET, tid, 0, &raw mut cookie) };
    (answer == 0).then_some(cookie != 0)
}

/// Processes with a thread that has a cookie; nothing where the kernel has no core scheduling, or SMT is off.
pub fn processes_with_cookie() -> Option<Vec<u32>> {
    cookie(0)?;
    let numbers = |folder: &str| -> Vec<u32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let has_cookie = |pid: &u32| {
        numbers(&format!("/proc/{pid}/task")).into_iter().any(|tid| cookie(tid as i32) == Some(true))
    };
    Some(numbers("/proc").into_iter().filter(has_cookie).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever this kernel has, it answers, and this process has asked for nothing.
    #[test]
    fn nobody_here_has_a_cookie() {
        assert_ne!(cookie(0), Some(true));
        let found = processes_with_cookie().unwrap_or_default();
        assert!(!found.contains(&std::process::id()));
    }
}
