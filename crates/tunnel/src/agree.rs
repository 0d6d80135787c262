// SPDX-License-Identifier: GPL-2.0-only
//! The lab's figures beside the tunnel's, for the same scenario: how far the model can be believed.

use crate::scene::{self, Options};
use anyhow::{Context, Result, bail};
use overbook_lab::Scenario;
use overbook_lab::scenario::{Does, Placement, TaskSpec, Vm};
use overbook_report::schema::{Report as Lab, Run};
use overbook_report::stats::median;
use std::path::Path;

/// What KVM and the scheduler take of an emulated CPU, in instructions: an exit; a switch, with the interrupt or the exit
/// that it stands in. The same for all scenarios.
const EXIT: f64 = 6_250.0;
/// See [`EXIT`].
const SWITCH: f64 = 9_500.0;
/// A check of a guest that waits, with its PAUSE.
const CHECK: f64 = 5.0;
/// PAUSEs that the lab's kvm_amd lets pass.
const PAUSES: f64 = 2000.0;

/// A figure, as the lab has it and as the tunnel has it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is of: a VM, or empty for the host.
    pub of: String,
    /// What it is.
    pub what: &'static str,
    /// Median of the lab's repetitions.
    pub lab: f64,
    /// The tunnel's.
    pub tunnel: f64,
    /// Not a matter of per cent: parts of a whole, whose difference counts.
    pub part: bool,
}

impl Figure {
    /// The tunnel's error: of the lab's figure, or of the whole.
    pub fn error(&self) -> f64 {
        if self.part || self.lab == 0.0 { self.tunnel - self.lab } else { self.tunnel / self.lab - 1.0 }
    }
}

/// What a VM did in the tunnel.
struct Did {
    cpus: f64,
    units: f64,
    /// CPU time without spins, in ns per unit.
    useful_per_unit: f64,
    spins_per_s: f64,
    asked: f64,
    gave_up: f64,
    ran_s: f64,
}

/// What a host did in the tunnel.
struct All {
    vms: Vec<Did>,
    switches_per_s: f64,
    /// Waits of the host task that sleeps and wakes up, ns, in rising order.
    wake_ups: Vec<u64>,
}

const SLEEPER: &str = "host-task";

/// The lab's own task beside the VMs, which measures wake-ups: it sleeps for 6 ms, whatever the dilation.
fn sleeper(dilation: f64, run_us: f64) -> TaskSpec {
    TaskSpec {
        name: SLEEPER.into(),
        count: 1,
        does: Does::Sleeper,
        run_us: run_us / dilation,
        sleep_us: 6000.0 / dilation,
        weight: 100,
        idle: false,
        cpus: None,
        bound: false,
        group: None,
        begin_ms: 0.0,
        end_ms: None,
    }
}

/// What is said of wake-ups, the lab's name, and which of all waits it is.
const WAKE_UPS: [(&str, &str, f64); 2] = [
    ("wake-up p50, µs", "host task: wake-up p50 ns", 0.5),
    ("wake-up p99, µs", "host task: wake-up p99 ns", 0.99),
];

/// Runs a scenario of the lab's with an emulated CPU's costs. Returns what every VM did, and switches per second.
fn run(scenario: &Scenario, ips: f64) -> Result<All> {
    let mut scenario = scenario.clone();
    let us = |instructions: f64| Some(instructions / ips * 1e6);
    let mut tunnel = scenario.tunnel.take().unwrap_or_default();
    tunnel.window_us = us(CHECK * PAUSES);
    tunnel.exit_us = us(EXIT);
    tunnel.switch_us = us(SWITCH);
    scenario.tunnel = Some(tunnel);
    scenario.tasks = vec![sleeper(scenario.host.dilation, SWITCH / ips * 1e6)];
    let mut scene = scene::build(&scenario, &Options::default())?;
    let report = scene.run();
    let seconds = report.window_ns as f64 / 1e9;
    let dids = report.vms.iter().enumerate().map(|(nth, vm)| {
        let vcpus = &scene.world.vms[nth].vcpus;
        let counter = |name| scene.world.vm_counter(nth, name) as f64;
        let spun: u64 = vcpus.iter().map(|vcpu| vcpu.spun).sum();
        Did {
            cpus: vm.cpus,
            units: vm.units,
            useful_per_unit: (vm.cpus * seconds * 1e9 - spun as f64) / (vm.units * seconds).max(1e-9),
            spins_per_s: vcpus.iter().map(|vcpu| vcpu.exits).sum::<u64>() as f64 / seconds,
            asked: counter(c"asked"),
            gave_up: counter(c"gave up"),
            ran_s: vm.booked.0 as f64 / 1e9,
        }
    });
    let host_task = report.tasks.iter().find(|task| task.name == SLEEPER);
    let wake_ups = host_task.map(|task| task.latencies.clone()).unwrap_or_default();
    // The lab counts the switches of vCPUs alone: each turn of the host task ends with one that is not.
    let of_vcpus = report.switches.saturating_sub(wake_ups.len() as u64);
    Ok(All { vms: dids.collect(), switches_per_s: of_vcpus as f64 / seconds, wake_ups })
}

/// How fast a VM could go, as the lab computes it: alone, a CPU per vCPU, and by the CPUs that it has a claim to.
fn bound(scenario: &Scenario, vm: &Vm, share_cpus: f64, ips: f64) -> Result<f64> {
    let mut alone = scenario.clone();
    alone.vms = vec![Vm { count: 1, ..vm.clone() }];
    alone.layout.placement = Placement::Pinned;
    alone.layout.pool = None;
    let all = run(&alone, ips)?;
    let did = all.vms.first().context("there is no VM")?;
    Ok(did.units.min(share_cpus * 1e9 / did.useful_per_unit))
}

