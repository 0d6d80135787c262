// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`: schedule, watch steal, tell everybody, until the end.

use crate::cpulist::{self, Cpus};
use crate::cpusets::{self, Cpusets};
use crate::enforce::{Choice, Enforcement, Enforcer};
use crate::irqbalance::Irqbalance;
use crate::keeper::{self, Keeper, Undo};
use crate::lock::Lock;
use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::native;
use crate::options::Options;
use crate::publish::{self, Published};
use crate::realtime;
use crate::settings::{AUTO, Settings};
use crate::standby::StandBy;
use crate::stats::GuestStats;
use crate::steal::{Period, Source};
use crate::steer::Steering;
use crate::told::Port;
use crate::trace;
use anyhow::{Context, Result, anyhow, bail};
use overbook_host::backoff::Backoff;
use overbook_host::changes::{Change, Changeable, changes};
use overbook_host::ending;
use overbook_host::output::Stdout;
use overbook_host::scheduler::{Mode, Scheduler};
use overbook_host::values::duration;
use overbook_host::{Bare, client, lines, preflight, replace};
use overbook_policy::steal::ratio;
use scx_stats::prelude::*;
use scx_utils::UserExitInfo;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// What starts this scheduler.
const COMMAND: &str = "overbook guest";

/// Argument of a request for statistics that changes the scheduler first; a host's has another.
const SET: &str = "set-guest";

/// How often the loader looks whether the kernel has unloaded the scheduler, and whether it is to stop.
const POLL: Duration = Duration::from_millis(100);

/// How often it looks whether it is to stop while it stands by, and should not be noticed.
const REST: Duration = Duration::from_secs(1);

/// So many periods pass between two looks at real-time tasks, which read all of /proc.
const REAL_TIME_EVERY: u64 = 10;

/// Longest wait for another to clean up and end.
const LEAVES: Duration = Duration::from_secs(30);

/// `overbook guest`, until `stop` is raised or the kernel unloads the scheduler.
///
/// # Errors
/// The guest does not qualify (see [`preflight::check`]), the kernel refuses the scheduler, or it was unloaded for an
/// error; one sentence each.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<()> {
    if options.help_stats {
        return server_data().describe_meta(&mut Stdout, None);
    }
    options.settings.check()?;
    if let Some(file) = &options.replay {
        return trace::replay(file, options.settings.rules(), &mut Stdout);
    }
    if let Some(seconds) = options.monitor {
        let mut show = |now: GuestStats| now.print(&mut Stdout);
        return client::monitor(COMMAND, seconds, &|| stop.load(Ordering::Relaxed), &mut show);
    }
    if !options.set.is_empty() {
        let answer: GuestStats = client::set(COMMAND, SET, &options.set)?;
        writeln!(Stdout, "{}", client::changed(COMMAND, &options.set, &answer.follows)?)?;
        return Ok(());
    }
    if options.status {
        let now: GuestStats = client::connect(COMMAND)?.request("stats", Vec::new())?;
        if now.follows.is_empty() {
            bail!("the scheduler that runs is none of `{COMMAND}`");
        }
        writeln!(Stdout, "{}", serde_json::to_string(&now)?)?;
        return Ok(());
    }
    if options.clean_up {
        if let Some(name) = preflight::loaded() {
            bail!("scheduler {name} is running, and cleans up by itself when it ends: stop it instead");
        }
        let _lock = Lock::take(Duration::ZERO)?;
        return keeper::clean_up();
    }
    native::refuse()?;
    if options.hold {
        return hold(options);
    }
    match options.enforce {
        Enforcement::SchedExt => preflight::check(options.replace)?,
        Enforcement::Cpuset => preflight::need_root("changing cpusets")?,
    }
    let alone = !options.replace && !options.dry_run;
    let mut lock = alone.then(|| Lock::take(Duration::ZERO)).transpose()?;
    let of_scheduler = options.scheduler()?;
    let mut first = None;
    let mut backoff = Backoff::default();
    loop {
        // Every load needs an object of its own.
        let mut object = MaybeUninit::uninit();
        let mut scheduler;
        let mut enforcer: Box<dyn Enforcer> = match options.enforce {
            Enforcement::Cpuset => Box::new(Cpusets::new(Path::new(cpusets::ROOT))?),
            Enforcement::SchedExt => {
                scheduler = Scheduler::load(Mode::Guest, &of_scheduler, &mut object)?;
                Box::new(StandBy::new(&mut scheduler, of_scheduler.clone()))
            }
        };
        if options.dry_run {
            writeln!(Stdout, "the kernel accepts {}", options.enforce.what())?;
            return Ok(());
        }
        if lock.is_none() {
            replace::take_over()?;
            lock = Some(Lock::take(LEAVES)?);
        }
        let guest = match &mut first {
            Some(guest) => guest,
            // Only now: what another has told irqbalance is not how it was configured.
            none => {
                keeper::clean_up()?;
                none.insert(Guest::new(options)?)
            }
        };
        let end = guest.serve(&mut *enforcer, options, &|| stop.load(Ordering::Relaxed))?;
        if end.is_hotplug() {
            log::info!("CPUs came or went: loading again");
            backoff.wait(&|| stop.load(Ordering::Relaxed));
        }
        // It may have been asked to end while it waited.
        if !end.is_hotplug() || stop.load(Ordering::Relaxed) {
            if options.json {
                writeln!(Stdout, "{}", serde_json::to_string(&guest.stats)?)?;
            }
            return end.report();
        }
        guest.machine_changed()?;
    }
}

