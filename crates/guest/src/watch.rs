// SPDX-License-Identifier: GPL-2.0-only
//! A guest that is watched: period by period, with somebody who keeps its tasks on the preferred CPUs.

use crate::enforce::Enforcer;
use crate::guest::Guest;
use crate::settings::Settings;
use crate::stats::GuestStats;
use anyhow::Result;
use overbook_cli::changes::{Change, changes};
use overbook_scheduler::client::Served;
use overbook_scheduler::ending;
use overbook_scheduler::session::{self, Arguments, POLL, Session};
use scx_stats::prelude::*;
use scx_utils::UserExitInfo;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often it looks whether it is to stop while nobody else can end its work, and it should not be noticed.
const REST: Duration = Duration::from_secs(1);

/// Why a watch ended.
pub(crate) enum End {
    /// It was asked to, while nothing of the kernel's was ours.
    Asked,
    /// CPUs came or went.
    Hotplug,
    /// The scheduler was unloaded, by us or by the kernel.
    Unloaded(UserExitInfo),
}

impl End {
    /// Whether to begin again.
    pub(crate) fn is_hotplug(&self) -> bool {
        matches!(self, End::Hotplug)
    }

    /// Whether it ended as it was asked to.
    ///
    /// # Errors
    /// The kernel threw the scheduler out.
    pub(crate) fn report(&self) -> Result<()> {
        match self {
            End::Unloaded(exit) => ending::report(exit),
            _ => Ok(()),
        }
    }
}

/// Watches until the end, and prints statistics every so many seconds, if at all. Times are stretched by `stretch`.
///
/// # Errors
/// Tasks cannot be kept on the preferred CPUs any more.
pub(crate) fn watch(
    guest: &mut Guest,
    enforcer: &mut dyn Enforcer,
    print_every: Option<f64>,
    stretch: f64,
    stop: &dyn Fn() -> bool,
) -> Result<End> {
    guest.tell_keeper(enforcer)?;
    guest.prefer(enforcer)?;
    let patient = print_every.is_none();
    let now = Instant::now();
    let mut watch = Watch { guest, enforcer, stretch, patient, due: now, heard: now, outdated: false };
    let asked = session::work(&mut watch, print_every, stop)?;
    // What is left of it is what is shown last.
    watch.stats()?;
    Ok(match (watch.enforcer.leave(), asked) {
        (Some(exit), false) if exit.should_restart() => End::Hotplug,
        (Some(exit), _) => End::Unloaded(exit),
        (None, false) => End::Hotplug,
        (None, true) => End::Asked,
    })
}

struct Watch<'g> {
    guest: &'g mut Guest,
    enforcer: &'g mut dyn Enforcer,
    stretch: f64,
    /// Whether nothing is to be printed, so that it need not look at the clock often.
    patient: bool,
    /// When the next period ends.
    due: Instant,
    /// When the port was last read: it holds no more than a minute of what the host tells, and not the newest.
    heard: Instant,
    /// Whether CPUs have come or gone.
    outdated: bool,
}

impl Watch<'_> {
    fn period(&self) -> Duration {
        self.guest.interval().mul_f64(self.stretch)
    }
}

impl Session for Watch<'_> {
    type Request = Vec<Change>;
    type Stats = GuestStats;

    fn read(arguments: &Arguments) -> Result<Option<Vec<Change>>> {
        arguments.get(GuestStats::SET).map(|text| changes::<Settings>(text)).transpose()
    }

    fn describe() -> Vec<StatsMeta> {
        vec![GuestStats::meta()]
    }

    fn heed(&mut self, changes: Vec<Change>) -> Result<()> {
        self.guest.change(&changes, self.enforcer)?;
        // A shorter period begins at once.
        self.due = self.due.min(Instant::now() + self.period());
        Ok(())
    }

    fn stats(&mut self) -> Result<GuestStats> {
        self.guest.now(self.enforcer)
    }

    fn print(&mut self, to: &mut dyn Write) -> Result<()> {
        self.stats()?.print(to)
    }

    fn rest(&self) -> Duration {
        let longest = if self.enforcer.may_end() || !self.patient { POLL } else { REST };
        self.due.saturating_duration_since(Instant::now()).min(longest)
    }

    fn work(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.due {
            if now >= self.heard + REST {
                self.guest.listen();
                self.heard = now;
            }
            return Ok(());
        }
        self.heard = now;
        let period = self.period();
        // A short period says little, so those that were missed are not made up for.
        self.due = (self.due + period).max(now + period / 2);
        self.outdated = self.enforcer.is_outdated(&self.guest.online());
        if self.outdated {
            return Ok(());
        }
        self.guest.period(self.enforcer)
    }

    fn ended(&self) -> bool {
        self.outdated || self.enforcer.ended()
    }
}

/// Explains the statistics.
///
/// # Errors
/// The reader has gone.
pub(crate) fn explain(to: &mut impl Write) -> Result<()> {
    session::explain::<Watch>(to)
}
