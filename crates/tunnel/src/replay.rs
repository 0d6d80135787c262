// SPDX-License-Identifier: GPL-2.0-only
//! Hosts whose vCPUs want to run as much as those of a recording, in any number: what ready time do they have?
//!
//! Each vCPU works for a while and halts for a while, both varied by a half, so that it runs for the share of the time that
//! it wants if it never has to wait. How long a while is, recordings do not say.

use crate::guest::{Pattern, VmSpec};
use crate::world::{Host, Kind, TaskSpec, World};
use anyhow::{Result, bail};

/// From here on a vCPU never sleeps.
const ALWAYS: f64 = 0.99;
/// ns that are for ever.
const EVER: u64 = 1 << 50;
/// Most vCPUs of a host.
const MOST_VCPUS: usize = 16_384;
/// Before anything is counted, ns.
const SETTLE_NS: u64 = 500_000_000;

/// What there is on a host.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// CPUs of the host.
    pub cpus: u32,
    /// CPUs that others than VMs want.
    pub others: f64,
    /// VMs: the share of the time (0 to 1) that each of their vCPUs wants.
    pub vms: Vec<Vec<f64>>,
}

impl Load {
    /// vCPUs of all VMs.
    pub fn vcpus(&self) -> usize {
        self.vms.iter().map(Vec::len).sum()
    }

    /// `times` as many VMs, to the nearest whole number, and others alike. Those beyond a multiple are spread over all, by
    /// what they want.
    #[must_use]
    pub fn times(&self, times: f64) -> Load {
        let mut sorted: Vec<&Vec<f64>> = self.vms.iter().collect();
        sorted.sort_by(|a, b| a.iter().sum::<f64>().total_cmp(&b.iter().sum()));
        let n = sorted.len();
        let wanted = ((times * n as f64).round() as usize).max(1);
        let whole = wanted.checked_div(n).unwrap_or_default();
        let more = wanted.checked_rem(n).unwrap_or_default();
        let every = sorted.iter().cycle().take(whole * n);
        let spread = (0..more).map(|i| &sorted[((i as f64 + 0.5) * n as f64 / more as f64) as usize]);
        let vms: Vec<Vec<f64>> = every.chain(spread).map(|vm| vm.to_vec()).collect();
        Load { cpus: self.cpus, others: self.others * vms.len() as f64 / n.max(1) as f64, vms }
    }
}

/// How it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mean time from one piece of work of a vCPU to the next if it never waits, ns.
    pub cycle_ns: u64,
    /// Measured time, ns, and in how many parts it is told.
    pub window_ns: u64,
    /// See `window_ns`.
    pub parts: u32,
    /// Seed of every choice.
    pub seed: u64,
}

/// Counters at one moment, since the host's start.
#[derive(Clone, Debug)]
pub struct Counters {
    /// ns since the measured time began.
    pub at_ns: u64,
    /// CPU time of all, ns.
    pub busy_ns: u64,
    /// Of every VM's vCPUs: ns that each ran, and that it waited.
    pub vms: Vec<Vec<(u64, u64)>>,
}

/// Mean ready time (0 to 1) of all vCPUs between two moments.
pub fn ready(from: &Counters, to: &Counters) -> f64 {
    let waited = |at: &Counters| at.vms.iter().flatten().map(|(_, waited)| *waited as f64).sum::<f64>();
    let vcpus = to.vms.iter().map(Vec::len).sum::<usize>().max(1) as f64;
    (waited(to) - waited(from)) / (to.at_ns - from.at_ns).max(1) as f64 / vcpus
}

