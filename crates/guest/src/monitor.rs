// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs to prefer: the policy's number of cores, on a machine of cores and nodes, or the user's own choice.

use crate::machine::Machine;
use crate::settings::AUTO;
use crate::steal::Record;
use anyhow::{Result, bail};
use overbook_cli::cpulist::{self, Cpus};
use overbook_policy::entitle::{entitled_cores, packs, parts};
use overbook_policy::steal::{Rules, State, core_to_add, core_to_drop};
use overbook_scheduler::told::Told;

/// Long enough for any period: hosts remember what they have told for a minute.
const REMEMBERED_MS: u64 = 30_000;

/// The monitor's state. The same machine, rules and records give the same CPUs.
#[derive(Clone, Debug)]
pub struct Monitor {
    rules: Rules,
    machine: Machine,
    state: State,
    /// Periods in a row in which a guest that is told, and packs, has wanted less than it could have.
    content: u32,
    /// CPUs that the user has chosen.
    chosen: Option<Cpus>,
}

impl Monitor {
    /// All CPUs are preferred.
    pub fn new(rules: Rules, machine: Machine) -> Monitor {
        Monitor { rules, machine, state: State::default(), content: 0, chosen: None }
    }

    /// The preferred CPUs.
    pub fn preferred(&self) -> Cpus {
        self.chosen.clone().unwrap_or_else(|| self.machine.preferred())
    }

    /// The machine that it decides for.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether the user has chosen, so that records are not looked at.
    pub fn is_manual(&self) -> bool {
        self.chosen.is_some()
    }

    /// Looks at a period; the preferred CPUs if they change.
    pub fn step(&mut self, record: &Record) -> Option<Cpus> {
        if self.is_manual() {
            return None;
        }
        let before = self.machine.preferred();
        let isolated = self.machine.isolated.len();
        let sample = record.sample(self.machine.counted().len(), before.len() - isolated);
        let (now, all) = (self.machine.nr_preferred(), self.machine.cores.len() as u32);
        let wanted = self.state.decide(&self.rules, &sample, now, all);
        self.resize(wanted)
    }

    /// Takes the size that the host tells, if the guest wanted more in this period; the preferred CPUs if they change. It
    /// shrinks at once, grows if it could have had as much for a whole period (or 30 s), and has all CPUs back when it has
    /// wanted less for as long as the rules say.
    pub fn follow(&mut self, told: &Told, record: &Record) -> Option<Cpus> {
        if self.is_manual() {
            return None;
        }
        // What was learnt from steal is about other sizes.
        self.state = State::default();
        let (now, all) = (self.machine.nr_preferred(), self.machine.cores.len() as u32);
        let wants = (record.run_ns + record.steal_ns) as f64 / record.elapsed_ns.max(1) as f64;
        if !packs(parts(wants), parts(told.cpus), now < all) {
            self.content += 1;
            return if self.content >= self.rules.agree { self.resize(all) } else { None };
        }
        self.content = 0;
        let per_core = (self.machine.counted().len() as u32 / all.max(1)).max(1);
        let wanted = entitled_cores(parts(told.cpus), per_core, now).clamp(self.rules.floor.min(all), all);
        if wanted > now && told.for_ms < (record.elapsed_ns / 1_000_000).min(REMEMBERED_MS) {
            return None;
        }
        self.resize(wanted)
    }

    fn resize(&mut self, wanted: u32) -> Option<Cpus> {
        let (before, now) = (self.machine.preferred(), self.machine.nr_preferred());
        for _ in wanted..now {
            let Some(place) = core_to_drop(&self.machine.cores) else { break };
            self.machine.cores[place].preferred = 0;
        }
        for _ in now..wanted {
            let Some(place) = core_to_add(&self.machine.cores) else { break };
            self.machine.cores[place].preferred = 1;
        }
        let after = self.machine.preferred();
        (after != before).then_some(after)
    }

    /// Other rules from now on. What was learnt by one governor says nothing to another.
    pub fn rule(&mut self, rules: Rules) {
        if rules.governor != self.rules.governor {
            self.state = State::default();
        }
        self.rules = rules;
    }

