// SPDX-License-Identifier: GPL-2.0-only
//! The machine as a guest: what it does, and how its host treats it. The host is a model; docs/lab.md says what it
//! assumes.

use super::check::{Mistake, mistake, prefixed_table, range};
use serde::{Deserialize, Serialize};

/// What the guest's tasks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestLoad {
    /// Groups of senders and receivers of short messages, as in hackbench.
    Messages,
    /// Threads that compute and then wait for all others, asleep, as in a parallel build step.
    Phases,
    /// Threads that take one spinning lock by turns, in user mode.
    Lock,
    /// Threads that compute.
    Compute,
}

impl GuestLoad {
    /// Name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            GuestLoad::Messages => "messages",
            GuestLoad::Phases => "phases",
            GuestLoad::Lock => "lock",
            GuestLoad::Compute => "compute",
        }
    }

    /// What is counted.
    pub fn unit(self) -> &'static str {
        match self {
            GuestLoad::Messages => "messages",
            GuestLoad::Phases => "phases",
            GuestLoad::Lock => "locks",
            GuestLoad::Compute => "chunks",
        }
    }
}

/// How the host shares its CPUs between this guest and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostShare {
    /// By VM: the guest has `cpus`, however many of its vCPUs want to run.
    Vm,
    /// By vCPU: all vCPUs are alike, and `others` of them are neighbours'.
    Vcpu,
}

/// The `[guest]` table.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// What its tasks do.
    pub load: GuestLoad,
    /// Tasks; groups of eight for `messages`. 1 to 256.
    pub tasks: u32,
    /// Time of an operation: a critical section, a chunk, a phase, work per message. 1 to 10^6 µs before dilation.
    #[serde(default = "operation_us")]
    pub operation_us: f64,
    /// How the host shares.
    #[serde(default = "by_vm")]
    pub share: HostShare,
    /// CPUs that the host has for this guest (`vm`) or for all (`vcpu`).
    pub cpus: f64,
    /// Neighbours' vCPUs, with `vcpu`.
    #[serde(default)]
    pub others: u32,
    /// A vCPU runs and is preempted by turns; both together, in µs before dilation. 100 to 10^6.
    #[serde(default = "host_turn_us")]
    pub host_turn_us: f64,
    /// How soon it finds its size is measured too: preferred CPUs are looked at all the time, which costs a little.
    #[serde(default)]
    pub watch: bool,
}

fn operation_us() -> f64 {
    20.0
}

fn host_turn_us() -> f64 {
    6000.0
}

fn by_vm() -> HostShare {
    HostShare::Vm
}

impl GuestSpec {
    /// CPUs that the host has for this guest of so many vCPUs, if all of them want to run.
    pub fn entitled(&self, vcpus: u32) -> f64 {
        let vcpus = f64::from(vcpus);
        vcpus.min(match self.share {
            HostShare::Vm => self.cpus,
            HostShare::Vcpu => self.cpus * vcpus / (vcpus + f64::from(self.others)),
        })
    }

    /// vCPUs, the neighbours' too, divided by the host's CPUs for them.
    pub fn overcommit(&self, vcpus: u32) -> f64 {
        f64::from(vcpus + self.others) / self.cpus
    }

    pub(super) fn check(&self, vms: usize) -> Result<(), Mistake> {
        self.check_values().map_err(|(keys, what)| (prefixed_table("guest", keys), what))?;
        if vms > 0 {
            return mistake(
                &["vm"],
                "a machine that is a guest runs no VMs: leave [[vm]] or [guest] out".into(),
            );
        }
        Ok(())
    }

    fn check_values(&self) -> Result<(), Mistake> {
        range(&["tasks"], self.tasks, 1, 256)?;
        range(&["operation_us"], self.operation_us, 1.0, 1e6)?;
        range(&["cpus"], self.cpus, 0.1, 1024.0)?;
        range(&["others"], self.others, 0, 1024)?;
        range(&["host_turn_us"], self.host_turn_us, 100.0, 1e6)?;
        if self.others > 0 && self.share == HostShare::Vm {
            return mistake(&["others"], "`others` goes with share = \"vcpu\"".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_is_entitled_to_depends_on_how_its_host_shares() {
        let spec = |text: &str| {
            toml::from_str::<GuestSpec>(&format!("load = \"compute\"\ntasks = 4\n{text}")).unwrap()
        };
        let by_vm = spec("cpus = 2.0");
        assert_eq!((by_vm.entitled(4), by_vm.overcommit(4)), (2.0, 2.0));
        assert_eq!(spec("cpus = 9.0").entitled(4), 4.0, "no more than it has vCPUs");
        let alike = spec("share = \"vcpu\"\ncpus = 4.0\nothers = 4");
        assert_eq!((alike.entitled(4), alike.overcommit(4)), (2.0, 2.0));
    }
}
