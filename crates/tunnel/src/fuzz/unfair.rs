// SPDX-License-Identifier: GPL-2.0-only
//! Random hosts on which everybody wants to run, and has its due.

use super::{Dice, MS};
use crate::check::Bounds;
use crate::guest::{Pattern, VmSpec};
use crate::world::{Change, Host, Kind, TaskSpec, World};
use anyhow::{Result, ensure};
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// How long a host runs on which shares are looked at; they are of its second half.
const FAIR_NS: u64 = 8_000 * MS;

/// Who has another share than is due, in words: a name, CPUs that it had, and CPUs that are due.
pub type Unfair = (String, f64, f64);

/// What groups of a host of [`unfair`] are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Sets of CPUs that have none in common; or nobody is bound.
    Apart,
    /// The same, and a third of the groups may run anywhere.
    ApartOrAny,
    /// Any sets of CPUs.
    Overlapping,
    /// None is bound, and each third one has a `cpu.max`. All have as many tasks as there are CPUs, at least: of a quota whoever
    /// runs on more CPUs has more.
    Limited,
}

/// The host of a seed on which everybody wants to run all the time, in groups that are bound to sets of CPUs, or limited. Some VMs have
/// threads that wake up now and then, wherever these are bound. Gives who has not its due within a tenth and 0.02 CPUs.
///
/// # Errors
/// The host cannot be made, or something else is wrong on it.
pub fn unfair(seed: u64, bound: Bound, llcs: u32, object: Option<&[u8]>) -> Result<Vec<Unfair>> {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let cpus = dice.among(&[1u32, 2, 3, 4, 4, 6, 8]).next_multiple_of(llcs);
    let bounds = Bounds { wait_ns: None, idle_ns: None, ..Bounds::default() };
    let mut world =
        World::new(Host { cpus, llcs, seed, bounds, object: object.map(<[u8]>::to_vec), ..Host::default() })?;
    let mut cuts = [0, dice.below(cpus), dice.below(cpus), cpus];
    cuts.sort_unstable();
    let sets: Vec<Vec<u32>> =
        cuts.windows(2).filter(|ends| ends[0] < ends[1]).map(|ends| (ends[0]..ends[1]).collect()).collect();
    // As in machine.slice, on every second host: time passes faster there.
    let above = if seed.is_multiple_of(2) { world.group(0, 100) } else { 0 };
    let split = bound != Bound::Limited && sets.len() > 1 && !dice.one_in(4);
    let a_set = |dice: &mut Dice| match bound {
        Bound::Overlapping => dice.cpus(cpus),
        _ => sets[dice.below(sets.len() as u32) as usize].clone(),
    };
    for nth in 0..2 + dice.below(5) {
        let group = Some(world.group(above, dice.among(&[10, 50, 100, 100, 100, 200, 1000])));
        let set = (split && !(bound == Bound::ApartOrAny && dice.one_in(3))).then(|| a_set(&mut dice));
        let many = if bound == Bound::Limited { cpus } else { 1 } + dice.below(8);
        if dice.one_in(2) {
            let mut spec = VmSpec::new(&format!("vm{nth}"), many, Pattern::Compute);
            (spec.group, spec.cpus) = (group, set);
            if dice.one_in(2) {
                let cpus = dice.one_in(2).then(|| a_set(&mut dice));
                let main = TaskSpec::new(&format!("main{nth}"), Kind::Sleeper(20_000, 5 * MS));
                spec.tgid = world.process(TaskSpec { group, cpus, ..main });
            }
            world.vm(spec);
        } else {
            for hog in 0..many {
                let spec = TaskSpec::new(&format!("hogs{nth}/{hog}"), Kind::Hog);
                world.task(TaskSpec { group, cpus: set.clone(), ..spec });
            }
        }
    }
    for group in 1..world.groups.len() {
        if bound == Bound::Limited && dice.one_in(3) {
            let quota = u64::from(cpus) * dice.among(&[5_000, 10_000, 25_000, 50_000, 80_000]);
            world.at(MS, Change::Bandwidth(group, 100_000, quota));
        }
    }
    world.measure_from(FAIR_NS / 2);
    world.run(FAIR_NS);
    let report = world.report();
    ensure!(report.findings.is_empty(), "seed {seed}: {}", report.findings.lines().join("; "));
    let mut tenants: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (task, due) in report.tasks.iter().filter_map(|task| Some((task, task.due?))) {
        let tenant = tenants.entry(task.name.split('/').next().unwrap_or_default()).or_default();
        *tenant = (tenant.0 + task.cpus, tenant.1 + due);
    }
    // Slices end with ticks, so who is due next to nothing has it in few pieces.
    let off = tenants.into_iter().filter(|(_, (had, due))| (had - due).abs() > 0.1 * due + 0.02);
    let named = off.map(|(name, (had, due))| (name.to_string(), had, due));
    Ok(named.collect())
}
