// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host`.

use anyhow::{Context, Result};
use overbook_host::Options;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Schedules until Ctrl-C or SIGTERM.
pub fn run(options: &Options) -> Result<()> {
    overbook_host::run(options, &stop_at_signals()?)
}

/// Raised by Ctrl-C and SIGTERM.
pub fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    Ok(stop)
}
