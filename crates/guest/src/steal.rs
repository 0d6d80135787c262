// SPDX-License-Identifier: GPL-2.0-only
//! What the guest got and what was stolen from it: the monitor's only input. A file in the format of `/proc/stat` may
//! stand in for the real one, and samples can be recorded and replayed.

use crate::cpulist::Cpus;
use anyhow::{Context, Result, bail};
use overbook_policy::steal::Sample;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// Times since boot, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In which the CPUs did something for the guest.
    pub run_ns: u64,
    /// In which they would have, if the host had run them.
    pub steal_ns: u64,
    /// In which there was nothing to do.
    pub idle_ns: u64,
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Length of the period.
    pub elapsed_ns: u64,
    /// See [`Times`].
    pub run_ns: u64,
    /// See [`Times`].
    pub steal_ns: u64,
}

impl Record {
    /// As the policy wants it, on a guest with so many CPUs, of which so many were preferred.
    pub fn sample(&self, cpus: usize, preferred: usize) -> Sample {
        Sample {
            elapsed_ns: self.elapsed_ns,
            run_ns: self.run_ns,
            steal_ns: self.steal_ns,
            cpus: cpus as u32,
            preferred: preferred as u32,
        }
    }
}

impl Times {
    /// Reads the text of `/proc/stat`, CPU by CPU: user, nice, system, idle, iowait, irq, softirq, steal in ticks; the
    /// times of guests of this guest are in user's and nice's.
    ///
    /// # Errors
    /// A line of a CPU has no steal time.
    pub fn parse(text: &str, tick_ns: u64) -> Result<BTreeMap<usize, Times>> {
        let mut times = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse::<usize>().ok());
            let Some(cpu) = cpu else { continue };
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else {
                bail!("{line:?} of /proc/stat has no steal time");
            };
            let of_cpu = Times {
                run_ns: (user + nice + system + irq + softirq) * tick_ns,
                steal_ns: steal * tick_ns,
                idle_ns: (idle + iowait) * tick_ns,
            };
            times.insert(cpu, of_cpu);
        }
        Ok(times)
    }

    /// Sums of some CPUs' times.
    fn of(times: &BTreeMap<usize, Times>, cpus: &Cpus) -> Times {
        let of_cpus = times.iter().filter(|(cpu, _)| cpus.contains(cpu));
        of_cpus.fold(Times::default(), |sum, (_, of_cpu)| Times {
            run_ns: sum.run_ns + of_cpu.run_ns,
            steal_ns: sum.steal_ns + of_cpu.steal_ns,
            idle_ns: sum.idle_ns + of_cpu.idle_ns,
        })
    }

    /// What was used of `elapsed_ns` on so many CPUs since `before`, and what was stolen.
    ///
    /// Ticks are charged whole to whoever they hit, those that come late after a preemption too: a guest with much steal
    /// counted up to a tenth more than there was. Steal and idle times are measured, so what is left is the rest.
    fn since(&self, before: &Times, elapsed_ns: u64, cpus: usize) -> (u64, u64) {
        // Steal has been seen to go backwards when a guest migrates.
        let steal_ns = self.steal_ns.saturating_sub(before.steal_ns);
        let idle_ns = self.idle_ns.saturating_sub(before.idle_ns);
        let left = (elapsed_ns * cpus as u64).saturating_sub(steal_ns + idle_ns);
        (self.run_ns.saturating_sub(before.run_ns).min(left), steal_ns)
    }
}

/// What was read of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Of the CPUs that the governor decides about.
    pub record: Record,
    /// What those that it has given up did all the same, ns.
    pub outside_ns: u64,
}

/// Takes a sample whenever it is asked.
pub struct Source {
    file: PathBuf,
    tick_ns: u64,
    last: Option<(Instant, Cpus, BTreeMap<usize, Times>)>,
}

impl Source {
    /// Reads `/proc/stat`, or what is to stand in for it.
    pub fn new(file: Option<PathBuf>) -> Source {
        // SAFETY: only reads a constant.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        Source {
            file: file.unwrap_or_else(|| "/proc/stat".into()),
            tick_ns: 1_000_000_000 / per_second,
            last: None,
        }
    }

    /// What happened since the last sample on these CPUs, and on those of them that were given up; nothing at first,
    /// and when CPUs have come or gone.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sample(&mut self, cpus: &Cpus, given_up: &Cpus) -> Result<Option<Period>> {
        let text = fs::read_to_string(&self.file)
            .with_context(|| format!("cannot read steal times from {}", self.file.display()))?;
        let now = Instant::now();
        let times = Times::parse(&text, self.tick_ns)?;
        let last = self.last.replace((now, cpus.clone(), times.clone()));
        let Some((then, _, before)) = last.filter(|(_, known, _)| known == cpus) else { return Ok(None) };
        let elapsed_ns = (now - then).as_nanos() as u64;
        let of =
            |cpus: &Cpus| Times::of(&times, cpus).since(&Times::of(&before, cpus), elapsed_ns, cpus.len());
        let (run_ns, steal_ns) = of(cpus);
        Ok(Some(Period { record: Record { elapsed_ns, run_ns, steal_ns }, outside_ns: of(given_up).0 }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  1 1 1 1 1 1 1 1 1 1\ncpu0 10 1 5 100 7 1 2 30 4 0\ncpu1 20 0 0 9 0 0 0 5 0 0\n\
                        cpu7 99 0 0 9 0 0 0 99 0 0\nintr 1 2 3\n";

    #[test]
    fn times_are_those_of_the_cpus_that_count() {
        let times = Times::parse(STAT, 10).unwrap();
        let of = |cpus: &[usize]| Times::of(&times, &cpus.iter().copied().collect());
        assert_eq!(of(&[0, 1]), Times { run_ns: 390, steal_ns: 350, idle_ns: 1160 });
        assert_eq!(of(&[1, 5]), Times { run_ns: 200, steal_ns: 50, idle_ns: 90 });
        assert!(Times::parse("cpu0 1 2 3\n", 10).is_err());
    }

    #[test]
    fn what_given_up_cpus_do_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stat");
        let mut source = Source::new(Some(file.clone()));
        let stat = |b: u32| format!("cpu0 {b} 0 0 0 0 0 0 0\ncpu1 {} 0 0 0 0 0 0 0\n", 2 * b);
        let (both, second) = (Cpus::from([0, 1]), Cpus::from([1]));
        fs::write(&file, stat(0)).unwrap();
        source.sample(&both, &second).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(80));
        fs::write(&file, stat(2)).unwrap();
        let period = source.sample(&both, &second).unwrap().unwrap();
        assert_eq!((period.record.run_ns, period.outside_ns), (60_000_000, 40_000_000));
    }

    #[test]
    fn the_first_sample_and_one_after_hotplug_say_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("stat");
        fs::write(&file, STAT).unwrap();
        let mut source = Source::new(Some(file.clone()));
        let two = Cpus::from([0, 1]);
        assert_eq!(source.sample(&two, &Cpus::new()).unwrap(), None);
        fs::write(&file, STAT.replace("cpu1 20 0 0 9 0 0 0 5", "cpu1 20 0 0 9 0 0 0 4")).unwrap();
        let record = source.sample(&two, &Cpus::new()).unwrap().unwrap().record;
        assert_eq!((record.run_ns, record.steal_ns), (0, 0), "steal went backwards");
        assert_eq!(source.sample(&Cpus::from([0]), &Cpus::new()).unwrap(), None);
        fs::remove_file(&file).unwrap();
        assert!(source.sample(&two, &Cpus::new()).is_err());
    }
}
