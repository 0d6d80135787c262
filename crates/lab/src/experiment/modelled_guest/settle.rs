// SPDX-License-Identifier: GPL-2.0-only
//! How long a guest takes to find its size when load appears, and to take its CPUs back when it vanishes.

use crate::machine::describe;
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// How often preferred CPUs are looked at, before dilation.
const LOOK: Duration = Duration::from_millis(5);

/// Notes the moments at which their number changed, until it is told to stop.
pub struct Watch<'s, 'e> {
    stop: &'e AtomicBool,
    thread: ScopedJoinHandle<'s, Vec<(Instant, usize)>>,
}

impl<'s, 'e> Watch<'s, 'e> {
    /// Begins; `stop` must not be raised.
    pub fn start(scope: &'s Scope<'s, 'e>, stop: &'e AtomicBool, dilation: f64) -> Watch<'s, 'e> {
        let thread = scope.spawn(move || {
            let mut changes: Vec<(Instant, usize)> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let now = describe::preferred_cpus().map(|cpus| cpus.len());
                if let Some(now) = now.filter(|n| changes.last().is_none_or(|(_, last)| last != n)) {
                    changes.push((Instant::now(), now));
                }
                sleep(LOOK.mul_f64(dilation));
            }
            changes
        });
        Watch { stop, thread }
    }

    /// Ends.
    ///
    /// # Errors
    /// The thread panicked.
    pub fn end(self) -> Result<Vec<(Instant, usize)>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("preferred CPUs were not watched on"))
    }
}

/// Time until all CPUs are preferred; none if that takes longer than `patience`, or nobody says which are.
pub fn until_all_cpus(all: usize, patience: Duration) -> Option<Duration> {
    let start = Instant::now();
    while describe::preferred_cpus()?.len() < all {
        if start.elapsed() >= patience {
            return None;
        }
        sleep(LOOK);
    }
    Some(start.elapsed())
}

/// Time from `start` to the first of `changes` to the size that it had for most of the time until `end`; zero if it had
/// that size at the start, or there are no changes.
pub fn settled(changes: &[(Instant, usize)], start: Instant, end: Instant) -> Duration {
    let ends = changes.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let spans = || {
        let all = changes.iter().zip(ends.clone());
        all.map(|((at, size), until)| ((*at).max(start), until.min(end), *size))
            .filter(|(at, until, _)| at < until)
    };
    let mut lengths: BTreeMap<usize, Duration> = BTreeMap::new();
    for (at, until, size) in spans() {
        *lengths.entry(size).or_default() += until - at;
    }
    let most = lengths.into_iter().max_by_key(|(_, length)| *length).map(|(size, _)| size);
    spans().find(|(_, _, size)| Some(*size) == most).map_or(Duration::ZERO, |(at, _, _)| at - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_lasts_counts() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let of = |changes: &[(Instant, usize)]| settled(changes, at(10), at(100)).as_millis();
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[(at(0), 4)]), 0);
        assert_eq!(of(&[(at(0), 4), (at(25), 1)]), 15);
        // A try of one more does not count, nor does a size that was passed.
        assert_eq!(of(&[(at(0), 4), (at(20), 2), (at(30), 1), (at(60), 2), (at(65), 1)]), 20);
        assert_eq!(of(&[(at(0), 4), (at(5), 1), (at(50), 2), (at(55), 1)]), 0);
    }
}
