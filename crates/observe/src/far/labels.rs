// SPDX-License-Identifier: GPL-2.0-only
//! How far, as labels of a Kubernetes node: the text of a feature file, which node-feature-discovery reads.
//!
//! Labels are few, and say nothing before a recording does: a scheduler takes them at their word.

use super::{FEWEST, Far};
use crate::snapshot::Snapshot;
use overbook_report::format::fixed;

/// Longer than a VM has no vCPUs at its begin or end.
const A_WHILE_NS: u64 = 60_000_000_000;

/// What is said of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    /// vCPUs per CPU at the ready time that is asked about; nothing if that is not known.
    pub ratio: Option<f64>,
    /// vCPUs, like those that are there, that it takes yet; nothing if that is not known.
    pub room: Option<u64>,
    /// Whether it should get no more VMs; nothing if that is not known.
    pub full: Option<bool>,
}

impl Labels {
    /// Of recordings of a node, the last snapshot of which is how it is now; at a ready time in percent.
    pub fn of(snapshots: &[Snapshot], ready_percent: f64) -> Labels {
        let Some(last) = snapshots.last() else { return Labels::default() };
        // Of VMs whose vCPUs have no names nobody knows how much they wait.
        if last.vms.keys().any(|pid| is_nameless(snapshots, *pid)) {
            return Labels::default();
        }
        let vcpus = |snapshot: &Snapshot| snapshot.vms.values().map(|vm| vm.vcpus.len()).sum::<usize>();
        if snapshots.len() > FEWEST && snapshots.iter().all(|snapshot| vcpus(snapshot) == 0) {
            return Labels { full: Some(false), ..Labels::default() };
        }
        match Far::of(snapshots, ready_percent) {
            Ok(far) if far.sure => {
                let room = room(far.low, f64::from(last.cpus), vcpus(last) as f64, far.vcpus);
                Labels { ratio: far.ratio, room: Some(room), full: Some(room == 0) }
            }
            _ => Labels::default(),
        }
    }

    /// The text of a feature file, which counts until `expires` (RFC 3339).
    pub fn features(&self, expires: &str) -> String {
        let label = |name: &str, value: Option<String>| {
            value.map_or(String::new(), |value| {
                format!("feature.node.kubernetes.io/overbook.{name}={value}\n")
            })
        };
        format!(
            "# Of `overbook label`.\n# +expiry-time={expires}\n{}{}{}",
            label("full", self.full.map(|full| full.to_string())),
            label("ratio", self.ratio.map(|ratio| fixed(ratio, 2))),
            label("room", self.room.map(|room| room.to_string()))
        )
    }
}

/// Whether a VM has had no vCPUs for a while: one that begins has none until its memory is there, and one that ends none
/// while its memory is given back.
fn is_nameless(snapshots: &[Snapshot], pid: i32) -> bool {
    let last = snapshots.last().map_or(0, |snapshot| snapshot.at_ns);
    let lately = |snapshot: &Snapshot| (last.saturating_sub(A_WHILE_NS)..=last).contains(&snapshot.at_ns);
    // A recording of long steps has only the last one in that while.
    let mut seen =
        snapshots.iter().rev().enumerate().take_while(|(nth, snapshot)| *nth < 2 || lately(snapshot));
    seen.all(|(_, snapshot)| snapshot.vms.get(&pid).is_some_and(|vm| vm.vcpus.is_empty()))
}

/// vCPUs that a node takes beside the `vcpus` that it has: up to `ratio` per CPU (nothing: beyond what can be told), and at
/// most as many again as were `recorded`, as beyond that a recording is a mere model's word.
fn room(ratio: Option<f64>, cpus: f64, vcpus: f64, recorded: f64) -> u64 {
    let most = (2.0 * recorded - vcpus).max(0.0);
    ratio.map_or(most, |ratio| (ratio * cpus - vcpus).clamp(0.0, most)).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::tests::recorded;
    use crate::snapshot::VmCounters;
    use proptest::prelude::*;

    #[test]
    fn a_node_is_labelled_by_what_it_was_seen_to_do() {
        let few = Labels::of(&recorded(4, 5, 0.0, &[("a", 4, 0.5, 0.01, 0.0)]), 5.0);
        assert_eq!(few, Labels::default(), "five intervals say nothing");
        assert_eq!(Labels::of(&[], 5.0), Labels::default());
        let empty = Labels::of(&recorded(4, 30, 0.0, &[]), 5.0);
        assert_eq!(empty, Labels { full: Some(false), ..Labels::default() });
        let nameless = Labels::of(&recorded(4, 30, 0.0, &[("a", 0, 0.0, 0.0, 0.0)]), 5.0);
        assert_eq!(nameless, Labels::default(), "a VM whose vCPUs nobody sees is no empty node");
        let mut begins = recorded(4, 30, 0.0, &[("b", 4, 0.3, 0.001, 0.0)]);
        let named = Labels::of(&begins, 5.0);
        begins.last_mut().unwrap().vms.insert(99, VmCounters::default());
        assert_eq!(Labels::of(&begins, 5.0), named, "one that begins has no vCPUs yet");
        begins.iter_mut().for_each(|snapshot| snapshot.at_ns *= 100);
        let named = Labels::of(&begins[..begins.len() - 1], 5.0);
        assert_eq!(Labels::of(&begins, 5.0).full, named.full, "nor in a recording of long steps");
        let calm = Labels::of(&recorded(4, 30, 0.0, &[("a", 4, 0.3, 0.001, 0.0)]), 5.0);
        assert!(calm.ratio > Some(1.0) && calm.room > Some(0) && calm.full == Some(false), "{calm:?}");
        let crowded = Labels::of(&recorded(4, 30, 0.0, &[("a", 8, 0.5, 0.4, 0.0)]), 5.0);
        assert!(
            crowded.ratio < Some(2.0) && crowded.room == Some(0) && crowded.full == Some(true),
            "{crowded:?}"
        );
    }

    #[test]
    fn a_file_is_what_node_feature_discovery_reads() {
        let labels = Labels { ratio: Some(2.406), room: Some(3), full: Some(false) };
        assert_eq!(
            labels.features("2026-11-25T01:00:00Z"),
            "# Of `overbook label`.\n# +expiry-time=2026-11-25T01:00:00Z\n\
             feature.node.kubernetes.io/overbook.full=false\nfeature.node.kubernetes.io/overbook.ratio=2.41\n\
             feature.node.kubernetes.io/overbook.room=3\n"
        );
        assert!(!Labels::default().features("x").contains("feature."));
    }

    proptest! {
        #[test]
        fn room_stays_within_what_was_seen(
            ratio in proptest::option::of(0.0..50.0f64), cpus in 1.0..1024.0f64, vcpus in 0.0..4096.0f64, recorded in 0.0..4096.0f64
        ) {
            let room = room(ratio, cpus, vcpus, recorded) as f64;
            prop_assert!(room + vcpus <= f64::max(2.0 * recorded, vcpus));
            prop_assert!(ratio.is_none_or(|ratio| room == 0.0 || room + vcpus <= ratio * cpus));
        }
    }
}
