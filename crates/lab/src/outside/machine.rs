// SPDX-License-Identifier: GPL-2.0-only
//! A machine that has a job: its initramfs, its boot, and what it says.

use super::initramfs;
use super::qemu::{self, Accel, Boot, Next, Running};
use crate::protocol::{Event, Job, Task};
use crate::scenario::Host;
use anyhow::Result;
use overbook_kernels::{Emulator, Kernel};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// Room for the initramfs, console and events.
const DISK_MB: u64 = 1000;

/// What boots a job.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The emulator.
    pub emulator: &'a Emulator,
    /// How to execute.
    pub accel: Accel,
}

/// What the machine is.
#[derive(Clone, Copy)]
pub struct Body<'a> {
    /// Layout and speed.
    pub host: &'a Host,
    /// See [`Boot::guest_weight`].
    pub guest_weight: u32,
    /// What the kernel's command line says besides.
    pub arguments: &'a str,
}

/// A machine at its job, with the folder of its files. Dropping it kills it.
pub struct Machine {
    running: Running,
    _dir: TempDir,
}

/// What a machine said, or why it says nothing more.
pub enum Said {
    /// An event.
    Event(Event),
    /// It has ended, or was ended: one sentence; and whether another boot would end alike.
    Ended {
        /// What happened.
        why: String,
        /// A machine that hangs, or is killed, may only have been starved.
        alike: bool,
    },
    /// The user asked to stop.
    Interrupted,
}

impl Machine {
    /// Boots a job. `say` is told what takes a while.
    ///
    /// # Errors
    /// The disk is full, a file of the kernel's is not there, or QEMU does not start.
    pub fn boot(
        engine: Engine,
        (task, seed, strict): (Task, u64, bool),
        body: Body,
        say: &mut dyn FnMut(&str),
    ) -> Result<Machine> {
        let Engine { kernel, emulator, accel } = engine;
        let Body { host, guest_weight, arguments } = body;
        let dir = qemu::folder()?;
        qemu::check_disk(dir.path(), DISK_MB)?;
        let job = Job { task, accel: accel.name().into(), emulator: emulator.version.clone(), seed, strict };
        let initramfs = dir.path().join("initramfs");
        initramfs::write(&initramfs, kernel, emulator, &job, say)?;
        say(&format!("booting {}", kernel.release));
        let boot = Boot {
            emulator,
            kernel,
            initramfs: &initramfs,
            dir: dir.path(),
            host,
            guest_weight,
            arguments,
            accel,
            seed,
        };
        Ok(Machine { running: boot.start()?, _dir: dir })
    }

    /// Waits for what it says next: see [`Running::next_line`].
    ///
    /// # Errors
    /// Its events cannot be read.
    pub fn listen(&mut self, patience: Duration, interrupted: &AtomicBool) -> Result<Said> {
        Ok(match self.running.next_line(patience, interrupted)? {
            Next::Line(line) => match serde_json::from_str(&line) {
                Ok(event) => Said::Event(event),
                Err(_) => {
                    let why = format!(
                        "the machine's events are garbled: {}",
                        line.chars().take(80).collect::<String>()
                    );
                    Said::Ended { why, alike: false }
                }
            },
            Next::Stopped(status) => stopped(status),
            Next::Stuck => {
                let why = "KVM met an instruction that it cannot execute".into();
                Said::Ended { why, alike: true }
            }
            Next::Silent { computed, elapsed } => {
                let (computed, elapsed) = (computed.as_secs(), elapsed.as_secs());
                let why = format!(
                    "the machine said nothing for {elapsed} seconds, of which it computed for {computed}, and was killed"
                );
                Said::Ended { why, alike: false }
            }
            Next::Interrupted => Said::Interrupted,
        })
    }

    /// The last lines that the kernel (or QEMU itself) printed.
    pub fn last_words(&self, lines: usize) -> Vec<String> {
        self.running.last_words(lines)
    }
}

/// A machine has stopped, by how its QEMU ended.
fn stopped(status: ExitStatus) -> Said {
    let killed = status.signal() == Some(libc::SIGKILL);
    let how = match status.signal() {
        Some(_) if killed => "its QEMU was killed: is the memory full?".into(),
        Some(_) => format!("its QEMU ended with {status}"),
        None if status.success() => "a kernel panic?".into(),
        None => format!("its QEMU failed: {status}"),
    };
    Said::Ended { why: format!("the machine stopped ({how})"), alike: !killed }
}
