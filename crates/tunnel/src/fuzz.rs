// SPDX-License-Identifier: GPL-2.0-only
//! Random small hosts with all that can happen to them, programs interrupted anywhere.

mod rare;
mod unfair;

pub use rare::{RARE_NS, rare, rare_world};
pub use unfair::{Bound, Unfair, unfair};

use crate::check::{Bounds, Findings};
use crate::guest::{Pattern, VmSpec};
use crate::world::{Change, Host, Kind, TaskSpec, World, kernel};
use anyhow::Result;
use overbook_policy::class::Class;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

const MS: u64 = 1_000_000;

/// How long a host runs.
pub const LENGTH_NS: u64 = 80 * MS;

/// Choices of one host.
struct Dice(Pcg64Mcg);

impl Dice {
    /// 0 to n − 1.
    fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n.max(1)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    fn among<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }

    /// Some CPUs, at least one.
    fn cpus(&mut self, of: u32) -> Vec<u32> {
        let first = self.below(of);
        let n = 1 + self.below(of);
        let mut cpus: Vec<u32> = (0..n).map(|i| (first + i) % of).collect();
        cpus.sort_unstable();
        cpus
    }

    fn some_cpus(&mut self, of: u32) -> Option<Vec<u32>> {
        self.one_in(3).then(|| self.cpus(of))
    }
}

const PATTERNS: [Pattern; 13] = [
    Pattern::Lock,
    Pattern::Ticket,
    Pattern::Ipi,
    Pattern::Shootdown,
    Pattern::Barrier,
    Pattern::Compute,
    Pattern::KernelReceiver,
    Pattern::UserReceiver,
    Pattern::HaltedReceiver,
    Pattern::Messages,
    Pattern::Sleeper,
    Pattern::Pause,
    Pattern::Storm,
];

fn task(dice: &mut Dice, nth: u32, cpus: u32, groups: u32) -> TaskSpec {
    let run = u64::from(dice.below(3000) + 10) * 1000;
    let sleep = u64::from(dice.below(8000) + 50) * 1000;
    let kind = match dice.below(6) {
        0 | 1 => Kind::Hog,
        2 => Kind::Periodic(run, sleep + run),
        _ => Kind::Sleeper(run, sleep),
    };
    let mut spec = TaskSpec::new(&format!("task{nth}"), kind);
    spec.cpus = dice.some_cpus(cpus);
    spec.weight = dice.among(&[100, 100, 100, 1, 20, 300, 10_000]);
    spec.policy = if dice.one_in(8) { 5 } else { 0 };
    spec.group = (groups > 0 && dice.one_in(2)).then(|| dice.below(groups + 1) as usize);
    spec
}

fn vm(dice: &mut Dice, nth: u32, cpus: u32, groups: u32) -> VmSpec {
    let pattern = dice.among(&PATTERNS);
    let vcpus = match pattern {
        Pattern::KernelReceiver | Pattern::UserReceiver | Pattern::HaltedReceiver => 2 * (1 + dice.below(4)),
        _ => 1 + dice.below(8),
    };
    let mut spec = VmSpec::new(&format!("vm{nth}"), vcpus, pattern);
    spec.cpus = dice.some_cpus(cpus);
    spec.group = (groups > 0 && dice.one_in(2)).then(|| dice.below(groups + 1) as usize);
    spec.groups_below = if spec.group.is_some() && dice.one_in(2) { vcpus } else { 0 };
    spec.pv_eoi = dice.one_in(3);
    spec.pv_yield = dice.one_in(3);
    spec
}

