// SPDX-License-Identifier: GPL-2.0-only
//! A host that is scheduled.

use crate::chores::Chores;
use crate::classes::TELL;
use crate::settings::Settings;
use anyhow::Result;
use overbook_cli::changes::{Change, Changeable, changes};
use overbook_scheduler::Scheduler;
use overbook_scheduler::client::Served;
use overbook_scheduler::costs::ProgramStats;
use overbook_scheduler::session::{Arguments, POLL, Session};
use overbook_scheduler::stats::{ClassStats, HostStats, TierStats, VcpuStats, VmStats};
use scx_stats::prelude::*;
use scx_utils::UserExitInfo;
use std::io::Write;
use std::time::Duration;

/// The scheduler, attached, and what is done beside it.
pub(crate) struct Hosting<'s, 'a> {
    scheduler: &'s mut Scheduler<'a>,
    settings: Settings,
    chores: Chores,
    /// As last printed.
    printed: HostStats,
    /// The modules of kvm have changed. They can be as they were at the next look, and the programs do not fit all the same.
    outdated: bool,
}

/// What outlives one load.
pub(crate) struct Left {
    pub settings: Settings,
    pub stats: HostStats,
    /// It ended because the modules of kvm have changed.
    pub outdated: bool,
}

/// What a client asks.
pub(crate) enum Request {
    Set(Vec<Change>),
    /// Look at what was said of VMs' classes.
    Classes,
}

impl<'s, 'a> Hosting<'s, 'a> {
    /// Attaches the scheduler.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn begin(
        scheduler: &'s mut Scheduler<'a>,
        settings: Settings,
        costs: bool,
        stretch: f64,
    ) -> Result<Hosting<'s, 'a>> {
        scheduler.attach(&settings.tunables(), costs)?;
        log::info!("{}", settings.in_force());
        let chores = Chores::new(scheduler, stretch);
        Ok(Hosting { scheduler, settings, chores, printed: HostStats::default(), outdated: false })
    }

    /// Gives all tasks back; why it ended, and what is left of it.
    ///
    /// # Errors
    /// What was counted cannot be read.
    pub(crate) fn end(mut self) -> Result<(UserExitInfo, Left)> {
        let stats = self.stats()?;
        let exit = self.scheduler.leave();
        Ok((exit, Left { settings: self.settings, stats, outdated: self.outdated }))
    }
}

impl Session for Hosting<'_, '_> {
    type Request = Request;
    type Stats = HostStats;

    fn read(arguments: &Arguments) -> Result<Option<Request>> {
        if let Some(text) = arguments.get(HostStats::SET) {
            return Ok(Some(Request::Set(changes::<Settings>(text)?)));
        }
        Ok(arguments.contains_key(TELL).then_some(Request::Classes))
    }

    fn describe() -> Vec<StatsMeta> {
        vec![
            HostStats::meta(),
            VmStats::meta(),
            VcpuStats::meta(),
            TierStats::meta(),
            ClassStats::meta(),
            ProgramStats::meta(),
        ]
    }

    fn heed(&mut self, request: Request) -> Result<()> {
        match request {
            Request::Set(changes) => {
                let settings = self.settings.with(&changes)?;
                self.scheduler.set(&settings.tunables()).inspect_err(|why| {
                    log::warn!("cannot change as asked, and goes on as before: {why:#}");
                })?;
                self.settings = settings;
                log::info!("{}", self.settings.in_force());
            }
            Request::Classes => self.chores.look_at_classes()?,
        }
        self.work()
    }

    fn stats(&mut self) -> Result<HostStats> {
        Ok(HostStats { settings: self.settings.in_force(), ..self.scheduler.stats()? })
    }

    fn print(&mut self, mut to: &mut dyn Write) -> Result<()> {
        let now = self.stats()?;
        now.since(&self.printed).print(&mut to)?;
        self.printed = now;
        Ok(())
    }

    fn rest(&self) -> Duration {
        POLL
    }

    fn work(&mut self) -> Result<()> {
        self.chores.look(self.scheduler, &self.settings);
        self.outdated |= self.scheduler.outdated();
        Ok(())
    }

    fn ended(&self) -> bool {
        self.outdated || self.scheduler.ended()
    }
}