/// Why [`Guest::serve`] ended.
enum End {
    /// It was asked to, while it stood by.
    Asked,
    /// CPUs came or went, while it stood by.
    Hotplug,
    /// The scheduler was unloaded, by us or by the kernel.
    Unloaded(UserExitInfo),
}

impl End {
    fn is_hotplug(&self) -> bool {
        match self {
            End::Asked => false,
            End::Hotplug => true,
            End::Unloaded(exit) => exit.should_restart(),
        }
    }

    fn report(&self) -> Result<()> {
        match self {
            End::Unloaded(exit) => ending::report(exit),
            _ => Ok(()),
        }
    }
}

/// Everything but the scheduler.
struct Guest {
    settings: Settings,
    monitor: Monitor,
    source: Source,
    port: Option<Port>,
    record: Option<File>,
    stats: GuestStats,
    published: Published,
    irqbalance: Option<Irqbalance>,
    steering: Option<Steering>,
    /// What interrupts follow now, and for how many periods the preferred CPUs have been the same.
    followed: Cpus,
    settled: u32,
    /// Last, so that it goes last: it cleans up.
    keeper: Keeper,
}

impl Guest {
    fn new(options: &Options) -> Result<Guest> {
        let machine = Machine::read()?;
        let irqbalance = if options.no_irqbalance { None } else { Irqbalance::find() };
        let steer = options.steer_irqs && irqbalance.is_none();
        let record = options.record.as_deref().map(|file| trace::begin(file, &machine)).transpose()?;
        let mut monitor = Monitor::new(options.settings.rules(), machine);
        monitor.choose(&options.settings.preferred)?;
        Ok(Guest {
            followed: monitor.machine().online(),
            settings: options.settings.clone(),
            monitor,
            source: Source::new(options.steal_from.clone()),
            port: Port::find(options.stretch),
            record,
            stats: GuestStats::default(),
            published: Published::new(Path::new(publish::FILE)),
            irqbalance,
            steering: steer.then(|| Steering::new(Path::new("/proc/irq"))),
            settled: 0,
            keeper: Keeper::start()?,
        })
    }

