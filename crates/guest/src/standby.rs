// SPDX-License-Identifier: GPL-2.0-only
//! Whether the scheduler schedules. It is needed only while some CPUs are not preferred: with all of them, it does what
//! EEVDF does, and costs more. So it stands by, loaded and verified, and takes the guest's tasks when it is needed.

use crate::native;
use anyhow::{Result, bail};
use overbook_host::ending;
use overbook_host::scheduler::Scheduler;
use overbook_host::stats::HostStats;
use overbook_host::urgent::Urgent;
use overbook_host::{Options, preflight};
use scx_utils::UserExitInfo;
use std::fs;

/// A loaded scheduler that is attached while it is needed.
pub struct StandBy<'s, 'a> {
    scheduler: &'s mut Scheduler<'a>,
    options: Options,
    /// Periods in a row in which all CPUs have been preferred.
    idle: u32,
    attached: bool,
    /// How often CPUs had come or gone when it was loaded, as the kernel counts.
    hotplugs: String,
    /// All tasks of a guest ask for a whole turn. The monitor would wait behind all of them, and take two periods for one.
    /// (Weight would do too, but not beside EEVDF, which keeps other tasks away from the CPU of a heavy one.)
    urgent: Option<Urgent>,
}

fn hotplugs() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq").unwrap_or_default()
}

impl<'s, 'a> StandBy<'s, 'a> {
    /// Takes a scheduler that is not attached.
    pub fn new(scheduler: &'s mut Scheduler<'a>, options: Options) -> StandBy<'s, 'a> {
        StandBy { scheduler, options, idle: 0, attached: false, hotplugs: hotplugs(), urgent: None }
    }

    /// Whether it has the guest's tasks.
    pub fn is_scheduling(&self) -> bool {
        self.attached
    }

    /// Prefers these CPUs, which are all or not; with a `patience` of 0 it schedules in any case.
    ///
    /// # Errors
    /// It is needed, and another scheduler has been loaded meanwhile, or the kernel refuses.
    pub fn prefer(&mut self, cpus: &[usize], all: bool, patience: u32) -> Result<()> {
        self.idle = 0;
        if !self.attached {
            if all && patience > 0 {
                return Ok(());
            }
            if let Some(other) = preflight::loaded() {
                bail!("the scheduler {other:?} was loaded while this one stood by: stop it first");
            }
            native::refuse()?;
            self.scheduler.forget_end()?;
            self.scheduler.attach(&self.options)?;
            self.attached = true;
            self.urgent = Urgent::begin();
            log::info!("the guest's tasks are ours");
        }
        self.scheduler.prefer(cpus)
    }

    /// Changes the length of a slice, µs.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn set_slice(&mut self, slice_us: u64) -> Result<()> {
        self.options.settings.slice_us = slice_us;
        self.scheduler.set(&self.options.settings)
    }

    /// A period has passed, with all CPUs preferred or not. After `patience` of those it gives the tasks back; 0: never.
    ///
    /// # Errors
    /// The kernel had unloaded it, for an error.
    pub fn period(&mut self, all: bool, patience: u32) -> Result<()> {
        self.idle = if all { self.idle.saturating_add(1) } else { 0 };
        if self.attached && patience > 0 && self.idle >= patience && !self.ended() {
            self.attached = false;
            self.urgent = None;
            log::info!("all CPUs are preferred: the guest's tasks are EEVDF's, until they are not");
            ending::report(&self.scheduler.leave())?;
        }
        Ok(())
    }

    /// Whether the kernel has unloaded it.
    pub fn ended(&self) -> bool {
        self.attached && self.scheduler.ended()
    }

    /// Whether CPUs have come or gone; the kernel says so by unloading it only if it has the tasks.
    pub fn is_outdated(&self) -> bool {
        !self.attached && hotplugs() != self.hotplugs
    }

    /// Gives the tasks back if it has them, and says why it ended.
    pub fn leave(self) -> Option<UserExitInfo> {
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
