// SPDX-License-Identifier: GPL-2.0-only
//! What VMs use, and may use.

use crate::intf;
use overbook_cli::affinity::CpuMask;
use overbook_policy::OVB_WEIGHT_NICE_0;

/// What is known of a VM at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmUse {
    /// In any unit that all have in common: see [`weight_among_all`].
    pub weight: f64,
    /// CPUs that `cpu.max` allows it, if there is one.
    pub limit: Option<f64>,
    /// Its vCPUs that live.
    pub vcpus: u32,
    /// CPUs that any of them may run on.
    pub cpus: CpuMask,
    /// ns that they have run, and waited in queues.
    pub run_ns: u64,
    /// See `run_ns`.
    pub queued_ns: u64,
}

impl VmUse {
    /// Takes a vCPU of it in.
    pub(crate) fn add_vcpu(&mut self, vcpu: &intf::ovb_vcpu_stats) {
        self.vcpus += 1;
        self.run_ns += vcpu.run_ns;
        self.queued_ns += vcpu.queued_ns;
        // One that has gone may run nowhere.
        self.cpus.add(&CpuMask::of(vcpu.pid as i32).unwrap_or_default());
    }
}

/// A tenant, or a group above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Its own weight.
    pub weight: u64,
    /// With which weight it is counted in the group above: 0 while nothing in it is active.
    pub counted: u64,
    /// Weights of all that is active in it.
    pub members: u64,
}

/// What a tenant would weigh among all if it were active: its group's weight, times its part of what is active there, and so
/// on upwards. The scheduler's own rate (`tree.bpf.h`) says the same of a tenant that runs;
/// that of one that sleeps is as old as its sleep.
///
/// In units of the scheduler, 1024 for nice 0; also that of a tenant without levels.
///
/// Example: a VM of weight 100 sleeps, in a group of weight 300 where another of weight 100 runs. It weighs 150.
pub fn weight_among_all(levels: &[Level]) -> f64 {
    let top = levels.last().map_or(f64::from(OVB_WEIGHT_NICE_0), |top| top.weight as f64);
    levels.iter().zip(levels.iter().skip(1)).fold(top, |weight, (own, group)| {
        let all = group.members.saturating_sub(own.counted) + own.weight;
        weight * own.weight as f64 / all.max(1) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(weight: u64, counted: u64, members: u64) -> Level {
        Level { weight, counted, members }
    }

    #[test]
    fn a_tenant_weighs_as_if_it_were_active() {
        // Awake, it is one of those that are counted; asleep, it comes beside them.
        let awake = [level(100, 100, 0), level(300, 300, 200)];
        let asleep = [level(100, 0, 0), level(300, 300, 100)];
        assert_eq!(weight_among_all(&awake), 150.0);
        assert_eq!(weight_among_all(&asleep), 150.0);
        // A group that sleeps as a whole is its when it wakes up.
        assert_eq!(weight_among_all(&[level(100, 0, 0), level(300, 0, 0)]), 300.0);
    }

    #[test]
    fn groups_multiply_and_the_root_is_one() {
        let nested = [level(100, 0, 0), level(50, 0, 100), level(200, 200, 150)];
        assert_eq!(weight_among_all(&nested), 200.0 * 50.0 / 200.0 * 0.5);
        assert_eq!(weight_among_all(&[level(70, 70, 0)]), 70.0);
        assert_eq!(weight_among_all(&[]), 1024.0);
    }
}
