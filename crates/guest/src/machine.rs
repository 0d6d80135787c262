// SPDX-License-Identifier: GPL-2.0-only
//! The guest's cores: SMT siblings together, with their nodes, and the one that housekeeping runs on.

use crate::cpulist::{self, Cpus};
use anyhow::{Context, Result};
use overbook_policy::steal::Core;
use scx_utils::Topology;
use std::fs;

/// The online CPUs, core by core.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// CPUs of each core.
    pub cpus: Vec<Cpus>,
    /// The same cores as the policy sees them.
    pub cores: Vec<Core>,
}

impl Machine {
    /// Reads sysfs.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn read() -> Result<Machine> {
        let topology = Topology::new().context("cannot read the CPUs' topology from sysfs")?;
        let list = |name: &str| {
            let text = fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
            cpulist::parse(&text).unwrap_or_default()
        };
        let mut away = list("isolated");
        away.extend(list("nohz_full"));
        let cores = topology.all_cores.values();
        Ok(Machine::new(cores.map(|core| (core.node_id as u32, core.cpus.keys().copied().collect())), &away))
    }

    /// A machine of these cores, each on its node; the first core with a CPU that is not `away` (isolated, or without
    /// ticks) keeps house, as the published monitor has it.
    pub fn new(cores: impl Iterator<Item = (u32, Cpus)>, away: &Cpus) -> Machine {
        let mut cores: Vec<(u32, Cpus)> = cores.collect();
        cores.sort_by_key(|(_, cpus)| cpus.first().copied());
        let house = cores.iter().position(|(_, cpus)| !cpus.is_subset(away)).unwrap_or(0);
        let core = |(i, (node, _)): (usize, &(u32, Cpus))| Core {
            node: *node,
            preferred: 1,
            keep: u32::from(i == house),
        };
        Machine {
            cores: cores.iter().enumerate().map(core).collect(),
            cpus: cores.into_iter().map(|(_, cpus)| cpus).collect(),
        }
    }

    /// All online CPUs.
    pub fn online(&self) -> Cpus {
        self.cpus.iter().flatten().copied().collect()
    }

    /// CPUs of the preferred cores.
    pub fn preferred(&self) -> Cpus {
        let preferred = self.cpus.iter().zip(&self.cores).filter(|(_, core)| core.preferred != 0);
        preferred.flat_map(|(cpus, _)| cpus).copied().collect()
    }

    /// Preferred cores.
    pub fn nr_preferred(&self) -> u32 {
        self.cores.iter().filter(|core| core.preferred != 0).count() as u32
    }
}
