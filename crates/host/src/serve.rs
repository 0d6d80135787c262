// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host`: schedule and serve statistics until the end, restart after hotplug, or do as the lab says.

use crate::backoff::Backoff;
use crate::changes::{self, Change, Changeable, SET};
use crate::classes::{self, Classes, TELL, Told};
use crate::client;
use crate::costs::ProgramStats;
use crate::ending;
use crate::entitle::Teller;
use crate::faults;
use crate::homes::Finder;
use crate::options::{Bare, Options};
use crate::output::Stdout;
use crate::preflight;
use crate::replace;
use crate::scheduler::{Mode, Scheduler};
use crate::settings::Settings;
use crate::stats::{ClassStats, HostStats, TierStats, VcpuStats, VmStats};
use crate::values::duration;
use anyhow::{Context, Result, bail};
use overbook_policy::class::Class;
use scx_stats::prelude::*;
use scx_utils::UserExitInfo;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// What starts this scheduler.
const COMMAND: &str = "overbook host";

/// How often the loader looks whether the kernel has unloaded the scheduler.
const POLL: Duration = Duration::from_millis(100);

/// `overbook host`, until `stop` is raised or the kernel unloads the scheduler.
///
/// # Errors
/// The host does not qualify (see [`preflight::check`]), the kernel refuses the scheduler, or it was unloaded for
/// an error; one sentence each, and [`ending::status`] knows which it was.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    if options.help_stats {
        let data = stats_server_data();
        return data.describe_meta(&mut Stdout, None);
    }
    if let Some(seconds) = options.monitor {
        return monitor(seconds, stop);
    }
    if !options.set.is_empty() {
        return set(&options.set);
    }
    if let Some(told) = &options.class {
        return tell(told);
    }
    preflight::check(options.replace)?;
    if options.hold {
        return hold(options);
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    for fault in faults::of(&release) {
        log::warn!("{}", fault.describe());
    }
    let mut previous = HostStats::default();
    // What is changed while it runs stays when it is loaded again.
    let mut options = options.clone();
    let mut classes = Classes::default();
    let mut backoff = Backoff::default();
    loop {
        // Every load needs an object of its own.
        let mut object = MaybeUninit::uninit();
        let mut scheduler = Scheduler::load(Mode::Host, &options, &mut object)?;
        if options.dry_run {
            let sees = scheduler.sees();
            writeln!(Stdout, "the kernel accepts the scheduler; seen of guests' interrupts: {sees}")?;
            return Ok(());
        }
        if options.replace {
            replace::take_over()?;
        }
        scheduler.attach(&options)?;
        let exit = serve(&mut scheduler, &options, stop, &mut previous, &mut classes)?;
        options.settings = scheduler.settings().clone();
        if scheduler.outdated() {
            log::info!("kvm was loaded: loading again");
            continue;
        }
        let restarts = exit.should_restart();
        if restarts {
            log::info!("CPUs came or went: loading again");
            backoff.wait(&|| stop.load(Ordering::Relaxed));
        }
        // It may have been asked to end while it waited.
        if !restarts || stop.load(Ordering::Relaxed) {
            if options.json {
                writeln!(Stdout, "{}", serde_json::to_string(&previous)?)?;
            }
            return ending::report(&exit);
        }
    }
}

/// What the loader does now and then. The scheduler is as good without: what fails once is left off.
struct Chores {
    teller: Option<Teller>,
    finder: Option<Finder>,
    classes: Option<Classes>,
}

impl Chores {
    fn new(scheduler: &Scheduler, stretch: f64, classes: Classes) -> Chores {
        let teller = Teller::new(stretch).inspect_err(|e| log::warn!("guests are told nothing: {e:#}"));
        Chores { teller: teller.ok(), finder: Some(Finder::new(scheduler, stretch)), classes: Some(classes) }
    }

    /// Does what is due.
    fn look(&mut self, scheduler: &mut Scheduler) {
        if let Some(Err(e)) = self.teller.as_mut().map(|teller| teller.look(scheduler)) {
            log::warn!("guests are told nothing any more: {e:#}");
            self.teller = None;
        }
        if let Some(Err(e)) = self.finder.as_mut().map(|finder| finder.look(scheduler)) {
            log::warn!("VMs stay in the LLCs where they are: {e:#}");
            self.finder = None;
        }
        if let Some(Err(e)) = self.classes.as_mut().map(|classes| classes.look(scheduler)) {
            log::warn!("classes of VMs stay as they are: {e:#}");
            self.classes = None;
        }
    }

    /// Somebody says the class of a VM, by its process.
    fn tell(&mut self, pid: u32, class: Class, scheduler: &mut Scheduler) {
        if let Some(classes) = &mut self.classes {
            classes.tell(pid, class);
        }
        self.look(scheduler);
    }
}

