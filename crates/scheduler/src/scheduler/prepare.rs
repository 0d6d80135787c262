// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler's object is told before the kernel has it: the CPUs, the times, and which of its programs this kernel can
//! have.

use super::enforces_limits;
use crate::domains::{CoreAt, cores, domains, successors};
use crate::intf;
use crate::kvm::Visibility;
use crate::skeleton::{OpenBpfSkel, types};
use anyhow::{Context, Result};
use libbpf_rs::AsRawLibbpf;
use scx_utils::{Topology, compat};

/// Writes down the CPUs, and the domains whose tasks share a queue.
///
/// # Errors
/// A CPU has a number that is beyond the tables.
pub(super) fn describe_cpus(rodata: &mut types::rodata, topology: &Topology) -> Result<()> {
    let cores: Vec<CoreAt> = cores(topology)
        .map(|core| CoreAt {
            llc: core.llc_id,
            node: core.node_id,
            cpus: core.cpus.keys().copied().collect(),
        })
        .collect();
    let domains = domains(&cores, intf::OVB_MAX_LLCS as usize);
    rodata.nr_cpus = *scx_utils::NR_CPU_IDS as u32;
    rodata.nr_llcs = domains.len().max(1) as u32;
    for (nth, domain) in domains.iter().enumerate() {
        rodata.llc_cpus[nth] = domain.cpus.len() as u32;
        rodata.llc_node[nth] = domain.node as u32;
        rodata.llc_first[nth] = domain.cpus.first().map_or(0, |cpu| *cpu as u32);
        for cpu in &domain.cpus {
            if let Some(word) = rodata.cpus_online.get_mut(*cpu / 64) {
                *word |= 1 << (cpu % 64);
            }
            *rodata.cpu_llc.get_mut(*cpu).with_context(|| {
                format!("CPU {cpu} is beyond the {} that this scheduler knows", intf::OVB_MAX_CPUS)
            })? = nth as u32;
        }
    }
    for (cpu, next) in successors(&domains, intf::OVB_VICTIMS as usize) {
        if let Some(after) = rodata.next_victim.get_mut(cpu) {
            *after = next as u32;
        }
    }
    Ok(())
}

/// Stretches the times that nobody sets.
pub(super) fn stretch_times(rodata: &mut types::rodata, stretch: f64) {
    for constant in [
        &mut rodata.preempt_margin_ns,
        &mut rodata.protect_ns,
        &mut rodata.stale_ns,
        &mut rodata.look_again_ns,
        &mut rodata.window_ns,
        &mut rodata.idle_patience_ns,
        &mut rodata.short_spin_ns,
        &mut rodata.spin_gap_ns,
    ] {
        *constant = (*constant as f64 * stretch) as u64;
    }
    // An exit takes an emulated CPU longer, however time is stretched.
    let least = if stretch > 1.0 { 250_000 } else { 0 };
    rodata.spin_gap_ns = rodata.spin_gap_ns.max(least);
}

/// Chooses programs and flags by what this kernel has: programs on functions can be loaded only where these are.
pub(super) fn leave_out(
    skel: &mut OpenBpfSkel<'_>,
    visible: Visibility,
    counts_spins: bool,
    hears_idle: bool,
) {
    let ops = skel.struct_ops.overbook_ops_mut();
    // These are queued like all others; by itself the kernel would give them 20 ms and put them before others.
    ops.flags |= *compat::SCX_OPS_ENQ_EXITING | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED;
    ops.flags |= *compat::SCX_OPS_ALWAYS_ENQ_IMMED;
    if !enforces_limits() {
        ops.cgroup_set_bandwidth = std::ptr::null_mut();
        skel.progs.overbook_cgroup_set_bandwidth.set_autoload(false);
    }
    let taken = Taken::detect();
    skel.progs.cpu_taken.set_autoload(taken == Taken::Switch);
    skel.progs.overbook_cpu_release.set_autoload(taken == Taken::Callback);
    if taken == Taken::Callback {
        let program = skel.progs.overbook_cpu_release.as_libbpf_object().as_ptr();
        skel.struct_ops.overbook_ops_mut().cpu_release = program;
    }
    skel.progs.group_idle.set_autoload(hears_idle);
    skel.progs.group_shares.set_autoload(hears_idle);
    skel.progs.spin_begins.set_autoload(counts_spins);
    skel.progs.spin_ends.set_autoload(counts_spins);
    skel.progs.irq_accepted.set_autoload(visible.sends());
    skel.progs.irq_ended.set_autoload(visible.sends());
    skel.progs.irq_ended_unseen.set_autoload(visible.sends());
    skel.progs.ipi_incomplete.set_autoload(visible == Visibility::NotRunning);
}

/// How tasks leave a CPU that a higher class takes; see `taken.bpf.h`.
#[derive(PartialEq)]
pub(super) enum Taken {
    /// `ops.cpu_release()` takes them back, before 6.19.
    Callback,
    /// A probe on switches does.
    Switch,
    /// The kernel does so itself, from 7.1 on: all of a CPU's queue is `SCX_ENQ_IMMED`.
    Kernel,
}

impl Taken {
    pub(super) fn detect() -> Taken {
        if *compat::SCX_OPS_ALWAYS_ENQ_IMMED != 0 {
            return Taken::Kernel;
        }
        let anywhere = ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2"];
        if anywhere.iter().any(|kfunc| compat::ksym_exists(kfunc).unwrap_or(false)) {
            Taken::Switch
        } else {
            Taken::Callback
        }
    }
}
