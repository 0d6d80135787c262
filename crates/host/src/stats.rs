// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: what the scheduler did for every VM.

use crate::intf;
use crate::options::Tier;
use anyhow::Result;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

/// Fields that only grow, as they grew since `then`; the rest of the structure from `rest`.
macro_rules! grown {
    ($now:expr, $then:expr, $type:ident { $($field:ident),* $(,)? }, $rest:expr) => {
        $type { $($field: $now.$field.saturating_sub($then.$field),)* ..$rest }
    };
}

/// Targets of one tier.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "directed yields by tier", _om_prefix = "tier_", _om_label = "tier")]
pub struct TierStats {
    #[stat(desc = "chosen instead of whom KVM chose, or where KVM chose nobody")]
    pub tried: u64,
    #[stat(desc = "ran next on the spinner's CPU, KVM's own choices included")]
    pub delivered: u64,
    #[stat(desc = "after which the spinner made progress")]
    pub useful: u64,
}

/// One vCPU.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one vCPU", _om_prefix = "vcpu_", _om_label = "vcpu")]
pub struct VcpuStats {
    #[stat(desc = "thread")]
    pub pid: u64,
    #[stat(desc = "spins that exited to KVM")]
    pub spins: u64,
    #[stat(desc = "times that a spinning sibling's CPU was handed to it")]
    pub boosts: u64,
    #[stat(desc = "ns that it ran")]
    pub run_ns: u64,
    #[stat(desc = "ns that it was queued before it ran")]
    pub queued_ns: u64,
    #[stat(desc = "ns between spins that followed each other at once")]
    pub spin_ns: u64,
}

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
    #[stat(desc = "spins for which KVM found nobody to yield to")]
    pub unheard: u64,
    #[stat(desc = "spinners that went on, as the receiver of their IPI is running")]
    pub awaited: u64,
    #[stat(desc = "spinners that went on for a moment, since nobody who could help was queued")]
    pub stayed: u64,
    #[stat(desc = "spinners that gave up their turn, since a sibling spins already")]
    pub gave_up: u64,
    #[stat(desc = "IPIs between vCPUs that were seen")]
    pub ipis: u64,
    #[stat(desc = "ends of interrupts that were seen")]
    pub eois: u64,
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
    #[stat(desc = "ns between spins that followed each other at once")]
    pub spin_ns: u64,
    #[stat(desc = "targets by tier")]
    pub tiers: BTreeMap<String, TierStats>,
    #[stat(desc = "vCPUs by id")]
    pub vcpus: BTreeMap<u32, VcpuStats>,
}

/// The whole host.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "Overbook's host scheduler", top)]
pub struct HostStats {
    #[stat(desc = "rule of directed yields")]
    pub yield_policy: String,
    #[stat(desc = "what is seen of guests' interrupts")]
    pub visible: String,
    #[stat(desc = "tasks sent straight to an idle CPU")]
    pub direct: u64,
    #[stat(desc = "tasks put into an LLC's queue")]
    pub queued_llc: u64,
    #[stat(desc = "tasks put into a single CPU's queue")]
    pub queued_cpu: u64,
    #[stat(desc = "SCHED_IDLE tasks put into a queue of their own")]
    pub queued_idle: u64,
    #[stat(desc = "vCPUs picked since siblings of theirs run")]
    pub gang: u64,
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
        self.gang = at(intf::ovb_count_OVB_COUNT_GANG);
        self.idle_overdue = at(intf::ovb_count_OVB_COUNT_IDLE_OVERDUE);
        self.preempt = at(intf::ovb_count_OVB_COUNT_PREEMPT);
        self.keep = at(intf::ovb_count_OVB_COUNT_KEEP);
        self.steal_llc = at(intf::ovb_count_OVB_COUNT_STEAL_LLC);
        self.plain_yield = at(intf::ovb_count_OVB_COUNT_PLAIN_YIELD);
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &HostStats) -> HostStats {
        let rest = HostStats {
            yield_policy: self.yield_policy.clone(),
            visible: self.visible.clone(),
            vms: each_since(&self.vms, &earlier.vms, VmStats::since),
            ..HostStats::default()
        };
        grown!(
            self,
            earlier,
            HostStats {
                direct,
                queued_llc,
                queued_cpu,
                queued_idle,
                gang,
                idle_overdue,
                preempt,
                keep,
                steal_llc,
                plain_yield
            },
            rest
        )
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn print(&self, to: &mut impl Write) -> Result<()> {
        writeln!(
            to,
            "{}: direct {}, queued {} (LLC) {} (CPU) {} (idle), preempted {}, kept {}, stolen {}, plain yields {}",
            self.yield_policy,
            self.direct,
            self.queued_llc,
            self.queued_cpu,
            self.queued_idle,
            self.preempt,
            self.keep,
            self.steal_llc,
            self.plain_yield
        )?;
        for (pid, vm) in &self.vms {
            vm.print(*pid, to)?;
        }
        Ok(())
    }
}

