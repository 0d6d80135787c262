// SPDX-License-Identifier: GPL-2.0-only
//! Upgrades: a new scheduler takes over from one of ours that runs. The kernel has verified the new one by then, so all
//! that lies between them is a moment of EEVDF, in which VMs run on.

use crate::preflight;
use anyhow::{Context, Result, bail};
use scx_stats::prelude::StatsClient;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Argument of a request to the running scheduler's socket: leave.
pub const LEAVE: &str = "leave";

/// Longest wait for the other to leave.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has a scheduler of ours leave, if one runs or stands by, and waits until it has.
///
/// # Errors
/// It does not listen, or does not leave.
pub fn take_over() -> Result<()> {
    let mut client = match StatsClient::new().connect(None) {
        Ok(client) => client,
        Err(_) if preflight::loaded().is_none() => return Ok(()),
        other => {
            other.context("the scheduler that runs does not listen: stop it by hand, then start this one")?
        }
    };
    client.request::<Value>("stats", vec![(LEAVE.into(), "now".into())])?;
    let start = Instant::now();
    while preflight::loaded().is_some() || StatsClient::new().connect(None).is_ok() {
        if start.elapsed() > PATIENCE {
            bail!("the scheduler that runs does not leave: stop it by hand, then start this one");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
