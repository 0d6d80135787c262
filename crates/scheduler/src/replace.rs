// SPDX-License-Identifier: GPL-2.0-only
//! Upgrades: a new program of ours takes over from one that runs. The kernel has verified the new scheduler by then, so
//! all that lies between them is a moment of EEVDF, in which VMs run on.

use anyhow::{Context, Result, bail};
use scx_stats::prelude::StatsClient;
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Argument of a request to the running program's socket: leave, if you are what the value names (`overbook host`).
pub const LEAVE: &str = "leave";

/// Longest wait for the other to leave.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has the `command` that runs leave, and waits until it has, which `is_there` tells.
///
/// # Errors
/// It does not listen, is another program, or does not leave.
pub fn take_over(command: &str, is_there: impl Fn() -> bool) -> Result<()> {
    if !is_there() {
        return Ok(());
    }
    StatsClient::new()
        .connect(Some(PATIENCE.as_millis() as u64))
        .and_then(|mut client| client.request::<Value>("stats", vec![(LEAVE.into(), command.into())]))
        .with_context(|| {
            format!("cannot take over from the `{command}` that runs: stop it by hand, then start this one")
        })?;
    let start = Instant::now();
    while is_there() {
        if start.elapsed() > PATIENCE {
            bail!("the `{command}` that runs does not leave: stop it by hand, then start this one");
        }
        sleep(Duration::from_millis(10));
    }
    Ok(())
}
