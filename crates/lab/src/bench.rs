// SPDX-License-Identifier: GPL-2.0-only
//! The same experiments on the host that this program runs on, with its real KVM and its real scheduler.

use crate::describe;
use crate::experiment::{self, Host};
use crate::instrument::Clock;
use crate::protocol::Event;
use crate::scenario::Scenario;
use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use overbook_probe::Probe;
use overbook_report::schema::{Report, SCHEMA, ScenarioInfo, VariantInfo};
use std::sync::atomic::{AtomicBool, Ordering};

/// CPUs that this process may use.
///
/// # Errors
/// The kernel does not tell.
pub fn usable_cpus() -> Result<Vec<u32>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("cannot read this process's affinity")?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).map(|cpu| cpu as u32).collect())
}

/// Runs a scenario here. `say` is told of every step.
///
/// # Errors
/// KVM does not work here, or `interrupted` was raised.
pub fn run(
    scenario: &Scenario,
    build: &str,
    interrupted: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Report> {
    // Asked first, and by itself: without KVM nothing else is worth a word.
    overbook_vmm::machine::check_kvm()?;
    let clock = Clock::calibrate()?;
    let probe = Probe::attach();
    if let Err(why) = &probe {
        say(&format!("without KVM's counters: {why:#}"));
    }
    let host = Host {
        cpus: usable_cpus()?,
        ns_per_turn: clock.ns_per_turn,
        probe: probe.ok(),
        default_slice_ns: describe::base_slice_ns(),
    };
    let mut report = Report {
        schema: SCHEMA,
        overbook: build.into(),
        scenario: ScenarioInfo {
            name: "bench".into(),
            title: scenario.title.clone(),
            seed: scenario.seed,
            overcommit: scenario.overcommit(),
            placement: "free".into(),
            cgroups: "flat".into(),
            dilation: 1.0,
            text: String::new(),
        },
        machine: describe::machine("native", "", &clock)?,
        variants: scenario
            .variants
            .iter()
            .map(|v| VariantInfo { name: v.name.clone(), about: v.about.clone() })
            .collect(),
        ..Report::default()
    };
    experiment::run(scenario, scenario.seed, &host, &mut |event| {
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted: the VMs were ended");
        }
        match event {
            Event::Run(run) => report.runs.push(*run),
            Event::Bounds(bounds) => report.bounds = bounds,
            Event::Progress(done, total) => say(&format!("run {done} of {total}")),
            _ => {}
        }
        Ok(())
    })?;
    Ok(report)
}
