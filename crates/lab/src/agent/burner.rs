// SPDX-License-Identifier: GPL-2.0-only
//! Idle-priority burners: an emulated CPU that idles would hand its speed to the others.

use crate::task;
use anyhow::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Burners, until dropped.
pub struct Burners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts one SCHED_IDLE burner on every CPU, and waits until all of them burn.
pub fn start(cpus: &[u32]) -> Result<Burners> {
    let stop = Arc::new(AtomicBool::new(false));
    let burning = Arc::new(AtomicUsize::new(0));
    let mut threads = Vec::new();
    for &cpu in cpus {
        let (stop, burning) = (stop.clone(), burning.clone());
        threads.push(thread::Builder::new().name(format!("burner/{cpu}")).spawn(move || {
            if task::bind(0, &[cpu]).and_then(|()| task::set_policy(libc::SCHED_IDLE, 0)).is_err() {
                return;
            }
            burning.fetch_add(1, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                task::turns(200);
                look_into_the_kernel();
            }
        })?);
    }
    while burning.load(Ordering::Relaxed) < cpus.len() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(Burners { stop, threads })
}

/// Under lazy preemption (Debian's default from 6.18 on) a task that wakes up does not interrupt a running
/// one of lower class, except the idle task: it waits until that one enters the kernel, at the latest for
/// a tick, milliseconds. A burner stands for an idle CPU, so it enters the kernel all the time.
fn look_into_the_kernel() {
    // SAFETY: takes no arguments and changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