impl TierStats {
    fn since(&self, earlier: &TierStats) -> TierStats {
        TierStats {
            tried: self.tried.saturating_sub(earlier.tried),
            delivered: self.delivered.saturating_sub(earlier.delivered),
            useful: self.useful.saturating_sub(earlier.useful),
        }
    }
}

impl VcpuStats {
    /// From the words of `struct ovb_vcpu_stats`: place of the VM plus one, vCPU id, counters.
    pub fn from_entry(words: &[u64]) -> (u32, u32, VcpuStats) {
        let [spins, boosts, run_ns, queued_ns, spin_ns, pid, owner] =
            std::array::from_fn(|i| words.get(i).copied().unwrap_or(0));
        (owner as u32, (owner >> 32) as u32, VcpuStats { pid, spins, boosts, run_ns, queued_ns, spin_ns })
    }

    fn since(&self, earlier: &VcpuStats) -> VcpuStats {
        let rest = VcpuStats { pid: self.pid, ..VcpuStats::default() };
        grown!(self, earlier, VcpuStats { spins, boosts, run_ns, queued_ns, spin_ns }, rest)
    }
}

impl VmStats {
    /// From the words of `struct ovb_vm_stats`.
    pub fn from_words(pid: u32, words: &[u64]) -> VmStats {
        const TIERS: usize = intf::OVB_TIER_COUNT as usize;
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        let tier = |number: usize| TierStats {
            tried: at(5 + number),
            delivered: at(5 + TIERS + number),
            useful: at(5 + 2 * TIERS + number),
        };
        let rest: [u64; 12] = std::array::from_fn(|i| at(5 + 3 * TIERS + i));
        let [unheard, awaited, stayed, gave_up, ipis, eois, passed_over, wait_ns, granted_ns, run_ns, ..] =
            rest;
        VmStats {
            name: vm_name(pid),
            asked: at(0),
            delivered: at(1),
            same_queue: at(2),
            other_queue: at(3),
            refused: at(4),
            unheard,
            awaited,
            stayed,
            gave_up,
            ipis,
            eois,
            passed_over,
            wait_ns,
            granted_ns,
            run_ns,
            queued_ns: rest[10],
            spin_ns: rest[11],
            tiers: Tier::COUNTED.iter().map(|(t, number)| (t.name(), tier(*number as usize))).collect(),
            vcpus: BTreeMap::new(),
        }
    }

    fn since(&self, earlier: &VmStats) -> VmStats {
        let rest = VmStats {
            name: self.name.clone(),
            tiers: each_since(&self.tiers, &earlier.tiers, TierStats::since),
            vcpus: each_since(&self.vcpus, &earlier.vcpus, VcpuStats::since),
            ..VmStats::default()
        };
        grown!(
            self,
            earlier,
            VmStats {
                asked,
                delivered,
                same_queue,
                other_queue,
                refused,
                unheard,
                awaited,
                stayed,
                gave_up,
                ipis,
                eois,
                passed_over,
                wait_ns,
                granted_ns,
                run_ns,
                queued_ns,
                spin_ns
            },
            rest
        )
    }

    fn print(&self, pid: u32, to: &mut impl Write) -> Result<()> {
        let s = |ns: u64| ns as f64 / 1e9;
        writeln!(
            to,
            "  {} [{pid}]: {:.3} s run, {:.3} s queued, {:.3} s spun, {:.3} s granted; yields {} delivered {} \
             passed over {} refused {}; unheard {} awaited {} stayed {} gave up {}; IPIs {}",
            self.name,
            s(self.run_ns),
            s(self.queued_ns),
            s(self.spin_ns),
            s(self.granted_ns),
            self.asked,
            self.delivered,
            self.passed_over,
            self.refused,
            self.unheard,
            self.awaited,
            self.stayed,
            self.gave_up,
            self.ipis
        )?;
        for (name, tier) in self.tiers.iter().filter(|(_, tier)| tier.delivered > 0) {
            writeln!(
                to,
                "    {name}: redirected {}, delivered {}, useful {}",
                tier.tried, tier.delivered, tier.useful
            )?;
        }
        Ok(())
    }
}

/// What each of a map's values has grown by.
fn each_since<K: Ord + Clone, V: Default>(
    now: &BTreeMap<K, V>,
    then: &BTreeMap<K, V>,
    since: impl Fn(&V, &V) -> V,
) -> BTreeMap<K, V> {
    let none = V::default();
    now.iter().map(|(key, value)| (key.clone(), since(value, then.get(key).unwrap_or(&none)))).collect()
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
