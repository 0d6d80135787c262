// SPDX-License-Identifier: GPL-2.0-only
//! One run of a machine that is itself a guest.

mod load;
mod perf;
mod settle;
mod thief;

use super::bound::Points;
use super::{Host, Workload};
use crate::machine::task::{self, now_ns};
use crate::scenario::{GuestSpec, Scenario, Variant};
use anyhow::{Context, Result};
use load::Tasks;
use overbook_report::schema::{KvmCounters, Run, VcpuResult, VmBound, VmResult};
use settle::Watch;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use thief::Thief;

/// Where the guest scheduler of a run finds the model's steal times.
const STAT: &str = "/run/stat";

/// How often these are written, before dilation; the lab's guests look less often.
const PUBLISH: Duration = Duration::from_millis(5);

/// A variant's arguments, and where its steal times are.
pub(crate) fn arguments(own: &[String]) -> Vec<String> {
    ["--steal-from", STAT].iter().map(ToString::to_string).chain(own.iter().cloned()).collect()
}

/// This machine as a guest, whose host takes CPUs away.
pub(super) struct ModelledGuest<'a> {
    scenario: &'a Scenario,
    spec: &'a GuestSpec,
    host: &'a Host,
}

impl<'a> ModelledGuest<'a> {
    /// Nothing is taken yet.
    pub(super) fn new(scenario: &'a Scenario, spec: &'a GuestSpec, host: &'a Host) -> ModelledGuest<'a> {
        ModelledGuest { scenario, spec, host }
    }
}

impl Workload for ModelledGuest<'_> {
    fn ours(&self, variant: &Variant) -> Option<Vec<String>> {
        variant.guest.as_deref().map(arguments)
    }

    /// Takes CPUs away as the model says, runs the load, and measures a window.
    fn run_once(&mut self, _: &Variant, _: u64, attach: &mut dyn FnMut() -> Result<()>) -> Result<Run> {
        let dilation = self.scenario.host.dilation;
        let thief = Thief::start(self.spec, &self.host.cpus, dilation)?;
        let stat = Path::new(STAT);
        thief.publish(stat)?;
        attach()?;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let publisher =
                scope.spawn(|| thief::keep_publishing(&thief, stat, PUBLISH.mul_f64(dilation), &stop));
            let outcome = measure(self.scenario, self.spec, self.host, &thief);
            stop.store(true, Ordering::Relaxed);
            publisher.join().ok().context("the steal times were not written on")??;
            outcome
        })
    }

    /// A host that nobody else is on takes nothing: there is no bound to measure.
    fn nr_alone(&self) -> usize {
        0
    }

    fn run_alone(&mut self, _: usize, _: &Variant, _: u64, _: &mut Points) -> Result<()> {
        Ok(())
    }

    fn bounds(&self, _: &[Points]) -> Vec<VmBound> {
        Vec::new()
    }
}

fn measure(scenario: &Scenario, spec: &GuestSpec, host: &Host, thief: &Thief) -> Result<Run> {
    let _on_time = task::RealTime::begin();
    match spec.watch {
        true => watch(scenario, host, || measure_window(scenario, spec, host, thief)),
        false => measure_window(scenario, spec, host, thief),
    }
}

/// Notes how long the guest takes to find its size.
fn watch(scenario: &Scenario, host: &Host, run: impl FnOnce() -> Result<Run>) -> Result<Run> {
    let dilation = scenario.host.dilation;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = Watch::start(scope, &stop, dilation);
        let began = Instant::now();
        let outcome = run();
        let ended = Instant::now();
        let patience = scenario.settle_time();
        let returned = settle::until_all_cpus(host.cpus.len(), patience);
        let changes = watch.end()?;
        let mut run = outcome?;
        if !changes.is_empty() {
            let ms = |time: Duration| time.as_secs_f64() * 1000.0 / dilation;
            let settled = settle::settled(&changes, began, ended);
            run.extra.insert("guest: ms from load to its size".into(), ms(settled));
            if let Some(returned) = returned {
                run.extra.insert("guest: ms from its end to all CPUs".into(), ms(returned));
            }
        }
        Ok(run)
    })
}

fn measure_window(scenario: &Scenario, spec: &GuestSpec, host: &Host, thief: &Thief) -> Result<Run> {
    let dilation = scenario.host.dilation;
    let tasks = Tasks::start(spec, host.ns_per_turn, dilation)?;
    sleep(scenario.settle_time());
    let (start, before, done, switches) = (now_ns(), thief.given(), tasks.work(), task::context_switches());
    sleep(scenario.window());
    let (end, after, all) = (now_ns(), thief.given(), tasks.work());
    let context_switches = task::context_switches() - switches;
    drop(tasks);
    let window_ns = (end - start).max(1);
    let cpu = |(old, new): (&thief::Given, &thief::Given)| VcpuResult {
        run_ns: new.run_ns - old.run_ns.min(new.run_ns),
        steal_ns: new.stolen_ns - old.stolen_ns,
        ..VcpuResult::default()
    };
    let vcpus: Vec<VcpuResult> = before.iter().zip(&after).map(cpu).collect();
    let sum = |of: fn(&VcpuResult) -> u64| vcpus.iter().map(of).sum::<u64>() as f64 / window_ns as f64;
    let mut run = Run { window_ns, context_switches, ..Run::default() };
    run.extra.insert("guest: CPUs stolen".into(), sum(|v| v.steal_ns));
    run.vms.push(VmResult {
        name: "guest".into(),
        pattern: spec.load.name().into(),
        unit: spec.load.unit().into(),
        work: all - done,
        rate: (all - done) as f64 * 1e9 / window_ns as f64,
        cpus_used: sum(|v| v.run_ns),
        entitled_cpus: spec.entitled(scenario.host.cpus),
        vcpus,
        kvm: KvmCounters::unseen(),
    });
    Ok(run)
}
