// SPDX-License-Identifier: GPL-2.0-only
//! How tasks are kept on preferred CPUs.

use crate::cpusets::Changed;
use anyhow::Result;
use clap::ValueEnum;
use overbook_cli::cpulist::Cpus;
use overbook_scheduler::stats::HostStats;
use scx_utils::UserExitInfo;
use serde::Serialize;

/// Who keeps tasks on preferred CPUs. docs/guest.md compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// The cpusets of the top-level cgroups; EEVDF schedules, on any kernel with cgroup v2
    Cpuset,
    /// A sched_ext scheduler; tasks bound to other CPUs stay there
    SchedExt,
}

impl Enforcement {
    /// What the kernel has to accept.
    pub fn what(self) -> &'static str {
        match self {
            Enforcement::Cpuset => "cpusets",
            Enforcement::SchedExt => "the scheduler",
        }
    }
}

/// CPUs as the governor wants them.
pub struct Choice {
    /// Preferred CPUs, the isolated ones among them.
    pub preferred: Cpus,
    /// Isolated CPUs: tasks come there only if they are bound to them.
    pub isolated: Cpus,
    /// Whether all online CPUs are preferred.
    pub all: bool,
    /// Periods with all CPUs preferred before what costs something is given up; 0: never.
    pub patience: u32,
}

/// Keeps tasks on preferred CPUs.
pub trait Enforcer {
    /// Looks at what [`Enforcer::prefer`] would change outside of this program. Whether [`Enforcer::undo`] or the work that
    /// is to do differs from what it was.
    ///
    /// # Errors
    /// It cannot be read.
    fn survey(&mut self, choice: &Choice) -> Result<bool>;

    /// What has to be undone once this program is gone; the kernel does the rest by itself.
    fn undo(&self) -> Option<Changed>;

    /// Keeps tasks on these CPUs from now on.
    ///
    /// # Errors
    /// Somebody else does the same meanwhile, or the kernel refuses.
    fn prefer(&mut self, choice: &Choice) -> Result<()>;

    /// A period has passed with this choice.
    ///
    /// # Errors
    /// The kernel does not enforce it any more.
    fn period(&mut self, choice: &Choice) -> Result<()>;

    /// Whether it has something to enforce.
    fn is_active(&self) -> bool;

    /// Whether the kernel may end it, so that somebody has to look every now and then.
    fn may_end(&self) -> bool;

    /// Whether the kernel has ended it.
    fn ended(&self) -> bool;

    /// Whether CPUs have come or gone: what it has set up, or a choice among these CPUs, no longer fits.
    fn is_outdated(&self, online: &Cpus) -> bool;

    /// Changes the length of a slice, µs, if it has slices.
    ///
    /// # Errors
    /// None that was ever seen.
    fn set_slice(&mut self, slice_us: u64) -> Result<()>;

    /// Gives all tasks back, and says why the kernel ended it, if it did.
    fn leave(&mut self) -> Option<UserExitInfo>;

    /// What it has counted.
    ///
    /// # Errors
    /// It cannot be read.
    fn stats(&self) -> Result<HostStats>;
}
