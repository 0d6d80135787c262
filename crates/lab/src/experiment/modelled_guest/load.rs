// SPDX-License-Identifier: GPL-2.0-only
//! What the guest's tasks do: ordinary threads of this program.

use crate::machine::task;
use crate::scenario::{GuestLoad, GuestSpec};
use anyhow::Result;
use std::fs;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

/// Senders, and receivers, of one group of messages.
const FAN: usize = 4;
/// The tasks' cgroup, as `overbook guest` finds tasks below the root's.
const GROUP: &str = "/sys/fs/cgroup/tasks.slice";
/// Bytes of a message, as in hackbench.
const MESSAGE: usize = 100;

/// Tasks, until dropped.
pub struct Tasks {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    /// Operations so far.
    work: AtomicU64,
    lock: AtomicBool,
    phase: Mutex<Phase>,
    next_phase: Condvar,
    turns: u64,
    /// Tasks that wait for each other.
    tasks: u32,
}

#[derive(Default)]
struct Phase {
    arrived: u32,
    number: u64,
}

impl Tasks {
    /// Starts them at nice 0 on any CPU.
    ///
    /// # Errors
    /// No threads or pipes are left.
    pub fn start(spec: &GuestSpec, ns_per_turn: f64, dilation: f64) -> Result<Tasks> {
        if !Path::new(GROUP).exists() {
            fs::create_dir(GROUP)?;
            fs::write(format!("{GROUP}/cgroup.type"), "threaded")?;
        }
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            work: AtomicU64::new(0),
            lock: AtomicBool::new(false),
            phase: Mutex::default(),
            next_phase: Condvar::new(),
            turns: (spec.operation_us * 1000.0 * dilation / ns_per_turn) as u64,
            tasks: spec.tasks,
        });
        let mut tasks = Tasks { shared, threads: Vec::new() };
        for _ in 0..spec.tasks {
            match spec.load {
                GuestLoad::Messages => tasks.group()?,
                GuestLoad::Phases => tasks.spawn(Shared::phases)?,
                GuestLoad::Lock => tasks.spawn(Shared::lock)?,
                GuestLoad::Compute => tasks.spawn(Shared::compute)?,
            }
        }
        Ok(tasks)
    }

    /// Operations so far.
    pub fn work(&self) -> u64 {
        self.shared.work.load(Ordering::Relaxed)
    }

    fn spawn(&mut self, work: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = self.shared.clone();
        self.threads.push(thread::Builder::new().spawn(move || {
            // The controller is real-time, and in the root's cgroup. 0 is this thread.
            let _ = task::set_policy(libc::SCHED_OTHER, 0);
            let _ = fs::write(format!("{GROUP}/cgroup.threads"), "0");
            work(&shared);
        })?);
        Ok(())
    }

    /// Every sender of a group writes to every receiver by turns.
    fn group(&mut self) -> Result<()> {
        let mut writers = Vec::new();
        for _ in 0..FAN {
            let (reader, writer) = pipe()?;
            self.spawn(move |shared| shared.receive(reader))?;
            writers.push(writer);
        }
        for _ in 0..FAN {
            let writers = writers.iter().map(PipeWriter::try_clone).collect::<std::io::Result<Vec<_>>>()?;
            self.spawn(move |shared| shared.send(writers))?;
        }
        Ok(())
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn send(&self, mut writers: Vec<PipeWriter>) {
        while self.goes_on() {
            for writer in &mut writers {
                task::turns(self.turns);
                if writer.write_all(&[0; MESSAGE]).is_err() {
                    return;
                }
            }
        }
    }

    fn receive(&self, mut reader: PipeReader) {
        let mut message = [0; MESSAGE];
        while reader.read_exact(&mut message).is_ok() {
            task::turns(self.turns);
            self.work.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn phases(&self) {
        while self.goes_on() {
            task::turns(self.turns);
            let mut phase = self.phase.lock().unwrap_or_else(|e| e.into_inner());
            phase.arrived += 1;
            if phase.arrived >= self.tasks {
                phase.arrived = 0;
                phase.number += 1;
                self.work.fetch_add(1, Ordering::Relaxed);
                self.next_phase.notify_all();
                continue;
            }
            let number = phase.number;
            while phase.number == number && self.goes_on() {
                phase = self.next_phase.wait(phase).unwrap_or_else(|e| e.into_inner());
            }
        }
    }

    fn lock(&self) {
        while self.goes_on() {
            while self.lock.swap(true, Ordering::Acquire) {
                while self.lock.load(Ordering::Relaxed) && self.goes_on() {
                    std::hint::spin_loop();
                }
                if !self.goes_on() {
                    return;
                }
            }
            task::turns(self.turns);
            self.work.fetch_add(1, Ordering::Relaxed);
            self.lock.store(false, Ordering::Release);
            task::turns(3 * self.turns);
        }
    }

    fn compute(&self) {
        while self.goes_on() {
            task::turns(self.turns);
            self.work.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Senders stop at their next message and close their pipes, which ends the receivers.
        drop(self.shared.phase.lock());
        self.shared.next_phase.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