    /// Watches, and schedules where needed, until the end.
    fn serve(
        &mut self,
        enforcer: &mut dyn Enforcer,
        options: &Options,
        stop: &dyn Fn() -> bool,
    ) -> Result<End> {
        let server = StatsServer::<Request, Answer>::new(server_data()).launch();
        // Without a server the scheduler is as good; another user of the socket must not stop it.
        let server = server.inspect_err(|e| log::warn!("no statistics for others: {e:#}")).ok();
        self.tell_keeper(enforcer)?;
        let (mut due, mut shown) = (Instant::now(), Instant::now());
        let mut changed = false;
        self.prefer(enforcer)?;
        while !stop() && !enforcer.ended() && !changed {
            let poll = if enforcer.is_active() || options.stats.is_some() { POLL } else { REST };
            let wait = due.saturating_duration_since(Instant::now()).min(poll);
            match &server {
                Some(server) => {
                    let (answers, requests) = server.channels();
                    if let Ok(request) = requests.recv_timeout(wait) {
                        let leave = matches!(request, Request::Leave);
                        let answer = self.answer(request, enforcer);
                        answers.send(answer.map_err(|e| format!("{e:#}")))?;
                        if leave {
                            log::info!("another one takes over");
                            break;
                        }
                    }
                }
                None => std::thread::sleep(wait),
            }
            let now = Instant::now();
            if now >= due {
                let period = Duration::from_millis(self.settings.interval_ms).mul_f64(options.stretch);
                // A short period says little, so those that were missed are not made up for.
                due = (due + period).max(now + period / 2);
                changed = enforcer.is_outdated();
                if !changed {
                    self.period(enforcer)?;
                }
            }
            if let Some(seconds) = options.stats
                && shown.elapsed() >= duration(seconds)
            {
                shown = Instant::now();
                self.now(enforcer)?.print(&mut std::io::stderr())?;
            }
        }
        self.now(enforcer)?;
        Ok(match enforcer.leave() {
            Some(exit) => End::Unloaded(exit),
            None if changed => End::Hotplug,
            None => End::Asked,
        })
    }

    /// Looks at a period.
    fn period(&mut self, enforcer: &mut dyn Enforcer) -> Result<()> {
        let before = self.monitor.preferred();
        let machine = self.monitor.machine();
        let given_up: Cpus = machine.online().difference(&before).copied().collect();
        if let Some(period) = self.source.sample(&machine.counted(), &given_up)? {
            let record = period.record;
            self.note(&period)?;
            let told =
                self.port.as_mut().and_then(Port::latest).filter(|_| self.settings.entitlement.is_on());
            self.stats.told = told.map_or(0, |told| (told.cpus * 100.0) as u64);
            let changed = match told {
                Some(told) => self.monitor.follow(&told, Duration::from_millis(self.settings.interval_ms)),
                None => self.monitor.step(&record),
            };
            if let Some(cpus) = changed {
                log::info!("preferred CPUs: {}", cpulist::format(&cpus));
                if cpus.len() < before.len() {
                    self.stats.shrinks += 1;
                } else {
                    self.stats.grows += 1;
                }
                self.prefer(enforcer)?;
            }
        }
        self.look_at_real_time(&given_up);
        self.settled = if before == self.monitor.preferred() { self.settled.saturating_add(1) } else { 0 };
        if self.settled >= self.settings.irq_settle {
            self.interrupts_follow(enforcer)?;
        }
        let choice = self.choice();
        // Cgroups come, and others change theirs.
        if enforcer.survey(&choice)? {
            self.tell_keeper(enforcer)?;
            enforcer.prefer(&choice)?;
        }
        enforcer.period(&choice)
    }

    fn choice(&self) -> Choice {
        let (machine, preferred) = (self.monitor.machine(), self.monitor.preferred());
        let all = preferred == machine.online();
        Choice { isolated: machine.isolated.clone(), preferred, all, patience: self.settings.stand_by }
    }

