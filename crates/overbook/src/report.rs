// SPDX-License-Identifier: GPL-2.0-only
//! `overbook report`: what this host wastes in spins, before anything is changed; and, of a recording, how far it can go.

use crate::host::stop_at_signals;
use crate::top::SpinGap;
use anyhow::{Context, Result};
use clap::Args;
use overbook_cli::output::{Stdout, note};
use overbook_cli::values::{duration, number};
use overbook_observe::far::{Far, page};
use overbook_observe::recording::Recorder;
use overbook_observe::report::{Origin, Report};
use overbook_observe::snapshot::{beginnings, read_recording};
use overbook_observe::{Snapshot, Window};
use overbook_report::json::{check_writable, write_atomically};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a signal is looked for.
const BEAT: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct ReportArgs {
    /// Length of the measurement, in seconds; Ctrl-C ends it earlier
    #[arg(long, default_value_t = 60.0, value_parser = overbook_cli::values::seconds, conflicts_with = "from")]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a page with plots: how many vCPUs per CPU this host stands, by the recording
    #[arg(long, value_name = "FILE", requires = "recording")]
    html: Option<PathBuf>,
    /// Record a snapshot per second, or fewer when the file is full; appends to a recording
    #[arg(long, value_name = "FILE", group = "recording")]
    record: Option<PathBuf>,
    /// Largest size of the recording, in MB
    #[arg(long, value_name = "MB", default_value_t = 64, requires = "record", value_parser = number(1u64, 4096))]
    record_mb: u64,
    /// Report on a recording, instead of this host
    #[arg(long, value_name = "FILE", conflicts_with = "record", group = "recording")]
    from: Option<PathBuf>,
    /// Ready time that vCPUs may have, in percent: how many vCPUs per CPU does this host stand then?
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = number(0.1, 90.0))]
    ready: f64,
    #[command(flatten)]
    gap: SpinGap,
}

impl ReportArgs {
    pub fn run(self) -> Result<()> {
        let recording = self.record.as_ref().or(self.from.as_ref());
        if self.html.is_some() && self.html.as_ref() == recording {
            anyhow::bail!("the page would replace the recording: name another file for --html");
        }
        if let Some(page) = &self.html {
            check_writable(page)?;
        }
        let report = match &self.from {
            Some(file) => self.of_recording(file, None)?,
            None => {
                let (first, last) = self.watch(duration(self.seconds))?;
                let window = Window::between(&first, &last);
                match &self.record {
                    // What cannot be read again, as a pipe, is not.
                    Some(file) if file.is_file() => self.of_recording(file, Some(window))?,
                    _ => Report::new(window, Origin::here()).with(Far::of(&[first, last], self.ready)),
                }
            }
        };
        if self.json {
            writeln!(Stdout, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            write!(Stdout, "{}", report.text())?;
        }
        match (&self.html, &report.far) {
            (None, _) => Ok(()),
            (Some(file), Some(far)) => write_atomically(file, &page::render(far)?),
            (Some(_), None) => {
                anyhow::bail!("there is no page to write: {}", report.far_unknown.unwrap_or_default())
            }
        }
    }

    /// Of a file: its last recording, or this window of it; and how far, by all of it.
    fn of_recording(&self, file: &Path, window: Option<Window>) -> Result<Report> {
        let snapshots = read_recording(file)?;
        let beginnings = beginnings(&snapshots);
        let origin = if window.is_some() { Origin::here() } else { Origin::Recording };
        let (Some(begin), Some(last)) = (beginnings.last(), snapshots.last()) else {
            anyhow::bail!("{} has no snapshot: record with `overbook report --record {0}`", file.display());
        };
        if beginnings.len() > 1 && window.is_none() {
            note(format_args!("{} recordings are in this file: this is the last one", beginnings.len()));
        }
        let window = window.unwrap_or_else(|| Window::between(&snapshots[*begin], last));
        Ok(Report::new(window, origin).with(Far::of(&snapshots, self.ready)))
    }

    /// Snapshots at the ends of a window; those in between are recorded.
    fn watch(&self, length: Duration) -> Result<(Snapshot, Snapshot)> {
        let open = |file: &PathBuf| Recorder::open(file, self.record_mb << 20);
        let mut recorder = self.record.as_ref().map(open).transpose()?;
        let stop = stop_at_signals()?;
        let mut observer = self.gap.observer();
        let end = Instant::now() + length;
        let mut look = |recorder: &mut Option<Recorder>| -> Result<Snapshot> {
            let snapshot = observer.snapshot()?;
            let kept = recorder.as_mut().map_or(Ok(()), |recorder| recorder.add(&snapshot));
            kept.context("the recording ends here, and what it holds stays")?;
            Ok(snapshot)
        };
        let first = look(&mut recorder)?;
        loop {
            let step = recorder.as_ref().map_or(length, Recorder::step);
            let next = (Instant::now() + step).min(end);
            sleep_until(next, &stop);
            let snapshot = look(&mut recorder)?;
            if Instant::now() >= end || stop.load(Ordering::Relaxed) {
                return Ok((first, snapshot));
            }
        }
    }
}

/// Sleeps, unless told to stop.
pub fn sleep_until(end: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        std::thread::sleep(left.min(BEAT));
    }
}
