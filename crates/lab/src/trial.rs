// SPDX-License-Identifier: GPL-2.0-only
//! Which acceleration really works here: found by booting, as /dev/kvm may exist and run nothing.

use crate::initramfs;
use crate::protocol::{Event, Job, Task};
use crate::qemu::{Accel, Boot, Next, Running};
use crate::scenario::Host;
use anyhow::Result;
use overbook_kernels::Kernel;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest silence of a trial machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Finds the best acceleration that runs `kernel` with a KVM guest inside, and why a better one does not.
/// The verdict is remembered in `memory` for this boot of this machine.
///
/// # Errors
/// The trial cannot even be prepared (QEMU missing, disk full), or the user interrupted it.
pub fn best(kernel: &Kernel, dir: &Path, memory: &Path, interrupted: &AtomicBool) -> Result<(Accel, String)> {
    if !Path::new("/dev/kvm").exists() {
        return Ok((Accel::Icount, "there is no /dev/kvm".into()));
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let key = format!("{} {}", boot_id.trim(), kernel.release);
    if let Ok(text) = fs::read_to_string(memory)
        && let Some(verdict) = text.strip_prefix(&format!("{key}\n"))
    {
        return Ok(outcome(verdict));
    }
    let verdict = boot_once(kernel, dir, interrupted)?;
    // A verdict that cannot be remembered is found again next time.
    let _ = fs::write(memory, format!("{key}\n{verdict}"));
    Ok(outcome(&verdict))
}

/// An empty verdict is a good one.
fn outcome(verdict: &str) -> (Accel, String) {
    if verdict.is_empty() {
        (Accel::Kvm, "a trial boot ran a guest under nested KVM".into())
    } else {
        (Accel::Icount, format!("a trial boot under /dev/kvm failed: {verdict}"))
    }
}

fn boot_once(kernel: &Kernel, dir: &Path, interrupted: &AtomicBool) -> Result<String> {
    let job = Job {
        task: Task::Trial,
        accel: Accel::Kvm.name().into(),
        emulator: String::new(),
        seed: 0,
        strict: false,
    };
    let initramfs = dir.join("initramfs");
    initramfs::write(&initramfs, kernel, &job)?;
    let host = Host { cpus: 2, ..Host::default() };
    let boot =
        Boot { kernel: &kernel.image, initramfs: &initramfs, dir, host: &host, accel: Accel::Kvm, seed: 0 };
    let mut machine = boot.start()?;
    loop {
        let line = match machine.next_line(PATIENCE, interrupted)? {
            Next::Line(line) => line,
            Next::Stopped => return Ok(last_words(&machine, "the machine stopped")),
            Next::Silent => return Ok(last_words(&machine, "the machine hangs")),
            Next::Interrupted => anyhow::bail!("interrupted"),
        };
        match serde_json::from_str(&line) {
            Ok(Event::Done) => return Ok(String::new()),
            Ok(Event::Failed(why)) => return Ok(why),
            _ => {}
        }
    }
}

fn last_words(machine: &Running, what: &str) -> String {
    match machine.last_words(1).pop() {
        Some(line) => format!("{what} ({})", line.trim()),
        None => what.into(),
    }
}
