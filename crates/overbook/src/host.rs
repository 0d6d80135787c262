// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host` and `overbook guest`: what they have in common on the command line.

use anyhow::{Context, Result};
use clap::Args;
use overbook_host::Options;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Options of both.
#[derive(Args)]
#[command(next_help_heading = "Metrics")]
pub struct Common {
    /// Answer Prometheus at this address, loopback's by default (docs/metrics.md)
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:9836", value_parser = address)]
    metrics: Option<SocketAddr>,
}

impl Common {
    /// Starts what these options ask for.
    pub fn start(&self) -> Result<()> {
        self.metrics.map_or(Ok(()), overbook_observe::metrics::serve)
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and a port belong here, as in 127.0.0.1:9836".into())
}

#[derive(Args)]
pub struct Host {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

impl Host {
    /// Schedules until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        self.common.start()?;
        overbook_host::run(&self.options, &stop_at_signals()?)
    }
}

/// Raised by Ctrl-C and SIGTERM.
pub fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    Ok(stop)
}
