// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: what the scheduler did for every VM.

use crate::intf;
use anyhow::Result;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

/// One VM: the process of its vCPU threads.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one VM", _om_prefix = "vm_", _om_label = "vm")]
pub struct VmStats {
    #[stat(desc = "name that QEMU or libvirt gave it, else the command")]
    pub name: String,
    #[stat(desc = "directed yields that KVM asked for")]
    pub asked: u64,
    #[stat(desc = "nominated vCPUs that ran next on the yielder's CPU")]
    pub delivered: u64,
    #[stat(desc = "asked ones whose target was in the queue of the yielder's CPU")]
    pub same_queue: u64,
    #[stat(desc = "asked ones whose target was in another queue")]
    pub other_queue: u64,
    #[stat(desc = "asked ones whose target was not queued, or not allowed on the yielder's CPU")]
    pub refused: u64,
    #[stat(desc = "delivered to a sibling with an interrupt pending, not to KVM's choice")]
    pub redirected_irq: u64,
    #[stat(desc = "delivered to a sibling that was preempted at work, not to KVM's choice")]
    pub redirected_preempted: u64,
    #[stat(desc = "yielders that went on spinning, since nobody who could help was queued")]
    pub stayed: u64,
    #[stat(desc = "yielders that gave up their turn, since a sibling spins already")]
    pub gave_up: u64,
    #[stat(desc = "nominated vCPUs that the rule let wait")]
    pub passed_over: u64,
    #[stat(desc = "ns from a yield until its target ran, in all")]
    pub wait_ns: u64,
    #[stat(desc = "ns that vCPUs ran on the account of the sibling that yielded to them")]
    pub granted_ns: u64,
    #[stat(desc = "ns that the vCPUs ran")]
    pub run_ns: u64,
    #[stat(desc = "ns that the vCPUs were queued before they ran")]
    pub queued_ns: u64,
}

/// The whole host.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "Overbook's host scheduler", top)]
pub struct HostStats {
    #[stat(desc = "rule of directed yields")]
    pub yield_policy: String,
    #[stat(desc = "tasks sent straight to an idle CPU")]
    pub direct: u64,
    #[stat(desc = "tasks put into an LLC's queue")]
    pub queued_llc: u64,
    #[stat(desc = "tasks put into a single CPU's queue")]
    pub queued_cpu: u64,
    #[stat(desc = "SCHED_IDLE tasks put into a queue of their own")]
    pub queued_idle: u64,
    #[stat(desc = "SCHED_IDLE tasks that had waited for a second and went before others")]
    pub idle_overdue: u64,
    #[stat(desc = "running tasks preempted by one that woke up")]
    pub preempt: u64,
    #[stat(desc = "turns extended, since nobody with an earlier deadline waited")]
    pub keep: u64,
    #[stat(desc = "tasks taken from another LLC's queue")]
    pub steal_llc: u64,
    #[stat(desc = "yields without a target")]
    pub plain_yield: u64,
    #[stat(desc = "VMs in which a vCPU has yielded")]
    pub vms: BTreeMap<u32, VmStats>,
}

