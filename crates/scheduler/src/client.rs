// SPDX-License-Identifier: GPL-2.0-only
//! Asks the scheduler of ours that runs on this machine.

use anyhow::{Context, Result, anyhow, bail};
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

/// Connects to the scheduler that runs; `command` starts one.
///
/// # Errors
/// None runs, or this user may not ask it.
pub fn connect(command: &str) -> Result<StatsClient> {
    StatsClient::new().connect(Some(PATIENCE_MS)).map_err(|why| {
        let kind = why.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::PermissionDenied) {
            return anyhow!("this user may not ask the scheduler that runs: run this as root");
        }
        anyhow!("no scheduler of ours is running: start one with `{command}`")
    })
}

/// Asks the scheduler that runs to change, by the argument `set`; its statistics after that.
///
/// # Errors
/// None runs, or it says why it does not change.
pub fn set<T: DeserializeOwned>(command: &str, set: &str, wanted: &[Change]) -> Result<T> {
    let text = wanted.iter().map(Change::to_string).collect::<Vec<_>>().join(" ");
    connect(command)?.request("stats", vec![(set.into(), text)])
}

/// What is in force after [`set`], if that is what was wanted.
///
/// # Errors
/// It is not.
pub fn changed<'a>(command: &str, wanted: &[Change], in_force: &'a str) -> Result<&'a str> {
    if in_force.is_empty() {
        bail!("the scheduler that runs is none of `{command}`, or an older one that cannot be changed");
    }
    if !are_in(wanted, in_force) {
        bail!("the scheduler could not change, and its log says why; in force is {in_force}");
    }
    Ok(in_force)
}

/// Shows statistics every so many seconds until `stop`; lives through a scheduler that loads again. `is_ours` knows the
/// statistics of `command` from those of others, whose fields may all be missing.
///
/// # Errors
/// No scheduler of `command` runs, or it has ended, or `show` fails.
pub fn monitor<T: DeserializeOwned>(
    command: &str,
    seconds: f64,
    stop: &dyn Fn() -> bool,
    is_ours: &dyn Fn(&T) -> bool,
    show: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut client = Some(connect(command)?);
    let mut seen = Instant::now();
    while !stop() {
        let answer = client.as_mut().context("not connected").and_then(|c| c.request("stats", Vec::new()));
        match answer {
            Ok(stats) if !is_ours(&stats) => bail!("the scheduler that runs is none of `{command}`"),
            Ok(stats) => {
                show(stats)?;
                seen = Instant::now();
                rest(duration(seconds), stop);
            }
            Err(why) if seen.elapsed() > RELOAD + duration(seconds) => {
                log::info!("{why:#}");
                match connect(command) {
                    Ok(_) => bail!("the scheduler that runs is none of `{command}`"),
                    Err(_) => bail!("the scheduler has ended"),
                }
            }
            Err(_) => {
                rest(POLL, stop);
                client = connect(command).ok();
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
