// SPDX-License-Identifier: GPL-2.0-only
//! Ready time on an emulated host: the kernel's own figures under EEVDF and under `overbook host`, and the scheduler's.

use super::{overbook, text};
use overbook_observe::snapshot::{Snapshot, beginnings, read_recording};
use tempfile::TempDir;

/// How far the kernel's figure and the scheduler's may lie apart, in CPUs' worth of time of one vCPU: both count a wait when
/// it ends, and each is read in its own time, as the scheduler's thread that answers waits for a CPU like any other.
const APART: f64 = 0.1;

/// Waiting within a recording, in CPUs: what a snapshot counts for a vCPU of a VM, and when that was read, both in ns.
fn waited(first: &Snapshot, last: &Snapshot, of: impl Fn(&Snapshot) -> (u64, u64)) -> f64 {
    let ((then, from), (now, to)) = (of(first), of(last));
    (now - then) as f64 / (to - from) as f64
}

/// The words behind `waiting under SCHEDULER`: schedstat, `wait_sum` and pressure, in CPUs.
fn said(text: &str, scheduler: &str) -> [f64; 3] {
    let line = text.lines().find(|line| line.starts_with(&format!("waiting under {scheduler}:"))).unwrap();
    ["schedstat ", "wait_sum ", "pressure "].map(|what| {
        let number = line.split(what).nth(1).unwrap().split([' ', ',']).next().unwrap();
        number.parse().unwrap_or_else(|_| panic!("{line}"))
    })
}

#[test]
fn ready_time_is_the_kernels_and_the_schedulers_alike() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("recording.jsonl");
    let output = overbook()
        .args(["lab", "observe", "--kernel", "6.18", "--accel", "single", "-o"])
        .arg(&file)
        .output()
        .unwrap();
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("SysRq-S has unloaded the scheduler"), "{text}");
    assert!(text.contains("the watchdog has thrown the scheduler out"), "{text}");
    let snapshots = read_recording(&file).unwrap();
    let begin = beginnings(&snapshots);
    assert_eq!(begin.len(), 2, "one recording under EEVDF, one under overbook");
    let (first, last) = (&snapshots[begin[1]], snapshots.last().unwrap());
    let mut vcpus = 0;
    for (pid, vm) in &last.vms {
        for id in vm.vcpus.keys() {
            let kernels = |snapshot: &Snapshot| (snapshot.vms[pid].vcpus[id].wait_ns, snapshot.at_ns);
            let ours = |snapshot: &Snapshot| {
                let stats = snapshot.overbook.as_ref().unwrap();
                (stats.vms[&(*pid as u32)].vcpus[id].queued_ns, stats.at_ns)
            };
            let (kernels, ours) = (waited(first, last, kernels), waited(first, last, ours));
            assert!((kernels - ours).abs() < APART, "{} vCPU {id}: {kernels:.3} and {ours:.3}", vm.name);
            vcpus += 1;
        }
        assert!(vm.who.name == vm.name && !vm.name.is_empty(), "{:?}", vm.who);
    }
    assert_eq!(vcpus, 12);
    // Twelve vCPUs that want four CPUs: eight wait, and a dashboard made of wait_sum says nobody does.
    for scheduler in ["EEVDF", "overbook"] {
        let [schedstat, wait_sum, pressure] = said(&text, scheduler);
        assert!((6.5..8.5).contains(&schedstat), "{text}");
        assert!(pressure > 0.5, "{text}");
        match scheduler {
            "EEVDF" => assert!((wait_sum - schedstat).abs() < 1.0, "{text}"),
            _ => assert!(wait_sum < 0.2, "{text}"),
        }
    }
}
