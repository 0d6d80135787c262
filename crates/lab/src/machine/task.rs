// SPDX-License-Identifier: GPL-2.0-only
//! Threads and tasks: affinity, policies, and what /proc counts of them.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use overbook_report::schema::VcpuResult;
use procfs::{CpuTime, CurrentSI, KernelStats};
use std::fs;
use std::time::Duration;

/// Binds a task (0: the calling thread) to `cpus`.
///
/// # Errors
/// No such task, or none of the CPUs is online.
pub fn bind(tid: i32, cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize)?;
    }
    sched_setaffinity(Pid::from_raw(tid), &set)
        .with_context(|| format!("cannot bind task {tid} to CPUs {cpus:?}"))
}

/// Puts the calling thread into a scheduling policy.
///
/// # Errors
/// Not permitted.
pub fn set_policy(policy: i32, priority: i32) -> Result<()> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is valid for the call, and 0 is the calling thread.
    let failed = unsafe { libc::sched_setscheduler(0, policy, &param) } != 0;
    if failed {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("cannot set scheduling policy {policy}"));
    }
    Ok(())
}

/// The calling thread is real-time until this is dropped: it does not wait behind what it measures. Where it may not be (no
/// root), it is late, and rates are still right: each is over its own window.
pub struct RealTime(());

impl RealTime {
    /// From here on.
    pub fn begin() -> RealTime {
        let _ = set_policy(libc::SCHED_FIFO, 1);
        RealTime(())
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        let _ = set_policy(libc::SCHED_OTHER, 0);
    }
}

/// The fixed loop: the same two instructions per turn as the micro-guest's computation.
#[inline(never)]
pub fn turns(n: u64) {
    if n == 0 {
        return;
    }
    // SAFETY: counts a register down; touches no memory.
    unsafe { std::arch::asm!("2: dec {0}", "jnz 2b", inout(reg) n => _, options(nomem, nostack)) };
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| Duration::from(t).as_nanos() as u64)
}

/// Scheduler's counts of one task since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskCounts {
    /// On a CPU.
    pub run_ns: u64,
    /// Runnable, waiting for a CPU.
    pub queued_ns: u64,
    /// Switches because it slept.
    pub voluntary: u64,
    /// Switches because it was preempted or yielded.
    pub involuntary: u64,
    /// Moves between CPUs.
    pub migrations: u64,
}

impl From<TaskCounts> for VcpuResult {
    /// What the host's scheduler says of a vCPU's thread; the rest is the guest's to say.
    fn from(task: TaskCounts) -> VcpuResult {
        VcpuResult {
            run_ns: task.run_ns,
            queued_ns: task.queued_ns,
            voluntary_switches: task.voluntary,
            involuntary_switches: task.involuntary,
            migrations: task.migrations,
            ..VcpuResult::default()
        }
    }
}

/// Reads the counts of thread `tid` of process `pid`.
///
/// # Errors
/// The thread is gone.
pub fn counts(pid: i32, tid: i32) -> Result<TaskCounts> {
    let dir = format!("/proc/{pid}/task/{tid}");
    let read = |name: &str| {
        fs::read_to_string(format!("{dir}/{name}")).with_context(|| format!("task {tid} is gone"))
    };
    let schedstat = read("schedstat")?;
    let mut numbers = schedstat.split_whitespace().map(|word| word.parse().unwrap_or(0));
    let (run_ns, queued_ns) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let status = read("status")?;
    // Present where the kernel has CONFIG_SCHED_DEBUG (all Debian kernels); zero elsewhere.
    let sched = read("sched").unwrap_or_default();
    Ok(TaskCounts {
        run_ns,
        queued_ns,
        voluntary: field(&status, "voluntary_ctxt_switches"),
        involuntary: field(&status, "nonvoluntary_ctxt_switches"),
        migrations: field(&sched, "se.nr_migrations"),
    })
}

/// Waits until no task but this process's has used the CPUs for a moment: a kernel goes on initializing for a
/// while after init has started. Gives up after some seconds; the self-check tells if that mattered.
pub fn wait_for_quiet() {
    let window = Duration::from_millis(50);
    for _ in 0..100 {
        let (before, start) = (others_run_ns(), now_ns());
        std::thread::sleep(window);
        let used = others_run_ns().saturating_sub(before);
        if used < (now_ns() - start) / 50 {
            return;
        }
    }
    log::warn!("the machine does not come to rest");
}

/// Run time of all tasks but this process's.
fn others_run_ns() -> u64 {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let run_ns = |dir: fs::DirEntry| {
        let name = dir.file_name();
        let name = name.to_str().filter(|n| n.as_bytes()[0].is_ascii_digit() && **n != own)?;
        let schedstat = fs::read_to_string(format!("/proc/{name}/schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    };
    processes.flatten().filter_map(run_ns).sum()
}

/// In how many ticks a CPU had nothing to do.
pub fn idle_ticks(cpu: &CpuTime) -> u64 {
    cpu.idle + cpu.iowait.unwrap_or(0)
}

/// How long the first `cpus` have idled since boot, s, together.
///
/// # Errors
/// /proc is not mounted.
pub fn idle_seconds(cpus: u32) -> Result<f64> {
    let stat = KernelStats::current().context("cannot read /proc/stat")?;
    let ticks: u64 = stat.cpu_time.iter().take(cpus as usize).map(idle_ticks).sum();
    Ok(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Context switches of the whole host since boot.
pub fn context_switches() -> u64 {
    KernelStats::current().map_or(0, |stat| stat.ctxt)
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    });
    value.and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl std::ops::Sub for TaskCounts {
    type Output = TaskCounts;

    fn sub(self, earlier: TaskCounts) -> TaskCounts {
        TaskCounts {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            migrations: self.migrations.saturating_sub(earlier.migrations),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(field(status, "voluntary_ctxt_switches"), 12);
        assert_eq!(field(status, "nonvoluntary_ctxt_switches"), 3);
        assert_eq!(field(status, "ctxt_switches"), 0);
    }

    #[test]
    fn more_cpus_have_idled_for_no_less() {
        let (none, one, all) =
            (idle_seconds(0).unwrap(), idle_seconds(1).unwrap(), idle_seconds(u32::MAX).unwrap());
        assert!(none == 0.0 && one > 0.0 && one <= all);
    }

    #[test]
    fn own_thread_can_be_counted() {
        turns(1_000_000);
        let pid = std::process::id() as i32;
        assert!(counts(pid, pid).is_ok());
        assert!(counts(pid, 0).is_err());
        assert!(context_switches() > 0);
    }
}
