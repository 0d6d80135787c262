// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `overbook guest`.

use crate::enforce::Enforcement;
use crate::settings::Settings;
use clap::Args;
use overbook_cli::changes::{Change, Changeable, change};
use overbook_cli::values::{number, seconds};
use overbook_scheduler::{Loading, Tunables};
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use std::path::PathBuf;

/// The command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What may also change while it runs
    #[command(flatten)]
    pub settings: Settings,
    /// Who keeps tasks on preferred CPUs
    #[arg(long, value_enum, default_value = "cpuset")]
    pub enforce: Enforcement,
    /// Leave irqbalance alone
    #[arg(long)]
    pub no_irqbalance: bool,
    /// Without irqbalance, move interrupts to preferred CPUs
    #[arg(long)]
    pub steer_irqs: bool,
    /// Change the one that is running, and print what is in force then; start nothing. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = change::<Settings>, long_help = Settings::help_of_set(), groups = ["instead", "asks"])]
    pub set: Vec<Change>,
    /// Write what the monitor sees to a file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Print what the governor would have done with a recorded file; start nothing
    #[arg(long, value_name = "FILE", group = "instead")]
    pub replay: Option<PathBuf>,
    /// Print statistics every so many seconds
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<f64>,
    /// Print statistics of the one that is running, every so many seconds; start nothing
    #[arg(long, value_name = "SEC", value_parser = seconds, groups = ["instead", "asks"])]
    pub monitor: Option<f64>,
    /// Print the statistics of the one that is running, once, as a line of JSON; start nothing
    #[arg(long, groups = ["instead", "asks"])]
    pub status: bool,
    /// Check everything, have the kernel verify the scheduler if there is one, and end
    #[arg(long, group = "instead")]
    pub dry_run: bool,
    /// Take over from an `overbook guest` that runs: it leaves when this one is ready
    #[arg(long)]
    pub replace: bool,
    /// Put back what a killed `overbook guest` has left behind (cpusets, kernel threads, irqbalance, interrupts, the published list), and end
    #[arg(long, groups = ["instead", "asks"])]
    pub clean_up: bool,
    /// Explain the statistics
    #[arg(long)]
    pub help_stats: bool,
    /// Print the final statistics to stdout, as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Read steal times from a file in the format of /proc/stat instead, for tests
    #[arg(long, hide = true, value_name = "FILE")]
    pub steal_from: Option<PathBuf>,
    /// Load, then attach and detach as lines on stdin say: `attach ["ARGUMENT",…]`, `detach`. For the lab, which measures
    /// schedulers by turns
    #[arg(long, hide = true)]
    pub hold: bool,
    /// Stretch all times by this factor
    #[arg(long, hide = true, default_value_t = 1.0, value_parser = number(0.1, 1000.0))]
    pub stretch: f64,
    /// Options of libbpf
    #[command(flatten, next_help_heading = "Options of libbpf")]
    pub libbpf: LibbpfOpts,
}

impl Options {
    /// The first of the options given that means nothing in a variant of the lab, where the lab starts and ends it.
    pub fn unfit_for_variants(&self) -> Option<&'static str> {
        let given = [
            (!self.set.is_empty(), "--set"),
            (self.record.is_some(), "--record"),
            (self.replay.is_some(), "--replay"),
            (self.stats.is_some(), "--stats"),
            (self.monitor.is_some(), "--monitor"),
            (self.status, "--status"),
            (self.dry_run, "--dry-run"),
            (self.replace, "--replace"),
            (self.clean_up, "--clean-up"),
            (self.help_stats, "--help-stats"),
            (self.json, "--json"),
            (self.steal_from.is_some(), "--steal-from"),
            (self.hold, "--hold"),
            (self.stretch != 1.0, "--stretch"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// What is settled when a scheduler is loaded.
    pub(crate) fn loading(&self) -> Loading {
        Loading { stretch: self.stretch, exit_dump_len: 0, libbpf: self.libbpf.clone() }
    }

    /// What a scheduler is tuned by.
    pub(crate) fn tunables(&self) -> Tunables {
        Tunables { slice_us: self.settings.slice_us, ..Tunables::DEFAULT }
    }
}
