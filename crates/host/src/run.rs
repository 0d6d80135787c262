// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host`: schedule and serve statistics until the end, load again after hotplug, or do as the lab says.

use crate::assignments::{self, assign};
use crate::classes::{self, Assignment, TELL};
use crate::hosting::{Hosting, Left};
use crate::namespace;
use crate::options::Options;
use anyhow::{Context, Result, bail};
use overbook_cli::Bare;
use overbook_cli::changes::Change;
use overbook_cli::output::{Stdout, note, ready};
use overbook_scheduler::backoff::Backoff;
use overbook_scheduler::client::Served;
use overbook_scheduler::session::{self, Order, Orders, POLL, Session};
use overbook_scheduler::stats::HostStats;
use overbook_scheduler::{Mode, Scheduler, anew, client, ending, faults, preflight, replace};
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `overbook host`, until `stop` is raised or the kernel unloads the scheduler.
///
/// # Errors
/// The host does not qualify (see [`preflight::check`]), the kernel refuses the scheduler, or it was unloaded for
/// an error; one sentence each, and [`ending::status`] knows which it was.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    let stop = || stop.load(Ordering::Relaxed);
    if options.help_stats {
        return session::explain::<Hosting>(&mut Stdout);
    }
    if let Some(seconds) = options.monitor {
        return monitor(seconds, &stop);
    }
    if !options.set.is_empty() {
        return set(&options.set);
    }
    if let Some(told) = &options.class {
        return tell(told);
    }
    namespace::see_whole_cgroups();
    preflight::check(options.replace)?;
    if options.hold {
        return hold(options);
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    for fault in faults::of(&release) {
        log::warn!("{}", fault.describe());
    }
    // What is changed while it runs stays when it is loaded again.
    let mut settings = options.settings.clone();
    let mut backoff = Backoff::default();
    let mut replace = options.replace;
    loop {
        // Every load needs an object of its own.
        let mut object = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(Mode::Host, &options.loading(), &mut object)?;
        if options.dry_run {
            ready();
            let sees = scheduler.sees();
            writeln!(Stdout, "the kernel accepts the scheduler; seen of guests' interrupts: {sees}")?;
            return Ok(());
        }
        // The kernel takes seconds to verify it, and one that is to be replaced still schedules.
        if stop() {
            note("told to end while the scheduler was being loaded");
            return Ok(());
        }
        if std::mem::take(&mut replace) && preflight::loaded().is_some() {
            replace::take_over(HostStats::COMMAND, || !preflight::is_free())?;
        }
        let mut hosting = Hosting::begin(&mut scheduler, settings, options.costs, options.stretch)?;
        let asked = session::work(&mut hosting, options.stats, &stop)?;
        let (exit, left) = hosting.end()?;
        settings = left.settings;
        let hotplug = exit.should_restart();
        let end = if hotplug { Ok(()) } else { ending::report(&exit) };
        if let Some(flapping) = changed(asked || end.is_err(), hotplug, left.outdated) {
            backoff.wait(flapping, &stop);
            // It may have been asked to end while it waited.
            if !stop() && anew::is_due() {
                return Err(anew::begin());
            }
            if !stop() {
                continue;
            }
        }
        if options.json {
            writeln!(Stdout, "{}", serde_json::to_string(&left.stats)?)?;
        }
        return end;
    }
}

/// What has changed, so that another load is due; nothing if it ended for good.
fn changed(for_good: bool, hotplug: bool, outdated: bool) -> Option<&'static str> {
    match () {
        () if for_good => None,
        () if hotplug => Some("CPUs"),
        () => outdated.then_some("modules of kvm"),
    }
}

/// Attaches and detaches one loaded scheduler as the lab says; a line of JSON answers each order.
fn hold(options: &Options) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut scheduler = Scheduler::load(Mode::Host, &options.loading(), &mut object)?;
    let orders = Orders::listen();
    writeln!(Stdout, "{{}}")?;
    while let Some(arguments) = orders.begin()? {
        let now = Bare::<Options>::options_of(&arguments)?;
        scheduler.forget_end()?;
        let mut before = scheduler.stats()?;
        // Those that are still there are found anew, and count from zero.
        before.vms.retain(|pid, _| !Path::new("/proc").join(pid.to_string()).exists());
        let mut hosting = Hosting::begin(&mut scheduler, now.settings, now.costs, options.stretch)?;
        writeln!(Stdout, "{{}}")?;
        loop {
            match orders.next(POLL)? {
                Order::None => hosting.work()?,
                Order::Detach => break,
                Order::End => return Ok(()),
                Order::Attach(_) => bail!("it is attached already"),
            }
        }
        let (exit, Left { stats, .. }) = hosting.end()?;
        ending::report(&exit)?;
        writeln!(Stdout, "{}", serde_json::to_string(&stats.since(&before))?)?;
    }
    Ok(())
}

fn monitor(seconds: f64, stop: &dyn Fn() -> bool) -> Result<()> {
    let mut shown = HostStats::default();
    client::monitor(seconds, stop, &mut |now: HostStats| {
        now.since(&shown).print(&mut Stdout)?;
        shown = now;
        Ok(())
    })
}

fn set(wanted: &[Change]) -> Result<()> {
    writeln!(Stdout, "{}", client::set::<HostStats>(wanted)?.in_force())?;
    Ok(())
}

fn tell(assignment: &Assignment) -> Result<()> {
    let (pid, who) = classes::find(&assignment.vm)?;
    let (class, command) = (assignment.class.name(), HostStats::COMMAND);
    assign(Path::new(assignments::FILE), pid, assignment.class)?;
    let Ok(mut client) = client::connect::<HostStats>() else {
        writeln!(
            Stdout,
            "{who} [{pid}] is {class} from when `{command}` runs, which it does not, until the VM ends"
        )?;
        return Ok(());
    };
    let asked = vec![(TELL.into(), format!("{pid}={class}"))];
    let kept = || format!("{who} [{pid}] is {class} from when `{command}` runs");
    let answer: HostStats = client.request("stats", asked).with_context(kept)?;
    if answer.classes.is_empty() {
        bail!("{}: what runs is another scheduler, or an older one without classes", kept());
    }
    writeln!(Stdout, "{who} [{pid}] is {class} until it ends")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_a_reason_to_load_again() {
        assert_eq!(changed(false, true, false), Some("CPUs"));
        assert_eq!(changed(false, false, true), Some("modules of kvm"));
        assert_eq!((changed(true, true, true), changed(false, false, false)), (None, None));
    }
}