impl HostStats {
    /// Fills the host's counters in.
    pub fn set_counts(&mut self, counts: &[u64]) {
        let at = |what: intf::ovb_count| counts.get(what as usize).copied().unwrap_or(0);
        self.direct = at(intf::ovb_count_OVB_COUNT_DIRECT);
        self.queued_llc = at(intf::ovb_count_OVB_COUNT_QUEUED_LLC);
        self.queued_cpu = at(intf::ovb_count_OVB_COUNT_QUEUED_CPU);
        self.queued_idle = at(intf::ovb_count_OVB_COUNT_QUEUED_IDLE);
        self.idle_overdue = at(intf::ovb_count_OVB_COUNT_IDLE_OVERDUE);
        self.preempt = at(intf::ovb_count_OVB_COUNT_PREEMPT);
        self.keep = at(intf::ovb_count_OVB_COUNT_KEEP);
        self.steal_llc = at(intf::ovb_count_OVB_COUNT_STEAL_LLC);
        self.plain_yield = at(intf::ovb_count_OVB_COUNT_PLAIN_YIELD);
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &HostStats) -> HostStats {
        let none = VmStats::default();
        let vms = self.vms.iter().map(|(pid, vm)| (*pid, vm.since(earlier.vms.get(pid).unwrap_or(&none))));
        HostStats {
            yield_policy: self.yield_policy.clone(),
            direct: self.direct.saturating_sub(earlier.direct),
            queued_llc: self.queued_llc.saturating_sub(earlier.queued_llc),
            queued_cpu: self.queued_cpu.saturating_sub(earlier.queued_cpu),
            queued_idle: self.queued_idle.saturating_sub(earlier.queued_idle),
            idle_overdue: self.idle_overdue.saturating_sub(earlier.idle_overdue),
            preempt: self.preempt.saturating_sub(earlier.preempt),
            keep: self.keep.saturating_sub(earlier.keep),
            steal_llc: self.steal_llc.saturating_sub(earlier.steal_llc),
            plain_yield: self.plain_yield.saturating_sub(earlier.plain_yield),
            vms: vms.collect(),
        }
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn print(&self, to: &mut impl Write) -> Result<()> {
        writeln!(
            to,
            "{}: direct {}, queued {} (LLC) {} (CPU), preempted {}, kept {}, stolen {}, plain yields {}",
            self.yield_policy,
            self.direct,
            self.queued_llc,
            self.queued_cpu,
            self.preempt,
            self.keep,
            self.steal_llc,
            self.plain_yield
        )?;
        for (pid, vm) in &self.vms {
            writeln!(
                to,
                "  {} [{pid}]: yields {} delivered {} refused {} passed over {} (other queue {}), {:.3} s run, \
                 {:.3} s granted, {:.3} s queued",
                vm.name,
                vm.asked,
                vm.delivered,
                vm.refused,
                vm.passed_over,
                vm.other_queue,
                vm.run_ns as f64 / 1e9,
                vm.granted_ns as f64 / 1e9,
                vm.queued_ns as f64 / 1e9
            )?;
        }
        Ok(())
    }
}

impl VmStats {
    /// From the words of `struct ovb_vm_stats`.
    pub fn from_words(pid: u32, words: &[u64]) -> VmStats {
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        VmStats {
            name: vm_name(pid),
            asked: at(0),
            delivered: at(1),
            same_queue: at(2),
            other_queue: at(3),
            refused: at(4),
            redirected_irq: at(5),
            redirected_preempted: at(6),
            stayed: at(7),
            gave_up: at(8),
            passed_over: at(9),
            wait_ns: at(10),
            granted_ns: at(11),
            run_ns: at(12),
            queued_ns: at(13),
        }
    }

    fn since(&self, earlier: &VmStats) -> VmStats {
        VmStats {
            name: self.name.clone(),
            asked: self.asked.saturating_sub(earlier.asked),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            same_queue: self.same_queue.saturating_sub(earlier.same_queue),
            other_queue: self.other_queue.saturating_sub(earlier.other_queue),
            refused: self.refused.saturating_sub(earlier.refused),
            redirected_irq: self.redirected_irq.saturating_sub(earlier.redirected_irq),
            redirected_preempted: self.redirected_preempted.saturating_sub(earlier.redirected_preempted),
            stayed: self.stayed.saturating_sub(earlier.stayed),
            gave_up: self.gave_up.saturating_sub(earlier.gave_up),
            passed_over: self.passed_over.saturating_sub(earlier.passed_over),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
            granted_ns: self.granted_ns.saturating_sub(earlier.granted_ns),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
        }
    }
}

/// QEMU's `-name` (libvirt writes `guest=NAME,…`), else the command's own name.
fn vm_name(pid: u32) -> String {
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<String> =
        cmdline.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    name_of(&words).unwrap_or_else(|| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.trim().is_empty() { "gone".into() } else { comm.trim().into() }
    })
}

fn name_of(words: &[String]) -> Option<String> {
    let at = words.iter().position(|word| word == "-name")?;
    let value = words.get(at + 1)?;
    let first = value.split(',').next()?;
    Some(first.strip_prefix("guest=").unwrap_or(first).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_qemu_and_libvirt() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert_eq!(name_of(&words("qemu -name web1 -m 1G")).unwrap(), "web1");
        assert_eq!(name_of(&words("qemu -name guest=db,debug-threads=on")).unwrap(), "db");
        assert_eq!(name_of(&words("qemu -m 1G")), None);
    }

    #[test]
    fn differences_are_per_vm() {
        let vm = |asked| VmStats { asked, ..VmStats::default() };
        let earlier = HostStats { keep: 3, vms: BTreeMap::from([(7, vm(5))]), ..HostStats::default() };
        let later =
            HostStats { keep: 9, vms: BTreeMap::from([(7, vm(8)), (9, vm(2))]), ..HostStats::default() };
        let more = later.since(&earlier);
        assert_eq!((more.keep, more.vms[&7].asked, more.vms[&9].asked), (6, 3, 2));
    }
}
