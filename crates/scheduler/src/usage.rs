// SPDX-License-Identifier: GPL-2.0-only
//! What VMs use, and may use.

use crate::intf;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// What is known of a VM at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VmUse {
    /// In any unit that all have in common: what its virtual time ages by, inverted.
    pub weight: f64,
    /// CPUs that `cpu.max` allows it, if there is one.
    pub limit: Option<f64>,
    /// Its vCPUs that live.
    pub vcpus: u32,
    /// CPUs that any of them may run on.
    pub cpus: Vec<usize>,
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
        self.cpus.extend(cpus_of(vcpu.pid as i32));
        self.cpus.sort_unstable();
        self.cpus.dedup();
    }
}

/// CPUs that a thread may run on; none if it has gone.
fn cpus_of(tid: i32) -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(tid)) else { return Vec::new() };
    (0..CpuSet::count().min(*scx_utils::NR_CPU_IDS)).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}
