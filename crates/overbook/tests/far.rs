// SPDX-License-Identifier: GPL-2.0-only
//! How far a host can go, as told by a recording, and as the wind tunnel then has it: hosts are recorded in the tunnel, asked
//! for their ratio at a ready time of 5 %, and run again with that many VMs.

use overbook_observe::Snapshot;
use overbook_observe::far::{Far, representatives};
use overbook_observe::snapshot::{Sight, VcpuCounters, VmCounters};
use overbook_tunnel::replay::{Counters, Load, Options, ready, run};

/// Ready time that is asked about, in percent.
const READY: f64 = 5.0;
/// How far the tunnel may be from that, in points. docs/how-far.md says so.
const ERROR: f64 = 2.0;

fn options(seed: u64, cycle_ms: u64) -> Options {
    Options { cycle_ns: cycle_ms * 1_000_000, window_ns: 6_000_000_000, parts: 12, seed }
}

/// What `overbook report --record` would have written on such a host.
fn recording(load: &Load, told: &[Counters]) -> Vec<Snapshot> {
    let snapshot = |counters: &Counters| {
        let vm = |(nth, vcpus): (usize, &Vec<(u64, u64)>)| {
            let vcpu = |(id, (run_ns, wait_ns)): (usize, &(u64, u64))| {
                let tid = (1000 * (nth + 1) + id) as i32;
                let counters =
                    VcpuCounters { tid, run_ns: *run_ns, wait_ns: *wait_ns, ..VcpuCounters::default() };
                (id as u32, counters)
            };
            let vcpus = vcpus.iter().enumerate().map(vcpu).collect();
            (nth as i32 + 1, VmCounters { name: format!("vm{nth}"), vcpus, ..VmCounters::default() })
        };
        Snapshot {
            at_ns: counters.at_ns,
            cpus: load.cpus,
            scheduler: "overbook".into(),
            busy_ns: Some(counters.busy_ns),
            vms: counters.vms.iter().enumerate().map(vm).collect(),
            sight: Sight::Blind("a model".into()),
            ..Snapshot::default()
        }
    };
    told.iter().map(snapshot).collect()
}

/// VMs of two vCPUs, of three kinds.
fn mixed(cpus: u32, vms: usize) -> Load {
    let kinds = [vec![0.6, 0.3], vec![0.1, 0.1], vec![0.9, 0.02]];
    Load { cpus, others: 0.02 * f64::from(cpus), vms: kinds.iter().cycle().take(vms).cloned().collect() }
}

/// The ratio that is told, its interval, and the ready time in percent that the tunnel has there.
fn confirmed(load: &Load, cycle_ms: u64) -> (Far, f64) {
    let told = run(load, &options(1, cycle_ms)).unwrap();
    let far = Far::of(&recording(load, &told), READY).unwrap();
    let more = load.times(far.ratio.unwrap() / far.present.ratio);
    let told = run(&more, &options(2, cycle_ms)).unwrap();
    let had = 100.0 * ready(&told[0], told.last().unwrap());
    println!(
        "{} CPUs, {} vCPUs, {cycle_ms} ms: ratio {:.2}, ready {:.2} % (model {:.2} %); told {:.2} [{:.2?}, {:.2?}] at {READY} %; \
         tunnel with {:.2}: {had:.2} %",
        load.cpus,
        load.vcpus(),
        far.present.ratio,
        far.present.ready_percent,
        far.present.modelled_percent,
        far.ratio.unwrap(),
        far.low.unwrap(),
        far.high.unwrap(),
        more.vcpus() as f64 / f64::from(load.cpus),
    );
    (far, had)
}

#[test]
fn the_tunnel_confirms_what_a_recording_says() {
    for (load, cycle_ms) in [
        // Far below, just below, and far above what is asked about.
        (mixed(16, 18), 10),
        (mixed(16, 36), 10),
        (mixed(16, 60), 10),
        (mixed(64, 100), 10),
        // Short and long pieces of work.
        (mixed(16, 24), 2),
        (mixed(16, 24), 50),
        // Nobody ever sleeps.
        (Load { cpus: 32, others: 0.0, vms: vec![vec![1.0]; 48] }, 10),
    ] {
        let (far, had) = confirmed(&load, cycle_ms);
        assert!((had - READY).abs() < ERROR, "{had} % at {:?}", far.ratio);
    }
}

/// A load that changes: the tunnel replays what stands for the recording, and has the ready time that it measured.
#[test]
fn a_recording_is_replayed() {
    let loads = [mixed(8, 6), mixed(8, 14), mixed(8, 22)];
    let recordings: Vec<Snapshot> =
        loads.iter().flat_map(|load| recording(load, &run(load, &options(1, 10)).unwrap())).collect();
    let far = Far::of(&recordings, READY).unwrap();
    assert_eq!(far.intervals, 36);
    let mut had = Vec::new();
    for wanted in representatives(&recordings, 6) {
        let load = Load { cpus: wanted.cpus, others: wanted.others, vms: wanted.vms };
        let told = run(&load, &options(3, 10)).unwrap();
        had.push((100.0 * ready(&told[0], told.last().unwrap()), load.vcpus() as f64));
    }
    let vcpus: f64 = had.iter().map(|(_, vcpus)| vcpus).sum();
    let mean: f64 = had.iter().map(|(ready, of)| ready * of).sum::<f64>() / vcpus;
    println!("measured {:.2} %, replayed {mean:.2} %", far.present.ready_percent);
    assert!((mean - far.present.ready_percent).abs() < ERROR, "{mean} {}", far.present.ready_percent);
}
