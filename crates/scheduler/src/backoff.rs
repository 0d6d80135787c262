// SPDX-License-Identifier: GPL-2.0-only
//! Pauses between loads of a scheduler that loads itself again, when CPUs or modules of kvm come and go: whatever makes
//! them flap must not have the kernel take all tasks over and over.

use std::time::{Duration, Instant};

/// Loads within so long count as one after another.
const MEMORY: Duration = Duration::from_secs(300);

/// Loads at once that need no pause: a CPU that is taken off and put back, or a core's siblings.
const FREE: u32 = 3;

/// The first pause, which doubles from load to load.
const FIRST: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// How long to leave the tasks to EEVDF before the next load, after so many loads one after another.
pub fn pause(loads: u32) -> Duration {
    match loads.checked_sub(FREE) {
        None | Some(0) => Duration::ZERO,
        Some(more) => FIRST.saturating_mul(1 << (more - 1).min(16)).min(LONGEST),
    }
}

/// Counts loads.
#[derive(Debug, Default)]
pub struct Backoff {
    loads: Vec<Instant>,
}

impl Backoff {
    /// A scheduler is to be loaded again at `now`: how long to wait before.
    pub fn again(&mut self, now: Instant) -> Duration {
        self.loads.retain(|then| now.saturating_duration_since(*then) < MEMORY);
        self.loads.push(now);
        pause(self.loads.len() as u32)
    }

    /// Waits as long as [`Backoff::again`] says, and no longer than until `stop`. `flapping` is what comes and goes.
    pub fn wait(&mut self, flapping: &str, stop: &dyn Fn() -> bool) {
        log::warn!("{flapping} came or went: loading again");
        let (start, pause) = (Instant::now(), self.again(Instant::now()));
        if !pause.is_zero() {
            log::warn!(
                "{flapping} come and go all the time: EEVDF schedules for {} s before the scheduler is loaded again",
                pause.as_secs()
            );
        }
        while !stop() && start.elapsed() < pause {
            std::thread::sleep(Duration::from_millis(100).min(pause));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_loads_are_free_and_then_pauses_double() {
        let seconds: Vec<u64> = (1..=12).map(|loads| pause(loads).as_secs()).collect();
        assert_eq!(seconds, [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }

    #[test]
    fn what_lies_back_is_forgotten() {
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        for _ in 0..4 {
            backoff.again(start);
        }
        assert_eq!(backoff.again(start + MEMORY - Duration::from_secs(1)), Duration::from_secs(2));
        assert_eq!(backoff.again(start + MEMORY), Duration::ZERO);
    }

    #[test]
    fn flapping_loads_no_more_than_once_a_minute_in_the_end() {
        let (mut now, mut backoff, mut loads) = (Instant::now(), Backoff::default(), 0);
        let end = now + Duration::from_secs(3600);
        while now < end {
            now += backoff.again(now) + Duration::from_millis(200);
            loads += 1;
        }
        assert!(loads < 200, "{loads} loads in an hour");
    }

    #[test]
    fn who_is_stopped_does_not_wait() {
        let mut backoff = Backoff { loads: vec![Instant::now(); 20] };
        backoff.wait("CPUs", &|| true);
        assert_eq!(backoff.loads.len(), 21);
    }
}
