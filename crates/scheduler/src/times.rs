// SPDX-License-Identifier: GPL-2.0-only
//! What CPUs did, from `/proc/stat`.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};

/// The file.
pub const STAT: &str = "/proc/stat";

/// Length of a tick, in which its times are.
pub fn tick_ns() -> u64 {
    // SAFETY: only reads a constant.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    1_000_000_000 / per_second
}

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
            let of_cpu = Times::from_ticks(words, tick_ns);
            times.insert(cpu, of_cpu.with_context(|| format!("{line:?} of /proc/stat has no steal time"))?);
        }
        Ok(times)
    }

    /// Those of the whole machine, by the first line of `/proc/stat`. Nothing if it has no steal time.
    pub fn of_machine(text: &str, tick_ns: u64) -> Option<Times> {
        Times::from_ticks(text.lines().next()?.strip_prefix("cpu ")?.split_whitespace(), tick_ns)
    }

    fn from_ticks<'a>(words: impl Iterator<Item = &'a str>, tick_ns: u64) -> Option<Times> {
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.first_chunk()?;
        Some(Times {
            run_ns: (user + nice + system + irq + softirq) * tick_ns,
            steal_ns: steal * tick_ns,
            idle_ns: (idle + iowait) * tick_ns,
        })
    }

    /// In which the CPUs could do nothing else: all but idle.
    pub fn busy_ns(&self) -> u64 {
        self.run_ns + self.steal_ns
    }

    /// Sums of some CPUs' times.
    pub fn of(times: &BTreeMap<usize, Times>, cpus: &BTreeSet<usize>) -> Times {
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
    pub fn since(&self, before: &Times, elapsed_ns: u64, cpus: usize) -> (u64, u64) {
        // Steal has been seen to go backwards when a guest migrates.
        let steal_ns = self.steal_ns.saturating_sub(before.steal_ns);
        let idle_ns = self.idle_ns.saturating_sub(before.idle_ns);
        let left = (elapsed_ns * cpus as u64).saturating_sub(steal_ns + idle_ns);
        (self.run_ns.saturating_sub(before.run_ns).min(left), steal_ns)
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
    fn the_first_line_is_the_machine() {
        let machine = Times::of_machine("cpu  100 20 3 5000 600 7 8 9 90 1\ncpu0 1 2 3\n", 10).unwrap();
        assert_eq!(machine, Times { run_ns: 1380, steal_ns: 90, idle_ns: 56000 });
        assert_eq!(machine.busy_ns(), 1470);
        assert_eq!(Times::of_machine("cpu  1 2 3", 10), None);
        assert_eq!(Times::of_machine("", 10), None);
    }

    #[test]
    fn busy_is_all_but_idle() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 100 100 8 16 100 100 100\ncpu2 1 0 0 5 0 0 0 0 0 0\nintr 5\n";
        let busy = Times::parse(text, 10).unwrap().into_iter().map(|(cpu, times)| (cpu, times.run_ns));
        assert_eq!(busy.collect::<Vec<_>>(), [(0, 310), (2, 10)]);
    }
}
