// SPDX-License-Identifier: GPL-2.0-only
//! Random hosts to which also happens what happens seldom.

use super::{Dice, MS, begun};
use crate::check::Findings;
use crate::world::{Change, Host, World};
use anyhow::Result;
use overbook_policy::class::Class;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// How long a host of [`rare`] runs.
pub const RARE_NS: u64 = 160 * MS;

/// Has something happen that happens seldom, at some time; `tasks` and `all` are how many tasks there were at the start, without
/// vCPUs and with them.
fn rarity(world: &mut World, dice: &mut Dice, guest: bool, tasks: u32, all: u32, groups: u32) {
    let cpus = world.host.cpus;
    let at = u64::from(dice.below(RARE_NS as u32 / 1000)) * 1000;
    let later = at + u64::from(dice.below(30_000) + 100) * 1000;
    let task = dice.below(all);
    match dice.below(6) {
        0 | 1 if groups > 0 => {
            let period = dice.among(&[10_000, 20_000, 100_000]);
            let quota = dice.among(&[u64::MAX, period / 20, period / 2, 2 * period]);
            world.at(at, Change::Bandwidth(1 + dice.below(groups) as usize, period, quota));
        }
        2 if groups > 0 => world.at(at, Change::GroupIdle(1 + dice.below(groups) as usize, dice.one_in(2))),
        3 if groups > 0 => {
            let doomed = world.group(dice.below(groups + 1) as usize, 100);
            for nth in 0..=dice.below(3) {
                let member = (task + nth) % all;
                world.at(at, Change::Group(member, doomed));
                world.at(later, Change::Group(member, dice.below(groups + 1) as usize));
            }
            world.at(later + MS, Change::EndGroup(doomed));
        }
        4 if guest => world.at(at, Change::Prefer(dice.cpus(cpus))),
        4 => world.at(at, Change::Class(0, Class::numbered(dice.below(3)))),
        5 if dice.one_in(2) && all > tasks => {
            world.at(at, Change::DeviceIrq(dice.below(cpus), tasks + dice.below(all - tasks)));
        }
        _ => {
            world.at(at, Change::Migration(task, true));
            world.at(later, Change::Migration(task, false));
        }
    }
}

/// Runs the host of a seed to which happens what happens seldom: quotas, groups that idle or end, CPUs that are not preferred,
/// tasks that disable their migration, other classes, hardware that hides the ends of interrupts, wakers that sleep soon.
///
/// # Errors
/// The host cannot be made.
pub fn rare(seed: u64, object: Option<&[u8]>) -> Result<Findings> {
    let mut world = rare_world(seed, object, 0..0)?;
    world.run(RARE_NS);
    Ok(world.report().findings)
}

/// The host of a seed of [`rare`], which is to run for [`RARE_NS`], with a window of time that is traced.
///
/// # Errors
/// The host cannot be made.
pub fn rare_world(seed: u64, object: Option<&[u8]>, traced: Range<u64>) -> Result<World> {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(!seed));
    let guest = dice.one_in(3);
    let like = Host {
        object: object.map(<[u8]>::to_vec),
        traced,
        set: if guest { vec![("may_prefer".into(), 1)] } else { Vec::new() },
        apicv: seed % 4 == 3,
        sync: seed % 5 == 4,
        ..Host::default()
    };
    let (mut world, tasks, all, groups) = begun(seed, like)?;
    for _ in 0..1 + dice.below(12) {
        rarity(&mut world, &mut dice, guest, tasks, all, groups);
    }
    Ok(world)
}
