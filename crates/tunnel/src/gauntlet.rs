// SPDX-License-Identifier: GPL-2.0-only
//! The gauntlet: small hosts that between them ask the scheduler for everything that it promises. Each is a function that
//! runs a host and says what was found wrong. They take seconds together; the scheduler must pass all of them, and a
//! fault put into its sources must fail at least one (`tests/mutants.rs`).
//!
//! A bound of a figure is what the scheduler reaches, with room: latencies and numbers of switches may be up to
//! twice as high, and throughput may be a tenth lower.

mod changes;
mod cpus;
mod groups;
mod quotas;
mod setup;
mod tasks;
mod vms;

use crate::report::Report;
use crate::world::kernel;
use anyhow::Result;

const MS: u64 = 1_000_000;

/// A host to be passed, with a name.
#[derive(Clone, Copy)]
pub struct Trial {
    /// What is tried, in short.
    pub name: &'static str,
    play: fn(Option<Vec<u8>>) -> Result<Report>,
}

impl Trial {
    /// Runs the host on an object, the crate's own by default.
    ///
    /// # Errors
    /// The object cannot be loaded, or the scheduler refuses the host.
    pub fn run(&self, object: Option<&[u8]>) -> Result<Report> {
        (self.play)(object.map(<[u8]>::to_vec))
    }
}

/// All trials; those that find most faults are first.
pub const TRIALS: &[Trial] = &[
    Trial { name: "hogs by weight", play: groups::hogs_by_weight },
    Trial { name: "nested groups", play: groups::nested_groups },
    Trial { name: "groups by size", play: groups::groups_by_size },
    Trial { name: "deep groups", play: groups::deep_groups },
    Trial { name: "cpu.max", play: quotas::quotas },
    Trial { name: "cpu.max changes", play: quotas::changed_quota },
    Trial { name: "cpu.max far above", play: quotas::far_quota },
    Trial { name: "behind 1,100 throttled tasks", play: quotas::crowd_of_throttled },
    Trial { name: "the last cpu.max goes", play: quotas::last_quota },
    Trial { name: "a group per vCPU", play: groups::group_per_vcpu },
    Trial { name: "pools of CPUs", play: cpus::pools },
    Trial { name: "sleepers beside hogs", play: tasks::sleepers },
    Trial { name: "room for all", play: tasks::room_for_all },
    Trial { name: "pushed away", play: cpus::pushed_away },
    Trial { name: "four LLCs", play: cpus::four_llcs },
    Trial { name: "two LLCs", play: cpus::two_llcs },
    Trial { name: "homes", play: cpus::homes },
    Trial { name: "homes of groups", play: cpus::homes_of_groups },
    Trial { name: "VMs larger than an LLC", play: cpus::larger_than_an_llc },
    Trial { name: "an idle LLC", play: cpus::idle_llc },
    Trial { name: "pools in an LLC", play: cpus::small_pools },
    Trial { name: "a pool on two LLCs", play: cpus::pool_on_llcs },
    Trial { name: "homes in a pool", play: cpus::homes_in_a_pool },
    Trial { name: "long alone", play: tasks::long_alone },
    Trial { name: "long sleeps", play: tasks::long_sleeps },
    Trial { name: "real-time tasks", play: tasks::real_time },
    Trial { name: "taken CPUs, 6.18", play: cpus::taken_cpus },
    Trial { name: "taken CPUs, 7.0", play: |object| cpus::taken_cpus_of(object, kernel(7, 0)) },
    Trial { name: "taken CPUs, 7.2", play: cpus::taken_cpus_later },
    Trial { name: "SCHED_IDLE", play: tasks::sched_idle },
    Trial { name: "locks", play: vms::locks },
    Trial { name: "tickets", play: vms::tickets },
    Trial { name: "barriers", play: vms::barriers },
    Trial { name: "phases", play: vms::phases },
    Trial { name: "IPIs", play: vms::ipis },
    Trial { name: "shootdowns", play: vms::shootdowns },
    Trial { name: "yields by name", play: vms::yields_by_name },
    Trial { name: "receivers", play: vms::receivers },
    Trial { name: "many senders", play: vms::many_senders },
    Trial { name: "wake-ups beside VMs", play: tasks::wake_ups },
    Trial { name: "wake-ups beside yields", play: tasks::wake_ups_at_yields },
    Trial { name: "slow exits", play: vms::slow_exits },
    Trial { name: "classes", play: vms::classes },
    Trial { name: "halting guests", play: vms::halting },
    Trial { name: "yields beside hogs", play: vms::yields_beside_hogs },
    Trial { name: "a large VM", play: vms::large_vm },
    Trial { name: "pinned vCPUs", play: vms::pinned_vcpus },
    Trial { name: "come and go", play: changes::come_and_go },
    Trial { name: "changes", play: changes::changes },
    Trial { name: "a process moves", play: changes::moving_process },
    Trial { name: "vCPUs move", play: changes::moving_vcpus },
    Trial { name: "vCPUs move apart", play: changes::parting_vcpus },
    Trial { name: "no memory", play: changes::no_memory },
    Trial { name: "no memory for a timer at once", play: quotas::late_timer },
    Trial { name: "no memory for a timer ever", play: quotas::no_timer },
    Trial { name: "races", play: changes::races },
];