/// All figures of a result of the lab's.
///
/// # Errors
/// It cannot be read, has no run under Overbook, or its scenario is none for the tunnel.
pub fn figures(file: &Path) -> Result<(String, Vec<Figure>)> {
    let text =
        overbook_report::json::read_text(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lab: Lab = serde_json::from_str(&text)
        .with_context(|| format!("{} is no result of `overbook lab run`", file.display()))?;
    let name = lab.scenario.name.clone();
    let scenario = Scenario::parse(&lab.scenario.text, Path::new(&name))?;
    let Some(variant) = scenario.variants.iter().find(|variant| variant.overbook.is_some()) else {
        bail!("{}: no variant has `overbook`, and the tunnel models no other scheduler", file.display());
    };
    let runs: Vec<&Run> =
        lab.runs.iter().filter(|run| run.variant == variant.name && run.error.is_none()).collect();
    if runs.is_empty() || lab.machine.cpu_ips <= 0.0 {
        bail!("{}: there is no run of {} on an emulated machine", file.display(), variant.name);
    }
    let ips = lab.machine.cpu_ips;
    if !(1e5..1e12).contains(&ips) {
        bail!("{}: {ips} instructions per second are no CPU's", file.display());
    }
    let vms = scenario.each_vm().count();
    if vms == 0 || runs.iter().any(|run| run.vms.len() != vms) {
        bail!("{}: there are not as many VMs in its runs as micro-guests in its scenario", file.display());
    }
    let All { vms: dids, switches_per_s: switches, wake_ups } = run(&scenario, ips)?;
    let of_runs =
        |figure: &dyn Fn(&Run) -> f64| median(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>());
    let mut figures = Vec::new();
    for (nth, ((name, vm), did)) in scenario.each_vm().zip(&dids).enumerate() {
        let mut add =
            |what, lab, tunnel, part| figures.push(Figure { of: name.clone(), what, lab, tunnel, part });
        let rate = of_runs(&|run| run.vms[nth].rate);
        add("CPUs", of_runs(&|run| run.vms[nth].cpus_used), did.cpus, false);
        add("units/s", rate, did.units, false);
        if let Some(own) = lab.bounds.iter().find(|bound| bound.vm == name) {
            let tunnel = bound(&scenario, vm, own.share_cpus, ips)?;
            add("of bound", rate / own.rate, did.units / tunnel, true);
        }
        let spins = of_runs(&|run| run.vms[nth].kvm.on_spin as f64 * 1e9 / run.window_ns as f64);
        add("spins/s", spins, did.spins_per_s, false);
    }
    let mut add =
        |what, lab, tunnel, part| figures.push(Figure { of: String::new(), what, lab, tunnel, part });
    let vcpu_switches = |run: &Run| {
        let vcpus = run.vms.iter().flat_map(|vm| &vm.vcpus);
        let switches: u64 = vcpus.map(|vcpu| vcpu.voluntary_switches + vcpu.involuntary_switches).sum();
        switches as f64 * 1e9 / run.window_ns as f64
    };
    add("vCPU switches/s", of_runs(&vcpu_switches), switches, false);
    for (what, name, part) in WAKE_UPS {
        let lab = of_runs(&|run| run.extra.get(name).copied().unwrap_or(0.0) / 1000.0);
        let at = (wake_ups.len() as f64 * part) as usize;
        // What the task's own switch takes is the lab's too.
        let tunnel = wake_ups.get(at).map_or(0.0, |ns| *ns as f64 / 1000.0 + SWITCH / ips * 1e6);
        add(what, lab, tunnel, false);
    }
    let counter =
        |run: &Run, name: &str| run.extra.get(&format!("overbook: VMs {name}")).copied().unwrap_or(0.0);
    let sum = |of: &dyn Fn(&Did) -> f64| dids.iter().map(of).sum::<f64>();
    let asked = sum(&|did| did.asked);
    let ran_s = |run: &Run| counter(run, "run ns") / 1e9;
    add(
        "yields asked, per CPU second",
        of_runs(&|run| counter(run, "asked") / ran_s(run).max(1e-9)),
        asked / sum(&|did| did.ran_s).max(1e-9),
        false,
    );
    if asked == 0.0 {
        return Ok((name, figures));
    }
    let of_asked = |name: &str| of_runs(&|run| counter(run, name) / counter(run, "asked").max(1.0));
    let mut add =
        |what, lab, tunnel, part| figures.push(Figure { of: String::new(), what, lab, tunnel, part });
    add("gave up, of asked", of_asked("gave up"), sum(&|did| did.gave_up) / asked.max(1.0), true);
    Ok((name, figures))
}

/// A row of the table, as words.
pub fn row(scenario: &str, figure: &Figure) -> Vec<String> {
    let number = |value: f64| {
        if figure.part { format!("{:.1} %", value * 100.0) } else { overbook_report::table::three(value) }
    };
    let unit = if figure.part || figure.lab == 0.0 { "points" } else { "%" };
    vec![
        scenario.into(),
        figure.of.clone(),
        figure.what.into(),
        number(figure.lab),
        number(figure.tunnel),
        format!("{:+.1} {unit}", figure.error() * 100.0),
    ]
}
