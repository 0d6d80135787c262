// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `overbook host`.

use crate::intf;
use crate::values::{complaint, number, seconds};
use anyhow::{Result, anyhow, bail};
use clap::{Args, Parser, ValueEnum};
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

/// How the receiver of a vCPU's IPI is known. docs/policies.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Relations {
    /// Not at all
    None,
    /// One receiver per sender, and any end of an interrupt ends the relation, as published
    Published,
    /// A bitmap of those who sent while the receiver was scheduled out, as in ple-kvm
    PleKvm,
    /// Several receivers, each with its vector, confirmed by the receivers' local APICs
    Full,
}

impl Relations {
    /// Value of `enum ovb_relations_mode`.
    pub fn number(self) -> u32 {
        match self {
            Relations::None => intf::ovb_relations_mode_OVB_RELATIONS_NONE,
            Relations::Published => intf::ovb_relations_mode_OVB_RELATIONS_PUBLISHED,
            Relations::PleKvm => intf::ovb_relations_mode_OVB_RELATIONS_PLE_KVM,
            Relations::Full => intf::ovb_relations_mode_OVB_RELATIONS_FULL,
        }
    }
}

/// Whether a VM's vCPUs run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Gang {
    /// Never
    Off,
    /// Always
    On,
    /// Where the VM spins less that way, found by trying both
    Auto,
}

impl Gang {
    /// Value of `enum ovb_gang_choice`.
    pub fn number(self) -> u32 {
        match self {
            Gang::Off => intf::ovb_gang_choice_OVB_GANG_OFF,
            Gang::On => intf::ovb_gang_choice_OVB_GANG_ON,
            Gang::Auto => intf::ovb_gang_choice_OVB_GANG_AUTO,
        }
    }
}

/// Siblings from which the target of a directed yield is chosen, in falling order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// Those at work whom the spinner has sent an IPI that they have not handled
    Receiver,
    /// Those at work with an interrupt to take
    Interrupt,
    /// Those preempted in the guest's kernel, or whose wait there is over
    Kernel,
    /// The same elsewhere
    Any,
    /// Those whom the spinner, or anybody, has interrupted, but who wait themselves
    Chained,
    /// Those who wait themselves, but have done so for long
    Stale,
    /// None of these: KVM's choice stands
    None,
}

impl Tier {
    /// The tiers as the scheduler counts them, with its numbers.
    pub const COUNTED: [(Tier, u32); 6] = [
        (Tier::Receiver, intf::ovb_tier_OVB_TIER_RECEIVER),
        (Tier::Interrupt, intf::ovb_tier_OVB_TIER_INTERRUPT),
        (Tier::Kernel, intf::ovb_tier_OVB_TIER_KERNEL),
        (Tier::Any, intf::ovb_tier_OVB_TIER_ANY),
        (Tier::Chained, intf::ovb_tier_OVB_TIER_CHAINED),
        (Tier::Stale, intf::ovb_tier_OVB_TIER_STALE),
    ];

    /// Bit of `enum ovb_tier`.
    pub fn bit(self) -> u32 {
        Tier::COUNTED.iter().find(|(tier, _)| *tier == self).map_or(0, |(_, number)| 1 << number)
    }

    /// Name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_string())
    }
}

/// Options without a program's name before them: as the lab sends them, or none at all for the defaults.
#[derive(Parser)]
#[command(no_binary_name = true)]
pub struct Bare<T: Args> {
    /// The options.
    #[command(flatten)]
    pub options: T,
}

impl<T: Args> Bare<T> {
    /// Parses these arguments.
    ///
    /// # Errors
    /// They are none of the command's; one sentence.
    pub fn options_of(arguments: &[impl AsRef<str>]) -> Result<T> {
        match Bare::<T>::try_parse_from(arguments.iter().map(AsRef::as_ref)) {
            Ok(bare) => Ok(bare.options),
            Err(why) => Err(anyhow!(complaint(&why))),
        }
    }
}

