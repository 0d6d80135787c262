// SPDX-License-Identifier: GPL-2.0-only
//! What vCPUs do. The patterns are those of the lab's micro-guests, and some that halt as Linux guests do.

use overbook_policy::class::Class;
use rand_core::RngCore;
use rand_pcg::Pcg64Mcg;

/// What the vCPUs of a VM do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One test-and-set lock for the VM.
    Lock,
    /// The same, first come, first served.
    Ticket,
    /// A unicast IPI to a random sibling, waited for.
    Ipi,
    /// An IPI to all siblings, waited for.
    Shootdown,
    /// Phases of equal work, then a barrier.
    Barrier,
    /// Plain computation.
    Compute,
    /// Even vCPUs send; odd ones compute in ring 0.
    KernelReceiver,
    /// Even vCPUs send; odd ones compute in ring 3.
    UserReceiver,
    /// Even vCPUs send; odd ones halt in between.
    HaltedReceiver,
    /// Every vCPU works, sends an IPI to the next one, and halts until it gets one.
    Messages,
    /// Works, then halts for a while, woken by a timer.
    Sleeper,
    /// Spins without a reason.
    Pause,
    /// IPIs to all siblings that nobody waits for.
    Storm,
}

impl Pattern {
    /// Whether its vCPUs always want to run.
    pub fn always_wants(self) -> bool {
        !matches!(self, Pattern::HaltedReceiver | Pattern::Messages | Pattern::Sleeper)
    }
}

/// A VM.
#[derive(Clone, Debug)]
pub struct VmSpec {
    /// Name in tables and traces.
    pub name: String,
    /// How many vCPUs.
    pub vcpus: u32,
    /// What they do.
    pub pattern: Pattern,
    /// ns in the critical section, or in the handler of an interrupt.
    pub critical_ns: u64,
    /// ns between two operations.
    pub outside_ns: u64,
    /// ns that a vCPU of [`Pattern::Sleeper`] halts.
    pub halt_ns: u64,
    /// ns of work and of halts of each vCPU, where they differ; none: as above.
    pub sections: Vec<(u64, u64)>,
    /// Outside work varies by ± this many per cent.
    pub jitter_percent: u32,
    /// CPUs that the vCPUs may use; none: all.
    pub cpus: Option<Vec<u32>>,
    /// Group of the vCPUs, by its number; none: the root.
    pub group: Option<usize>,
    /// So many groups are below that, which have the vCPUs by turns; 0: none, the vCPUs are in the group itself.
    pub groups_below: u32,
    /// Ends of interrupts are written to memory, and KVM learns nothing (paravirtual EOI).
    pub pv_eoi: bool,
    /// Who waits for an IPI's receiver that is preempted yields to it by name (`KVM_HC_SCHED_YIELD`).
    pub pv_yield: bool,
    /// So many of the vCPUs, the first ones, are of a higher class (`vcpusched` of libvirt).
    pub real_time: u32,
    /// Process; 0: one of its own.
    pub tgid: u32,
    /// When it gets what it is due.
    pub class: Class,
}

impl VmSpec {
    /// A VM of a pattern, with sections as in the lab.
    pub fn new(name: &str, vcpus: u32, pattern: Pattern) -> VmSpec {
        let (critical_us, outside_us) = match pattern {
            Pattern::Lock | Pattern::Ticket => (300, 100),
            Pattern::Barrier => (0, 1000),
            Pattern::Compute => (0, 100),
            Pattern::Pause | Pattern::Storm => (5, 0),
            _ => (20, 200),
        };
        VmSpec {
            name: name.into(),
            vcpus,
            pattern,
            critical_ns: critical_us * 1000,
            outside_ns: outside_us * 1000,
            halt_ns: 1_000_000,
            sections: Vec::new(),
            jitter_percent: 50,
            cpus: None,
            group: None,
            groups_below: 0,
            pv_eoi: false,
            pv_yield: false,
            real_time: 0,
            tgid: 0,
            class: Class::Normal,
        }
    }
}

/// The vector that guests send.
pub const VECTOR: u32 = 0x41;

/// What a vCPU is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Outside,
    WantLock,
    Critical,
    AwaitAcks,
    AwaitBarrier(u64),
    SpinForEver,
    Halted,
}

