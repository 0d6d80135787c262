// SPDX-License-Identifier: GPL-2.0-only
//! The guest's cores: SMT siblings together, with their nodes, and the one that housekeeping runs on.

use anyhow::Result;
use overbook_cli::cpulist::{self, Cpus};
use overbook_policy::steal::Core;
use overbook_scheduler::domains::cores;
use overbook_scheduler::topology;
use std::fs;
use std::path::Path;

/// Where the kernel lists CPUs that were isolated at boot.
pub(crate) const ISOLATED_AT_BOOT: &str = "/sys/devices/system/cpu/isolated";

/// The same, and those that cpusets isolate.
const ISOLATED: [&str; 2] = [ISOLATED_AT_BOOT, "/sys/fs/cgroup/cpuset.cpus.isolated"];

/// CPUs that a file lists; none if it is not there, or is no list.
pub(crate) fn listed(file: &Path) -> Cpus {
    let text = fs::read_to_string(file).unwrap_or_default();
    cpulist::parse(&text).unwrap_or_default()
}

/// The online CPUs, core by core.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// CPUs of each core.
    pub cpus: Vec<Cpus>,
    /// The same cores as the policy sees them.
    pub cores: Vec<Core>,
    /// Isolated CPUs: no task comes there unless it is bound to them, and so nothing would leave them. They count for
    /// nothing, and stay preferred.
    pub isolated: Cpus,
}

impl Machine {
    /// Reads sysfs.
    ///
    /// # Errors
    /// The topology cannot be read.
    pub fn read() -> Result<Machine> {
        let topology = topology::read()?;
        let isolated: Cpus = ISOLATED.into_iter().flat_map(|file| listed(Path::new(file))).collect();
        let tickless = listed(Path::new("/sys/devices/system/cpu/nohz_full"));
        let cores = cores(&topology).map(|core| (core.node_id as u32, core.cpus.keys().copied().collect()));
        Ok(Machine::new(cores, &isolated, &tickless))
    }

    /// A machine of these cores, each on its node. The first core with a CPU that has ticks keeps house, as the published
    /// monitor has it.
    pub fn new(cores: impl Iterator<Item = (u32, Cpus)>, isolated: &Cpus, tickless: &Cpus) -> Machine {
        let mut cores: Vec<(u32, Cpus)> = cores.collect();
        cores.sort_by_key(|(_, cpus)| cpus.first().copied());
        // A core may have lost one sibling only.
        let without =
            |(node, cpus): &(u32, Cpus)| (*node, cpus.difference(isolated).copied().collect::<Cpus>());
        let mut shared: Vec<_> = cores.iter().map(without).filter(|(_, cpus)| !cpus.is_empty()).collect();
        let all = cores.iter().flat_map(|(_, cpus)| cpus).copied();
        // With nothing left there is nothing to decide; then it may as well be all.
        let apart =
            if shared.is_empty() { Cpus::new() } else { all.filter(|cpu| isolated.contains(cpu)).collect() };
        if shared.is_empty() {
            shared = cores;
        }
        let house = shared.iter().position(|(_, cpus)| !cpus.is_subset(tickless)).unwrap_or(0);
        let core = |(i, (node, _)): (usize, &(u32, Cpus))| Core {
            node: *node,
            preferred: 1,
            keep: u32::from(i == house),
        };
        Machine {
            cores: shared.iter().enumerate().map(core).collect(),
            cpus: shared.into_iter().map(|(_, cpus)| cpus).collect(),
            isolated: apart,
        }
    }

    /// All online CPUs.
    pub fn online(&self) -> Cpus {
        self.counted().union(&self.isolated).copied().collect()
    }

    /// CPUs that the governor decides about.
    pub fn counted(&self) -> Cpus {
        self.cpus.iter().flatten().copied().collect()
    }

    /// CPUs of the preferred cores, and the isolated ones.
    pub fn preferred(&self) -> Cpus {
        let preferred = self.cpus.iter().zip(&self.cores).filter(|(_, core)| core.preferred != 0);
        preferred.flat_map(|(cpus, _)| cpus).chain(&self.isolated).copied().collect()
    }

    /// Preferred cores.
    pub fn nr_preferred(&self) -> u32 {
        self.cores.iter().filter(|core| core.preferred != 0).count() as u32
    }
}
