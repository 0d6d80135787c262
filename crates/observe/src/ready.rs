// SPDX-License-Identifier: GPL-2.0-only
//! Ready time: the share of a window in which a vCPU could have run, and had no CPU.
//!
//! Of a vCPU it is queued time ÷ window, in percent from 0 to 100. Of a VM it is the mean over its vCPUs, so that a large
//! VM and a small one compare; operators who know `esxtop` find the *sum* there (`%RDY` of a group), which is the mean
//! times the vCPUs. What a `cpu.max` holds back counts as ready time too. Time in which a vCPU is halted does not.
//!
//! There is no co-stop here: no vCPU is ever held back because a sibling lags behind, so nothing but ready time is lost.

use serde::Serialize;
use std::fmt;

/// Ready time of a vCPU up to which a host counts as well filled, in percent.
pub const CONTENDED_PERCENT: f64 = 5.0;

/// Ready time of a vCPU from which on guests feel it, in percent.
pub const BAD_PERCENT: f64 = 10.0;

/// What the trade says of a ready time (docs/observe.md#ready-time names who).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Below [`CONTENDED_PERCENT`].
    Good,
    /// From there on: worth watching.
    Contended,
    /// From [`BAD_PERCENT`] on.
    Bad,
}

impl Level {
    /// Of a ready time in percent, a vCPU's or the mean of a VM's.
    pub fn of(percent: f64) -> Level {
        match percent {
            p if p >= BAD_PERCENT => Level::Bad,
            p if p >= CONTENDED_PERCENT => Level::Contended,
            _ => Level::Good,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Level::Good => "good",
            Level::Contended => "contended",
            Level::Bad => "bad",
        })
    }
}

/// Ready time of one vCPU in percent of a window, 0 to 100. The kernel adds a wait when it ends, so that what was added
/// may be more than the window is long; nothing is said of an empty one (0).
pub fn percent(queued_ns: u64, window_ns: u64) -> f64 {
    if window_ns == 0 { 0.0 } else { (100.0 * queued_ns as f64 / window_ns as f64).min(100.0) }
}

/// Ready time of a VM in percent: the mean over its vCPUs; 0 of none.
pub fn mean(vcpus: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = vcpus.into_iter().fold((0.0, 0u32), |(sum, count), ready| (sum + ready, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// The greatest ready time of a VM's vCPUs in percent; 0 of none. A VM may have a good mean and one vCPU that starves.
pub fn worst(vcpus: impl IntoIterator<Item = f64>) -> f64 {
    vcpus.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_begin_at_their_thresholds() {
        for (percent, level) in [
            (0.0, Level::Good),
            (4.99, Level::Good),
            (5.0, Level::Contended),
            (9.99, Level::Contended),
            (10.0, Level::Bad),
            (100.0, Level::Bad),
            // Of nothing that was measured.
            (f64::NAN, Level::Good),
        ] {
            assert_eq!(Level::of(percent), level, "{percent}");
        }
        assert!(Level::Bad > Level::Contended && Level::Contended > Level::Good);
        assert_eq!(format!("{:>10}", Level::Bad), "       bad");
    }

    #[test]
    fn a_vcpus_share_is_of_the_window_and_no_more() {
        assert_eq!(percent(50, 1000), 5.0);
        assert_eq!(percent(0, 1000), 0.0);
        assert_eq!(percent(1330, 1000), 100.0);
        assert_eq!(percent(7, 0), 0.0);
    }

    #[test]
    fn a_vms_is_the_mean_and_its_worst_shows_who_starves() {
        let vcpus = [0.0, 0.0, 0.0, 40.0];
        assert_eq!((mean(vcpus), worst(vcpus)), (10.0, 40.0));
        assert_eq!((mean([]), worst([])), (0.0, 0.0));
        // However many vCPUs there are, it lies between the least and the greatest.
        for count in 1..=256 {
            let same = std::iter::repeat_n(7.5, count);
            assert!((mean(same.clone()) - 7.5).abs() < 1e-9 && worst(same) == 7.5);
        }
    }
}
