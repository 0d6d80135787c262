// SPDX-License-Identifier: GPL-2.0-only
//! Where a scheduler is loaded, if one is needed.

use crate::cpusets::Cpusets;
use crate::enforce::{Enforcement, Enforcer};
use crate::options::Options;
use crate::standby::StandBy;
use anyhow::{Context, Result};
use overbook_scheduler::{Mode, OpenObject, Scheduler};
use std::mem::MaybeUninit;

/// Loads a scheduler once, when one is wanted first: verifying it takes an emulated CPU many seconds.
pub(crate) struct Berth<'a> {
    object: Option<&'a mut MaybeUninit<OpenObject>>,
    scheduler: Option<Scheduler<'a>>,
}

impl<'a> Berth<'a> {
    /// Nothing is loaded yet.
    pub(crate) fn new(object: &'a mut MaybeUninit<OpenObject>) -> Berth<'a> {
        Berth { object: Some(object), scheduler: None }
    }

    /// Whether a scheduler would be loaded now.
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_some()
    }

    /// Who keeps tasks on preferred CPUs.
    ///
    /// # Errors
    /// There is no cgroup v2, or the kernel refuses the scheduler.
    pub(crate) fn enforcer<'s>(&'s mut self, options: &Options) -> Result<Box<dyn Enforcer + 's>>
    where
        'a: 's,
    {
        if options.enforce == Enforcement::Cpuset {
            return Ok(Box::new(Cpusets::of_this_machine()?));
        }
        if let Some(object) = self.object.take() {
            self.scheduler = Some(Scheduler::load(Mode::Guest, &options.loading(), object)?);
        }
        let scheduler = self.scheduler.as_mut().context("the scheduler did not load")?;
        Ok(Box::new(StandBy::new(scheduler, options.tunables())))
    }
}
