// SPDX-License-Identifier: GPL-2.0-only
//! What the loader does now and then. The scheduler is as good without: what fails once is left off.

use crate::classes::Classes;
use crate::entitle::Teller;
use crate::homes::Finder;
use crate::settings::Settings;
use anyhow::{Result, ensure};
use overbook_scheduler::Scheduler;

/// All chores.
pub(crate) struct Chores {
    teller: Option<Teller>,
    finder: Option<Finder>,
    classes: Classes,
    /// Whether classes can be told to the scheduler.
    classifies: bool,
}

impl Chores {
    /// Begins.
    pub(crate) fn new(scheduler: &Scheduler, stretch: f64) -> Chores {
        let teller = Teller::new(stretch).inspect_err(|e| log::warn!("guests are told nothing: {e:#}"));
        let finder = Some(Finder::new(scheduler, stretch));
        Chores { teller: teller.ok(), finder, classes: Classes::default(), classifies: true }
    }

    /// Does what is due.
    pub(crate) fn look(&mut self, scheduler: &mut Scheduler, settings: &Settings) {
        if let Some(Err(e)) = self.teller.as_mut().map(|teller| teller.look(scheduler)) {
            log::warn!("guests are told nothing any more: {e:#}");
            self.teller = None;
        }
        if let Some(Err(e)) = self.finder.as_mut().map(|finder| finder.look(scheduler)) {
            log::warn!("VMs stay in the LLCs where they are: {e:#}");
            self.finder = None;
        }
        if self.classifies
            && let Err(e) = self.classes.look(scheduler, settings)
        {
            log::warn!("classes of VMs stay as they are: {e:#}");
            self.classifies = false;
        }
    }

    /// Somebody has said the class of a VM. It is heeded by the next load, if not by this one.
    ///
    /// # Errors
    /// Classes cannot be told to the scheduler any more.
    pub(crate) fn look_at_classes(&mut self) -> Result<()> {
        self.classes.look_at_once();
        ensure!(self.classifies, "classes of VMs stay as they are, and the log says why: start it again");
        Ok(())
    }
}
