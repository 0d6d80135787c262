// SPDX-License-Identifier: GPL-2.0-only
//! Steal times that a host would give.

use super::{STAT, preferred};
use crate::machine::describe::parse_cpus;
use crate::machine::task::now_ns;
use anyhow::Result;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// Writes a `/proc/stat` of a machine that wants all its CPUs and loses some percent of them, until it is dropped. What is
/// lost goes with the CPUs: a guest of four that is given two loses nothing on two.
pub struct Injected(Arc<AtomicI32>);

impl Injected {
    /// Of so many CPUs; only sums count, and they are the first one's.
    pub fn start(cpus: usize, first: u32) -> Result<Injected> {
        let all = cpus as f64;
        let percent = Arc::new(AtomicI32::new(0));
        let now = Arc::downgrade(&percent);
        fs::write(STAT, "")?;
        thread::spawn(move || {
            let (mut run, mut stolen, mut last) = (0.0, 0.0, now_ns());
            loop {
                sleep(Duration::from_millis(20));
                let Some(now) = now.upgrade() else { return };
                let at = now_ns();
                let ticks = (at - last) as f64 / 1e7;
                last = at;
                let chosen = parse_cpus(&preferred()).unwrap_or_default().len();
                let cpus = if chosen == 0 { all } else { all.min(chosen as f64) };
                let given = f64::min(all * (1.0 - f64::from(now.load(Ordering::Relaxed)) / 100.0), cpus);
                run += given * ticks;
                stolen += (cpus - given) * ticks;
                let text = format!("cpu{first} {} 0 0 0 0 0 0 {} 0 0\n", run as u64, stolen as u64);
                let fresh = format!("{STAT}.new");
                let _ = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, STAT));
            }
        });
        Ok(Injected(percent))
    }

    /// Percent of all CPUs that the host does not give.
    pub fn set(&self, percent: i32) {
        self.0.store(percent, Ordering::Relaxed);
    }
}
