// SPDX-License-Identifier: GPL-2.0-only
//! The half of the lab that runs inside the emulated host, as its init.

mod cpusets;
mod governor;
mod guest;
mod idle_group;
mod inner;
mod kernel;
mod observe;
mod packing;
mod preference;
mod preferred;
mod program;
mod ready;
mod sched_ext;
mod soak;
mod stretched;
mod system;

use crate::experiment::{self, Host};
use crate::machine::describe;
use crate::machine::instrument;
use crate::machine::shape::Shape;
use crate::machine::task;
use crate::protocol::{EVENT_PORT, Event, INNER_PORT, JOB_FILE, Job, Task};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::Write;

/// True if the program runs as the lab's init.
pub fn is_init() -> bool {
    std::process::id() == 1 && std::path::Path::new("/").join(JOB_FILE).exists()
}

/// Runs the job of this boot, then stops the machine. Never returns.
pub fn main() -> ! {
    let outcome = system::prepare().and_then(|()| {
        let job = job()?;
        let mut port = Port::open(if matches!(job.task, Task::Inner(_)) { INNER_PORT } else { EVENT_PORT })?;
        let outcome = work(&job, &mut port);
        port.say(&match &outcome {
            Ok(()) => Event::Done,
            Err(e) => Event::Failed(format!("{e:#}")),
        })
    });
    if let Err(e) = outcome {
        // The console is all that is left.
        eprintln!("overbook lab agent: {e:#}");
    }
    system::stop_machine()
}

fn job() -> Result<Job> {
    let text = std::fs::read_to_string(format!("/{JOB_FILE}")).context("the initramfs has no job")?;
    serde_json::from_str(&text).context("the job is not readable")
}

fn work(job: &Job, port: &mut Port) -> Result<()> {
    if let Task::Inner(guest) = &job.task {
        system::load_modules(1)?;
        return inner::serve(guest, port);
    }
    // Most guests have no kvm, and the scheduler must load there too.
    if !matches!(job.task, Task::GuestCheck(_)) {
        let guest_weight = match &job.task {
            Task::Scenario(scenario) => scenario.guest_weight(),
            _ => 1,
        };
        system::load_kvm(guest_weight)?;
    }
    let cpus = describe::online_cpus()?;
    task::wait_for_quiet();
    let trial = matches!(job.task, Task::Trial);
    let clock = instrument::Clock::calibrate()?;
    if trial {
        return experiment::micro::trial(&clock);
    }
    if let Task::Soak(order) = &job.task {
        return soak::run(order, job.seed, &clock, &mut |event| port.say(&event));
    }
    if let Task::GuestCheck(name) = &job.task {
        let shape = Shape::named(name).context("no such shape")?;
        return guest::check(&shape, &mut |event| port.say(&event));
    }
    if let Task::Observe(view) = &job.task {
        return observe::run(*view, &clock, &mut |event| port.say(&event));
    }
    let Task::Scenario(scenario) = &job.task else { return Ok(()) };
    port.say(&Event::Machine(describe::machine(&job.accel, &job.emulator, &clock)?))?;
    let instrument = instrument::check(&cpus, &clock)?;
    let ok = instrument.ok;
    let complaints = instrument.complaints.join("; ");
    port.say(&Event::Instrument(instrument))?;
    if !ok && job.strict {
        anyhow::bail!("the instrument is out of its limits, so nothing was measured: {complaints}");
    }
    let host = Host {
        cpus,
        ns_per_turn: clock.ns_per_turn,
        probe: Some(overbook_probe::Probe::attach()?),
        default_slice_ns: describe::base_slice_ns(),
    };
    experiment::run(scenario, job.seed, &host, &mut |event| port.say(&event))
}

/// The serial line to the outside.
struct Port(File);

impl Port {
    fn open(path: &str) -> Result<Port> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.with_context(|| format!("the machine has no {path}"))?;
        let mut mode = nix::sys::termios::tcgetattr(&file)?;
        nix::sys::termios::cfmakeraw(&mut mode);
        nix::sys::termios::tcsetattr(&file, nix::sys::termios::SetArg::TCSANOW, &mode)?;
        Ok(Port(file))
    }

    fn say<T: Serialize>(&mut self, event: &T) -> Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        nix::sys::termios::tcdrain(&self.0)?;
        Ok(())
    }
}
