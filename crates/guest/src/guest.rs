// SPDX-License-Identifier: GPL-2.0-only
//! The guest: what it has of its host, which CPUs it prefers, and who follows them. All but who keeps tasks there.

use crate::enforce::{Choice, Enforcer};
use crate::interrupts::Interrupts;
use crate::keeper::{Keeper, Undo};
use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::options::Options;
use crate::publish::{self, Published};
use crate::realtime;
use crate::settings::{AUTO, Settings};
use crate::stats::GuestStats;
use crate::steal::{Period, Source};
use crate::told::Port;
use crate::trace::Trace;
use anyhow::Result;
use overbook_cli::affinity;
use overbook_cli::changes::{Change, Changeable};
use overbook_cli::cpulist::{self, Cpus};
use overbook_policy::steal::ratio;
use overbook_scheduler::{anew, topology};
use std::path::Path;
use std::time::{Duration, Instant};

/// Everything but the scheduler.
pub(crate) struct Guest {
    settings: Settings,
    monitor: Monitor,
    source: Source,
    port: Port,
    trace: Trace,
    pub(crate) stats: GuestStats,
    published: Published,
    interrupts: Interrupts,
    /// When real-time tasks were last looked at.
    looked: Option<Instant>,
    /// For how many periods the preferred CPUs have been the same.
    settled: u32,
    /// Last, so that it goes last: it cleans up.
    keeper: Keeper,
}

impl Guest {
    /// Reads the machine; an earlier one has cleaned up before.
    ///
    /// # Errors
    /// It cannot be read, or not be watched.
    pub(crate) fn new(options: &Options) -> Result<Guest> {
        let machine = Machine::read()?;
        let trace = match &options.record {
            Some(file) => Trace::begin(file, &machine, anew::has_begun())?,
            None => Trace::default(),
        };
        let mut monitor = Monitor::new(options.settings.rules(), machine);
        monitor.choose(&options.settings.preferred)?;
        Ok(Guest {
            interrupts: Interrupts::new(options, &monitor.machine().online()),
            settings: options.settings.clone(),
            monitor,
            source: Source::new(options.steal_from.clone()),
            port: Port::new(options.stretch),
            trace,
            stats: GuestStats::default(),
            published: Published::new(Path::new(publish::FILE)),
            looked: None,
            settled: 0,
            keeper: Keeper::start()?,
        })
    }