/// A vCPU.
#[derive(Debug)]
pub(crate) struct Vcpu {
    pub task: u32,
    pub phase: Phase,
    /// ns of the phase that are left, if it is work.
    pub left: u64,
    /// ns that it spins before an exit. KVM doubles it at each exit, and a switch puts it back.
    pub window: u64,
    /// ns until the next PAUSE exit, if it spins.
    pub pause_left: u64,
    /// ns of the handler that are left, and the vector.
    pub handler: Option<(u64, u32)>,
    /// Whoever waits for the handler that runs, and for the next.
    pub handling: Vec<usize>,
    pub inbox: Vec<usize>,
    /// Handlers that this vCPU waits for.
    pub acks: u32,
    /// A message has come that ends a halt.
    pub woken: bool,
    /// It is on its way out of the guest, as it has spun for a window.
    pub leaving: bool,
    /// A handler has ended, and KVM does not know yet.
    pub unseen_eoi: Option<u32>,
    pub units: u64,
    /// ns that it spun, exits included, and how often it left the guest for that.
    pub spun: u64,
    pub exits: u64,
}

/// A VM that runs.
#[derive(Debug)]
pub(crate) struct Vm {
    pub spec: VmSpec,
    pub tgid: u32,
    pub vcpus: Vec<Vcpu>,
    pub holder: Option<usize>,
    /// Who waits for a ticket lock, in order.
    pub tickets: Vec<usize>,
    pub generation: u64,
    pub arrived: usize,
}

impl Vm {
    pub fn new(spec: VmSpec, tgid: u32) -> Vm {
        Vm { spec, tgid, vcpus: Vec::new(), holder: None, tickets: Vec::new(), generation: 0, arrived: 0 }
    }

    /// ns until a vCPU has done its next piece of work.
    pub fn outside(&self, nth: usize, rng: &mut Pcg64Mcg) -> u64 {
        let own = self.spec.sections.get(nth).map(|(work, _)| *work);
        let (mean, jitter) = (own.unwrap_or(self.spec.outside_ns), u64::from(self.spec.jitter_percent));
        let spread = mean * jitter / 100;
        let varied = mean - spread + if spread > 0 { rng.next_u64() % (2 * spread + 1) } else { 0 };
        varied.max(100)
    }

    /// Whether a vCPU of its number computes for ever and is only interrupted.
    pub fn is_receiver(&self, nth: usize) -> bool {
        let paired = matches!(
            self.spec.pattern,
            Pattern::KernelReceiver | Pattern::UserReceiver | Pattern::HaltedReceiver
        );
        paired && nth % 2 == 1
    }

    /// Whether the vCPU is in ring 0.
    pub fn in_kernel(&self, nth: usize) -> bool {
        let vcpu = &self.vcpus[nth];
        vcpu.handler.is_some()
            || match vcpu.phase {
                Phase::Outside => self.spec.pattern == Pattern::KernelReceiver,
                Phase::SpinForEver => false,
                _ => true,
            }
    }

    /// Whether a vCPU spins, that is, runs and waits.
    pub fn spins(&self, nth: usize) -> bool {
        let vcpu = &self.vcpus[nth];
        vcpu.handler.is_none()
            && matches!(
                vcpu.phase,
                Phase::WantLock | Phase::AwaitAcks | Phase::AwaitBarrier(_) | Phase::SpinForEver
            )
    }

    /// Takes the lock for a vCPU, if it may have it.
    pub fn try_lock(&mut self, nth: usize) -> bool {
        if self.holder.is_some() {
            return false;
        }
        if self.spec.pattern == Pattern::Ticket {
            if self.tickets.first() != Some(&nth) {
                return false;
            }
            self.tickets.remove(0);
        }
        self.holder = Some(nth);
        self.vcpus[nth].phase = Phase::Critical;
        self.vcpus[nth].left = self.spec.critical_ns.max(100);
        true
    }

    /// Whether what a vCPU waits for has come, other than a lock.
    pub fn wait_is_over(&self, nth: usize) -> bool {
        match self.vcpus[nth].phase {
            Phase::AwaitAcks => self.vcpus[nth].acks == 0,
            Phase::AwaitBarrier(generation) => self.generation != generation,
            _ => false,
        }
    }
}
