// SPDX-License-Identifier: GPL-2.0-only
//! The outer half of all tasks but scenarios: boots a machine and relays what it says.

use crate::machine::shape::Shape;
use crate::outside::machine::{Body, Engine, Machine, Said};
use crate::protocol::{Event, Task};
use crate::scenario::Host;
use anyhow::{Result, bail};
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
    engine: Engine,
    interrupted: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let four = Host { cpus: 4, ..Host::default() };
    let shape = match &task {
        Task::GuestCheck(name) => Shape::named(name),
        _ => None,
    };
    let host = match &task {
        Task::Soak(soak) => Host { cpus: soak.cpus, ..four },
        Task::GuestCheck(_) => shape.map_or(four, |shape| shape.host()),
        _ => four,
    };
    let arguments = shape.map_or("", |shape| shape.arguments);
    let body = Body { host: &host, guest_weight: 1, arguments };
    let mut machine = Machine::boot(engine, (task, seed, false), body, &mut |_| {})?;
    loop {
        let why = match machine.listen(PATIENCE, interrupted)? {
            Said::Event(Event::Done) => return Ok(()),
            Said::Event(Event::Log(text) | Event::Warning(text)) => {
                say(&text);
                continue;
            }
            Said::Event(Event::Failed(why)) => why,
            Said::Event(_) => continue,
            Said::Ended { why, .. } => why,
            Said::Interrupted => bail!("interrupted: the machine was stopped"),
        };
        for line in machine.last_words(60) {
            say(&format!("  | {line}"));
        }
        bail!("{why}");
    }
}
