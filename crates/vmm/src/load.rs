// SPDX-License-Identifier: GPL-2.0-only
//! What a micro-guest does: the pattern and its parameters.

use crate::abi;
use serde::{Deserialize, Serialize};

/// A synchronization pattern. The published workload that it stands for is named with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One lock for the VM; all vCPUs contend (dbench). Unit: acquisitions.
    Lock,
    /// Every vCPU sends a fixed unicast IPI to a random sibling and waits for its handler (dedup). Unit:
    /// round trips.
    Ipi,
    /// Every vCPU asks all siblings (or `targets` of them) and waits for the last handler (TLB shootdown).
    /// Unit: shootdowns.
    Shootdown,
    /// Phases of equal work, then a barrier of all vCPUs (VIPS). Unit: phases.
    Barrier,
    /// Pairs: the even vCPU sends, the odd one computes in ring 0. Unit: round trips.
    KernelReceiver,
    /// Pairs whose receiver computes in ring 3: ple-kvm's "lost opportunity". Unit: round trips.
    UserReceiver,
    /// Pairs whose receiver halts between interrupts: ple-kvm's "overboost". Unit: round trips.
    HaltedReceiver,
    /// Plain computation, nobody waits: must not change. Unit: chunks of outside work.
    Compute,
    /// Storms of PAUSE, IPIs or HLT by every vCPU, to win CPU time by misbehaving. Unit: storm operations.
    Hostile,
}

/// The kind of lock of [`Pattern::Lock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// Test and test-and-set: whoever runs may take it.
    #[default]
    TestAndSet,
    /// First come, first served: a preempted waiter blocks all behind it.
    Ticket,
}

/// A misbehaviour of [`Pattern::Hostile`]; several are taken in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storm {
    /// PAUSE without waiting for anything.
    Pause,
    /// IPIs to all siblings that nobody waits for.
    Ipi,
    /// HLT that a self-IPI ends at once.
    Hlt,
}

/// A pattern with its parameters. Times are CPU time of an undisturbed vCPU, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What the vCPUs do.
    pub pattern: Pattern,
    /// Kind of lock, for `lock`.
    pub lock: LockKind,
    /// Time in the critical section (`lock`) or in the interrupt handler (receivers).
    pub critical_us: f64,
    /// Work between two operations.
    pub outside_us: f64,
    /// Of `compute`: a vCPU halts for so long between two pieces of work, woken by its timer; 0: never. Up to a second. By
    /// how much too late it wakes up is a wait. Varies as outside work does.
    pub halt_us: f64,
    /// Receivers of one shootdown; 0 = all siblings.
    pub targets: u32,
    /// Storms of `hostile`, taken in turn.
    pub storms: Vec<Storm>,
    /// Outside work varies uniformly by ± this many per cent (0 to 100), or vCPUs would run in lockstep.
    pub jitter_percent: u32,
}

impl Pattern {
    /// All patterns, in the order of the documentation.
    pub const ALL: [Pattern; 9] = [
        Pattern::Lock,
        Pattern::Ipi,
        Pattern::Shootdown,
        Pattern::Barrier,
        Pattern::KernelReceiver,
        Pattern::UserReceiver,
        Pattern::HaltedReceiver,
        Pattern::Compute,
        Pattern::Hostile,
    ];

    /// Name in scenario files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Lock => "lock",
            Pattern::Ipi => "ipi",
            Pattern::Shootdown => "shootdown",
            Pattern::Barrier => "barrier",
            Pattern::KernelReceiver => "kernel-receiver",
            Pattern::UserReceiver => "user-receiver",
            Pattern::HaltedReceiver => "halted-receiver",
            Pattern::Compute => "compute",
            Pattern::Hostile => "hostile",
        }
    }

    /// What one unit of work is called.
    pub fn unit(self) -> &'static str {
        match self {
            Pattern::Lock => "locks",
            Pattern::Ipi | Pattern::KernelReceiver | Pattern::UserReceiver | Pattern::HaltedReceiver => {
                "round trips"
            }
            Pattern::Shootdown => "shootdowns",
            Pattern::Barrier => "phases",
            Pattern::Compute => "chunks",
            Pattern::Hostile => "storm ops",
        }
    }

    /// Fewest vCPUs with which the pattern means anything.
    pub fn min_vcpus(self) -> u32 {
        match self {
            Pattern::Lock | Pattern::Barrier | Pattern::Compute | Pattern::Hostile => 1,
            _ => 2,
        }
    }

    /// True if vCPUs come in pairs of a sender and a receiver.
    pub fn is_paired(self) -> bool {
        matches!(self, Pattern::KernelReceiver | Pattern::UserReceiver | Pattern::HaltedReceiver)
    }
}

