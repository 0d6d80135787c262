// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host` and `overbook guest`: what they have in common on the command line.

use anyhow::{Context, Result};
use clap::{Arg, Args};
use overbook_cli::output::Stdout;
use overbook_host::Options;
use overbook_observe::exporter::{self, Subject};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::ErrorKind::AddrInUse;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

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
    /// Starts what these options ask for, while a scheduler is to run. Somebody else may have the address, as the one that is
    /// replaced or `overbook metrics`: that is no reason to schedule nothing.
    pub fn start(&self, subject: Subject) -> Result<()> {
        let Some(address) = self.metrics else { return Ok(()) };
        let is_taken = |why: &anyhow::Error| {
            why.chain().filter_map(|cause| cause.downcast_ref()).any(|io: &io::Error| io.kind() == AddrInUse)
        };
        match exporter::serve(address, subject) {
            Err(why) if is_taken(&why) => {
                log::warn!("{why:#}: another one answers there, and this one once it is free");
                thread::spawn(move || serve_when_free(address, subject));
                Ok(())
            }
            served => served.map(drop),
        }
    }
}

fn serve_when_free(address: SocketAddr, subject: Subject) {
    while exporter::serve(address, subject).is_err() {
        thread::sleep(Duration::from_millis(200));
    }
}

/// An address and a port, of the command line.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "an address and a port belong here, as in 127.0.0.1:9836".into())
}

#[derive(Args)]
#[command(mut_args(arranged))]
pub struct Host {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    common: Common,
}

impl Host {
    /// Schedules until Ctrl-C or SIGTERM.
    pub fn run(&self) -> Result<()> {
        if !self.options.dry_run && !self.options.help_stats {
            self.common.start(Subject::Host)?;
        }
        // Who only asks has nothing to put back, and ends at once, whether or not it is answered.
        let stop = if self.options.asks() { Arc::default() } else { stop_at_signals()? };
        overbook_host::run(&self.options, &stop)
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

/// Options that ask one that runs already: the group `asks`.
const ASKS: [&str; 5] = ["monitor", "set", "class", "status", "clean_up"];

/// Beside an option that asks one that runs, all others would do nothing. libbpf's options work, but are for those who know
/// libbpf.
pub fn arranged(arg: Arg) -> Arg {
    let hidden = arg.is_hide_set() || arg.get_help_heading() == Some("Options of libbpf");
    let asks = ASKS.contains(&arg.get_id().as_str());
    if asks { arg } else { arg.conflicts_with("asks").hide(hidden) }
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
    use std::net::{TcpListener, TcpStream};

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

    /// Two services may be given the same address.
    #[test]
    fn an_address_that_is_taken_is_used_when_it_is_free() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        Common { metrics: Some(address) }.start(Subject::Host).unwrap();
        drop(other);
        let answers = |_| {
            thread::sleep(Duration::from_millis(20));
            TcpStream::connect(address).is_ok()
        };
        assert!((0..3000).any(answers));
        let nowhere = Common { metrics: Some("192.0.2.1:9836".parse().unwrap()) };
        assert!(nowhere.start(Subject::Host).is_err());
    }

    #[test]
    fn what_would_do_nothing_beside_a_question_is_refused() {
        let fits =
            |arguments: &[&str]| options().try_get_matches_from(["host"].iter().chain(arguments)).is_ok();
        assert!(fits(&["--set", "slice-us=2000", "--set", "patience-ms=900"]));
        assert!(
            fits(&["--dry-run", "--metrics"]) && fits(&["--stats", "1", "--costs", "--slice-us", "4000"])
        );
        for more in
            [&["--slice-us", "4000"][..], &["--stats", "2"], &["--replace"], &["--metrics"], &["--costs"]]
        {
            assert!(!fits(&[&["--set", "slice-us=2000"], more].concat()), "{more:?}");
            assert!(!fits(&[&["--monitor", "1"], more].concat()), "{more:?}");
        }
    }
}
