// SPDX-License-Identifier: GPL-2.0-only
//! Ready time on an emulated host: the kernel's own figures under EEVDF and under `overbook host`, and the scheduler's.

use super::{overbook, text};
use overbook_observe::snapshot::{Snapshot, beginnings, read_recording};
use tempfile::TempDir;

/// How far the kernel's figure and the scheduler's may lie apart, of 1: both count a wait when it ends.
const APART: f64 = 0.1;

/// What a vCPU waited within a recording, of the time that it wanted a CPU: it ran, and waited, in ns by a snapshot. Both are
/// read at once. At which moment of a snapshot differs, as all who read wait for CPUs themselves; so nothing is divided by
/// the recording's time.
fn waited(first: &Snapshot, last: &Snapshot, of: impl Fn(&Snapshot) -> [u64; 2]) -> f64 {
    let (then, now) = (of(first), of(last));
    let [ran, waited] = [0, 1].map(|i| (now[i] - then[i]) as f64);
    waited / (ran + waited)
}

/// The words behind `waiting under SCHEDULER`: schedstat, what ran, `wait_sum` and pressure, in CPUs.
fn said(text: &str, scheduler: &str) -> [f64; 4] {
    let line = text.lines().find(|line| line.starts_with(&format!("waiting under {scheduler}:"))).unwrap();
    ["schedstat ", "ran ", "wait_sum ", "pressure "].map(|what| {
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
    // Beside twelve vCPUs, an answer of the scheduler may be late, and its snapshot goes without.
    let answered: Vec<&Snapshot> = snapshots[begin[1]..].iter().filter(|s| s.overbook.is_some()).collect();
    assert!(answered.len() > 1, "the scheduler has answered {} times: {text}", answered.len());
    let (first, last) = (answered[0], *answered.last().unwrap());
    let mut vcpus = 0;
    for (pid, vm) in &last.vms {
        for id in vm.vcpus.keys() {
            let kernels = |snapshot: &Snapshot| {
                let vcpu = &snapshot.vms[pid].vcpus[id];
                [vcpu.run_ns, vcpu.wait_ns]
            };
            let ours = |snapshot: &Snapshot| {
                let vcpu = &snapshot.overbook.as_ref().unwrap().vms[&(*pid as u32)].vcpus[id];
                [vcpu.run_ns, vcpu.queued_ns]
            };
            let (kernels, ours) = (waited(first, last, kernels), waited(first, last, ours));
            assert!((kernels - ours).abs() < APART, "{} vCPU {id}: {kernels:.3} and {ours:.3}", vm.name);
            vcpus += 1;
        }
        assert!(vm.who.name == vm.name && !vm.name.is_empty(), "{:?}", vm.who);
    }
    assert_eq!(vcpus, 12);
    // Twelve vCPUs that want four CPUs: eight wait, two of three, or some more, as others run too. A dashboard made of wait_sum
    // says nobody does.
    for scheduler in ["EEVDF", "overbook"] {
        let [schedstat, ran, wait_sum, pressure] = said(&text, scheduler);
        let share = schedstat / (schedstat + ran);
        assert!(schedstat > 6.5 && (0.6..0.8).contains(&share), "{share}: {text}");
        assert!(pressure > 0.5, "{text}");
        match scheduler {
            "EEVDF" => assert!((wait_sum - schedstat).abs() < 1.0, "{text}"),
            _ => assert!(wait_sum < 0.2, "{text}"),
        }
    }
}
