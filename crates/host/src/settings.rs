// SPDX-License-Identifier: GPL-2.0-only
//! What may change while the host's scheduler runs.

use crate::classes::Patterns;
use clap::Args;
use overbook_cli::Switch;
use overbook_cli::changes::Changeable;
use overbook_cli::values::number;
use overbook_scheduler::Tunables;
use serde::Serialize;

/// The one table: a field here is an option, a key of `--set` (the option without its dashes) and a line of the manual;
/// only [`Settings::tunables`] or [`crate::classes`] must know what it does. docs/host.md explains each.
#[derive(Args, Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Settings {
    /// Length of a slice in µs (100 to 100000): what a task may run before others are asked again. Slices end at ticks
    /// unless somebody preempts
    #[arg(long, default_value_t = Tunables::DEFAULT.slice_us, value_parser = number(100u64, 100_000))]
    pub slice_us: u64,
    /// A task that has been queued for this long, in ms (1 to 20000), goes before others. The kernel's watchdog ends a
    /// scheduler under which a task waits for 30 s
    #[arg(long, default_value_t = Tunables::DEFAULT.patience_ms, value_parser = number(1u64, 20_000))]
    pub patience_ms: u64,
    /// Whether the receivers of vCPUs' IPIs are known, by probes on KVM
    #[arg(long, value_enum, default_value = "on")]
    pub relations: Switch,
    /// VMs of the class latency (docs/classes.md): patterns of names, or of cgroups behind cgroup:, with commas between
    #[arg(long, value_name = "PATTERNS", default_value_t, hide_default_value = true)]
    pub latency_vms: Patterns,
    /// VMs of the class batch, as above; who fits both is latency
    #[arg(long, value_name = "PATTERNS", default_value_t, hide_default_value = true)]
    pub batch_vms: Patterns,
}

impl Changeable for Settings {}

impl Settings {
    /// What the scheduler is tuned by.
    pub fn tunables(&self) -> Tunables {
        Tunables { slice_us: self.slice_us, patience_ms: self.patience_ms, relations: self.relations.is_on() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_cli::Bare;
    use overbook_cli::changes::{are_in, change, changes};

    fn defaults() -> Settings {
        Bare::<Settings>::options_of(&[] as &[&str]).unwrap()
    }

    #[test]
    fn what_is_in_force_is_what_set_takes() {
        let text = defaults().in_force();
        assert_eq!(text, "slice-us=3000 patience-ms=10000 relations=on latency-vms= batch-vms=");
        assert_eq!(defaults().with(&changes::<Settings>(&text).unwrap()).unwrap(), defaults());
        assert_eq!(Settings::keys().len(), text.split(' ').count());
    }

    #[test]
    fn without_options_it_is_as_the_scheduler_is_by_itself() {
        assert_eq!(defaults().tunables(), Tunables::DEFAULT);
    }

    #[test]
    fn changes_leave_the_rest_as_it_is() {
        let once = defaults().with(&changes::<Settings>("slice-us=2000 relations=off").unwrap()).unwrap();
        let twice = once.with(&changes::<Settings>("patience-ms=100").unwrap()).unwrap();
        let expected = Settings { slice_us: 2000, relations: Switch::Off, patience_ms: 100, ..defaults() };
        assert_eq!(twice, expected);
        let classes =
            twice.with(&changes::<Settings>("latency-vms=web-*,db batch-vms=ci-?").unwrap()).unwrap();
        assert_eq!(classes.in_force().split(' ').nth(3), Some("latency-vms=web-*,db"));
        let none = classes.with(&changes::<Settings>("latency-vms= batch-vms=").unwrap()).unwrap();
        assert_eq!(none, twice);
        // Of two for one key, the later one counts.
        assert_eq!(
            defaults().with(&changes::<Settings>("slice-us=200 slice-us=300").unwrap()).unwrap().slice_us,
            300
        );
    }

    #[test]
    fn what_could_not_be_done_shows() {
        let (wanted, before) = (changes::<Settings>("slice-us=200 slice-us=0300").unwrap(), defaults());
        assert!(!are_in(&wanted, &before.in_force()));
        assert!(are_in(&wanted, &before.with(&wanted).unwrap().in_force()));
        assert!(are_in(&changes::<Settings>("relations=on").unwrap(), &before.in_force()));
    }

    #[test]
    fn nonsense_is_refused_in_a_sentence() {
        for (text, expected) in [
            ("slice-us", "KEY=VALUE belongs here"),
            (
                "slice=3",
                "nothing that may change while running is named \"slice\"; there are slice-us, patience-ms",
            ),
            ("stats=3", "nothing that may change while running is named \"stats\""),
            ("=", "nothing that may change while running is named \"\""),
            ("slice-us=", "a number from 100 to 100000 belongs here"),
            ("slice-us=fast", "a number from 100 to 100000 belongs here"),
            ("patience-ms=0", "a number from 1 to 20000 belongs here"),
            ("relations=full", "there are on, off"),
            ("relations=", "there are on, off"),
            ("latency-vms=a[", "\"a[\" is no pattern"),
        ] {
            let said = change::<Settings>(text).unwrap_err();
            assert!(said.contains(expected) && !said.contains('\n'), "{text}: {said}");
        }
        assert_eq!(changes::<Settings>("slice-us=100 relations=off").unwrap().len(), 2);
        assert!(changes::<Settings>("slice-us=100 relations=offf").is_err());
    }

    #[test]
    fn every_key_is_explained() {
        let manual = include_str!("../../../docs/host.md");
        for (key, what) in Settings::keys() {
            assert!(!what.is_empty() && manual.contains(&format!("| `{key}` |")), "docs/host.md lacks {key}");
        }
    }
}
