// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host` and `overbook guest`: what they have in common on the command line.

use anyhow::{Context, Result};
use clap::{Arg, Args};
use overbook_cli::output::Stdout;
use overbook_host::Options;
use overbook_observe::exporter::{self, Subject};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Bytes that no domain's XML has.
const LARGEST_XML: u64 = 16 << 20;

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
    pub fn start(&self, subject: Subject) -> Result<()> {
        self.metrics.map_or(Ok(()), |address| exporter::serve(address, subject).map(drop))
    }
}

/// An address and a port, of the command line.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and a port belong here, as in 127.0.0.1:9836".into())
}

#[derive(Args)]
#[command(mut_args(hide_libbpf))]
pub struct Host {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

impl Host {
    /// Schedules until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        self.common.start(Subject::Host)?;
        overbook_host::run(&self.options, &stop_at_signals()?)
    }
}

/// Prints `UUID=CLASS` for the XML of a domain that asks for a class, and nothing for others.
pub fn domain_class() -> Result<()> {
    let mut xml = String::new();
    std::io::stdin()
        .take(LARGEST_XML)
        .read_to_string(&mut xml)
        .context("cannot read the XML of a domain from standard input")?;
    if let Some(asked) = overbook_host::domain_class::asked(&xml)? {
        writeln!(Stdout, "{asked}")?;
    }
    Ok(())
}

/// libbpf's options work, but are for those who know libbpf.
pub fn hide_libbpf(arg: Arg) -> Arg {
    let hidden = arg.is_hide_set() || arg.get_help_heading() == Some("Options of libbpf");
    arg.hide(hidden)
}

/// Raised by Ctrl-C and SIGTERM.
pub fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot handle signals")?;
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn options() -> Command {
        Host::augment_args(Command::default())
    }

    #[test]
    fn an_operator_sees_twenty_options_at_most() {
        let all = options();
        let shown: Vec<&str> =
            all.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long).collect();
        assert!(shown.len() <= 20, "{}: {shown:?}", shown.len());
        assert!(shown.contains(&"set") && !shown.contains(&"btf-custom-path"), "{shown:?}");
    }

    #[test]
    fn nothing_is_served_unless_asked_for() {
        let metrics = |arguments: &[&str]| {
            let words = ["host"].iter().chain(arguments);
            let found = options().try_get_matches_from(words).unwrap();
            found.get_one::<SocketAddr>("metrics").copied()
        };
        assert_eq!(metrics(&[]), None);
        assert!(metrics(&["--metrics"]).unwrap().ip().is_loopback());
    }
}
