// SPDX-License-Identifier: GPL-2.0-only
//! Whether the scheduler schedules. It is needed only while some CPUs are not preferred: with all of them, it does what
//! EEVDF does, and costs more. So it stands by, loaded and verified, and takes the guest's tasks when it is needed.

use crate::cpusets::Changed;
use crate::enforce::{Choice, Enforcer};
use crate::native;
use anyhow::{Result, bail};
use overbook_cli::cpulist::Cpus;
use overbook_scheduler::stats::HostStats;
use overbook_scheduler::urgent::Urgent;
use overbook_scheduler::{Scheduler, Tunables, ending, preflight};
use scx_utils::UserExitInfo;

/// A loaded scheduler that is attached while it is needed.
pub struct StandBy<'s, 'a> {
    scheduler: &'s mut Scheduler<'a>,
    tunables: Tunables,
    /// Periods in a row in which all CPUs have been preferred.
    idle: u32,
    attached: bool,
    /// All tasks of a guest ask for a whole slice. The monitor would wait behind all of them, and take two periods for one.
    /// (Weight would do too, but not beside EEVDF, which keeps other tasks away from the CPU of a heavy one.)
    urgent: Option<Urgent>,
}

impl<'s, 'a> StandBy<'s, 'a> {
    /// Takes a scheduler that is not attached.
    pub fn new(scheduler: &'s mut Scheduler<'a>, tunables: Tunables) -> StandBy<'s, 'a> {
        StandBy { scheduler, tunables, idle: 0, attached: false, urgent: None }
    }
}

impl Enforcer for StandBy<'_, '_> {
    fn survey(&mut self, _: &Choice) -> Result<bool> {
        Ok(false)
    }

    fn undo(&self) -> Option<Changed> {
        None
    }

    fn prefer(&mut self, choice: &Choice) -> Result<()> {
        self.idle = 0;
        if !self.attached {
            if choice.all && choice.patience > 0 {
                return Ok(());
            }
            if let Some(other) = preflight::loaded() {
                bail!("the scheduler {other:?} was loaded while this one stood by: stop it first");
            }
            native::refuse()?;
            self.scheduler.forget_end()?;
            self.scheduler.attach(&self.tunables, false)?;
            self.attached = true;
            self.urgent = Urgent::begin();
            log::info!("the guest's tasks are ours");
        }
        self.scheduler.prefer(&choice.preferred.iter().copied().collect::<Vec<_>>())
    }

    fn period(&mut self, choice: &Choice) -> Result<()> {
        self.idle = if choice.all { self.idle.saturating_add(1) } else { 0 };
        if self.attached && choice.patience > 0 && self.idle >= choice.patience && !self.ended() {
            self.attached = false;
            self.urgent = None;
            log::info!("all CPUs are preferred: the guest's tasks are EEVDF's, until they are not");
            ending::report(&self.scheduler.leave())?;
        }
        Ok(())
    }

    fn is_active(&self) -> bool {
        self.attached
    }

    fn may_end(&self) -> bool {
        self.attached
    }

    fn ended(&self) -> bool {
        self.attached && self.scheduler.ended()
    }

    /// The kernel says so by unloading the scheduler only if it has the tasks. The choice is among CPUs that were read after
    /// it was loaded.
    fn is_outdated(&self, _: &Cpus) -> bool {
        !self.attached && self.scheduler.is_of_other_cpus()
    }

    fn set_slice(&mut self, slice_us: u64) -> Result<()> {
        self.tunables.slice_us = slice_us;
        self.scheduler.set(&self.tunables)
    }

    fn leave(&mut self) -> Option<UserExitInfo> {
        self.urgent = None;
        std::mem::take(&mut self.attached).then(|| self.scheduler.leave())
    }

    fn stats(&self) -> Result<HostStats> {
        self.scheduler.stats()
    }
}
