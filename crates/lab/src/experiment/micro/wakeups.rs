// SPDX-License-Identifier: GPL-2.0-only
//! An ordinary host task that sleeps most of the time: how late it runs after its wake-ups.

use crate::machine::task::now_ns;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

/// Sleeps in ns; the step keeps them out of step with ticks.
const SLEEP_NS: u64 = 5_000_000;
const STEP_NS: u64 = 37_000;

/// The task; it ends when this is finished or dropped.
pub struct Sleeper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<u64>>>,
}

impl Sleeper {
    /// Starts it, at nice 0, on any CPU.
    pub fn start() -> Sleeper {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = thread::spawn(move || {
            // Its parent is real-time.
            let _ = crate::machine::task::set_policy(libc::SCHED_OTHER, 0);
            let mut late = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                let length = SLEEP_NS + late.len() as u64 % 64 * STEP_NS;
                let due = now_ns() + length;
                sleep(Duration::from_nanos(length));
                late.push(now_ns().saturating_sub(due));
            }
            late
        });
        Sleeper { stop, thread: Some(thread) }
    }

    /// Ends it and returns how late it was, by name of the figure.
    pub fn finish(mut self) -> BTreeMap<String, f64> {
        self.stop.store(true, Ordering::Relaxed);
        let mut late = self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        late.sort_unstable();
        let at = |percent: usize| late.get(late.len() * percent / 100).copied().unwrap_or(0) as f64;
        BTreeMap::from([
            ("host task: wake-ups".to_string(), late.len() as f64),
            ("host task: wake-up p50 ns".to_string(), at(50)),
            ("host task: wake-up p99 ns".to_string(), at(99)),
        ])
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
