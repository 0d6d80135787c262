// SPDX-License-Identifier: GPL-2.0-only
//! `overbook report`: what this host wastes in spins, before anything is changed.

use crate::top::SpinGap;
use anyhow::{Context, Result};
use clap::Args;
use overbook_host::output::{Stdout, note};
use overbook_host::values::duration;
use overbook_observe::report::{Origin, Report};
use overbook_observe::snapshot::{beginnings, read_recording};
use overbook_observe::{Snapshot, Window};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
pub struct ReportArgs {
    /// Length of the window
    #[arg(long, default_value_t = 60.0, value_parser = overbook_host::values::seconds)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a snapshot per second to a file, for `overbook top --from`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Report on what was recorded, instead of this host
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    from: Option<PathBuf>,
    #[command(flatten)]
    gap: SpinGap,
}

impl ReportArgs {
    pub fn run(self) -> Result<()> {
        let length = duration(self.seconds);
        let (snapshots, origin) = match &self.from {
            Some(file) => (read_recording(file)?, Origin::Recording),
            None => (self.watch(length)?, Origin::here()),
        };
        let beginnings = beginnings(&snapshots);
        if beginnings.len() > 1 {
            note(format_args!("{} recordings are in this file: this is the last one", beginnings.len()));
        }
        let begin = beginnings.last().copied().unwrap_or(0);
        let (Some(first), Some(last)) = (snapshots.get(begin), snapshots.last()) else {
            anyhow::bail!("the recording is empty");
        };
        let report = Report::new(Window::between(first, last), origin);
        if self.json {
            writeln!(Stdout, "{}", serde_json::to_string_pretty(&report)?)?;
        } else {
            write!(Stdout, "{}", report.text())?;
        }
        Ok(())
    }

    /// Snapshots at the ends of a window, and in between if they are recorded.
    fn watch(&self, length: Duration) -> Result<Vec<Snapshot>> {
        let mut record = match &self.record {
            Some(file) => {
                Some(File::create(file).with_context(|| format!("cannot write {}", file.display()))?)
            }
            None => None,
        };
        let mut observer = self.gap.observer();
        let step = if record.is_some() { length.min(Duration::from_secs(1)) } else { length };
        let mut snapshots = Vec::new();
        let mut left = length;
        loop {
            let snapshot = observer.snapshot()?;
            if let Some(file) = &mut record {
                writeln!(file, "{}", serde_json::to_string(&snapshot)?)
                    .context("cannot write the recording: is the disk full?")?;
            }
            snapshots.push(snapshot);
            if left.is_zero() {
                return Ok(snapshots);
            }
            std::thread::sleep(step.min(left));
            left = left.saturating_sub(step);
        }
    }
}
