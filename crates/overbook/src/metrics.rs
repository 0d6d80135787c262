// SPDX-License-Identifier: GPL-2.0-only
//! `overbook metrics`: answers Prometheus with what is seen of VMs, whoever schedules them. Changes nothing.

use crate::host::stop_at_signals;
use anyhow::Result;
use clap::Args;
use overbook_cli::output::{note, ready};
use overbook_cli::values::duration;
use overbook_observe::exporter::{self, Subject};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Metrics {
    /// Address to answer at; port 0 is any that is free
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9836", value_parser = crate::host::address)]
    listen: SocketAddr,
    /// End after so many seconds
    #[arg(long, hide = true, value_parser = overbook_cli::values::seconds)]
    seconds: Option<f64>,
}

impl Metrics {
    /// Answers until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        let stop = stop_at_signals()?;
        let address = exporter::serve(self.listen, Subject::Host)?;
        ready();
        note(format_args!("metrics are at http://{address}/metrics"));
        let start = Instant::now();
        let over = || self.seconds.is_some_and(|seconds| start.elapsed() >= duration(seconds));
        while !stop.load(Ordering::Relaxed) && !over() {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
