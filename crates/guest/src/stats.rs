// SPDX-License-Identifier: GPL-2.0-only
//! What `--stats`, `--monitor` and `--json` show.

use anyhow::Result;
use overbook_scheduler::client::Served;
use overbook_scheduler::stats::HostStats;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::io::Write;

/// The guest.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[serde(default)]
#[stat(desc = "Overbook's guest scheduler", top)]
pub struct GuestStats {
    #[stat(desc = "rule that the preferred CPUs follow: step, proportional, host (it tells), or manual")]
    pub governor: String,
    #[stat(desc = "what may change while running, as `--set` takes it")]
    pub follows: String,
    #[stat(desc = "online CPUs, as a list")]
    pub online: String,
    #[stat(desc = "preferred CPUs, as a list")]
    pub preferred: String,
    #[stat(desc = "1 while it keeps tasks on some CPUs, 0 while it stands by, as all CPUs are preferred")]
    pub scheduling: u64,
    #[stat(desc = "number of online CPUs")]
    pub nr_online: u64,
    #[stat(
        desc = "number of preferred CPUs; fewer than online for long: the guest has more vCPUs than its host serves"
    )]
    pub nr_preferred: u64,
    #[stat(
        desc = "steal in the last period, in hundredths of a percent of the online CPUs that are not isolated; thresholds but step's are of the preferred ones"
    )]
    pub steal: u64,
    #[stat(desc = "CPUs' worth of time that the guest had in the last period, in hundredths")]
    pub used: u64,
    #[stat(
        desc = "CPUs that the host says it can give, in hundredths; 0: it says nothing, and steal decides"
    )]
    pub told: u64,
    #[stat(desc = "periods looked at")]
    pub samples: u64,
    #[stat(desc = "times that CPUs were taken out of the preferred ones")]
    pub shrinks: u64,
    #[stat(desc = "times that CPUs were preferred again")]
    pub grows: u64,
    #[stat(desc = "running tasks moved off a CPU that had lost preference")]
    pub pushed: u64,
    #[stat(desc = "tasks queued on a CPU that is not preferred, as they may run on no other")]
    pub outside: u64,
    #[stat(
        desc = "CPUs' worth of time used in the last period on CPUs that are not preferred, in hundredths: bound tasks, interrupts, timers, real-time tasks"
    )]
    pub used_outside: u64,
    #[stat(
        desc = "real-time and deadline tasks that were last seen on CPUs that are not preferred: no scheduler of this kind can move them"
    )]
    pub real_time: u64,
    #[stat(desc = "who moves interrupts: irqbalance, us, or nobody")]
    pub interrupts: String,
    #[stat(desc = "times that interrupts were told to follow")]
    pub followed: u64,
    #[stat(desc = "tasks sent straight to an idle CPU")]
    pub direct: u64,
    #[stat(desc = "tasks queued")]
    pub queued: u64,
    #[stat(desc = "running tasks preempted by one that woke up")]
    pub preempt: u64,
}

impl Served for GuestStats {
    const COMMAND: &'static str = "overbook guest";
    const SET: &'static str = "set-guest";

    fn in_force(&self) -> &str {
        &self.follows
    }
}

impl GuestStats {
    /// Takes the scheduler's counts in.
    pub fn add(&mut self, scheduler: &HostStats) {
        self.pushed = scheduler.pushed;
        self.outside = scheduler.outside;
        self.direct = scheduler.direct;
        self.queued = scheduler.queued();
        self.preempt = scheduler.preempt;
    }

    /// Prints one line.
    ///
    /// # Errors
    /// The reader has gone.
    pub fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "{}{}: preferred {} of {} ({} of {} CPUs), steal {:.2} %, used {:.2} CPUs, {} shrinks, {} grows, {} pushed, \
             {} outside, {:.2} CPUs used there, {} real-time tasks there",
            self.governor,
            if self.scheduling == 0 { ", standing by" } else { "" },
            self.preferred,
            self.online,
            self.nr_preferred,
            self.nr_online,
            self.steal as f64 / 100.0,
            self.used as f64 / 100.0,
            self.shrinks,
            self.grows,
            self.pushed,
            self.outside,
            self.used_outside as f64 / 100.0,
            self.real_time,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All schedulers answer in one place, and whatever JSON is statistics without a field.
    #[test]
    fn what_another_scheduler_says_is_not_ours() {
        let guest = GuestStats { follows: "floor=1".into(), ..GuestStats::default() };
        let host = HostStats { settings: "slice-us=3000".into(), ..HostStats::default() };
        let (guests, hosts) = (serde_json::to_value(&guest).unwrap(), serde_json::to_value(&host).unwrap());
        assert_eq!(guest.clone().ours().unwrap(), guest);
        assert!(host.ours().is_ok());
        let why = serde_json::from_value::<GuestStats>(hosts).unwrap().ours().unwrap_err();
        assert_eq!(why.to_string(), "the scheduler that runs is none of `overbook guest`");
        assert!(serde_json::from_value::<HostStats>(guests).unwrap().ours().is_err());
    }
}