impl Load {
    /// The pattern with its defaults: sections long against the emulator's turns and short against a slice.
    pub fn new(pattern: Pattern) -> Load {
        let (critical_us, outside_us) = match pattern {
            Pattern::Lock => (300.0, 100.0),
            Pattern::Barrier => (0.0, 1000.0),
            Pattern::Compute => (0.0, 100.0),
            Pattern::Hostile => (0.0, 0.0),
            _ => (20.0, 200.0),
        };
        Load {
            pattern,
            lock: LockKind::default(),
            critical_us,
            outside_us,
            halt_us: 0.0,
            targets: 0,
            storms: vec![Storm::Pause, Storm::Ipi, Storm::Hlt],
            jitter_percent: 50,
        }
    }

    /// What tables call it: the pattern, and what makes it another load than [`Load::new`] has.
    pub fn label(&self) -> String {
        let (usual, name) = (Load::new(self.pattern), self.pattern.name());
        let halts = self.halt_us > 0.0;
        let other = [
            halts.then(|| format!("{} µs, then halts for {}", self.outside_us, self.halt_us)),
            (self.lock != usual.lock).then(|| "ticket".into()),
            (self.critical_us != usual.critical_us).then(|| format!("critical {} µs", self.critical_us)),
            (!halts && self.outside_us != usual.outside_us)
                .then(|| format!("outside {} µs", self.outside_us)),
            (self.targets != usual.targets).then(|| format!("targets {}", self.targets)),
            (self.storms != usual.storms).then(|| format!("storms {:?}", self.storms).to_lowercase()),
            (self.jitter_percent != usual.jitter_percent)
                .then(|| format!("jitter {} %", self.jitter_percent)),
        ];
        let other: Vec<String> = other.into_iter().flatten().collect();
        if other.is_empty() { name.into() } else { format!("{name} ({})", other.join(", ")) }
    }

    /// The guest's parameter block for `vcpus` vCPUs on a machine whose CPU takes `ns_per_turn` for one turn
    /// of a decrement-and-branch loop. `stretch` is the scenario's dilation.
    pub(crate) fn params(&self, vcpus: u32, seed: u64, ns_per_turn: f64, stretch: f64) -> abi::ob_params {
        let turns = |us: f64| (us * stretch * 1000.0 / ns_per_turn).round() as u64;
        let (pattern, receiver, targets) = match self.pattern {
            Pattern::Lock => (abi::OB_LOCK, 0, 0),
            Pattern::Ipi => (abi::OB_IPI, abi::OB_RECEIVER_PEER, 1),
            Pattern::Shootdown => (abi::OB_IPI, abi::OB_RECEIVER_PEER, self.targets),
            Pattern::KernelReceiver => (abi::OB_IPI, abi::OB_RECEIVER_KERNEL, 1),
            Pattern::UserReceiver => (abi::OB_IPI, abi::OB_RECEIVER_USER, 1),
            Pattern::HaltedReceiver => (abi::OB_IPI, abi::OB_RECEIVER_HALT, 1),
            Pattern::Barrier => (abi::OB_BARRIER, 0, 0),
            Pattern::Compute => (abi::OB_COMPUTE, 0, 0),
            Pattern::Hostile => (abi::OB_HOSTILE, 0, 0),
        };
        abi::ob_params {
            vcpus,
            pattern,
            critical_turns: turns(self.critical_us),
            outside_turns: turns(self.outside_us),
            lock_kind: match self.lock {
                LockKind::TestAndSet => abi::OB_LOCK_TAS,
                LockKind::Ticket => abi::OB_LOCK_TICKET,
            },
            receiver,
            targets,
            storms: self.storms.iter().fold(0, |bits, storm| {
                bits | match storm {
                    Storm::Pause => abi::OB_STORM_PAUSE,
                    Storm::Ipi => abi::OB_STORM_IPI,
                    Storm::Hlt => abi::OB_STORM_HLT,
                }
            }),
            jitter_percent: self.jitter_percent,
            halt_ns: (self.halt_us * stretch * 1000.0).round().min(1e9) as u32,
            seed,
            tsc_khz: 0,
            reserved: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_that_differ_have_other_labels() {
        let usual = Load::new(Pattern::Lock);
        assert_eq!(usual.label(), "lock");
        let ticket = Load { lock: LockKind::Ticket, critical_us: 50.0, ..usual };
        assert_eq!(ticket.label(), "lock (ticket, critical 50 µs)");
        let halts = Load { halt_us: 1000.0, ..Load::new(Pattern::Compute) };
        assert_eq!(halts.label(), "compute (100 µs, then halts for 1000)");
        let steady = Load { jitter_percent: 0, ..halts };
        assert_eq!(steady.label(), "compute (100 µs, then halts for 1000, jitter 0 %)");
        let storms = Load { storms: vec![Storm::Ipi], ..Load::new(Pattern::Hostile) };
        assert_eq!(storms.label(), "hostile (storms [ipi])");
    }
}