/// Runs a load; returns the counters at the ends of all parts.
///
/// # Errors
/// There is no such host in the tunnel, or what must hold there does not.
pub fn run(load: &Load, options: &Options) -> Result<Vec<Counters>> {
    if load.vcpus() > MOST_VCPUS {
        bail!("{} vCPUs are more than the tunnel has room for: {MOST_VCPUS}", load.vcpus());
    }
    let mut world = World::new(Host { cpus: load.cpus, seed: options.seed, ..Host::default() })?;
    let mut tasks: Vec<Vec<u32>> = Vec::new();
    for (nth, wants) in load.vms.iter().enumerate() {
        let group = Some(world.group(0, 100));
        let sections = wants.iter().map(|wants| sections(*wants, options.cycle_ns)).collect();
        let spec = VmSpec {
            group,
            sections,
            ..VmSpec::new(&format!("vm{nth}"), wants.len() as u32, Pattern::Sleeper)
        };
        let vm = world.vm(spec);
        tasks.push(world.vcpu_tasks(vm));
    }
    let helpers = (2.0 * load.others).ceil();
    let others: Vec<u32> = (0..helpers as u32)
        .map(|nth| {
            let (work, halt) = sections(load.others / helpers, options.cycle_ns);
            world.task(TaskSpec::new(&format!("other{nth}"), Kind::Sleeper(work, halt)))
        })
        .collect();
    let counters = |world: &World, at_ns: u64| {
        let vms: Vec<Vec<(u64, u64)>> =
            tasks.iter().map(|vm| vm.iter().map(|task| world.ran_and_waited(*task)).collect()).collect();
        let ran = others.iter().map(|task| world.ran_and_waited(*task).0);
        Counters { at_ns, busy_ns: ran.chain(vms.iter().flatten().map(|(ran, _)| *ran)).sum(), vms }
    };
    world.run(SETTLE_NS);
    let mut told = vec![counters(&world, 0)];
    for part in 1..=u64::from(options.parts) {
        let at = options.window_ns * part / u64::from(options.parts);
        world.run(SETTLE_NS + at);
        told.push(counters(&world, at));
    }
    match world.findings.is_empty() {
        true => Ok(told),
        false => bail!("what must hold does not: {}", world.findings.lines().join("; ")),
    }
}

/// ns of work and of sleep that make a share of the time.
fn sections(wants: f64, cycle_ns: u64) -> (u64, u64) {
    let work = (wants * cycle_ns as f64) as u64;
    match wants {
        wants if wants >= ALWAYS => (EVER, 0),
        _ if work < 1000 => (0, EVER),
        _ => (work, cycle_ns - work),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { cycle_ns: 10_000_000, window_ns: 2_000_000_000, parts: 2, seed: 1 }
    }

    #[test]
    fn vcpus_have_what_they_want_where_there_is_enough() {
        let load = Load { cpus: 8, others: 0.5, vms: vec![vec![0.3, 1.0], vec![0.0, 0.1]] };
        let told = run(&load, &options()).unwrap();
        let had = |vm: usize, vcpu: usize| (told[2].vms[vm][vcpu].0 - told[0].vms[vm][vcpu].0) as f64 / 2e9;
        for (had, wants) in [(had(0, 0), 0.3), (had(0, 1), 1.0), (had(1, 0), 0.0), (had(1, 1), 0.1)] {
            assert!((had - wants).abs() < 0.03, "{had} {wants}");
        }
        assert!(ready(&told[0], &told[2]) < 0.001);
        let busy = (told[2].busy_ns - told[0].busy_ns) as f64 / 2e9;
        assert!((busy - 1.9).abs() < 0.1, "{busy}");
    }

    #[test]
    fn hogs_wait_for_what_there_is_not() {
        let load = Load { cpus: 4, others: 0.0, vms: vec![vec![1.0; 4]; 2] };
        let told = run(&load, &options()).unwrap();
        assert!((ready(&told[0], &told[2]) - 0.5).abs() < 0.01, "{}", ready(&told[0], &told[2]));
    }

    #[test]
    fn more_of_a_load_wants_as_much_each() {
        let load = Load { cpus: 4, others: 1.0, vms: (0..10).map(|n| vec![f64::from(n) / 10.0]).collect() };
        let wants = |load: &Load| load.vms.iter().flatten().sum::<f64>() / load.vcpus() as f64;
        for (times, vms) in [(1.0, 10), (2.3, 23), (0.5, 5), (0.01, 1), (3.0, 30)] {
            let more = load.times(times);
            assert_eq!(more.vms.len(), vms);
            assert!(vms == 1 || (wants(&more) - wants(&load)).abs() < 0.06, "{times}: {}", wants(&more));
            assert!((more.others - vms as f64 / 10.0).abs() < 1e-9);
        }
    }
}