fn change(dice: &mut Dice, tasks: u32, cpus: u32, groups: u32, nth: u32) -> Change {
    let task_id = dice.below(tasks);
    match dice.below(10) {
        0 | 1 => Change::Affinity(task_id, dice.cpus(cpus)),
        2 => Change::Weight(task_id, dice.among(&[1, 50, 100, 1000]), if dice.one_in(4) { 5 } else { 0 }),
        3 if groups > 0 => {
            Change::GroupWeight(1 + dice.below(groups) as usize, dice.among(&[1, 50, 100, 10_000]))
        }
        4 => Change::Group(task_id, dice.below(groups + 1) as usize),
        5 => Change::End(task_id),
        6 => Change::Begin(Box::new(task(dice, 1000 + nth, cpus, groups))),
        7 => Change::BeginVm(Box::new(vm(dice, 1000 + nth, cpus, groups))),
        8 => Change::Yield(dice.below(cpus)),
        _ => Change::Affinity(task_id, (0..cpus).collect()),
    }
}

/// Runs the host of a seed, with the crate's own scheduler or another object, and says what is wrong with it.
///
/// # Errors
/// The host cannot be made.
pub fn run(seed: u64, object: Option<&[u8]>) -> Result<Findings> {
    let mut world = world(seed, object, 0..0)?;
    world.run(LENGTH_NS);
    Ok(world.report().findings)
}

/// The host of a seed, which is to run for [`LENGTH_NS`], with a window of time that is traced.
///
/// # Errors
/// The host cannot be made.
pub fn world(seed: u64, object: Option<&[u8]>, traced: Range<u64>) -> Result<World> {
    Ok(begun(seed, Host { object: object.map(<[u8]>::to_vec), traced, ..Host::default() })?.0)
}

/// A host, how many tasks and how many of these and vCPUs it begins with, and its groups; what the seed does not say is as that
/// of another.
fn begun(seed: u64, like: Host) -> Result<(World, u32, u32, u32)> {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let cpus: u32 = dice.among(&[1, 2, 2, 3, 4, 4, 6, 8, 12]);
    let llcs = if cpus.is_multiple_of(2) { dice.among(&[1, 1, 2]) } else { 1 };
    let host = Host {
        cpus,
        llcs,
        nodes: if llcs == 2 && dice.one_in(2) { 2 } else { 1 },
        smt: if cpus.is_multiple_of(2 * llcs) { dice.among(&[1, 2]) } else { 1 },
        version: dice.among(&[kernel(6, 18), kernel(7, 2)]),
        seed,
        interleave: dice.among(&[0, 4, 16, 64]),
        pause_ns: dice.among(&[500, 2000, 20_000]),
        // Tasks without a state know nothing of a guest's preferred CPUs.
        starve: dice.among(&[0, 0, 0, 20]) * u32::from(like.set.is_empty()),
        bounds: Bounds {
            wait_ns: Some(2_000 * MS),
            idle_ns: Some(20 * MS),
            booked: false,
            ..Bounds::default()
        },
        // A look at the start, and another one.
        homes_ns: 50 * MS,
        ..like
    };
    let mut world = World::new(host)?;
    let groups = dice.below(4);
    for nth in 0..groups {
        let weight = dice.among(&[1, 50, 100, 400, 10_000]);
        let parent = dice.below(nth + 1) as usize;
        world.group(parent, weight);
    }
    let tasks = dice.below(6);
    for nth in 0..tasks {
        let spec = task(&mut dice, nth, cpus, groups);
        world.task(spec);
    }
    let mut all = tasks;
    for nth in 0..1 + dice.below(3) {
        let mut spec = vm(&mut dice, nth, cpus, groups);
        // On a third of all hosts, and without a throw: the others are what they are.
        if seed % 3 == 1 {
            spec.class = Class::numbered((seed / 3) as u32 % 3 + nth);
        }
        all += spec.vcpus;
        world.vm(spec);
    }
    if dice.one_in(4) {
        let on = dice.below(cpus);
        let kind = Kind::RealTime(u64::from(dice.below(2000) + 20) * 1000, 5 * MS);
        world.task(TaskSpec { cpus: Some(vec![on]), ..TaskSpec::new("rt", kind) });
    }
    for nth in 0..dice.below(30) {
        let at = u64::from(dice.below(100_000)) * 1000;
        let what = change(&mut dice, all, cpus, groups, nth);
        world.at(at, what);
    }
    Ok((world, tasks, all, groups))
}
