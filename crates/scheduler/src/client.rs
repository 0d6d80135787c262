// SPDX-License-Identifier: GPL-2.0-only
//! Asks the scheduler of ours that runs on this machine.

use anyhow::{Context, Result, anyhow, bail, ensure};
use overbook_cli::changes::{Change, are_in};
use overbook_cli::values::duration;
use scx_stats::prelude::StatsClient;
use serde::de::DeserializeOwned;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a scheduler may take to load again, after hotplug or an upgrade, before it counts as gone.
const RELOAD: Duration = Duration::from_secs(10);

/// Longest wait for an answer, in ms. Changes are answered once they are in force.
const PATIENCE_MS: u64 = 30_000;

/// How often `stop` is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Statistics that a program of ours serves.
pub trait Served: DeserializeOwned {
    /// What starts that program.
    const COMMAND: &'static str;
    /// Argument of a request that changes its settings. Names differ, so that none does what another is to do.
    const SET: &'static str;

    /// Settings in force; never empty.
    fn in_force(&self) -> &str;

    /// Itself if it is of that program: what others serve has none of its fields, and so all of them empty.
    ///
    /// # Errors
    /// It is of another.
    fn ours(self) -> Result<Self> {
        ensure!(!self.in_force().is_empty(), "the scheduler that runs is none of `{}`", Self::COMMAND);
        Ok(self)
    }
}

/// Asks the scheduler that runs for statistics.
///
/// # Errors
/// None runs, or this user may not ask it, or it is none that serves `T`.
pub fn ask<T: Served>() -> Result<T> {
    request(Vec::new())
}

fn request<T: Served>(arguments: Vec<(String, String)>) -> Result<T> {
    connect::<T>()?.request::<T>("stats", arguments)?.ours()
}

/// Connects to the scheduler that runs.
///
/// # Errors
/// None runs, or this user may not ask it.
pub fn connect<T: Served>() -> Result<StatsClient> {
    StatsClient::new().connect(Some(PATIENCE_MS)).map_err(|why| {
        let kind = why.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::PermissionDenied) {
            return anyhow!("this user may not ask the scheduler that runs: run this as root");
        }
        anyhow!("no scheduler of ours is running: start one with `{}`", T::COMMAND)
    })
}

/// Asks the scheduler that runs to change; its statistics after that.
///
/// # Errors
/// None runs, or it says why it does not change, or it does not have what was wanted in force.
pub fn set<T: Served>(wanted: &[Change]) -> Result<T> {
    let text = wanted.iter().map(Change::to_string).collect::<Vec<_>>().join(" ");
    let now: T = request(vec![(T::SET.into(), text)])?;
    let in_force = now.in_force();
    ensure!(
        are_in(wanted, in_force),
        "the scheduler could not change, and its log says why; in force is {in_force}"
    );
    Ok(now)
}

/// Shows statistics every so many seconds until `stop`; lives through a scheduler that loads again.
///
/// # Errors
/// No scheduler that serves `T` runs, or it has ended, or `show` fails.
pub fn monitor<T: Served>(
    seconds: f64,
    stop: &dyn Fn() -> bool,
    show: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut client = Some(connect::<T>()?);
    let mut seen = Instant::now();
    while !stop() {
        let answer = client.as_mut().context("not connected").and_then(|c| c.request("stats", Vec::new()));
        match answer.map(T::ours) {
            Ok(stats) => {
                show(stats?)?;
                seen = Instant::now();
                rest(duration(seconds), stop);
            }
            Err(why) if seen.elapsed() > RELOAD + duration(seconds) => {
                log::info!("{why:#}");
                match connect::<T>() {
                    Ok(_) => bail!("the scheduler that runs is none of `{}`", T::COMMAND),
                    Err(_) => bail!("the scheduler has ended"),
                }
            }
            Err(_) => {
                rest(POLL, stop);
                client = connect::<T>().ok();
            }
        }
    }
    Ok(())
}

fn rest(length: Duration, stop: &dyn Fn() -> bool) {
    let start = Instant::now();
    while !stop() && start.elapsed() < length {
        sleep(POLL.min(length - start.elapsed().min(length)));
    }
}
