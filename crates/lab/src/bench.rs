// SPDX-License-Identifier: GPL-2.0-only
//! The same experiments on the host that this program runs on, with its real KVM and its real scheduler.

use crate::experiment::{self, Host};
use crate::machine::describe;
use crate::machine::instrument::Clock;
use crate::protocol::Event;
use crate::scenario::Scenario;
use anyhow::{Context, Result, bail};
use overbook_cli::affinity;
use overbook_probe::Probe;
use overbook_report::schema::{Failure, Report, Run, SCHEMA, ScenarioInfo};
use overbook_vmm::Pattern;
use overbook_vmm::kvm::Kvm;
use std::sync::atomic::{AtomicBool, Ordering};

/// CPUs that this process may use.
///
/// # Errors
/// The kernel does not tell.
pub fn usable_cpus() -> Result<Vec<u32>> {
    Ok(affinity::of(0)
        .context("cannot read this process's affinity")?
        .into_iter()
        .map(|cpu| cpu as u32)
        .collect())
}

/// Runs a scenario here. `say` is told of every step. What ends it early is in the report, with what was measured before.
///
/// # Errors
/// Nothing was measured: KVM does not work here, or `interrupted` was raised before.
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
        variants: scenario.variant_infos(),
        ..Report::default()
    };
    let outcome = experiment::run(scenario, scenario.seed, &host, &mut |event| {
        if interrupted.load(Ordering::Relaxed) {
            bail!("interrupted: the VMs were ended");
        }
        match event {
            Event::Run(run) => keep(&mut report, *run)?,
            Event::Bounds(bounds) => report.bounds = bounds,
            Event::Progress(done, total) => say(&format!("run {done} of {total}")),
            Event::Warning(text) => say(&text),
            _ => {}
        }
        Ok(())
    });
    finish(report, outcome)
}

/// What was measured, and why that is not all.
///
/// # Errors
/// Nothing was.
fn finish(mut report: Report, outcome: Result<()>) -> Result<Report> {
    if let Err(why) = outcome {
        if report.runs.is_empty() {
            return Err(why);
        }
        // A run that failed says so itself.
        if report.runs.iter().all(|run| run.error.is_none()) {
            report.failure = Some(Failure { reason: format!("{why:#}"), console: Vec::new() });
        }
    }
    Ok(report)
}

/// Keeps a run.
///
/// # Errors
/// It failed or says nothing; what follows would fare alike.
fn keep(report: &mut Report, mut run: Run) -> Result<()> {
    run.error = run.error.take().or_else(|| idle(&run));
    let why = run.error.clone();
    report.runs.push(run);
    why.map_or(Ok(()), |why| bail!(why))
}

/// Fewer operations than this are no measurement: one more or less is per cents.
const LEAST_WORK: u64 = 20;

/// Why a run says nothing, if a VM of it has done next to no work.
fn idle(run: &Run) -> Option<String> {
    let vm = run.vms.iter().find(|vm| vm.pattern != Pattern::Hostile.name() && vm.work < LEAST_WORK)?;
    let seconds = run.window_ns as f64 / 1e9;
    let had =
        format!("{} did {} {} in {seconds:.2} s with {:.2} CPUs", vm.name, vm.work, vm.unit, vm.cpus_used);
    Some(match vm.work {
        0 => format!(
            "{had}: this KVM ({}) does not serve these guests; `overbook lab` emulates one that does",
            Kvm::detect()
        ),
        _ => format!(
            "{had}, too few to say anything: measure for longer (--seconds), on a KVM that is faster than this one ({})",
            Kvm::detect()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_report::schema::VmResult;

    #[test]
    fn a_run_without_work_is_no_result() {
        let run = |pattern: &str, work| {
            let vm = VmResult {
                name: "vm1".into(),
                pattern: pattern.into(),
                unit: "locks".into(),
                work,
                ..VmResult::default()
            };
            Run { vms: vec![vm], window_ns: 1_000_000_000, ..Run::default() }
        };
        assert!(idle(&run("lock", 0)).unwrap().starts_with("vm1 did 0 locks in 1.00 s"));
        assert!(idle(&run("lock", 5)).unwrap().contains("too few"));
        assert_eq!(idle(&run("lock", 20)), None);
        assert_eq!(idle(&run("hostile", 0)), None);
    }

    #[test]
    fn what_was_measured_outlives_what_ends_it() {
        let ended = || Err(anyhow::anyhow!("interrupted"));
        assert_eq!(finish(Report::default(), ended()).unwrap_err().to_string(), "interrupted");
        let report = Report { runs: vec![Run::default()], ..Report::default() };
        let kept = finish(report.clone(), ended()).unwrap();
        assert_eq!((kept.runs.len(), kept.failure.unwrap().reason.as_str()), (1, "interrupted"));
        assert!(finish(report, Ok(())).unwrap().failure.is_none());
        let failed = Run { error: Some("vm1 stopped".into()), ..Run::default() };
        let report = Report { runs: vec![failed], ..Report::default() };
        assert!(finish(report, ended()).unwrap().failure.is_none());
    }

    #[test]
    fn the_first_run_that_fails_is_the_last() {
        let mut report = Report::default();
        let vm = |work| VmResult { name: "vm1".into(), unit: "locks".into(), work, ..VmResult::default() };
        let run = |work| Run { vms: vec![vm(work)], window_ns: 1_000_000_000, ..Run::default() };
        keep(&mut report, run(1000)).unwrap();
        let why = keep(&mut report, run(0)).unwrap_err().to_string();
        assert!(why.starts_with("vm1 did 0 locks"), "{why}");
        assert_eq!(report.runs.len(), 2);
        assert_eq!(report.runs[1].error, Some(why));
        let own = Run { error: Some("vm2: triple fault".into()), ..run(1000) };
        assert_eq!(keep(&mut report, own).unwrap_err().to_string(), "vm2: triple fault");
    }
}
