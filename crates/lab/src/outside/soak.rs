// SPDX-License-Identifier: GPL-2.0-only
//! The outer half of the soak and of the guest's check: boots a machine and relays what it says.

use crate::machine::shape::Shape;
use crate::outside::initramfs;
use crate::outside::qemu::{self, Accel, Boot, Next, ended};
use crate::protocol::{Event, Job, Task};
use crate::scenario::Host;
use anyhow::{Result, bail};
use overbook_kernels::{Emulator, Kernel};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest silence of the machine, in CPU time of its own: a load of the scheduler on a loaded machine takes a fifth of it.
const PATIENCE: Duration = Duration::from_secs(900);

/// Boots a machine, of four CPUs unless the task wants others, for one that only says how it goes: [`Task::Soak`], [`Task::GuestCheck`] or
/// [`Task::Observe`].
///
/// # Errors
/// Something went wrong in it (the message says what, and the kernel's last words follow), it hangs, or it was
/// interrupted.
pub fn run(
    task: Task,
    seed: u64,
    kernel: &Kernel,
    emulator: &Emulator,
    accel: Accel,
    interrupted: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let dir = qemu::folder()?;
    let job =
        Job { task, accel: accel.name().into(), emulator: emulator.version.clone(), seed, strict: false };
    let initramfs = dir.path().join("initramfs");
    initramfs::write(&initramfs, kernel, emulator, &job, &mut |_| {})?;
    let four = Host { cpus: 4, ..Host::default() };
    let shape = match &job.task {
        Task::GuestCheck(name) => Shape::named(name),
        _ => None,
    };
    let host = match &job.task {
        Task::Soak(soak) => Host { cpus: soak.cpus, ..four },
        Task::GuestCheck(_) => shape.map_or(four, |shape| shape.host()),
        _ => four,
    };
    let arguments = shape.map_or("", |shape| shape.arguments);
    let boot = Boot {
        emulator,
        kernel,
        initramfs: &initramfs,
        dir: dir.path(),
        host: &host,
        guest_weight: 1,
        arguments,
        accel,
        seed,
    };
    let mut machine = boot.start()?;
    loop {
        let why = match machine.next_line(PATIENCE, interrupted)? {
            Next::Line(line) => match serde_json::from_str(&line) {
                Ok(Event::Done) => return Ok(()),
                Ok(Event::Log(text)) => {
                    say(&text);
                    continue;
                }
                Ok(Event::Failed(why)) => why,
                _ => continue,
            },
            Next::Stopped(status) => format!("the machine stopped ({})", ended(status)),
            Next::Silent { .. } => "the machine hangs and was killed".into(),
            Next::Interrupted => bail!("interrupted: the machine was stopped"),
        };
        for line in machine.last_words(60) {
            say(&format!("  | {line}"));
        }
        bail!("{why}");
    }
}
