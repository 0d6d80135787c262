// SPDX-License-Identifier: GPL-2.0-only
//! What a machine of the lab does besides scenarios: `overbook lab soak`, `guest` and `observe`.

use super::{Execution, KernelChoice, choose, interruption, show};
use anyhow::Result;
use clap::{Args, ValueEnum};
use overbook_cli::output::Stdout;
use overbook_cli::values::number;
use overbook_kernels::{Cache, Emulator};
use overbook_lab::machine::shape::SHAPES;
use overbook_lab::outside::machine::Engine;
use overbook_lab::outside::task;
use overbook_lab::protocol::{Soak, Task, View};
use overbook_observe::Snapshot;
use overbook_observe::far::Far;
use overbook_observe::snapshot::{beginnings, read_recording};
use overbook_report::json::{check_writable, write_atomically};
use std::io::Write;
use std::path::PathBuf;

#[derive(Args)]
pub struct SoakArgs {
    /// Rounds; one takes about a second of model time
    #[arg(long, default_value_t = 20, value_parser = number(1u32, 100_000))]
    rounds: u32,
    /// Kills and CPU hotplugs in between; each takes some 20 s of model time, as the scheduler loads again
    #[arg(long, default_value_t = 2, value_parser = number(0u32, 100_000))]
    reloads: u32,
    /// CPUs of the host; with fewer, each emulated one is faster
    #[arg(long, default_value_t = 4, value_parser = number(2u32, 16))]
    cpus: u32,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, value_parser = number(0, i64::MAX as u64))]
    seed: u64,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl SoakArgs {
    pub fn run(&self) -> Result<()> {
        let soak = Soak { rounds: self.rounds, reloads: self.reloads, cpus: self.cpus };
        tell(Task::Soak(soak), self.seed, &self.kernel, self.accel, &mut show)
    }
}

#[derive(Args)]
pub struct GuestArgs {
    /// Topology of the guest; may be repeated [default: all of them]
    #[arg(long, value_name = "NAME", value_parser = SHAPES.map(|shape| shape.name))]
    topology: Vec<String>,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl GuestArgs {
    pub fn run(&self) -> Result<()> {
        let all = || SHAPES.iter().map(|shape| shape.name.to_string()).collect();
        let names = if self.topology.is_empty() { all() } else { self.topology.clone() };
        for name in names {
            tell(Task::GuestCheck(name), 1, &self.kernel, self.accel, &mut show)?;
        }
        Ok(())
    }
}

/// What `overbook lab observe` looks at.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// A lock, IPIs and computing, under EEVDF and under `overbook host`
    Schedulers,
    /// VMs that compute and halt, and then twice as many: does that have the ready time that was to be expected?
    Twice,
    /// What `overbook evidence` makes of the first ones
    Evidence,
}

#[derive(Args)]
pub struct ObserveArgs {
    /// Where snapshots, or the evidence, are written
    #[arg(long, short, default_value = "recording.jsonl")]
    output: PathBuf,
    /// What is looked at
    #[arg(long, value_enum, default_value = "schedulers")]
    what: What,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl ObserveArgs {
    pub fn run(&self) -> Result<()> {
        // Found out before minutes are spent.
        check_writable(&self.output)?;
        let mut recording = String::new();
        let view = match self.what {
            What::Schedulers => View::Schedulers,
            What::Twice => View::Twice,
            What::Evidence => View::Evidence,
        };
        let outcome =
            tell(Task::Observe(view), 1, &self.kernel, self.accel, &mut |text| match text.starts_with('{') {
                true => {
                    recording += &format!("{text}\n");
                    Ok(())
                }
                false => show(text),
            });
        if let Err(why) = outcome {
            // What was seen until then was seen; an earlier recording stays.
            let partial = PathBuf::from(format!("{}.partial", self.output.display()));
            let kept = !recording.is_empty() && write_atomically(&partial, &recording).is_ok();
            return Err(if kept {
                why.context(format!("what was seen is in {}", partial.display()))
            } else {
                why
            });
        }
        write_atomically(&self.output, &recording)?;
        if self.what == What::Twice {
            writeln!(Stdout, "{}", twice(&read_recording(&self.output)?)?)?;
        }
        writeln!(Stdout, "written: {}", self.output.display())?;
        Ok(())
    }
}

/// What the first recording of two says of the load of the second, which is more of the same.
fn twice(snapshots: &[Snapshot]) -> Result<String> {
    let second = beginnings(snapshots).last().copied().unwrap_or(0);
    let far = |snapshots: &[Snapshot], ready| Far::of(snapshots, ready).map_err(|why| anyhow::anyhow!(why));
    let had = far(&snapshots[second..], 5.0)?.present;
    let told = far(&snapshots[..second], had.ready_percent.clamp(0.1, 90.0))?;
    Ok(format!(
        "at {:.2} vCPUs per CPU the ready time is {:.2} %; by the recording at {:.2} (ready time {:.2} %) that ratio is {}",
        had.ratio,
        had.ready_percent,
        told.present.ratio,
        told.present.ready_percent,
        told.ratio.map_or_else(|| "beyond what can be told".into(), |ratio| format!("{ratio:.2}"))
    ))
}

/// Runs a task that only says how it goes.
fn tell(
    task: Task,
    seed: u64,
    kernel: &KernelChoice,
    accel: Execution,
    say: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let cache = Cache::open_default()?;
    let kernel = kernel.resolve(&cache)?;
    let interrupted = interruption()?;
    let emulator = Emulator::find(&cache)?;
    let accel = choose(accel, &kernel, &emulator, &cache, &interrupted)?;
    writeln!(Stdout, "kernel {} ({}), {}", kernel.release, kernel.origin, accel.name())?;
    let engine = Engine { kernel: &kernel, emulator: &emulator, accel };
    // The machine goes on where nobody reads.
    let mut said = Ok(());
    task::run(task, seed, engine, &interrupted, &mut |text| {
        if said.is_ok() {
            said = say(text);
        }
    })?;
    said
}
