// SPDX-License-Identifier: GPL-2.0-only
//! What the two halves of the lab tell each other.

use crate::scenario::Scenario;
use overbook_report::schema::{Instrument, MachineInfo, Run, VmBound};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where the agent finds its [`Job`] in the initramfs.
pub const JOB_FILE: &str = "job.json";

/// Where the agent finds kernel modules, named in load order.
pub const MODULE_DIR: &str = "modules";

/// Where a host finds the kernel of its Linux guests, in the initramfs.
pub const INNER_KERNEL: &str = "linux/kernel";

/// And their initramfs.
pub const INNER_INITRAMFS: &str = "linux/initramfs";

/// And their QEMU's firmware.
pub const FIRMWARE_DIR: &str = "firmware";

/// Serial port of the agent's events, as seen inside.
pub const EVENT_PORT: &str = "/dev/ttyS1";

/// The only serial port of a Linux guest inside the host.
pub const INNER_PORT: &str = "/dev/ttyS0";

/// What a boot is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Only show that KVM runs a guest here.
    Trial,
    /// Run a scenario.
    Scenario(Box<Scenario>),
    /// Load, change, kill and upset the host scheduler while VMs come and go.
    Soak(Soak),
    /// Show that the guest scheduler does what it promises, with injected steal, on a machine of a
    /// [`crate::machine::shape::Shape`] by name.
    GuestCheck(String),
    /// Have `overbook report` or `evidence` look at VMs that contend.
    Observe(View),
    /// Be a Linux guest inside the host, and obey it.
    Inner(InnerGuest),
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum View {
    /// A lock, IPIs and computing, under EEVDF and under `overbook host`.
    Schedulers,
    /// VMs that work and halt, and then twice as many, under EEVDF.
    Twice,
    /// The first ones, by `overbook evidence`.
    Evidence,
}

/// What a Linux guest inside the host is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InnerGuest {
    /// The program that it runs again and again, and its arguments.
    pub command: Vec<String>,
    /// And one that it runs once before; none if empty.
    pub prepare: Vec<String>,
    /// See [`crate::scenario::LinuxSpec::figure`].
    pub figure: Option<String>,
    /// How many times its clock is slower than the host's: see [`crate::scenario::Scenario::guest_weight`].
    pub weight: u32,
}

/// Where a Linux guest has its packages; programs run in there.
pub const PACKAGES_DIR: &str = "packages";

/// What the host tells a Linux guest, one per line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestOrder {
    /// Have `overbook guest` schedule, with these arguments.
    Attach(Vec<String>),
    /// Have the kernel's steal governor pack it, with these parameters.
    Govern(BTreeMap<String, u64>),
    /// An end to that: all CPUs are preferred again.
    Detach,
    /// Run the program again and again, from so long on by the guest's clock.
    Work(Duration),
    /// Stop that, after the present run.
    Rest,
    /// Only say how far it is.
    Count,
}

/// What a Linux guest answers to every order, one per line; the first says that it is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestAnswer {
    /// Done, and so far it has come.
    Done(GuestCount),
    /// It could not.
    Failed(String),
}

/// How far a Linux guest has come since it booted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GuestCount {
    /// Runs of the program.
    pub runs: u64,
    /// What these took, ns.
    pub run_ns: u64,
    /// What they did: one each, or the rate that they told times the seconds that they took.
    pub done: f64,
    /// Time of all its vCPUs, idle and stolen time included, in ticks.
    pub ticks: u64,
    /// Stolen from them, in ticks.
    pub steal_ticks: u64,
    /// For how long CPUs were preferred, all together, ns.
    pub preferred_ns: u64,
    /// Times that their number changed.
    pub changes: u64,
}

/// How long a soak is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    /// Rounds, in each of which VMs come and go and the scheduler is changed.
    pub rounds: u32,
    /// How often in between the scheduler is killed and loaded again, or (an eighth of these) a CPU goes and comes back.
    pub reloads: u32,
    /// CPUs of the host, 2 to 16; the last one goes and comes back.
    pub cpus: u32,
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
    /// Something that the user should know, though the work goes on.
    Warning(String),
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
