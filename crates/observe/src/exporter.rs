// SPDX-License-Identifier: GPL-2.0-only
//! Answers Prometheus: what is seen of VMs, whoever schedules them, and what a scheduler of ours has counted.

use crate::gone::Gone;
use crate::metrics::Counted;
use crate::scrape::{self, Answer};
use crate::seen;
use crate::snapshot::{Snapshot, VcpuCounters};
use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An answer serves everybody for so long: to count walks all VMs, and whoever reaches the port may ask at any rate.
const FRESH: Duration = Duration::from_secs(1);

/// Whom metrics are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A host and its VMs; a scheduler of ours too, if one runs.
    Host,
    /// A guest: only its scheduler, which has to run.
    Guest,
}

/// What is answered.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// The VMs, from outside.
    pub seen: Option<Snapshot>,
    /// What those of their vCPUs did that have gone, by process.
    pub gone: BTreeMap<i32, VcpuCounters>,
    /// What a scheduler has counted.
    pub counted: Option<Counted>,
}

impl Served {
    /// Looks at everything now.
    ///
    /// # Errors
    /// No scheduler runs where the metrics are about one.
    pub fn now(subject: Subject, gone: &mut Gone) -> Result<Served> {
        Ok(match subject {
            Subject::Host => {
                let seen = Snapshot::from_outside();
                Served { gone: gone.of(&seen), seen: Some(seen), counted: Counted::ask().ok() }
            }
            Subject::Guest => Served { counted: Some(Counted::ask()?), ..Served::default() },
        })
    }

    /// As text for a scraper.
    ///
    /// # Errors
    /// None that was ever seen.
    pub fn text(&self) -> Result<String> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Served {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        if let Some(seen) = &self.seen {
            seen::encode(seen, &self.gone, &mut to)?;
        }
        match &self.counted {
            Some(counted) => counted.encode(self.seen.as_ref(), &mut to),
            None => Ok(()),
        }
    }
}

/// The last answer, for those who ask again soon.
#[derive(Default)]
struct Recent {
    answer: Option<(Instant, Result<String, String>)>,
    gone: Gone,
}

impl Recent {
    /// The last answer if it is fresh, else what `ask` says. An answer is as old as its end: whoever has waited for it has it.
    fn get(
        &mut self,
        clock: impl Fn() -> Instant,
        ask: impl FnOnce(&mut Gone) -> Result<String>,
    ) -> Result<String, String> {
        match &self.answer {
            Some((then, answer)) if clock().saturating_duration_since(*then) < FRESH => answer.clone(),
            _ => {
                let answer = ask(&mut self.gone).map_err(|e| format!("{e:#}\n"));
                self.answer = Some((clock(), answer.clone()));
                answer
            }
        }
    }
}

/// Answers scrapers at `http://ADDRESS/metrics` for as long as the program runs; returns the address with its port.
///
/// # Errors
/// The address cannot be listened at.
pub fn serve(address: SocketAddr, subject: Subject) -> Result<SocketAddr> {
    let recent = Mutex::new(Recent::default());
    scrape::serve(address, scrape::LIMITS, move |path| answer(path, subject, &recent))
}

fn answer(path: &str, subject: Subject, recent: &Mutex<Recent>) -> Answer {
    // Prometheus' `params`: there is nothing to choose.
    if path.split('?').next() != Some("/metrics") {
        return Answer::plain(404, "metrics are at /metrics\n");
    }
    // Whoever asks meanwhile waits for this answer, and has it too.
    let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
    match recent.get(Instant::now, |gone| Served::now(subject, gone)?.text()) {
        Ok(text) => {
            Answer { status: 200, kind: "application/openmetrics-text; version=1.0.0; charset=utf-8", text }
        }
        Err(why) => Answer::plain(503, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use std::cell::Cell;

    #[test]
    fn other_paths_ask_nobody() {
        let recent = Mutex::new(Recent::default());
        assert_eq!(answer("/", Subject::Host, &recent).status, 404);
        assert!(recent.lock().unwrap().answer.is_none());
        // What was counted a moment ago is what everybody gets.
        recent.lock().unwrap().answer =
            Some((Instant::now() + Duration::from_secs(60), Ok("figures".into())));
        let same = answer("/metrics", Subject::Host, &recent);
        assert_eq!((same.status, same.text.as_str()), (200, "figures"));
    }

    #[test]
    fn the_scheduler_is_asked_once_a_second_at_most() {
        let (start, mut recent, mut asked) = (Instant::now(), Recent::default(), 0);
        let mut get = |ms: u64, answer: Result<String>| {
            let answer = recent.get(
                || start + Duration::from_millis(ms),
                |_| {
                    asked += 1;
                    answer
                },
            );
            (answer, asked)
        };
        assert_eq!(get(0, Ok("a".into())), (Ok("a".into()), 1));
        assert_eq!(get(999, Ok("b".into())), (Ok("a".into()), 1));
        assert_eq!(get(1000, Err(anyhow!("gone"))), (Err("gone\n".into()), 2));
        assert_eq!(get(1999, Ok("c".into())), (Err("gone\n".into()), 2));
        assert_eq!(get(2000, Ok("d".into())), (Ok("d".into()), 3));
    }

    /// A scheduler that hangs is waited for once, and not once by everybody who waits.
    #[test]
    fn whoever_waits_for_a_slow_answer_has_it() {
        let (start, passed) = (Instant::now(), Cell::new(Duration::ZERO));
        let (mut recent, asked) = (Recent::default(), Cell::new(0));
        for _ in 0..3 {
            let slow = |_: &mut Gone| {
                passed.set(passed.get() + Duration::from_secs(5));
                asked.set(asked.get() + 1);
                Ok("a".to_string())
            };
            assert_eq!(recent.get(|| start + passed.get(), slow), Ok("a".into()));
        }
        assert_eq!(asked.get(), 1);
    }
}