/// The command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Who runs after a directed yield
    #[arg(long, value_enum, default_value = "handoff")]
    pub yield_policy: YieldPolicy,
    /// Length of a turn in µs (100 to 100000). Turns end at ticks unless somebody preempts
    #[arg(long, default_value_t = 3000, value_parser = number(100u64, 100_000))]
    pub slice_us: u64,
    /// Least turn of a target that was handed a CPU, in µs; at most the slice
    #[arg(long, default_value_t = 500, value_parser = number(1u64, 100_000))]
    pub least_grant_us: u64,
    /// A task that wakes up preempts one whose deadline is later by this much, in µs of virtual time
    #[arg(long, default_value_t = 500, value_parser = number(0u64, 100_000))]
    pub preempt_margin_us: u64,
    /// A task that wakes up preempts nobody who has run for less than this, in µs
    #[arg(long, default_value_t = 0, value_parser = number(0u64, 100_000))]
    pub protect_us: u64,
    /// Take it that every task asks for a whole turn, as EEVDF does. Otherwise who runs for a moment between two sleeps goes
    /// before who runs for long
    #[arg(long)]
    pub equal_requests: bool,
    /// The one waiter of a VM that spins on although no queued sibling can help it does so for this long, in µs
    #[arg(long, default_value_t = 0, value_parser = number(0u64, 100_000))]
    pub stay_us: u64,
    /// A vCPU whose IPI is being handled keeps its CPU for this long since it sent it, in µs
    #[arg(long, default_value_t = 0, value_parser = number(0u64, 10_000_000))]
    pub answer_us: u64,
    /// A queued vCPU that had yielded this long ago, in µs, may have got what it waited for, and is worth a hand-off
    #[arg(long, default_value_t = 1000, value_parser = number(0u64, 1_000_000))]
    pub stale_us: u64,
    /// A task that has been queued for this long, in ms, goes before others; 0: none does
    #[arg(long, default_value_t = 10_000, value_parser = number(0u64, 25_000))]
    pub patience_ms: u64,
    /// A vCPU that ran for this long between two spins has made progress, in µs (for the statistics)
    #[arg(long, default_value_t = 200, value_parser = number(1u64, 1_000_000))]
    pub progress_us: u64,
    /// What a move to another last-level cache costs a vCPU, in µs: a turn of less than four times this is not handed
    /// over to there
    #[arg(long, default_value_t = 50, value_parser = number(0u64, 100_000))]
    pub cross_llc_us: u64,
    /// How the receiver of a vCPU's IPI is known
    #[arg(long, value_enum, default_value = "full")]
    pub relations: Relations,
    /// Age at which an IPI that nobody has been seen to handle is forgotten, in µs
    #[arg(long, default_value_t = 50_000, value_parser = number(100u64, 10_000_000))]
    pub window_us: u64,
    /// Forget IPIs after sixteen mean response times of their VM; at most --window-us
    #[arg(long)]
    pub adaptive_window: bool,
    /// Receivers, and siblings with an interrupt to take, go before others even if they wait for something themselves
    #[arg(long)]
    pub receivers_first: bool,
    /// Siblings from which targets are chosen: any of these, or none
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "receiver,interrupt,kernel,any,chained,stale"
    )]
    pub tiers: Vec<Tier>,
    /// Whether a VM's vCPUs run together, within an LLC and within their shares
    #[arg(long, value_enum, default_value = "off")]
    pub gang: Gang,
    /// How long each way is tried, in µs
    #[arg(long, default_value_t = 50_000, value_parser = number(1000u64, 10_000_000))]
    pub gang_period_us: u64,
    /// A VM of which few vCPUs want to run keeps the share of all of them, so that a guest that asks for less is not
    /// served less. For hosts without groups per VM
    #[arg(long)]
    pub vm_shares: bool,
    /// Choose a target as well where KVM finds nobody to yield to
    #[arg(long)]
    pub spin_probe: bool,
    /// Print statistics every so many seconds while scheduling
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub stats: Option<f64>,
    /// Print statistics of the scheduler that is running, every so many seconds; load nothing
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    pub monitor: Option<f64>,
    /// Switch the rule of the scheduler that is running; load nothing
    #[arg(long, value_enum, value_name = "POLICY")]
    pub switch: Option<YieldPolicy>,
    /// Count how often the scheduler's BPF programs run, and for how long (some 20 ns more per run)
    #[arg(long)]
    pub costs: bool,
    /// Check everything and have the kernel verify the scheduler, but schedule nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take over from a scheduler of ours that runs: it leaves when this one has been loaded
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
    /// What clap cannot see.
    ///
    /// # Errors
    /// Two options contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.least_grant_us > self.slice_us {
            bail!("--least-grant-us exceeds --slice-us: a grant is part of a turn");
        }
        if self.tiers.contains(&Tier::None) && self.tiers.len() > 1 {
            bail!("--tiers none stands alone: it switches all others off");
        }
        Ok(())
    }
}
