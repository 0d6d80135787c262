// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`: watch steal, keep tasks on preferred CPUs, tell everybody, until the end.

use crate::berth::Berth;
use crate::enforce::Enforcement;
use crate::guest::Guest;
use crate::keeper;
use crate::lock::{LEAVES, Lock};
use crate::native;
use crate::options::Options;
use crate::stats::GuestStats;
use crate::trace;
use crate::watch::{self, watch};
use anyhow::Result;
use overbook_cli::Bare;
use overbook_cli::output::{Stdout, ready};
use overbook_scheduler::backoff::Backoff;
use overbook_scheduler::client::Served;
use overbook_scheduler::session::{Order, Orders};
use overbook_scheduler::{anew, client, preflight, replace};
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// `overbook guest`, until `stop` is raised or the kernel unloads the scheduler.
///
/// # Errors
/// The guest does not qualify (see [`preflight::check`]), the kernel refuses the scheduler, or it was unloaded for an
/// error; one sentence each.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let stop = || stop.load(Ordering::Relaxed);
    if options.help_stats {
        return watch::explain(&mut Stdout);
    }
    options.settings.check()?;
    if let Some(file) = &options.replay {
        return trace::replay(file, options.settings.rules(), &mut Stdout);
    }
    if let Some(seconds) = options.monitor {
        let mut show = |now: GuestStats| now.print(&mut Stdout);
        return client::monitor(seconds, &stop, &mut show);
    }
    if !options.set.is_empty() {
        writeln!(Stdout, "{}", client::set::<GuestStats>(&options.set)?.in_force())?;
        return Ok(());
    }
    if options.status {
        writeln!(Stdout, "{}", serde_json::to_string(&client::ask::<GuestStats>()?)?)?;
        return Ok(());
    }
    if options.clean_up {
        let _lock = Lock::take(Duration::ZERO)?;
        return keeper::clean_up();
    }
    native::refuse()?;
    if options.hold { hold(options) } else { follow(options, &stop) }
}

/// Has the guest follow until the end; begins again when CPUs come or go.
fn follow(options: &Options, stop: &dyn Fn() -> bool) -> Result<()> {
    match options.enforce {
        // What is loaded may be a host's.
        Enforcement::SchedExt => preflight::check(options.replace && Lock::is_taken())?,
        Enforcement::Cpuset => preflight::need_root("changing cpusets")?,
    }
    let alone = !options.replace && !options.dry_run;
    let mut lock = alone.then(|| Lock::take(Duration::ZERO)).transpose()?;
    let mut first: Option<Guest> = None;
    let mut backoff = Backoff::default();
    loop {
        // Every load needs an object of its own.
        let mut object = MaybeUninit::uninit();
        let mut berth = Berth::new(&mut object);
        let mut enforcer = berth.enforcer(options)?;
        if options.dry_run {
            ready();
            writeln!(Stdout, "the kernel accepts {}", options.enforce.what())?;
            return Ok(());
        }
        if lock.is_none() {
            replace::take_over(GuestStats::COMMAND, Lock::is_taken)?;
            // Somebody may clean up after the other for a moment.
            lock = Some(Lock::take(LEAVES)?);
            if options.enforce == Enforcement::SchedExt {
                preflight::check(false)?;
            }
        }
        let guest = match &mut first {
            Some(guest) => {
                // Only now: a CPU that comes while the enforcer is made belongs to the machine.
                guest.machine_changed()?;
                guest
            }
            // Only now: what another has told irqbalance is not how it was configured.
            none => {
                keeper::clean_up()?;
                none.insert(Guest::new(options)?)
            }
        };
        let end = watch(guest, &mut *enforcer, options.stats, options.stretch, stop)?;
        if end.is_hotplug() {
            guest.stand_back(&*enforcer)?;
            backoff.wait("CPUs", &stop);
        }
        // It may have been asked to end while it waited.
        if !end.is_hotplug() || stop() {
            if options.json {
                writeln!(Stdout, "{}", serde_json::to_string(&guest.stats)?)?;
            }
            return end.report();
        }
        if anew::is_due() {
            // What was changed is put back, and whoever begins next may do so at once.
            drop((first.take(), lock.take()));
            return Err(anew::begin());
        }
    }
}

/// Begins and ends as the lab says; a line of JSON answers each order.
fn hold(options: &Options) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut berth = Berth::new(&mut object);
    let orders = Orders::listen();
    writeln!(Stdout, "{{}}")?;
    while let Some(arguments) = orders.begin()? {
        let mut now = Bare::<Options>::options_of(&arguments)?;
        now.stretch = options.stretch;
        now.settings.check()?;
        if now.enforce == Enforcement::SchedExt && berth.is_empty() {
            preflight::check(false)?;
        }
        let mut enforcer = berth.enforcer(&now)?;
        // Reading the machine takes an emulated CPU a second.
        let mut guest = Guest::new(&now)?;
        writeln!(Stdout, "{{}}")?;
        // Whatever comes next ends this turn: `detach`, or the end of the input.
        let stop = || !matches!(orders.next(Duration::ZERO), Ok(Order::None));
        watch(&mut guest, &mut *enforcer, now.stats, now.stretch, &stop)?.report()?;
        writeln!(Stdout, "{}", serde_json::to_string(&guest.stats)?)?;
    }
    Ok(())
}
