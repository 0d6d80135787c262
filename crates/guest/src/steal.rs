// SPDX-License-Identifier: GPL-2.0-only
//! What the guest got and what was stolen from it: the monitor's only input. A file in the format of `/proc/stat` may
//! stand in for the real one, and samples can be recorded and replayed.

use anyhow::{Context, Result};
use overbook_cli::cpulist::Cpus;
use overbook_policy::steal::Sample;
use overbook_scheduler::times::{STAT, Times, tick_ns};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

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
        Source { file: file.unwrap_or_else(|| STAT.into()), tick_ns: tick_ns(), last: None }
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
