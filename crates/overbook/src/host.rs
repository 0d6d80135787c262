// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host`.

use anyhow::{Context, Result};
use overbook_host::Options;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Schedules until Ctrl-C or SIGTERM.
pub fn run(options: &Options) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    overbook_host::run(options, &stop)
}
