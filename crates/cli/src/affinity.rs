// SPDX-License-Identifier: GPL-2.0-only
//! Where tasks may run.

use crate::cpulist::Cpus;
use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// The online CPUs that a task (0: the calling thread) may run on.
///
/// # Errors
/// There is no such task, or the machine may have more CPUs than 1,024.
pub fn of(tid: i32) -> Result<Cpus> {
    let set = sched_getaffinity(Pid::from_raw(tid))
        .with_context(|| format!("cannot read where task {tid} may run"))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}
