// SPDX-License-Identifier: GPL-2.0-only
//! Which acceleration really works here: found by booting, as /dev/kvm may exist and run nothing.

use crate::outside::machine::{Body, Engine, Machine, Said};
use crate::outside::qemu::Accel;
use crate::protocol::{Event, Task};
use crate::scenario::Host;
use anyhow::Result;
use overbook_kernels::emulator::PROGRAM;
use overbook_kernels::{Emulator, Kernel};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Longest silence of a trial machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the last line of QEMU's report begins with if KVM has given up: bytes around an instruction.
const CODE: &str = "Code=";

/// Of the remembered verdict; raised when its words change.
const FORMAT: u32 = 6;

/// Finds the best acceleration that runs `kernel` with a KVM guest inside, and why a better one does not.
/// The verdict is remembered in `memory` for this boot of this machine, unless the trial hung or was killed.
///
/// # Errors
/// The trial cannot even be prepared (QEMU missing, disk full), or the user interrupted it.
pub fn best(
    kernel: &Kernel,
    emulator: &Emulator,
    memory: &Path,
    interrupted: &AtomicBool,
) -> Result<(Accel, String)> {
    if !Path::new("/dev/kvm").exists() {
        return Ok((Accel::Icount, "there is no /dev/kvm".into()));
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    if let Err(why) = fs::File::options().read(true).write(true).open("/dev/kvm") {
        let hint =
            if why.kind() == ErrorKind::PermissionDenied { "; its users are in the group kvm" } else { "" };
        return Ok((Accel::Icount, format!("/dev/kvm cannot be opened: {why}{hint}")));
    }
    let (boot_id, image, program) = (boot_id.trim(), kernel.image.display(), emulator.program.display());
    let key = format!("{FORMAT} {boot_id} {image} {program} {}", emulator.version);
    if let Ok(text) = fs::read_to_string(memory)
        && let Some(verdict) = text.strip_prefix(&format!("{key}\n"))
    {
        return Ok(outcome(verdict));
    }
    let (verdict, lasts) = boot_once(kernel, emulator, interrupted)?;
    // A verdict that cannot be remembered is found again next time.
    if lasts {
        let _ = fs::write(memory, format!("{key}\n{verdict}"));
    }
    Ok(outcome(&verdict))
}

/// An empty verdict is a good one.
fn outcome(verdict: &str) -> (Accel, String) {
    if verdict.is_empty() {
        (Accel::Kvm, "a trial boot ran a guest under nested KVM".into())
    } else {
        (Accel::Icount, format!("/dev/kvm is there, but in a trial boot {verdict}"))
    }
}

/// The verdict of one boot, and whether another one would have the same: a machine that hangs may only have been starved.
fn boot_once(kernel: &Kernel, emulator: &Emulator, interrupted: &AtomicBool) -> Result<(String, bool)> {
    let host = Host { cpus: 2, ..Host::default() };
    let body = Body { host: &host, guest_weight: 1, arguments: "" };
    let engine = Engine { kernel, emulator, accel: Accel::Kvm };
    let mut machine = Machine::boot(engine, (Task::Trial, 0, false), body, &mut |_| {})?;
    loop {
        match machine.listen(PATIENCE, interrupted)? {
            Said::Event(Event::Done) => return Ok((String::new(), true)),
            Said::Event(Event::Failed(why)) => return Ok((why, true)),
            Said::Event(_) => {}
            Said::Ended { why, alike } => {
                return Ok((brief(&why, machine.last_words(1).pop().as_deref()), alike));
            }
            Said::Interrupted => anyhow::bail!("interrupted"),
        }
    }
}

/// What happened, in half a line; the machine's own last words are for those who ask for more messages.
fn brief(what: &str, last: Option<&str>) -> String {
    let Some(last) = last.map(str::trim).filter(|last| !last.is_empty()) else { return what.into() };
    log::info!("trial boot: {what}: {last}");
    if last.starts_with(CODE) {
        return what.into();
    }
    if last.starts_with(PROGRAM) {
        // The emulator's own end says nothing of the kernel: an instruction or a register that /dev/kvm lacks.
        return "QEMU gave up".into();
    }
    format!("{what} ({last})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_of_the_emulator_is_half_a_line() {
        let assertion = "qemu-system-x86_64: ../../target/i386/kvm/kvm.c:3183: kvm_buf_set_msrs: \
                         Assertion `ret == cpu->kvm_msr_buf->nmsrs' failed.";
        let (accel, why) = outcome(&brief("the machine stopped", Some(assertion)));
        assert_eq!(accel, Accel::Icount);
        assert_eq!(why, "/dev/kvm is there, but in a trial boot QEMU gave up");
        let panic = brief("the machine stopped", Some("Kernel panic - not syncing \n"));
        assert_eq!(panic, "the machine stopped (Kernel panic - not syncing)");
        assert_eq!(brief("the machine stopped", Some("Code=83 fa <c4> 42")), "the machine stopped");
        assert_eq!(brief("the machine hangs", None), "the machine hangs");
    }
}