    fn note(&mut self, period: &Period) -> Result<()> {
        let record = &period.record;
        let cpus = self.monitor.machine().counted().len() as u64;
        self.stats.samples += 1;
        self.stats.steal = ratio(record.steal_ns, record.elapsed_ns * cpus).into();
        self.stats.used = u64::from(ratio(record.run_ns, record.elapsed_ns)) / 100;
        self.stats.used_outside = u64::from(ratio(period.outside_ns, record.elapsed_ns)) / 100;
        match &mut self.record {
            Some(file) => trace::append(file, record),
            None => Ok(()),
        }
    }

    /// Counts the tasks on CPUs that were given up that nobody can move, now and then.
    fn look_at_real_time(&mut self, given_up: &Cpus) {
        if given_up.is_empty() {
            self.stats.real_time = 0;
        } else if self.stats.samples.is_multiple_of(REAL_TIME_EVERY) {
            let names = realtime::on(given_up, Path::new("/proc"));
            if self.stats.real_time == 0 && !names.is_empty() {
                log::info!(
                    "real-time tasks stay where they are, unless their affinity is changed: {}",
                    names.join(", ")
                );
            }
            self.stats.real_time = names.len() as u64;
        }
    }

    /// Has the scheduler and everybody else know the preferred CPUs.
    fn prefer(&mut self, enforcer: &mut dyn Enforcer) -> Result<()> {
        let choice = self.choice();
        if enforcer.survey(&choice)? {
            self.tell_keeper(enforcer)?;
        }
        enforcer.prefer(&choice)?;
        self.published.set(&choice.preferred)?;
        self.settled = 0;
        self.describe();
        Ok(())
    }

    fn describe(&mut self) {
        let (online, preferred) = (self.monitor.machine().online(), self.monitor.preferred());
        let governor = self.settings.governor.name();
        self.stats.governor = match self.stats.told {
            _ if self.monitor.is_manual() => "manual".into(),
            0 => governor,
            _ => "host".into(),
        };
        self.stats.follows = self.settings.in_force();
        self.stats.online = cpulist::format(&online);
        self.stats.preferred = cpulist::format(&preferred);
        self.stats.nr_online = online.len() as u64;
        self.stats.nr_preferred = preferred.len() as u64;
        self.stats.interrupts = match (&self.irqbalance, &self.steering) {
            (Some(_), _) => "irqbalance".into(),
            (_, Some(_)) => "us".into(),
            _ => "nobody".into(),
        };
    }

    /// Statistics as of now.
    fn now(&mut self, enforcer: &dyn Enforcer) -> Result<GuestStats> {
        self.describe();
        self.stats.scheduling = enforcer.is_active().into();
        self.stats.add(&enforcer.stats()?);
        Ok(self.stats.clone())
    }

    /// Interrupts go where tasks are; told once the CPUs have settled, as irqbalance rebuilds everything each time.
    fn interrupts_follow(&mut self, enforcer: &dyn Enforcer) -> Result<()> {
        let preferred = self.monitor.preferred();
        if preferred == self.followed {
            return Ok(());
        }
        self.followed = preferred.clone();
        if let Some(irqbalance) = &self.irqbalance {
            let others = self.monitor.machine().online().difference(&preferred).copied().collect();
            match irqbalance.ban(&others) {
                Ok(()) => self.stats.followed += 1,
                Err(e) => {
                    log::warn!("{e:#}: interrupts stay where they are");
                    self.irqbalance = None;
                }
            }
        }
        if let Some(steering) = &mut self.steering {
            steering.follow(&preferred);
            self.stats.followed += 1;
        }
        self.tell_keeper(enforcer)
    }

    fn tell_keeper(&mut self, enforcer: &dyn Enforcer) -> Result<()> {
        let irqbalance = self.irqbalance.as_ref();
        self.keeper.tell(&Undo {
            published: Some(publish::FILE.into()),
            irqbalance: irqbalance.map(|i| (i.socket.clone(), i.banned.clone())),
            steering: self.steering.clone(),
            cpusets: enforcer.undo(),
        })
    }

