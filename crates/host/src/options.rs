// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `overbook host`.

use crate::intf;
use clap::{Args, ValueEnum};
use scx_utils::libbpf_clap_opts::LibbpfOpts;

/// Who runs after a directed yield. docs/policies.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum YieldPolicy {
    /// The yielder gives up its turn; nobody is nominated
    Forfeit,
    /// Nominate, and push the yielder back by a bounded penalty
    Deboost,
    /// Nominate, and credit the target with bounded lag
    Credit,
    /// Nominate, and share the penalty up the tree of groups
    Proportional,
    /// Nominate, and shift the yielder by the least that lets the target win
    Strict,
    /// The target runs next on the yielder's CPU, for the rest of its turn and on its account
    Handoff,
}

impl YieldPolicy {
    /// Value of `enum ovb_yield_policy`.
    pub fn number(self) -> u32 {
        match self {
            YieldPolicy::Forfeit => intf::ovb_yield_policy_OVB_YIELD_FORFEIT,
            YieldPolicy::Deboost => intf::ovb_yield_policy_OVB_YIELD_DEBOOST,
            YieldPolicy::Credit => intf::ovb_yield_policy_OVB_YIELD_CREDIT,
            YieldPolicy::Proportional => intf::ovb_yield_policy_OVB_YIELD_PROPORTIONAL,
            YieldPolicy::Strict => intf::ovb_yield_policy_OVB_YIELD_STRICT,
            YieldPolicy::Handoff => intf::ovb_yield_policy_OVB_YIELD_HANDOFF,
        }
    }

    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
    }
}

/// The command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Who runs after a directed yield
    #[arg(long, value_enum, default_value = "handoff")]
    pub yield_policy: YieldPolicy,
    /// Length of a turn in µs (100 to 100000). Turns end at ticks unless somebody preempts
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u64).range(100..=100_000))]
    pub slice_us: u64,
    /// Least turn of a target that was handed a CPU, in µs; at most the slice
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub least_grant_us: u64,
    /// A task that wakes up preempts one whose deadline is later by this much, in µs of virtual time
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub preempt_margin_us: u64,
    /// The one waiter of a VM that spins on although no queued sibling can help it does so for this long, in µs
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    pub stay_us: u64,
    /// A queued vCPU that had yielded this long ago, in µs, may have got what it waited for, and is worth a hand-off
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub stale_us: u64,
    /// Print statistics every so many seconds while scheduling
    #[arg(long, value_name = "SEC")]
    pub stats: Option<f64>,
    /// Print statistics of the scheduler that is running, every so many seconds; load nothing
    #[arg(long, value_name = "SEC")]
    pub monitor: Option<f64>,
    /// Switch the rule of the scheduler that is running; load nothing
    #[arg(long, value_enum, value_name = "POLICY")]
    pub switch: Option<YieldPolicy>,
    /// Explain the statistics
    #[arg(long)]
    pub help_stats: bool,
    /// Print the final statistics to stdout, as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Load, then attach and detach as lines on stdin say: `attach POLICY`, `detach`. For the lab, which measures
    /// schedulers by turns
    #[arg(long, hide = true)]
    pub hold: bool,
    /// Stretch all times by this factor, as the lab stretches its guests
    #[arg(long, hide = true, default_value_t = 1.0)]
    pub stretch: f64,
    /// Length of the kernel's debug dump after an error, in bytes; 0 for the kernel's choice
    #[arg(long, default_value_t = 0)]
    pub exit_dump_len: u32,
    /// Options of libbpf
    #[command(flatten, next_help_heading = "Options of libbpf")]
    pub libbpf: LibbpfOpts,
}
