// SPDX-License-Identifier: GPL-2.0-only
//! `overbook label`: records what VMs want, and keeps a file of labels for node-feature-discovery that says how far this node
//! can go.

use crate::host::stop_at_signals;
use crate::report::sleep_until;
use crate::top::SpinGap;
use anyhow::{Context, Result};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use overbook_cli::values::{duration, number};
use overbook_observe::Snapshot;
use overbook_observe::far::labels::Labels;
use overbook_observe::recording::Recorder;
use overbook_observe::snapshot::{beginnings, read_recording};
use overbook_report::json::write_atomically;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Labels outlive the time in which they should be renewed by so many.
const TIMES: u32 = 3;
/// Most that a recording takes, in bytes; there are two.
const LIMIT: u64 = 16 << 20;

#[derive(Args)]
pub struct Label {
    /// Feature file to keep
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/node-feature-discovery/features.d/overbook"
    )]
    file: PathBuf,
    /// Recording to keep, of 16 MB at most; the one before it is beside it, with `.old`
    #[arg(long, value_name = "FILE", default_value = "/var/lib/overbook/load.jsonl")]
    record: PathBuf,
    /// Length of a recording: labels rest on the last one to two of these
    #[arg(long, default_value_t = 24, value_parser = number(1u64, 720))]
    hours: u64,
    /// Time between two looks at the recordings
    #[arg(long, default_value_t = 10, value_parser = number(1u64, 1440))]
    minutes: u64,
    /// Ready time of vCPUs that is asked about, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = number(0.1, 90.0))]
    ready: f64,
    /// End after so many seconds
    #[arg(long, hide = true, value_parser = overbook_cli::values::seconds)]
    seconds: Option<f64>,
    #[command(flatten)]
    gap: SpinGap,
}

impl Label {
    /// Until Ctrl-C or SIGTERM; the labels then stay until they expire.
    pub fn run(self) -> Result<()> {
        let stop = stop_at_signals()?;
        let (start, every) = (Instant::now(), Duration::from_secs(60 * self.minutes));
        let mut observer = self.gap.observer();
        if let Some(folder) = self.record.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let mut recorder = Recorder::open(&self.record, LIMIT)?;
        // A long recording of many VMs has its snapshots further apart than labels may be.
        let (mut look, mut due) = (start, start);
        loop {
            if Instant::now() >= look {
                recorder.add(&observer.snapshot()?)?;
                look = Instant::now() + recorder.step();
            }
            if Instant::now() >= due {
                due += every;
                if self.renew(every)? >= Duration::from_secs(3600 * self.hours) {
                    drop(recorder);
                    let old = old(&self.record);
                    fs::rename(&self.record, &old)
                        .with_context(|| format!("cannot rename the recording to {}", old.display()))?;
                    recorder = Recorder::open(&self.record, LIMIT)?;
                }
            }
            let over = self.seconds.is_some_and(|seconds| start.elapsed() >= duration(seconds));
            if over || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            sleep_until(look.min(due), &stop);
        }
    }

    /// Writes the labels, and gives how long the recording is.
    fn renew(&self, every: Duration) -> Result<Duration> {
        let new = read_recording(&self.record)?;
        let length = length(&new);
        let old = old(&self.record);
        let mut all = if old.exists() { read_recording(&old)? } else { Vec::new() };
        all.extend(new);
        let lasts = SignedDuration::from_secs((every * TIMES).as_secs() as i64);
        // Whole seconds.
        let expires = Timestamp::from_second((Timestamp::now() + lasts).as_second())?;
        write_atomically(&self.file, &Labels::of(&all, self.ready).features(&expires.to_string()))?;
        Ok(length)
    }
}

/// Where the recording before this one is.
fn old(record: &Path) -> PathBuf {
    let mut name = record.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

/// Time that is recorded, in all recordings of a file together.
fn length(snapshots: &[Snapshot]) -> Duration {
    let begins = beginnings(snapshots);
    let ends = begins.iter().skip(1).copied().chain([snapshots.len()]);
    let lengths =
        begins.iter().zip(ends).map(|(begin, end)| snapshots[end - 1].at_ns - snapshots[*begin].at_ns);
    Duration::from_nanos(lengths.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_all_recordings_of_a_file() {
        let at = |seconds: u64| Snapshot { at_ns: seconds * 1_000_000_000, ..Snapshot::default() };
        let seconds = |times: &[u64]| length(&times.iter().map(|s| at(*s)).collect::<Vec<_>>()).as_secs();
        assert_eq!(seconds(&[]), 0);
        assert_eq!(seconds(&[5]), 0);
        assert_eq!(seconds(&[5, 8]), 3);
        assert_eq!(seconds(&[5, 8, 0, 10, 2, 3]), 14);
    }
}
