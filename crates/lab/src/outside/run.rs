// SPDX-License-Identifier: GPL-2.0-only
//! A scenario from file to report: the outer half of the lab.

use crate::outside::machine::{Body, Engine, Machine, Said};
use crate::outside::qemu::Accel;
use crate::protocol::{Event, Task};
use crate::scenario::{Cgroups, Placement, Scenario, Source};
use anyhow::{Result, bail};
use overbook_report::schema::{Failure, Report, SCHEMA, ScenarioInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest silence of a machine, in time that it computes, beside what it takes to settle and to be measured: see
/// [`patience`].
const PATIENCE: Duration = Duration::from_secs(600);

/// Longest silence between start and the agent's first words.
const BOOT_PATIENCE: Duration = Duration::from_secs(180);

/// Lines of console that a report of a failure keeps.
const LAST_WORDS: usize = 25;

/// One run of one scenario.
pub struct Order<'a> {
    /// The scenario.
    pub source: Source<'a>,
    /// Replaces the file's seed.
    pub seed: Option<u64>,
    /// Replaces the file's repetitions.
    pub repetitions: Option<u32>,
    /// What boots it.
    pub engine: Engine<'a>,
    /// Measure even if the instrument is out of its limits; the report says so all the same.
    pub lenient: bool,
    /// Build id of this program, for the report.
    pub build: &'a str,
}

/// Reads the scenario of an order, with its replacements.
///
/// # Errors
/// See [`Source::read`].
pub fn scenario(order: &Order) -> Result<(Scenario, String)> {
    let (mut scenario, text) = order.source.read()?;
    scenario.seed = order.seed.unwrap_or(scenario.seed);
    scenario.measure.repetitions = order.repetitions.unwrap_or(scenario.measure.repetitions);
    Ok((scenario, text))
}

/// Boots a machine, runs the scenario in it and returns what was measured. A machine that hangs, panics or
/// is out of its limits gives a report too: with [`Report::failure`] set.
///
/// `progress` is told the share done (0 to 1) and a word on the present step.
///
/// # Errors
/// The scenario is wrong, QEMU is missing, the disk is full, or `interrupted` was raised before the first
/// repetition was measured. No machine stays behind in any case, and no temporary file unless this program is killed.
pub fn run(order: &Order, interrupted: &AtomicBool, progress: &mut dyn FnMut(f64, &str)) -> Result<Report> {
    let (scenario, text) = scenario(order)?;
    let Engine { emulator, accel, .. } = order.engine;
    if scenario.linux.is_some() && !emulator.patched {
        bail!(
            "Linux guests hang or die in {emulator}: build the lab's own with `overbook lab emulator --build`"
        );
    }
    if scenario.guest_weight() > 1 && accel != Accel::Icount {
        bail!("only --accel icount can stretch what Linux guests do: use it, or --set host.dilation=1");
    }
    let mut report = Report {
        schema: SCHEMA,
        overbook: order.build.into(),
        scenario: describe(order.source.name(), &scenario, text),
        variants: scenario.variant_infos(),
        ..Report::default()
    };
    progress(0.0, "packing the initramfs");
    let task = Task::Scenario(Box::new(scenario.clone()));
    let body = Body { host: &scenario.host, guest_weight: scenario.guest_weight(), arguments: "" };
    let job = (task, scenario.seed, !order.lenient);
    let mut machine = Machine::boot(order.engine, job, body, &mut |text| progress(0.0, text))?;
    if let Err(why) = collect(&mut machine, &mut report, patience(&scenario), interrupted, progress)? {
        let asked_for = interrupted.load(Ordering::Relaxed);
        let console = if asked_for { Vec::new() } else { machine.last_words(LAST_WORDS) };
        report.failure = Some(Failure { reason: why, console });
    }
    Ok(report)
}

/// Longest silence of a scenario's machine: nothing is said while guests settle and work. An emulated CPU takes less than half
/// a second for one of the model's.
fn patience(scenario: &Scenario) -> Duration {
    PATIENCE + (scenario.settle_time() + scenario.window()) * scenario.host.cpus / 2
}

/// Reads events until the end. The inner error is the machine's: one sentence.
fn collect(
    machine: &mut Machine,
    report: &mut Report,
    longest: Duration,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<std::result::Result<(), String>> {
    let mut patience = BOOT_PATIENCE;
    loop {
        let event = match machine.listen(patience, interrupted)? {
            Said::Event(event) => event,
            Said::Ended { why, .. } => return Ok(Err(why)),
            Said::Interrupted if report.runs.is_empty() => bail!("interrupted before anything was measured"),
            Said::Interrupted => return Ok(Err("interrupted; what was measured until then is here".into())),
        };
        patience = longest;
        match event {
            Event::Log(text) => log::info!("{text}"),
            Event::Warning(text) => log::warn!("{text}"),
            Event::Machine(machine) => {
                progress(0.0, "the instrument measures itself");
                report.machine = machine;
            }
            Event::Instrument(instrument) => {
                progress(0.02, "measuring");
                report.instrument = Some(instrument);
            }
            Event::Progress(done, total) => {
                progress(f64::from(done) / f64::from(total.max(1)), &format!("run {done} of {total}"));
            }
            Event::Run(run) => report.runs.push(*run),
            Event::Bounds(bounds) => report.bounds = bounds,
            Event::Done => return Ok(Ok(())),
            Event::Failed(why) => return Ok(Err(why)),
        }
    }
}

fn describe(name: String, scenario: &Scenario, text: String) -> ScenarioInfo {
    ScenarioInfo {
        name,
        title: scenario.heading(),
        text,
        seed: scenario.seed,
        overcommit: scenario.overcommit(),
        placement: match (scenario.layout.placement, scenario.layout.pool) {
            (Placement::Pooled, Some(pool)) => format!("pooled, {pool} CPUs per VM"),
            (Placement::Pinned, _) => "pinned 1:1".into(),
            _ => "free".into(),
        },
        cgroups: match scenario.layout.cgroups {
            Cgroups::Flat => "flat",
            Cgroups::PerVm => "per-vm",
            Cgroups::Nested => "nested",
            Cgroups::PerVcpu => "per-vcpu (libvirt)",
        }
        .into(),
        dilation: scenario.host.dilation,
    }
}
