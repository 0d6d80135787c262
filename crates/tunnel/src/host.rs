// SPDX-License-Identifier: GPL-2.0-only
//! What a host is made of, and what happens to it.

use crate::check::Bounds;
use crate::guest::VmSpec;
use overbook_policy::class::Class;
use std::ffi::CStr;
use std::ops::Range;

/// What a switch costs the task that comes, ns; an exit of a vCPU to KVM; an interrupt between CPUs, on its way.
pub const SWITCH_NS: u64 = 1500;
/// See [`SWITCH_NS`].
pub const EXIT_NS: u64 = 2000;
/// See [`SWITCH_NS`].
pub const IPI_NS: u64 = 700;

/// What `SCHED_IDLE`, or a group's `cpu.idle`, weighs in the kernel, where 100 is nice 0.
pub(crate) const IDLE_WEIGHT: f64 = 0.3;

/// The vector of [`Change::DeviceIrq`].
pub(crate) const DEVICE_VECTOR: u32 = 0x31;

/// A kernel's version as in `LINUX_KERNEL_VERSION`.
pub const fn kernel(major: i32, minor: i32) -> i32 {
    (major << 16) | (minor << 8)
}

/// A host and how it runs.
#[derive(Clone, Debug)]
pub struct Host {
    /// 1 to 1,024.
    pub cpus: u32,
    /// Last-level caches; consecutive CPUs share one.
    pub llcs: u32,
    /// NUMA nodes.
    pub nodes: u32,
    /// Threads of a core, consecutive CPUs.
    pub smt: u32,
    /// See [`kernel`].
    pub version: i32,
    /// Ticks per second.
    pub hz: u32,
    /// Seed of every choice.
    pub seed: u64,
    /// Programs are interrupted at one in so many calls; 0: never.
    pub interleave: u32,
    /// Longest such interruption, ns: what an NMI, or a hypervisor below, may take.
    pub pause_ns: u64,
    /// Programs are always interrupted in this kfunc, and for twenty times as long.
    pub dwell_in: Option<&'static CStr>,
    /// ns that a vCPU spins before it exits.
    pub window_ns: u64,
    /// ns that an exit of a vCPU to KVM costs it.
    pub exit_ns: u64,
    /// ns that a switch costs the task that comes.
    pub switch_ns: u64,
    /// What must hold.
    pub bounds: Bounds,
    /// ns that are traced in words.
    pub traced: Range<u64>,
    /// Variables of the scheduler that are set before it is loaded.
    pub set: Vec<(String, u64)>,
    /// Allocations fail, one in so many; 0: never.
    pub starve: u32,
    /// So many timers cannot be had for want of memory, from the start on.
    pub no_timers: u32,
    /// How often homes of VMs are found, ns; the first time after a fiftieth of it.
    pub homes_ns: u64,
    /// Ends of interrupts do not exit, as with APICv: KVM and so the scheduler are not told of them.
    pub apicv: bool,
    /// Wake-ups by CPU 0 are synchronous, as sockets and pipes have them.
    pub sync: bool,
    /// The object to load instead of the crate's own.
    pub object: Option<Vec<u8>>,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            cpus: 4,
            llcs: 1,
            nodes: 1,
            smt: 1,
            version: kernel(6, 18),
            hz: 250,
            seed: 1,
            interleave: 0,
            pause_ns: 2000,
            dwell_in: None,
            window_ns: 20_000,
            exit_ns: EXIT_NS,
            switch_ns: SWITCH_NS,
            bounds: Bounds::default(),
            traced: 0..0,
            set: Vec::new(),
            homes_ns: 500 * 1_000_000,
            starve: 0,
            no_timers: 0,
            apicv: false,
            sync: false,
            object: None,
        }
    }
}

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs whenever it may.
    Hog,
    /// Runs for so many ns, sleeps for so many, both varied by a half.
    Sleeper(u64, u64),
    /// Runs for so many ns, woken every so many by CPU 0, at once with all others of the same period.
    Periodic(u64, u64),
    /// As a sleeper, of a higher class, on the one CPU that it is bound to.
    RealTime(u64, u64),
    /// A vCPU: VM and number.
    Vcpu(usize, usize),
}

/// A task to be made.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Name in tables and traces.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// 100 is nice 0.
    pub weight: u32,
    /// 0: normal, 5: `SCHED_IDLE`.
    pub policy: u32,
    /// CPUs that it may use; none: all.
    pub cpus: Option<Vec<u32>>,
    /// Its group by number; none: the root.
    pub group: Option<usize>,
    /// Its process; 0: its own.
    pub tgid: u32,
    /// It sleeps from before the scheduler was loaded, for ever.
    pub asleep: bool,
}

impl TaskSpec {
    /// What it is, for traces.
    pub(crate) fn words(&self) -> String {
        let TaskSpec { name, kind, weight, policy, cpus, group, .. } = self;
        let cpus = cpus.as_ref().map_or("any".into(), |cpus| format!("{cpus:?}"));
        format!(
            "{name}: {kind:?}, weight {weight}, policy {policy}, CPUs {cpus}, group {}",
            group.unwrap_or(0)
        )
    }

    /// A task of nice 0 that may run anywhere, in the root group.
    pub fn new(name: &str, kind: Kind) -> TaskSpec {
        TaskSpec {
            name: name.into(),
            kind,
            weight: 100,
            policy: 0,
            cpus: None,
            group: None,
            tgid: 0,
            asleep: false,
        }
    }
}

impl Change {
    /// What it is, for traces.
    pub(crate) fn words(&self) -> String {
        match self {
            Change::Begin(spec) => format!("Begin({})", spec.name),
            Change::BeginVm(spec) => format!("BeginVm({})", spec.name),
            _ => format!("{self:?}"),
        }
    }
}

/// Something that is changed while a host runs.
#[derive(Clone, Debug)]
pub enum Change {
    /// `cpu.weight` of a group.
    GroupWeight(usize, u32),
    /// `cpu.idle` of a group.
    GroupIdle(usize, bool),
    /// A group goes; no task is in it.
    EndGroup(usize),
    /// `cpu.max` of a group: period and quota in µs; `u64::MAX`: none.
    Bandwidth(usize, u64, u64),
    /// A task's affinity.
    Affinity(u32, Vec<u32>),
    /// A task's weight (100 is nice 0) and policy.
    Weight(u32, u32, u32),
    /// A task's group.
    Group(u32, usize),
    /// `migrate_disable()`, or `_enable()`, when the task runs next.
    Migration(u32, bool),
    /// A task was preempted in an RCU read section, or has left it.
    RcuSection(u32, bool),
    /// A task that is no vCPU begins or ends an ioctl about a vCPU of a VM: the VM's number, the task.
    VcpuIoctl(usize, u32, bool),
    /// A task ends.
    End(u32),
    /// A VM's class, by its number.
    Class(usize, Class),
    /// A task begins.
    Begin(Box<TaskSpec>),
    /// A VM begins.
    BeginVm(Box<VmSpec>),
    /// The running task of a CPU yields (`sched_yield()`).
    Yield(u32),
    /// A device's interrupt for a vCPU's task arrives on a CPU, on top of what runs there.
    DeviceIrq(u32, u32),
    /// These CPUs are preferred to others (a guest's scheduler).
    Prefer(Vec<u32>),
}
