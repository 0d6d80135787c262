// SPDX-License-Identifier: GPL-2.0-only
//! Whether the scheduler schedules. It is needed only while some CPUs are not preferred: with all of them, it does what
//! EEVDF does, and costs more. So it stands by, loaded and verified, and takes the guest's tasks when it is needed.

use anyhow::Result;
use overbook_host::scheduler::Scheduler;
use overbook_host::stats::HostStats;
use overbook_host::{Options, preflight};
use scx_utils::UserExitInfo;

/// A loaded scheduler that is attached while it is needed.
pub struct StandBy<'s, 'a> {
    scheduler: &'s mut Scheduler<'a>,
    options: Options,
    /// Periods in a row in which all CPUs are preferred before it gives the tasks back; 0: it never does.
    patience: u32,
    idle: u32,
    attached: bool,
}

/// Nice value of the monitor while it schedules. All tasks of a guest ask for a whole turn, so it would wait behind all of
/// them, and look at two periods as if they were one.
const HEAVY: i32 = -20;

/// Sets the nice value of this thread; not for ever, since EEVDF keeps other tasks away from the CPU of a heavy one.
fn weigh(nice: i32) {
    // SAFETY: changes this thread only.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}

impl<'s, 'a> StandBy<'s, 'a> {
    /// Takes a scheduler that is not attached.
    pub fn new(scheduler: &'s mut Scheduler<'a>, options: Options, patience: u32) -> StandBy<'s, 'a> {
        StandBy { scheduler, options, patience, idle: 0, attached: false }
    }

    /// Whether it has the guest's tasks.
    pub fn is_scheduling(&self) -> bool {
        self.attached
    }

    /// Prefers these CPUs, which are all or not.
    ///
    /// # Errors
    /// It is needed, and another scheduler has been loaded meanwhile, or the kernel refuses.
    pub fn prefer(&mut self, cpus: &[usize], all: bool) -> Result<()> {
        self.idle = 0;
        if !self.attached {
            if all && self.patience > 0 {
                return Ok(());
            }
            // What held at the start may not hold any more.
            preflight::check(false)?;
            self.scheduler.forget_end()?;
            self.scheduler.attach(&self.options)?;
            self.attached = true;
            weigh(HEAVY);
            log::info!("the guest's tasks are ours");
        }
        self.scheduler.prefer(cpus)
    }

    /// A period has passed, with all CPUs preferred or not.
    ///
    /// # Errors
    /// The kernel had unloaded it, for an error.
    pub fn period(&mut self, all: bool) -> Result<()> {
        self.idle = if all { self.idle.saturating_add(1) } else { 0 };
        if self.attached && self.patience > 0 && self.idle >= self.patience && !self.ended() {
            self.attached = false;
            weigh(0);
            log::info!("all CPUs are preferred: the guest's tasks are EEVDF's, until they are not");
            self.scheduler.leave().report()?;
        }
        Ok(())
    }

    /// Whether the kernel has unloaded it.
    pub fn ended(&self) -> bool {
        self.attached && self.scheduler.ended()
    }

    /// Gives the tasks back if it has them, and says why it ended.
    pub fn leave(self) -> Option<UserExitInfo> {
        weigh(0);
        self.attached.then(|| self.scheduler.leave())
    }

    /// What the scheduler has counted.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn stats(&self) -> Result<HostStats> {
        self.scheduler.stats()
    }
}
