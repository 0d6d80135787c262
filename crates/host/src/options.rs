// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `overbook host`.

use crate::classes::{Assignment, assignment};
use crate::settings::Settings;
use clap::Args;
use overbook_cli::changes::{Change, Changeable, change};
use overbook_cli::values::{number, seconds};
use overbook_scheduler::Loading;
use scx_utils::libbpf_clap_opts::LibbpfOpts;

/// The command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// What may also change while it runs
    #[command(flatten)]
    pub settings: Settings,
    /// Print statistics every so many seconds while scheduling
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<f64>,
    /// Print statistics of the scheduler that is running, every so many seconds; load nothing
    #[arg(long, value_name = "SEC", value_parser = seconds, groups = ["instead", "asks"])]
    pub monitor: Option<f64>,
    /// Change the scheduler that is running, and print what is in force then; load nothing. May be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = change::<Settings>, long_help = Settings::help_of_set(), groups = ["instead", "asks"])]
    pub set: Vec<Change>,
    /// Say the class of a VM that runs (normal, latency, batch), until it ends, by its name, UUID, VMID or process; load nothing
    #[arg(long, value_name = "NAME=CLASS", value_parser = assignment, groups = ["instead", "asks"])]
    pub class: Option<Assignment>,
    /// Count how often the scheduler's BPF programs run, and for how long (some 20 ns more per run)
    #[arg(long)]
    pub costs: bool,
    /// Check everything and have the kernel verify the scheduler, but schedule nothing
    #[arg(long, group = "instead")]
    pub dry_run: bool,
    /// Take over from an `overbook host` that runs: it leaves when this one has been loaded
    #[arg(long)]
    pub replace: bool,
    /// Explain the statistics
    #[arg(long)]
    pub help_stats: bool,
    /// Print the final statistics to stdout, as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Load, then attach and detach as lines on stdin say: `attach ["ARGUMENT",…]`, `detach`. For the lab, which measures
    /// schedulers by turns
    #[arg(long, hide = true)]
    pub hold: bool,
    /// Stretch all times by this factor, as the lab stretches its guests
    #[arg(long, hide = true, default_value_t = 1.0, value_parser = number(0.1, 1000.0))]
    pub stretch: f64,
    /// Length of the kernel's debug dump after an error, in bytes; 0 for the kernel's choice
    #[arg(long, default_value_t = 0, value_parser = number(0u32, 1 << 30))]
    pub exit_dump_len: u32,
    /// Options of libbpf
    #[command(flatten, next_help_heading = "Options of libbpf")]
    pub libbpf: LibbpfOpts,
}

impl Options {
    /// The first option that says nothing of how to schedule: in a variant of the lab it would change nothing.
    pub fn unfit_for_variants(&self) -> Option<&'static str> {
        let given = [
            (self.stats.is_some(), "--stats"),
            (self.monitor.is_some(), "--monitor"),
            (!self.set.is_empty(), "--set"),
            (self.class.is_some(), "--class"),
            (self.dry_run, "--dry-run"),
            (self.replace, "--replace"),
            (self.help_stats, "--help-stats"),
            (self.json, "--json"),
            (self.hold, "--hold"),
            (self.stretch != 1.0, "--stretch"),
            (self.exit_dump_len != 0, "--exit-dump-len"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// Whether one that runs is asked, and nothing is loaded.
    pub fn asks(&self) -> bool {
        self.monitor.is_some() || !self.set.is_empty() || self.class.is_some()
    }

    /// What is settled when the scheduler is loaded.
    pub(crate) fn loading(&self) -> Loading {
        Loading { stretch: self.stretch, exit_dump_len: self.exit_dump_len, libbpf: self.libbpf.clone() }
    }
}