    /// Looks at a period.
    pub(crate) fn period(&mut self, enforcer: &mut dyn Enforcer) -> Result<()> {
        let before = self.monitor.preferred();
        let machine = self.monitor.machine();
        let given_up: Cpus = machine.online().difference(&before).copied().collect();
        if let Some(period) = self.source.sample(&machine.counted(), &given_up)? {
            let record = period.record;
            self.note(&period);
            let told = self.port.latest().filter(|_| self.settings.entitlement.is_on());
            self.stats.told = told.map_or(0, |told| (told.cpus * 100.0) as u64);
            let changed = match told {
                Some(told) => self.monitor.follow(&told, &record),
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

    /// CPUs that the governor takes for online.
    pub(crate) fn online(&self) -> Cpus {
        self.monitor.machine().online()
    }

    /// Length of a period.
    pub(crate) fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.interval_ms)
    }

    fn choice(&self) -> Choice {
        let (machine, preferred) = (self.monitor.machine(), self.monitor.preferred());
        let all = preferred == machine.online();
        Choice { isolated: machine.isolated.clone(), preferred, all, patience: self.settings.stand_by }
    }

    fn note(&mut self, period: &Period) {
        let record = &period.record;
        let cpus = self.monitor.machine().counted().len() as u64;
        self.stats.samples += 1;
        self.stats.steal = ratio(record.steal_ns, record.elapsed_ns * cpus).into();
        self.stats.used = u64::from(ratio(record.run_ns, record.elapsed_ns)) / 100;
        self.stats.used_outside = u64::from(ratio(period.outside_ns, record.elapsed_ns)) / 100;
        self.trace.period(record);
    }

    /// Counts the tasks on CPUs that were given up that nobody can move, now and then.
    fn look_at_real_time(&mut self, given_up: &Cpus) {
        if given_up.is_empty() {
            self.stats.real_time = 0;
            self.looked = None;
        } else if self.looked.is_none_or(|at| at.elapsed() >= realtime::LOOK_EVERY) {
            self.looked = Some(Instant::now());
            let names = realtime::on(given_up, Path::new(realtime::PROC), &|task| affinity::of(task).ok());
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
    pub(crate) fn prefer(&mut self, enforcer: &mut dyn Enforcer) -> Result<()> {
        let choice = self.choice();
        if enforcer.survey(&choice)? {
            self.tell_keeper(enforcer)?;
        }
        enforcer.prefer(&choice)?;
        if choice.all {
            // Others may change what has been put back, and the keeper is not to undo that.
            self.tell_keeper(enforcer)?;
        }
        self.published.set(&choice.preferred)?;
        self.settled = 0;
        self.describe();
        Ok(())
    }

    fn describe(&mut self) {
        let (online, preferred) = (self.online(), self.monitor.preferred());
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
        self.stats.interrupts = self.interrupts.who().into();
    }

    /// Statistics as of now.
    pub(crate) fn now(&mut self, enforcer: &dyn Enforcer) -> Result<GuestStats> {
        self.describe();
        self.stats.scheduling = enforcer.is_active().into();
        self.stats.add(&enforcer.stats()?);
        Ok(self.stats.clone())
    }

    /// Interrupts go where tasks are; told once the CPUs have settled, as irqbalance rebuilds everything each time.
    fn interrupts_follow(&mut self, enforcer: &dyn Enforcer) -> Result<()> {
        let (online, preferred) = (self.online(), self.monitor.preferred());
        self.interrupts.look(&online);
        if !self.interrupts.survey(&preferred, &online, &self.monitor.machine().isolated) {
            return Ok(());
        }
        self.tell_keeper(enforcer)?;
        self.stats.followed += u64::from(self.interrupts.follow(&preferred, &online));
        Ok(())
    }

    /// Has the keeper know what is to be put back.
    pub(crate) fn tell_keeper(&mut self, enforcer: &dyn Enforcer) -> Result<()> {
        let (irqbalance, steering) = self.interrupts.undo();
        let published = Some(publish::FILE.into());
        self.keeper.tell(Undo { published, irqbalance, steering, cpusets: enforcer.undo() })
    }

    /// Nothing is kept on preferred CPUs until it begins again: says so to others, and has the keeper undo nothing more of
    /// what is back already.
    pub(crate) fn stand_back(&mut self, enforcer: &dyn Enforcer) -> Result<()> {
        let online = cpulist::parse(&topology::online()?)?;
        self.published.set(&online)?;
        self.tell_keeper(enforcer)
    }

    /// Takes in what the host has told, which the port does not hold for ever.
    pub(crate) fn listen(&mut self) {
        self.port.listen();
    }

    /// Changes what may change while it runs; all of it, or nothing.
    pub(crate) fn change(&mut self, changes: &[Change], enforcer: &mut dyn Enforcer) -> Result<()> {
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
            // What refused the change may refuse this too; the complaint is about the change.
            let _ = enforcer.set_slice(before.slice_us);
            (self.settings, self.monitor) = (before, monitor);
        }
        done
    }

    /// CPUs have come or gone.
    pub(crate) fn machine_changed(&mut self) -> Result<()> {
        let machine = Machine::read()?;
        self.trace.machine(&machine);
        if !self.monitor.machine_changed(machine) {
            let left = self.monitor.preferred();
            let chosen = self.monitor.is_manual();
            self.settings.preferred = if chosen { cpulist::format(&left) } else { AUTO.into() };
            log::warn!("not all chosen CPUs are online any more; preferred now: {}", cpulist::format(&left));
        }
        Ok(())
    }
}
