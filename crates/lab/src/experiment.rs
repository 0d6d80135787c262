// SPDX-License-Identifier: GPL-2.0-only
//! Runs guests under variants of a scheduler, interleaved, and measures them. The same on any host: emulated,
//! nested or real.
//!
//!   linux           Linux guests on stock QEMU, and what they run again and again
//!   micro           micro-guests: VMs of our own, started anew for every run
//!   modelled_guest  this machine as the guest of a modelled host
//!   scheduler       loads and unloads a program of ours between runs
//!   rival           the same of anybody's sched_ext scheduler
//!   tuning          the kernel's and KVM's own knobs
//!   cgroup          the groups that VMs are in
//!   shares          what VMs may claim when all want more than they get
//!   bound           how fast a VM could go if it never waited for a preempted sibling

mod bound;
pub(crate) mod cgroup;
mod linux;
pub(crate) mod micro;
pub(crate) mod modelled_guest;
mod rival;
pub(crate) mod scheduler;
mod shares;
pub(crate) mod tuning;

use crate::machine::switches::Counts;
use crate::protocol::Event;
use crate::scenario::{Scenario, Variant};
use anyhow::{Context, Result};
use bound::Points;
use overbook_probe::Probe;
use overbook_report::schema::{Run, VmBound};
use rival::Rival;
use scheduler::Scheduler;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The host that the VMs run on.
pub struct Host {
    /// Online CPUs that VMs may use.
    pub cpus: Vec<u32>,
    /// Time of one turn of the fixed loop on one CPU while the others are busy.
    pub ns_per_turn: f64,
    /// Counters of KVM; without them, reports have zeros there.
    pub probe: Option<Probe>,
    /// EEVDF's base slice before anybody touched it; 0 if it cannot be read.
    pub default_slice_ns: u64,
}

/// Between the lines of what a program said last.
pub const NEXT_LINE: &str = " | ";

/// The last lines of a program's messages that say something; what cannot be read is not told.
fn last_words(mut messages: &File, lines: usize) -> String {
    let mut text = String::new();
    let _ = messages.seek(SeekFrom::Start(0)).and_then(|_| messages.read_to_string(&mut text));
    let says = |line: &&str| !line.is_empty() && !line.starts_with("note: ");
    let said: Vec<&str> = text.lines().map(str::trim).filter(says).collect();
    said[said.len().saturating_sub(lines)..].join(NEXT_LINE)
}

/// What variants are measured with: guests of one kind.
trait Workload {
    /// Program of ours that a variant loads, and its arguments, if it loads one: the host's, unless this machine is the
    /// guest.
    fn ours(&self, variant: &Variant) -> Option<Vec<String>> {
        variant.overbook.clone()
    }

    /// One run: the guests work, and a window is measured. `attach` loads the variant's scheduler.
    ///
    /// # Errors
    /// Nothing can be measured any more. A guest that fails spoils its run only: the run carries the error.
    fn run_once(
        &mut self,
        variant: &Variant,
        seed: u64,
        attach: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Run>;

    /// Number of guests that differ; each is measured alone.
    fn nr_alone(&self) -> usize;

    /// One of them alone, under the baseline, as all bounds are.
    ///
    /// # Errors
    /// As [`Workload::run_once`].
    fn run_alone(&mut self, nth: usize, baseline: &Variant, seed: u64, points: &mut Points) -> Result<()>;

    /// The bound of every guest, from what each that differs did alone.
    fn bounds(&self, points: &[Points]) -> Vec<VmBound>;
}

/// Runs a scenario and says every result to `say`.
///
/// # Errors
/// KVM, a cgroup or a scheduler knob does not work here; the message says which. A guest, or a load in it, that fails spoils
/// its run only: the run carries the error. A Linux guest that is gone ends the rest, as it is booted once.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    host: &Host,
    say: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<()> {
    let mut workload: Box<dyn Workload> = match (&scenario.guest, &scenario.linux) {
        (Some(spec), _) => Box::new(modelled_guest::ModelledGuest::new(scenario, spec, host)),
        (None, Some(spec)) => Box::new(linux::Fleet::start(spec, scenario, &host.cpus, say)?),
        (None, None) => Box::new(micro::MicroGuests::new(scenario, host)),
    };
    let mut overbook = Scheduler::new(if scenario.guest.is_some() { "guest" } else { "host" });
    let nr_alone = if scenario.measure.bound { workload.nr_alone() } else { 0 };
    let mut points: Vec<Points> = (0..nr_alone).map(|_| Points::default()).collect();
    let total = scenario.measure.repetitions * (scenario.variants.len() + nr_alone) as u32;
    let mut done = 0;
    for repetition in 0..scenario.measure.repetitions {
        let run_seed = seed.wrapping_mul(1_000_003).wrapping_add(repetition.into());
        // Rotated, so that no variant always runs first.
        for nth in 0..scenario.variants.len() {
            let variant = &scenario.variants[(nth + repetition as usize) % scenario.variants.len()];
            let tuning = tuning::apply(variant, scenario.host.dilation, host.default_slice_ns)?;
            let mut run = run_variant(scenario, variant, run_seed, &mut *workload, &mut overbook)?;
            drop(tuning);
            run.variant = variant.name.clone();
            run.repetition = repetition;
            say(Event::Run(Box::new(run)))?;
            done += 1;
            say(Event::Progress(done, total))?;
        }
        for (nth, points) in points.iter_mut().enumerate() {
            let baseline = &scenario.variants[0];
            let tuning = tuning::apply(baseline, scenario.host.dilation, host.default_slice_ns)?;
            // The bound is that of the others then.
            if let Err(why) = workload.run_alone(nth, baseline, run_seed, points) {
                say(Event::Warning(format!("repetition {}: no bound: {why:#}", repetition + 1)))?;
            }
            drop(tuning);
            done += 1;
            say(Event::Progress(done, total))?;
        }
    }
    say(Event::Bounds(workload.bounds(&points)))
}

/// One run of a variant, with its scheduler, ours or another's, for as long.
fn run_variant(
    scenario: &Scenario,
    variant: &Variant,
    seed: u64,
    workload: &mut dyn Workload,
    overbook: &mut Scheduler,
) -> Result<Run> {
    let dilation = scenario.host.dilation;
    let yields = Counts::of_yields();
    let rival = variant.scheduler(dilation).map(|(program, arguments)| Rival::start(&program, &arguments));
    // What others' schedulers do wrong is a result.
    let rival = match rival.transpose() {
        Ok(rival) => rival,
        Err(why) => return Ok(Run { error: Some(format!("{why:#}")), ..Run::default() }),
    };
    let ours = workload.ours(variant);
    let mut attach = || match &ours {
        Some(arguments) => overbook.attach(arguments, dilation),
        None => Ok(()),
    };
    let run = workload.run_once(variant, seed, &mut attach);
    let mut run = run.with_context(|| format!("variant {}", variant.name))?;
    if let Some(Err(why)) = rival.map(Rival::end) {
        run.error = Some(format!("{why:#}"));
    }
    if ours.is_some() {
        match overbook.detach() {
            Ok(counters) => run.extra.extend(counters),
            Err(e) => run.error = Some(format!("{e:#}")),
        }
    }
    run.extra.extend(Counts::of_yields().since(&yields));
    Ok(run)
}
