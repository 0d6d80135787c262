// SPDX-License-Identifier: GPL-2.0-only
//! The result of one lab run, as it is written to JSON.
//!
//! Times are nanoseconds of *model time* (the clock of the machine under test), never of the
//! machine that emulates it. Counters are differences over the measured window, but for those of
//! [`Run::extra`] that are named `kernel: …` and `overbook: …`: they are of the whole run.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of this schema; raised when a field changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Everything one `overbook lab run` (or `overbook bench`) measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`] of the writer.
    pub schema: u32,
    /// `git describe`-like build id of the program that measured.
    pub overbook: String,
    /// What was asked for.
    pub scenario: ScenarioInfo,
    /// What it ran on.
    pub machine: MachineInfo,
    /// What the instrument said of itself; `None` outside the lab (`overbook bench`).
    pub instrument: Option<Instrument>,
    /// The variants, the baseline first.
    pub variants: Vec<VariantInfo>,
    /// One entry per variant and repetition, in the order in which they ran.
    pub runs: Vec<Run>,
    /// The bound of every VM (see [`VmBound`]); empty if the scenario switched it off.
    pub bounds: Vec<VmBound>,
    /// Why the run ended early, if it did; `runs` then holds what was measured before.
    pub failure: Option<Failure>,
}

/// The scenario as it was given.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScenarioInfo {
    /// Short name: the scenario file's stem.
    pub name: String,
    /// One line for headings.
    pub title: String,
    /// The complete text of the scenario file.
    pub text: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// vCPUs of all VMs divided by host CPUs.
    pub overcommit: f64,
    /// Where vCPUs may run, in words: `free`, `pinned 1:1`, or pools of so many CPUs.
    pub placement: String,
    /// `flat`, `per-vm`, `nested`, `per-vcpu (libvirt)`.
    pub cgroups: String,
    /// Factor by which slices, windows and guest sections were stretched together.
    pub dilation: f64,
}

/// In [`ScenarioInfo::text`], before the name and the text of the scenario whose variants it took.
pub const VARIANTS_OF: &str = "# The variants are those of ";

/// Repetitions of a scenario that says nothing of them.
pub const USUAL_REPETITIONS: u64 = 5;

impl ScenarioInfo {
    /// For rows of tables: the file's name and the settings, as in `linux-2to1, load=futex`. Whose variants it took is not in
    /// it: rows name variants themselves.
    pub fn label(&self) -> String {
        let mut parts = self.name.split('+');
        let name = parts.next().unwrap_or_default().to_string();
        let settings = parts.filter(|part| part.contains('='));
        settings.fold(name, |name, setting| {
            let (path, value) = setting.split_once('=').unwrap_or_default();
            format!("{name}, {}={value}", path.rsplit('.').next().unwrap_or_default())
        })
    }
}

/// The host under test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MachineInfo {
    /// `uname -r`.
    pub kernel: String,
    /// CPU model name.
    pub cpu_model: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Last-level caches.
    pub llcs: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Threads per core.
    pub smt: u32,
    /// `tcg-icount`, `tcg-parallel`, `tcg-single`, `kvm`, or `native` for `overbook bench`.
    pub accel: String,
    /// Version line of the emulator, empty when native.
    pub emulator: String,
    /// Instructions per second of model time of one emulated CPU while all are busy; 0 if unknown.
    pub cpu_ips: f64,
    /// `kvm_amd` or `kvm_intel`.
    pub kvm_vendor: String,
    /// State of pause-loop exiting, in words with its parameters.
    pub ple: String,
    /// State of AVIC / IPI virtualization, in words.
    pub apicv: String,
    /// Other knobs worth knowing, by name (base slice, scheduler features, HZ, …).
    pub knobs: BTreeMap<String, String>,
}

/// What the instrument found when it measured itself, at every boot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Instrument {
    /// Time of the fixed loop with the other CPUs idle.
    pub loop_idle_ns: u64,
    /// The same with every other CPU busy.
    pub loop_busy_ns: u64,
    /// |busy ÷ idle − 1| in percent.
    pub loop_skew_percent: f64,
    /// Rows of cross-CPU measurements, see [`TurnRow`].
    pub turns: Vec<TurnRow>,
    /// True when every figure is within its limit.
    pub ok: bool,
    /// One sentence per figure out of limits.
    pub complaints: Vec<String>,
}

/// One cross-CPU latency of the instrument.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TurnRow {
    /// What was measured, for example `wake-up, other CPUs busy`.
    pub name: String,
    /// Samples taken.
    pub samples: u64,
    /// Median, 99th percentile and maximum.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Largest sample.
    pub max_ns: u64,
    /// Bound on the median, 0 for none.
    pub limit_ns: u64,
}