    fn answer(&mut self, request: Request, enforcer: &mut dyn Enforcer) -> Result<GuestStats> {
        if let Request::Set(changes) = request {
            self.change(&changes, enforcer)?;
        }
        self.now(enforcer)
    }

    /// Changes what may change while it runs; all of it, or nothing.
    fn change(&mut self, changes: &[Change], enforcer: &mut dyn Enforcer) -> Result<()> {
        let settings = self.settings.with(changes)?;
        settings.check()?;
        let (before, monitor) = (self.settings.clone(), self.monitor.clone());
        if settings.preferred != before.preferred {
            self.monitor.choose(&settings.preferred)?;
        }
        self.monitor.rule(settings.rules());
        self.settings = settings;
        let done = enforcer.set_slice(self.settings.slice_us).and_then(|()| self.prefer(enforcer));
        if done.is_err() {
            (self.settings, self.monitor) = (before, monitor);
        }
        done
    }

    fn machine_changed(&mut self) -> Result<()> {
        if !self.monitor.machine_changed(Machine::read()?) {
            let left = self.monitor.preferred();
            let chosen = self.monitor.is_manual();
            self.settings.preferred = if chosen { cpulist::format(&left) } else { AUTO.into() };
            log::warn!("not all chosen CPUs are online any more; preferred now: {}", cpulist::format(&left));
        }
        Ok(())
    }
}

/// What a client asks.
enum Request {
    Stats,
    /// Checked when it arrives.
    Set(Vec<Change>),
    Leave,
}

type Answer = std::result::Result<GuestStats, String>;

fn server_data() -> StatsServerData<Request, Answer> {
    let top: Box<dyn StatsReaderSend<Request, Answer>> = Box::new(|args, (requests, answers)| {
        let request = match args.get(SET) {
            Some(text) => Request::Set(changes::<Settings>(text)?),
            None if args.contains_key(replace::LEAVE) => Request::Leave,
            None => Request::Stats,
        };
        requests.send(request)?;
        answers.recv()?.map_err(|why| anyhow!(why))?.to_json()
    });
    StatsServerData::new().add_meta(GuestStats::meta()).add_stats("top", top)
}

/// Attaches and detaches as lines on stdin say; a line of JSON answers each. The scheduler is loaded once, when it is
/// wanted first: verifying it takes an emulated CPU many seconds.
fn hold(options: &Options) -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let mut object = Some(&mut object);
    let mut scheduler = None;
    let lines = lines();
    writeln!(Stdout, "{{}}")?;
    while let Ok(line) = lines.recv() {
        let Some(arguments) = line.strip_prefix("attach ") else {
            bail!("{line:?} is not `attach ARGUMENTS`");
        };
        let arguments: Vec<String> = serde_json::from_str(arguments)?;
        let mut now = Bare::<Options>::options_of(&arguments)?;
        now.stretch = options.stretch;
        now.settings.check()?;
        let mut enforcer: Box<dyn Enforcer> = match now.enforce {
            Enforcement::Cpuset => Box::new(Cpusets::new(Path::new(cpusets::ROOT))?),
            Enforcement::SchedExt => {
                if let Some(object) = object.take() {
                    preflight::check(false)?;
                    scheduler = Some(Scheduler::load(Mode::Guest, &options.scheduler()?, object)?);
                }
                let scheduler = scheduler.as_mut().context("the scheduler did not load")?;
                Box::new(StandBy::new(scheduler, now.scheduler()?))
            }
        };
        // Reading the machine takes an emulated CPU a second.
        let mut guest = Guest::new(&now)?;
        writeln!(Stdout, "{{}}")?;
        // Whatever comes next ends this turn: `detach`, or the end of the input.
        guest.serve(&mut *enforcer, &now, &|| lines.try_recv() != Err(TryRecvError::Empty))?.report()?;
        writeln!(Stdout, "{}", serde_json::to_string(&guest.stats)?)?;
    }
    Ok(())
}