/// Serves until the end, and says why it ended. `total` is left with the last statistics, `classes` with what was said of
/// VMs.
fn serve(
    scheduler: &mut Scheduler,
    options: &Options,
    stop: &Arc<AtomicBool>,
    total: &mut HostStats,
    classes: &mut Classes,
) -> Result<UserExitInfo> {
    let server = StatsServer::<Request, HostStats>::new(stats_server_data()).launch();
    // Without a server the scheduler is as good; another user of the socket must not stop it.
    let server = server.inspect_err(|e| log::warn!("no statistics for others: {e:#}")).ok();
    let mut chores = Chores::new(scheduler, options.stretch, std::mem::take(classes));
    let mut shown = HostStats::default();
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) && !scheduler.ended() && !scheduler.outdated() {
        match &server {
            Some(server) => {
                let (answers, requests) = server.channels();
                if let Ok(request) = requests.recv_timeout(POLL) {
                    if let Request::Set(changes) = &request {
                        // Whoever asks sees that nothing has changed.
                        let done = scheduler.settings().with(changes).and_then(|s| scheduler.set(&s));
                        done.unwrap_or_else(|why| {
                            log::warn!("cannot change as asked, and goes on as before: {why:#}")
                        });
                    }
                    if let Request::Class(pid, class) = request {
                        chores.tell(pid, class, scheduler);
                    }
                    answers.send(scheduler.stats()?)?;
                    if matches!(request, Request::Leave) {
                        log::info!("another one takes over");
                        break;
                    }
                }
            }
            None => std::thread::sleep(POLL),
        }
        chores.look(scheduler);
        if let Some(seconds) = options.stats
            && due.elapsed() >= duration(seconds)
        {
            due = Instant::now();
            let now = scheduler.stats()?;
            now.since(&shown).print(&mut std::io::stderr())?;
            shown = now;
        }
    }
    *classes = chores.classes.take().unwrap_or_default();
    *total = scheduler.stats()?;
    Ok(scheduler.leave())
}

/// Attaches and detaches one loaded scheduler as lines on stdin say; a line of JSON answers each.
fn hold(options: &Options) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut scheduler = Scheduler::load(Mode::Host, options, &mut object)?;
    let mut last = scheduler.stats()?;
    let lines = lines();
    let mut chores: Option<Chores> = None;
    writeln!(Stdout, "{{}}")?;
    loop {
        let line = match lines.recv_timeout(POLL) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(chores) = &mut chores {
                    chores.look(&mut scheduler);
                }
                continue;
            }
        };
        let answer = match line.split_once(' ').unwrap_or((&line, "")) {
            ("attach", arguments) => {
                let arguments: Vec<String> = serde_json::from_str(arguments)?;
                let mut now = Bare::<Options>::options_of(&arguments)?;
                now.stretch = options.stretch;
                scheduler.forget_end()?;
                last = scheduler.stats()?;
                // Those that are still there are found anew, and count from zero.
                last.vms.retain(|pid, _| !Path::new("/proc").join(pid.to_string()).exists());
                scheduler.attach(&now)?;
                chores = Some(Chores::new(&scheduler, options.stretch, Classes::default()));
                "{}".to_string()
            }
            ("detach", _) => {
                chores = None;
                serde_json::to_string(&scheduler.detach()?.since(&last))?
            }
            _ => bail!("{line:?} is neither `attach ARGUMENTS` nor `detach`"),
        };
        writeln!(Stdout, "{answer}")?;
    }
}

/// Lines of stdin, as they come.
pub fn lines() -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// What a client asks of the scheduler.
enum Request {
    Stats,
    /// Checked when it arrives.
    Set(Vec<Change>),
    /// Of the VM of a process.
    Class(u32, Class),
    Leave,
}

fn stats_server_data() -> StatsServerData<Request, HostStats> {
    let top: Box<dyn StatsReaderSend<Request, HostStats>> = Box::new(|args, (requests, answers)| {
        let request = match args.get(SET) {
            Some(text) => Request::Set(changes::changes::<Settings>(text)?),
            None if args.contains_key(TELL) => {
                let Told { vm, class } = classes::told(&args[TELL]).map_err(anyhow::Error::msg)?;
                Request::Class(vm.parse().context("a process belongs here")?, class)
            }
            None if args.contains_key(replace::LEAVE) => Request::Leave,
            None => Request::Stats,
        };
        requests.send(request)?;
        answers.recv()?.to_json()
    });
    StatsServerData::new()
        .add_meta(HostStats::meta())
        .add_meta(VmStats::meta())
        .add_meta(VcpuStats::meta())
        .add_meta(TierStats::meta())
        .add_meta(ClassStats::meta())
        .add_meta(ProgramStats::meta())
        .add_stats("top", top)
}

fn monitor(seconds: f64, stop: &Arc<AtomicBool>) -> Result<()> {
    let mut shown = HostStats::default();
    client::monitor(COMMAND, seconds, &|| stop.load(Ordering::Relaxed), &mut |now: HostStats| {
        now.since(&shown).print(&mut Stdout)?;
        shown = now;
        Ok(())
    })
}

fn set(wanted: &[Change]) -> Result<()> {
    let answer: HostStats = client::set(COMMAND, SET, wanted)?;
    writeln!(Stdout, "{}", client::changed(COMMAND, wanted, &answer.settings)?)?;
    Ok(())
}

fn tell(told: &Told) -> Result<()> {
    let mut client = client::connect(COMMAND)?;
    let (pid, who) = classes::find(&told.vm)?;
    let class = told.class.name();
    let answer: HostStats = client.request("stats", vec![(TELL.into(), format!("{pid}={class}"))])?;
    if answer.classes.is_empty() {
        bail!("the scheduler that runs is none of `{COMMAND}`, or an older one without classes");
    }
    writeln!(Stdout, "{who} [{pid}] is {class} for as long as it runs")?;
    Ok(())
}
