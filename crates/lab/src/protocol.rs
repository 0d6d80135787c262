// SPDX-License-Identifier: GPL-2.0-only
//! What the two halves of the lab tell each other.

use crate::scenario::Scenario;
use overbook_report::schema::{Instrument, MachineInfo, Run, VmBound};
use serde::{Deserialize, Serialize};

/// Where the agent finds its [`Job`] in the initramfs.
pub const JOB_FILE: &str = "job.json";

/// Where the agent finds kernel modules, named in load order.
pub const MODULE_DIR: &str = "modules";

/// Serial port of the agent's events, as seen inside.
pub const EVENT_PORT: &str = "/dev/ttyS1";

/// What a boot is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Only show that KVM runs a guest here.
    Trial,
    /// Run a scenario.
    Scenario(Box<Scenario>),
    /// Load, switch, kill and upset the host scheduler while VMs come and go.
    Soak(Soak),
    /// Show that the guest scheduler does what it promises, with injected steal.
    GuestCheck,
    /// Have `overbook report` look at VMs that contend.
    Observe,
}

/// How long a soak is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    /// Rounds, in each of which VMs come and go and the rule is switched.
    pub rounds: u32,
    /// How often in between the scheduler is killed and loaded again, or a CPU goes and comes back, by turns.
    pub reloads: u32,
}

/// The agent's orders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What to do.
    pub task: Task,
    /// How the machine is accelerated, as reports say it.
    pub accel: String,
    /// Version of the emulator.
    pub emulator: String,
    /// Seed, after the command line.
    pub seed: u64,
    /// Whether figures outside the limits of the instrument stop the run.
    pub strict: bool,
}

/// What the agent says, one per line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Something for the log.
    Log(String),
    /// What the machine is.
    Machine(MachineInfo),
    /// The instrument measured itself.
    Instrument(Instrument),
    /// How far the work is: done and total steps.
    Progress(u32, u32),
    /// A run is finished.
    Run(Box<Run>),
    /// The bounds, after the last run.
    Bounds(Vec<VmBound>),
    /// All done; nothing follows.
    Done,
    /// The work cannot go on; nothing follows.
    Failed(String),
}
