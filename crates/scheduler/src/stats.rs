// SPDX-License-Identifier: GPL-2.0-only
//! Statistics: what the scheduler did for every VM.

use crate::client::Served;
use crate::costs::ProgramStats;
use crate::intf;
use anyhow::Result;
use overbook_policy::class::Class;
use overbook_vms::names;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::mem::MaybeUninit;

/// A structure of counters, each named once: the words of BPF's structure `$raw` by the same names, what is not a
/// counter, and the difference of two.
macro_rules! counters {
    (
        $(#[$attribute:meta])*
        $name:ident of $raw:path { $($field:ident: $desc:tt,)* }
        and { $($(#[$other_attribute:meta])* $other:ident: $kind:ty,)* }
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $($(#[$other_attribute])* pub $other: $kind,)*
            $(#[stat(desc = $desc)] pub $field: u64,)*
        }

        impl $name {
            /// Adds one CPU's counters.
            fn add(&mut self, raw: &$raw) {
                $(self.$field += raw.$field;)*
            }

            /// The counters as they grew since `earlier`; the rest is `rest`'s.
            fn grown_since(&self, earlier: &$name, rest: $name) -> $name {
                $name { $($field: self.$field.saturating_sub(earlier.$field),)* ..rest }
            }
        }
    };
}

/// Reads a structure that BPF has written; missing bytes are zero.
pub(crate) fn read<T: Copy>(bytes: &[u8]) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let length = bytes.len().min(size_of::<T>());
    // SAFETY: at most as many bytes as the structure has are copied into it, and structures of BPF consist of
    // integers, for which all bytes, zeroes too, are values.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast::<u8>(), length);
        value.assume_init()
    }
}

/// Tiers of vCPUs (docs/policies.md), the most useful first, with the scheduler's numbers.
const TIERS: [(&str, intf::ovb_tier); 5] = [
    ("answered", intf::ovb_tier_OVB_TIER_ANSWERED),
    ("interrupt", intf::ovb_tier_OVB_TIER_INTERRUPT),
    ("any", intf::ovb_tier_OVB_TIER_ANY),
    ("chained", intf::ovb_tier_OVB_TIER_CHAINED),
    ("waiting", intf::ovb_tier_OVB_TIER_WAITING),
];

/// Targets of one tier.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[serde(default)]
#[stat(desc = "vCPUs by what they were worth most for", _om_prefix = "tier_", _om_label = "tier")]
pub struct TierStats {
    #[stat(desc = "vCPUs picked")]
    pub picked: u64,
}

/// VMs of one class.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[serde(default)]
#[stat(desc = "VMs by class (docs/classes.md)", _om_prefix = "class_", _om_label = "class")]
pub struct ClassStats {
    #[stat(desc = "VMs of this class that run")]
    pub vms: u64,
    #[stat(
        desc = "ns of the longest time that a vCPU of this class was queued, since the scheduler was loaded"
    )]
    pub longest_ns: u64,
    #[stat(desc = "ns of the longest time that is promised")]
    pub promise_ns: u64,
    #[stat(desc = "times that a vCPU of this class was queued for longer than is promised")]
    pub broken: u64,
}

counters! {
    /// One vCPU.
    #[stat_doc]
    #[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
    #[serde(default)]
    #[stat(desc = "one vCPU", _om_prefix = "vcpu_", _om_label = "vcpu")]
    VcpuStats of intf::ovb_vcpu_stats {
        spins: "spins that exited to KVM",
        boosts: "times that a spinning sibling's CPU went on with it",
        run_ns: "ns that it ran",
        queued_ns: "ns that it was queued before it ran",
        spin_ns: "ns between spins that followed each other at once",
    } and {
        #[stat(desc = "thread")]
        pid: u64,
        #[stat(desc = "ns of the longest time that it was queued, since it is known")]
        longest_ns: u64,
    }
}

counters! {
    /// One VM: the process of its vCPU threads.
    #[stat_doc]
    #[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
    #[serde(default)]
    #[stat(desc = "one VM", _om_prefix = "vm_", _om_label = "vm")]
    VmStats of intf::ovb_vm_stats {
        asked: "directed yields that KVM asked for",
        spared: "of these, those after which the vCPU kept its CPU, as its spin was not long yet",
        delivered: "spins, heard or unheard, after which the CPU went on with a sibling",
        unheard: "spins for which KVM found nobody to yield to",
        gave_up: "spinners whose CPU went to whoever was next, since nobody of the VM who could help was queued",
        ipis: "IPIs between vCPUs that were seen",
        eois: "ends of interrupts that were seen",
    } and {
        #[stat(desc = "ns that the vCPUs ran")]
        run_ns: u64,
        #[stat(desc = "ns that the vCPUs were queued before they ran")]
        queued_ns: u64,
        #[stat(desc = "ns between spins that followed each other at once")]
        spin_ns: u64,
        #[stat(desc = "ns of the longest time that a vCPU was queued, since it is known")]
        longest_ns: u64,
        #[stat(desc = "name as its stack has it, with its namespace or project (docs/observe.md), else the command")]
        name: String,
        #[stat(desc = "class (docs/classes.md)")]
        class: String,
        #[stat(desc = "1 while it runs, then 0")]
        alive: u64,
        #[stat(desc = "targets by tier")]
        tiers: BTreeMap<String, TierStats>,
        #[stat(desc = "vCPUs by id")]
        vcpus: BTreeMap<u32, VcpuStats>,
    }
}

/// The whole host.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
// An older scheduler's statistics lack what is new.
#[serde(default)]
#[stat(desc = "Overbook's host scheduler", top)]
pub struct HostStats {
    #[stat(desc = "ns since it was loaded, when this was read")]
    pub at_ns: u64,
    #[stat(desc = "what is in force of what `--set` changes")]
    pub settings: String,
    #[stat(desc = "what is seen of guests' interrupts")]
    pub visible: String,
    #[stat(desc = "tasks sent straight to an idle CPU")]
    pub direct: u64,
    #[stat(desc = "tasks put into an LLC's queue")]
    pub queued_llc: u64,
    #[stat(desc = "tasks put into a single CPU's queue")]
    pub queued_cpu: u64,
    #[stat(desc = "tasks put into the queue of the CPUs that they are bound to")]
    pub queued_pool: u64,
    #[stat(desc = "tasks parked, as their group has used its cpu.max")]
    pub parked: u64,
    #[stat(desc = "SCHED_IDLE tasks put into a queue of their own")]
    pub queued_idle: u64,
    #[stat(desc = "SCHED_IDLE tasks that had waited for a second and went before others")]
    pub idle_overdue: u64,
    #[stat(desc = "running tasks preempted by one that woke up")]
    pub preempt: u64,
    #[stat(desc = "slices extended, since nobody with an earlier key waited")]
    pub keep: u64,
    #[stat(desc = "slices of vCPUs extended although others were due, as all of these could wait")]
    pub overstay: u64,
    #[stat(desc = "tasks pulled from another LLC's queue by a CPU without work")]
    #[serde(alias = "steal_llc")]
    pub pulled: u64,
    #[stat(desc = "tasks pulled from another LLC's queue, as more was owed to them there")]
    pub balance: u64,
    #[stat(desc = "running tasks sent to another CPU, as who waited for theirs may use few")]
    pub spread: u64,
    #[stat(desc = "tasks queued on a CPU that is not preferred, as they may run on no other")]
    pub outside: u64,
    #[stat(desc = "running tasks moved off a CPU that had lost preference")]
    pub pushed: u64,
    #[stat(desc = "tasks that had waited for --patience-ms and went before others")]
    pub overdue: u64,
    #[stat(desc = "tasks queued before others, as they were preempted inside an RCU read section")]
    pub in_rcu: u64,
    #[stat(desc = "VMs by class")]
    pub classes: BTreeMap<String, ClassStats>,
    #[stat(desc = "VMs that were seen")]
    pub vms: BTreeMap<u32, VmStats>,
    #[stat(desc = "the scheduler's BPF programs, with --costs")]
    pub programs: BTreeMap<String, ProgramStats>,
}

impl HostStats {
    /// Changes all words in it: of one that was read from a file, which may be from anybody.
    pub fn clean(&mut self, clean: impl Fn(&mut String)) {
        fn keys<T>(map: &mut BTreeMap<String, T>, clean: impl Fn(&mut String)) {
            let all = std::mem::take(map).into_iter();
            map.extend(all.map(|(mut key, value)| {
                clean(&mut key);
                (key, value)
            }));
        }
        [&mut self.settings, &mut self.visible].into_iter().for_each(&clean);
        keys(&mut self.classes, &clean);
        keys(&mut self.programs, &clean);
        for vm in self.vms.values_mut() {
            [&mut vm.name, &mut vm.class].into_iter().for_each(&clean);
            keys(&mut vm.tiers, &clean);
        }
    }
}

impl Served for HostStats {
    const COMMAND: &'static str = "overbook host";
    const SET: &'static str = "set";

    fn in_force(&self) -> &str {
        &self.settings
    }
}

impl HostStats {
    /// The host's counters, each with its `enum ovb_count`.
    fn counters(&mut self) -> [(&mut u64, intf::ovb_count); 17] {
        [
            (&mut self.direct, intf::ovb_count_OVB_COUNT_DIRECT),
            (&mut self.queued_llc, intf::ovb_count_OVB_COUNT_QUEUED_LLC),
            (&mut self.queued_cpu, intf::ovb_count_OVB_COUNT_QUEUED_CPU),
            (&mut self.queued_pool, intf::ovb_count_OVB_COUNT_QUEUED_POOL),
            (&mut self.parked, intf::ovb_count_OVB_COUNT_PARKED),
            (&mut self.balance, intf::ovb_count_OVB_COUNT_BALANCE),
            (&mut self.spread, intf::ovb_count_OVB_COUNT_SPREAD),
            (&mut self.queued_idle, intf::ovb_count_OVB_COUNT_QUEUED_IDLE),
            (&mut self.idle_overdue, intf::ovb_count_OVB_COUNT_IDLE_OVERDUE),
            (&mut self.preempt, intf::ovb_count_OVB_COUNT_PREEMPT),
            (&mut self.keep, intf::ovb_count_OVB_COUNT_KEEP),
            (&mut self.overstay, intf::ovb_count_OVB_COUNT_OVERSTAY),
            (&mut self.pulled, intf::ovb_count_OVB_COUNT_PULLED),
            (&mut self.outside, intf::ovb_count_OVB_COUNT_OUTSIDE),
            (&mut self.pushed, intf::ovb_count_OVB_COUNT_PUSHED),
            (&mut self.overdue, intf::ovb_count_OVB_COUNT_OVERDUE),
            (&mut self.in_rcu, intf::ovb_count_OVB_COUNT_IN_RCU),
        ]
    }

    /// Fills the host's counters in.
    pub fn set_counts(&mut self, counts: &[u64]) {
        for (counter, what) in self.counters() {
            *counter = counts.get(what as usize).copied().unwrap_or(0);
        }
    }

    /// Tasks put into a queue, of whatever kind.
    pub fn queued(&self) -> u64 {
        self.queued_llc + self.queued_pool + self.queued_cpu + self.queued_idle
    }

    /// What happened since `earlier`.
    pub fn since(&self, earlier: &HostStats) -> HostStats {
        let (mut since, mut before) = (self.clone(), earlier.clone());
        for ((counter, _), (before, _)) in since.counters().into_iter().zip(before.counters()) {
            *counter = counter.saturating_sub(*before);
        }
        since.vms = each_since(&self.vms, &earlier.vms, VmStats::since);
        since.classes = each_since(&self.classes, &earlier.classes, ClassStats::since);
        since.programs = each_since(&self.programs, &earlier.programs, ProgramStats::since);
        since
    }

    /// Prints it for people.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn print(&self, to: &mut impl Write) -> Result<()> {
        writeln!(
            to,
            "{}: direct {}, queued {} (LLC) {} (pool) {} (CPU) {} (idle), parked {}, preempted {}, kept {}, overstayed {}, \
             pulled from other LLCs {} (no work) {} (balance), spread {}, waited too long {}",
            self.settings,
            self.direct,
            self.queued_llc,
            self.queued_pool,
            self.queued_cpu,
            self.queued_idle,
            self.parked,
            self.preempt,
            self.keep,
            self.overstay,
            self.pulled,
            self.balance,
            self.spread,
            self.overdue
        )?;
        for (name, class) in self.classes.iter().filter(|(_, class)| class.vms > 0) {
            let s = |ns: u64| ns as f64 / 1e9;
            writeln!(
                to,
                "  {name}: {} VMs, longest wait {:.3} s of {:.1} s promised, longer than that {} times",
                class.vms,
                s(class.longest_ns),
                s(class.promise_ns),
                class.broken
            )?;
        }
        for (pid, vm) in self.vms.iter().filter(|(_, vm)| vm.alive > 0 || vm.run_ns + vm.queued_ns > 0) {
            vm.print(*pid, to)?;
        }
        for (name, program) in self.programs.iter().filter(|(_, program)| program.runs > 0) {
            writeln!(to, "  {name}: {} runs of {} ns", program.runs, program.run_ns / program.runs)?;
        }
        Ok(())
    }
}

impl ClassStats {
    fn since(&self, earlier: &ClassStats) -> ClassStats {
        ClassStats { broken: self.broken.saturating_sub(earlier.broken), ..self.clone() }
    }
}

impl TierStats {
    fn since(&self, earlier: &TierStats) -> TierStats {
        TierStats { picked: self.picked.saturating_sub(earlier.picked) }
    }
}

impl VcpuStats {
    /// From an entry of the table of vCPUs.
    pub(crate) fn from_raw(raw: &intf::ovb_vcpu_stats) -> VcpuStats {
        let mut stats = VcpuStats { pid: raw.pid.into(), longest_ns: raw.longest_ns, ..VcpuStats::default() };
        stats.add(raw);
        stats
    }

    fn since(&self, earlier: &VcpuStats) -> VcpuStats {
        let rest = VcpuStats { pid: self.pid, longest_ns: self.longest_ns, ..VcpuStats::default() };
        self.grown_since(earlier, rest)
    }
}

impl VmStats {
    /// From the counters of a VM's process, one row per CPU.
    pub fn from_rows(pid: u32, rows: &[Vec<u8>]) -> VmStats {
        let mut stats = VmStats { name: names::of(pid).to_string(), ..VmStats::default() };
        for raw in rows.iter().map(|row| read::<intf::ovb_vm_stats>(row)) {
            stats.add(&raw);
            for (tier, number) in TIERS {
                stats.tiers.entry(tier.into()).or_default().picked += raw.picked[number as usize];
            }
        }
        stats
    }

    /// Adds a vCPU, with what it has done.
    pub fn add_vcpu(&mut self, id: u32, vcpu: VcpuStats) {
        self.run_ns += vcpu.run_ns;
        self.queued_ns += vcpu.queued_ns;
        self.spin_ns += vcpu.spin_ns;
        self.longest_ns = self.longest_ns.max(vcpu.longest_ns);
        self.vcpus.insert(id, vcpu);
    }

    fn since(&self, earlier: &VmStats) -> VmStats {
        let rest = VmStats {
            name: self.name.clone(),
            class: self.class.clone(),
            alive: self.alive,
            tiers: each_since(&self.tiers, &earlier.tiers, TierStats::since),
            vcpus: each_since(&self.vcpus, &earlier.vcpus, VcpuStats::since),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            queued_ns: self.queued_ns.saturating_sub(earlier.queued_ns),
            spin_ns: self.spin_ns.saturating_sub(earlier.spin_ns),
            longest_ns: self.longest_ns,
            ..VmStats::default()
        };
        self.grown_since(earlier, rest)
    }

    fn print(&self, pid: u32, to: &mut impl Write) -> Result<()> {
        let s = |ns: u64| ns as f64 / 1e9;
        let wanted_ns = (self.run_ns + self.queued_ns).max(1);
        writeln!(
            to,
            "  {} [{pid}], {}: {:.3} s run ({} % of what it wanted), {:.3} s queued (longest {:.3} s), {:.3} s spun; yields {} spared {} \
             delivered {} gave up {}; unheard {}; IPIs {}",
            self.name,
            if self.class.is_empty() { Class::Normal.name() } else { &self.class },
            s(self.run_ns),
            u128::from(self.run_ns) * 100 / u128::from(wanted_ns),
            s(self.queued_ns),
            s(self.longest_ns),
            s(self.spin_ns),
            self.asked,
            self.spared,
            self.delivered,
            self.gave_up,
            self.unheard,
            self.ipis
        )?;
        for (name, tier) in self.tiers.iter().filter(|(_, tier)| tier.picked > 0) {
            writeln!(to, "    {name}: picked {}", tier.picked)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_the_greatest_and_no_sum() {
        let vcpu = |queued_ns, longest_ns| VcpuStats { queued_ns, longest_ns, ..VcpuStats::default() };
        let mut vm = VmStats::default();
        let mut earlier = VmStats::default();
        for (id, longest) in [(0, 7), (1, 30), (2, 12)] {
            vm.add_vcpu(id, vcpu(100, longest));
            earlier.add_vcpu(id, vcpu(60, longest.min(20)));
        }
        let since = vm.since(&earlier);
        assert_eq!((vm.longest_ns, since.longest_ns, since.queued_ns), (30, 30, 120));
        assert_eq!(since.vcpus[&2].longest_ns, 12);
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

    /// A promise that was broken once is not broken every second.
    #[test]
    fn broken_promises_are_counted_since_then() {
        let class = |broken| ClassStats { longest_ns: 9, broken, ..ClassStats::default() };
        let of = |broken| HostStats {
            classes: BTreeMap::from([("latency".into(), class(broken))]),
            ..HostStats::default()
        };
        let since = of(7).since(&of(5));
        assert_eq!((since.classes["latency"].broken, since.classes["latency"].longest_ns), (2, 9));
    }
}
