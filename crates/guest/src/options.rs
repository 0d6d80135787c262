// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `overbook guest`.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use overbook_host::values::{number, seconds};
use overbook_host::{Bare, Options as SchedulerOptions};
use overbook_policy::steal::{PROPORTIONAL, Rules, STEP};
use scx_utils::libbpf_clap_opts::LibbpfOpts;
use std::path::PathBuf;

/// How the number of preferred cores follows steal. docs/guest.md explains both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Governor {
    /// One core at a time, as published
    Step,
    /// As many cores as the host serves; a shrink that costs CPU time is taken back
    Proportional,
}

impl Governor {
    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
    }
}

/// The command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How the number of preferred cores follows steal
    #[arg(long, value_enum, default_value = "proportional")]
    pub governor: Governor,
    /// Period of the steal monitor, in ms
    #[arg(long, default_value_t = 1000, value_parser = number(20u64, 100_000))]
    pub interval_ms: u64,
    /// Steal above this, in hundredths of a percent of the CPUs, takes cores away
    #[arg(long, default_value_t = 500, value_parser = number(0u32, 10_000))]
    pub high: u32,
    /// Steal not above this, in hundredths of a percent of the CPUs, gives cores back
    #[arg(long, default_value_t = 200, value_parser = number(0u32, 10_000))]
    pub low: u32,
    /// Periods in a row that must say the same before anything changes
    #[arg(long, default_value_t = 2, value_parser = number(1u32, 100))]
    pub agree: u32,
    /// Periods of low steal before `proportional` gives the first core back
    #[arg(long, default_value_t = 5, value_parser = number(1u32, 1000))]
    pub quiet: u32,
    /// Cores that are preferred whatever the steal
    #[arg(long, default_value_t = 1, value_parser = number(1u32, 8192))]
    pub floor: u32,
    /// Leave the preferred CPUs as they are told by --preferred; all at first
    #[arg(long)]
    pub no_steal_monitor: bool,
    /// Give the tasks back to EEVDF after so many periods in which all CPUs were preferred, until some are not; 0 schedules
    /// always
    #[arg(long, value_name = "PERIODS", default_value_t = 10, value_parser = number(0u32, 100_000))]
    pub stand_by: u32,
    /// Length of a turn in µs (100 to 100000)
    #[arg(long, default_value_t = 3000, value_parser = number(100u64, 100_000))]
    pub slice_us: u64,
    /// Leave irqbalance alone
    #[arg(long)]
    pub no_irqbalance: bool,
    /// Without irqbalance, move interrupts to preferred CPUs
    #[arg(long)]
    pub steer_irqs: bool,
    /// Periods without a change before interrupts follow
    #[arg(long, default_value_t = 5, value_parser = number(0u32, 1000))]
    pub irq_settle: u32,
    /// Tell the scheduler that is running which CPUs to prefer (0-3,8), or `auto` to have it choose again; load nothing
    #[arg(long, value_name = "CPUS")]
    pub preferred: Option<String>,
    /// Write what the monitor sees to a file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print what the governor would have done with a recorded file; load nothing
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// Print statistics every so many seconds while scheduling
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<f64>,
    /// Print statistics of the scheduler that is running, every so many seconds; load nothing
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub monitor: Option<f64>,
    /// Print the statistics of the scheduler that is running, once, as a line of JSON; load nothing
    #[arg(long)]
    pub status: bool,
    /// Check everything and have the kernel verify the scheduler, but schedule nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take over from a scheduler of ours that runs: it leaves when this one has been loaded
    #[arg(long)]
    pub replace: bool,
    /// Put back what a killed `overbook guest` has left behind (irqbalance, interrupts, the published list), and end
    #[arg(long)]
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
    /// What clap cannot see.
    ///
    /// # Errors
    /// Two options contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.low > self.high {
            bail!("--low exceeds --high: cores would come and go at the same steal");
        }
        if self.record.is_some() && self.no_steal_monitor {
            bail!("--record needs the steal monitor: leave --no-steal-monitor out");
        }
        Ok(())
    }

    /// The governor's rules.
    pub fn rules(&self) -> Rules {
        Rules {
            governor: if self.governor == Governor::Step { STEP } else { PROPORTIONAL },
            low: self.low,
            high: self.high,
            agree: self.agree,
            quiet: self.quiet,
            floor: self.floor,
        }
    }

    /// Options of the scheduler itself.
    pub fn scheduler(&self) -> Result<SchedulerOptions> {
        let mut options = Bare::<SchedulerOptions>::options_of(&[] as &[&str])?;
        options.libbpf = self.libbpf.clone();
        options.stretch = self.stretch;
        options.settings.slice_us = self.slice_us;
        Ok(options)
    }
}