/// A scheduler configuration that was compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VariantInfo {
    /// Name in tables.
    pub name: String,
    /// What it changes, in words.
    pub about: String,
}

/// One variant, once.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// [`VariantInfo::name`].
    pub variant: String,
    /// 0-based repetition.
    pub repetition: u32,
    /// Length of the measured window.
    pub window_ns: u64,
    /// One per VM, in the scenario's order.
    pub vms: Vec<VmResult>,
    /// Context switches of the whole host in the window.
    pub context_switches: u64,
    /// Moves of vCPUs between CPUs in the window.
    pub migrations: u64,
    /// Counters particular to a scheduler, by name.
    pub extra: BTreeMap<String, f64>,
    /// Set if this run failed (guest fault, hang); its figures are then not used.
    pub error: Option<String>,
}

/// What one VM did in the window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VmResult {
    /// Name in tables.
    pub name: String,
    /// Guest pattern (`lock`, `ipi`, …).
    pub pattern: String,
    /// Name of one unit of work (`locks`, `round trips`, …).
    pub unit: String,
    /// Units of work done by all vCPUs.
    pub work: u64,
    /// Units of work per second of model time.
    pub rate: f64,
    /// CPU time of the vCPUs divided by the window: CPUs used.
    pub cpus_used: f64,
    /// Part of the host's CPUs that this VM is entitled to when all want more than they get.
    pub entitled_cpus: f64,
    /// KVM's counters.
    pub kvm: KvmCounters,
    /// One per vCPU.
    pub vcpus: Vec<VcpuResult>,
}

/// What KVM did for one VM.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KvmCounters {
    /// Nobody counted, so that the zeros here say nothing: there were no probes.
    #[serde(default)]
    pub unseen: bool,
    /// Exits by reason (`pause`, `hlt`, `interrupt`, `msr`, …).
    pub exits: BTreeMap<String, u64>,
    /// Calls of `kvm_vcpu_on_spin`.
    pub on_spin: u64,
    /// Calls of `yield_to` that came from it.
    pub yield_tried: u64,
    /// Those that returned more than zero.
    pub yield_ok: u64,
    /// Tried ones whose target was queued on the yielder's runqueue.
    pub yield_same_rq: u64,
    /// Tried ones whose target was queued elsewhere.
    pub yield_other_rq: u64,
}

impl KvmCounters {
    /// Those of a VM that nobody looked at.
    pub fn unseen() -> KvmCounters {
        KvmCounters { unseen: true, ..KvmCounters::default() }
    }
}

/// What one vCPU did in the window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VcpuResult {
    /// Units of work.
    pub work: u64,
    /// Turns of the guest's spin loops.
    pub spins: u64,
    /// Interrupts that a micro-guest has handled.
    #[serde(default)]
    pub interrupts: u64,
    /// Time spent waiting for siblings, as the guest saw it.
    pub wait: WaitHistogram,
    /// On a CPU.
    pub run_ns: u64,
    /// Runnable but waiting for a CPU.
    pub queued_ns: u64,
    /// Steal time that KVM reported to the guest; of Linux guests, how long the vCPU waited in the host's queues.
    pub steal_ns: u64,
    /// Context switches: it slept.
    pub voluntary_switches: u64,
    /// Context switches: it was preempted or yielded.
    pub involuntary_switches: u64,
    /// Moves between CPUs.
    pub migrations: u64,
}

/// Distribution of guest wait times: `(upper bound in ns, count)`, ascending, empty buckets left out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WaitHistogram {
    /// Buckets; the relative width is at most 1/16.
    pub buckets: Vec<(u64, u64)>,
    /// The longest wait.
    pub max_ns: u64,
}

/// How fast a VM could go if it never waited for a preempted sibling.
///
/// Measured with the VM alone, pinned 1:1. Two things limit it then: its own serial part (the rate that it
/// reaches alone), and the CPU time that its share buys, at the CPU time that one unit of work costs without
/// the waiting. The bound is the smaller of the two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VmBound {
    /// [`VmResult::name`].
    pub vm: String,
    /// CPUs that the VM is entitled to.
    pub share_cpus: f64,
    /// What was measured.
    pub points: Vec<BoundPoint>,
    /// CPU time per unit of work, waiting in spin loops taken off; median of the repetitions.
    pub cpu_ns_per_unit: f64,
    /// `serial` or `cpu`: which of the two limits is the smaller.
    pub limited_by: String,
    /// The bound: work per second.
    pub rate: f64,
}

/// A VM alone with `cpus` vCPUs on as many CPUs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BoundPoint {
    /// vCPUs = CPUs.
    pub cpus: u32,
    /// Work per second, one entry per repetition.
    pub rates: Vec<f64>,
}

/// Why a run ended early.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Failure {
    /// One sentence.
    pub reason: String,
    /// Last lines of the console.
    pub console: Vec<String>,
}