    /// Takes the user's choice: a list of CPUs, until it is [`AUTO`] again. Unlike the published file, the list must be
    /// a part of the online CPUs, and all of them is a choice too.
    ///
    /// # Errors
    /// It is no list, names no CPU, or one that is not online.
    pub fn choose(&mut self, choice: &str) -> Result<()> {
        if choice == AUTO {
            self.automatic();
            return Ok(());
        }
        let cpus = cpulist::parse(choice)?;
        let online = self.machine.online();
        if cpus.is_empty() {
            bail!("no CPU would be preferred: name some, or say `auto`");
        }
        let absent: Cpus = cpus.difference(&online).copied().collect();
        if !absent.is_empty() {
            bail!(
                "CPUs {} are not online: choose from {}",
                cpulist::format(&absent),
                cpulist::format(&online)
            );
        }
        self.chosen = Some(cpus);
        Ok(())
    }

    /// Goes back to the monitor's own choice. It begins with all CPUs and no memory: what it had learnt was about
    /// other CPUs.
    fn automatic(&mut self) {
        self.chosen = None;
        self.state = State::default();
        for core in &mut self.machine.cores {
            core.preferred = 1;
        }
    }

    /// CPUs have come or gone: begins anew. The user's choice stays as far as it is online; if nothing is left of it,
    /// the monitor chooses again. Returns whether the choice could stay whole.
    pub fn machine_changed(&mut self, machine: Machine) -> bool {
        let chosen = self.chosen.take();
        *self = Monitor::new(self.rules, machine);
        let Some(chosen) = chosen else { return true };
        let left: Cpus = chosen.intersection(&self.machine.online()).copied().collect();
        let whole = left == chosen;
        if !left.is_empty() {
            self.chosen = Some(left);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_policy::steal::{PROPORTIONAL, STEP};

    fn rules(governor: u32) -> Rules {
        Rules { governor, low: 200, high: 500, agree: 2, quiet: 5, floor: 1 }
    }

    /// Eight CPUs: cores of two siblings each, on two nodes.
    fn machine() -> Machine {
        Machine::new(
            (0..4).map(|i| (i / 2, Cpus::from([2 * i as usize, 2 * i as usize + 1]))),
            &Cpus::new(),
            &Cpus::new(),
        )
    }

    fn record(run: f64, steal: f64) -> Record {
        Record { elapsed_ns: 1_000_000_000, run_ns: (run * 1e9) as u64, steal_ns: (steal * 1e9) as u64 }
    }

    #[test]
    fn siblings_go_together_and_nodes_by_turns() {
        let mut monitor = Monitor::new(rules(STEP), machine());
        let sizes: Vec<String> = (0..6)
            .filter_map(|_| monitor.step(&record(4.0, 4.0)))
            .map(|cpus| cpulist::format(&cpus))
            .collect();
        assert_eq!(sizes, ["0-5", "0-1,4-5", "0-1"]);
        assert_eq!(monitor.step(&record(2.0, 4.0)), None, "housekeeping stays");
    }

    #[test]
    fn what_the_host_tells_counts_at_once_and_growth_when_it_lasts() {
        let mut monitor = Monitor::new(rules(PROPORTIONAL), machine());
        let mut told = |cpus: f64, for_ms: u64| {
            let _ = monitor.follow(&Told { cpus, for_ms }, &record(8.0, 0.0));
            cpulist::format(&monitor.preferred())
        };
        assert_eq!(told(8.0, 0), "0-7");
        // Half of the four cores, next to each other.
        assert_eq!(told(4.0, 0), "0-1,4-5");
        assert_eq!(told(4.3, 500), "0-1,4-5");
        assert_eq!(told(4.3, 1000), "0-5");
        assert_eq!(told(0.0, 0), "0-1", "the floor");
        assert_eq!(told(8.0, 9000), "0-7");
        monitor.choose("3").unwrap();
        assert_eq!(monitor.follow(&Told { cpus: 8.0, for_ms: 9000 }, &record(8.0, 0.0)), None);
    }

    /// A period may be longer than hosts remember.
    #[test]
    fn growth_after_a_very_long_period() {
        let mut monitor = Monitor::new(rules(PROPORTIONAL), machine());
        let mut told = |cpus: f64, for_ms: u64| {
            let record = Record { elapsed_ns: 100_000_000_000, ..record(800.0, 0.0) };
            let _ = monitor.follow(&Told { cpus, for_ms }, &record);
            cpulist::format(&monitor.preferred())
        };
        assert_eq!(told(4.0, 0), "0-1,4-5");
        assert_eq!(told(4.3, 29_000), "0-1,4-5");
        assert_eq!(told(4.3, 59_500), "0-5");
    }

    #[test]
    fn who_wants_no_more_than_it_can_have_keeps_all_its_cpus() {
        let mut monitor = Monitor::new(rules(PROPORTIONAL), machine());
        let mut follows = |run: f64, steal: f64| {
            let _ = monitor.follow(&Told { cpus: 4.0, for_ms: 9000 }, &record(run, steal));
            cpulist::format(&monitor.preferred())
        };
        assert_eq!(follows(2.8, 1.0), "0-7");
        assert_eq!(follows(4.0, 4.0), "0-1,4-5");
        assert_eq!(follows(3.9, 0.1), "0-1,4-5", "it has what it could have");
        assert_eq!(follows(1.0, 0.0), "0-1,4-5", "for a moment");
        assert_eq!(follows(3.9, 0.1), "0-1,4-5");
        assert_eq!(follows(1.0, 0.0), "0-1,4-5");
        assert_eq!(follows(1.0, 0.0), "0-7");
    }

    #[test]
    fn isolated_cpus_stay_and_count_for_nothing() {
        let cores = || (0..4).map(|i| (0, Cpus::from([i])));
        let mut monitor =
            Monitor::new(rules(PROPORTIONAL), Machine::new(cores(), &Cpus::from([0]), &Cpus::new()));
        assert_eq!(cpulist::format(&monitor.machine().counted()), "1-3");
        // Of the other three, one is served.
        monitor.step(&record(1.0, 2.0));
        assert_eq!(monitor.step(&record(1.0, 2.0)), Some(Cpus::from([0, 1])));
        // One sibling of a core: the other can be given up.
        let siblings = [(0, Cpus::from([0, 1])), (0, Cpus::from([2, 3]))].into_iter();
        let half = Machine::new(siblings, &Cpus::from([3]), &Cpus::new());
        assert_eq!(
            (cpulist::format(&half.counted()), half.isolated.clone()),
            ("0-2".into(), Cpus::from([3]))
        );
        let mut monitor = Monitor::new(rules(PROPORTIONAL), half);
        monitor.step(&record(1.0, 2.0));
        assert_eq!(monitor.step(&record(1.0, 2.0)), Some(Cpus::from([0, 1, 3])));
        let all = Machine::new(cores(), &Cpus::from([0, 1, 2, 3]), &Cpus::new());
        assert_eq!((all.counted().len(), all.isolated.len()), (4, 0));
    }

    #[test]
    fn the_first_core_that_has_ticks_keeps_house() {
        let tickless = Cpus::from([0, 1]);
        let machine =
            Machine::new((0..3).map(|i| (0, Cpus::from([2 * i, 2 * i + 1]))), &Cpus::new(), &tickless);
        let mut monitor = Monitor::new(rules(PROPORTIONAL), machine);
        monitor.step(&record(2.0, 4.0));
        assert_eq!(monitor.step(&record(2.0, 4.0)), Some(Cpus::from([2, 3])));
    }

    #[test]
    fn a_choice_is_checked_kept_and_forgotten() {
        let mut monitor = Monitor::new(rules(PROPORTIONAL), machine());
        assert!(monitor.choose("").is_err());
        let error = monitor.choose("1,9").unwrap_err().to_string();
        assert_eq!(error, "CPUs 9 are not online: choose from 0-7");
        monitor.choose("1,6").unwrap();
        assert_eq!(monitor.step(&record(1.0, 7.0)), None);
        assert_eq!(monitor.step(&record(1.0, 7.0)), None);
        // Half of it goes, then all of it.
        let without = |gone: usize| {
            let cores = (0..8).filter(move |cpu| *cpu != gone).map(|cpu| (0, Cpus::from([cpu])));
            Machine::new(cores, &Cpus::new(), &Cpus::new())
        };
        assert!(!monitor.machine_changed(without(6)));
        assert_eq!(monitor.preferred(), Cpus::from([1]));
        assert!(!monitor.machine_changed(without(1)));
        assert!(!monitor.is_manual());
        assert_eq!(monitor.preferred().len(), 7);
        monitor.choose("0").unwrap();
        monitor.choose(AUTO).unwrap();
        assert_eq!(monitor.preferred(), monitor.machine().online());
    }
}
