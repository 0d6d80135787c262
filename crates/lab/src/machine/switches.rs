// SPDX-License-Identifier: GPL-2.0-only
//! Switches of the kernel series (`kernel/`, docs/kernel.md) that variants set, and what its mechanisms count.

use std::collections::BTreeMap;
use std::fs;

/// A switch of the series. All are off (0) at boot.
#[derive(Debug)]
pub struct Switch {
    /// Its name in a variant's `kernel` table: that of its file.
    pub name: &'static str,
    /// The file.
    pub file: &'static str,
    /// The largest value that means something else than the one before.
    pub most: u64,
    /// It is a time, and stretched with all others: a default as well as a given one.
    pub time: bool,
}

const fn switch(name: &'static str, file: &'static str, most: u64) -> Switch {
    Switch { name, file, most, time: false }
}

const fn time(name: &'static str, file: &'static str) -> Switch {
    Switch { name, file, most: u32::MAX as u64, time: true }
}

macro_rules! sched {
    ($make:ident, $name:literal $(, $most:literal)?) => {
        $make($name, concat!("/sys/kernel/debug/sched/", $name) $(, $most)?)
    };
}

macro_rules! kvm {
    ($make:ident, $name:literal $(, $most:literal)?) => {
        $make($name, concat!("/sys/module/kvm/parameters/", $name) $(, $most)?)
    };
}

/// All of them.
pub const SWITCHES: [Switch; 13] = [
    sched!(switch, "vcpu_debooster_enabled", 2),
    sched!(time, "vcpu_debooster_interval_us"),
    sched!(time, "vcpu_debooster_reversal_us"),
    sched!(switch, "yield_to_lag_credit", 2),
    sched!(time, "yield_to_unprotect_interval_us"),
    sched!(switch, "yield_to_proportional", 1),
    sched!(switch, "yield_to_strict", 1),
    sched!(switch, "yield_to_pull", 1),
    sched!(time, "yield_to_pull_interval_us"),
    kvm!(switch, "ipi_tracking_enabled", 2),
    kvm!(time, "ipi_window_ns"),
    kvm!(switch, "enable_relaxed_boost", 1),
    kvm!(switch, "ple_kvm", 1),
];

/// CPUs that the series prefers. An empty list ends a choice by hand.
pub const PREFERRED: &str = "/sys/devices/system/cpu/preferred";

/// Parameters of the series' steal governor that variants set, and their ranges: a period in ms, hundredths of a percent.
pub const GOVERNOR: [(&str, u64, u64); 3] =
    [("interval_ms", 100, 100_000), ("low", 0, 10_000), ("high", 0, 10_000)];

/// The switch of a name.
pub fn find(name: &str) -> Option<&'static Switch> {
    SWITCHES.iter().find(|switch| switch.name == name)
}

/// What directed yields have done since boot: a name and a number in each line.
const YIELDS: &str = "/sys/kernel/debug/sched/yield_to";

/// What KVM counts of the series, summed over the VMs that there are.
const KVM: [&str; 4] =
    ["ipi_tracked", "directed_yield_receiver", "directed_yield_relaxed", "directed_yield_ple_kvm"];

/// What the series counts, by name; nothing on a kernel without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Of the scheduler, since boot.
    pub fn of_yields() -> Counts {
        Counts::parse(&fs::read_to_string(YIELDS).unwrap_or_default())
    }

    fn parse(text: &str) -> Counts {
        let pair = |line: &str| {
            let (name, count) = line.split_once(' ')?;
            Some((name.to_string(), count.parse().ok()?))
        };
        Counts(text.lines().filter_map(pair).collect())
    }

    /// Of KVM, over the VMs that run now.
    pub fn of_vms() -> Counts {
        let one = |name: &str| {
            let text = fs::read_to_string(format!("/sys/kernel/debug/kvm/{name}")).ok()?;
            Some((name.to_string(), text.trim().parse().ok()?))
        };
        Counts(KVM.into_iter().filter_map(one).collect())
    }

    /// What was added since `before`, for a report.
    pub fn since(&self, before: &Counts) -> BTreeMap<String, f64> {
        let added = |(name, count): (&String, &u64)| {
            let old = before.0.get(name).copied().unwrap_or(0);
            (format!("kernel: {name}"), count.saturating_sub(old) as f64)
        };
        self.0.iter().map(added).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_differences() {
        let before = Counts::parse("calls 3\npulled 1\n");
        let after = Counts::parse("calls 10\npulled 1\nstrict 2\nnonsense\n");
        let added = after.since(&before);
        let pairs: Vec<(&str, f64)> = added.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(pairs, [("kernel: calls", 7.0), ("kernel: pulled", 0.0), ("kernel: strict", 2.0)]);
    }

    #[test]
    fn every_series_has_every_switch_and_every_count() {
        for series in &overbook_kernels::patched::SERIES {
            let text: String = series.patches.iter().map(|(_, patch)| *patch).collect();
            for switch in &SWITCHES {
                let made = text.contains(&format!("(\"{}\"", switch.name))
                    || text.contains(&format!("module_param({},", switch.name));
                // Where one queue has all tasks of a CPU there are no groups to push back.
                let applies = switch.name != "yield_to_proportional" || series.kernels == "6.18";
                assert_eq!(made, applies, "{} in the series for {}", switch.name, series.kernels);
                assert!(switch.file.ends_with(switch.name));
            }
            for count in KVM {
                assert!(
                    text.contains(&format!(", {count})")),
                    "no patch for {} counts {count}",
                    series.kernels
                );
            }
        }
    }
}
