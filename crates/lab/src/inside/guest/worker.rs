// SPDX-License-Identifier: GPL-2.0-only
//! Tasks of the guest.

use super::{LOADING, PATIENCE, wait};
use crate::machine::task::{self, now_ns};
use anyhow::Result;
use nix::unistd::gettid;
use overbook_cli::affinity;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// A task that always wants a CPU, but while a scheduler is being loaded.
pub struct Worker {
    stop: Arc<AtomicBool>,
    pub tid: i32,
    /// Where it ran last.
    cpu: Arc<AtomicI32>,
}

impl Worker {
    pub fn start(cpus: &[u32]) -> Result<Worker> {
        let (stop, cpu, tid) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(-1)), Arc::new(AtomicI32::new(0)));
        let (ends, place, name, cpus) = (stop.clone(), cpu.clone(), tid.clone(), cpus.to_vec());
        thread::spawn(move || {
            if !cpus.is_empty() && task::bind(0, &cpus).is_err() {
                return;
            }
            name.store(gettid().as_raw(), Ordering::Release);
            while !ends.load(Ordering::Relaxed) {
                if LOADING.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(20));
                }
                task::turns(300);
                // SAFETY: takes no arguments.
                place.store(unsafe { libc::sched_getcpu() }, Ordering::Relaxed);
            }
        });
        wait(PATIENCE, "start a task", || Ok(tid.load(Ordering::Acquire) != 0))?;
        Ok(Worker { stop, tid: tid.load(Ordering::Acquire), cpu })
    }

    pub fn affinity(&self) -> Result<Vec<usize>> {
        Ok(affinity::of(self.tid)?.into_iter().collect())
    }

    /// CPU time within a while, as a part of it.
    pub fn used_within(&self, length: Duration) -> f64 {
        let own = std::process::id() as i32;
        let run = || task::counts(own, self.tid).map_or(0, |counts| counts.run_ns);
        let (before, start) = (run(), now_ns());
        sleep(length);
        (run() - before) as f64 / (now_ns() - start) as f64
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// CPUs on which workers have been found, looking many times.
pub fn places<'a>(workers: impl IntoIterator<Item = &'a Worker> + Clone) -> Result<Vec<i32>> {
    let mut seen = Vec::new();
    for _ in 0..20 {
        sleep(Duration::from_millis(10));
        seen.extend(workers.clone().into_iter().map(|w| w.cpu.load(Ordering::Relaxed)));
    }
    seen.sort_unstable();
    seen.dedup();
    Ok(seen)
}
