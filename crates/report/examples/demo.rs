// SPDX-License-Identifier: GPL-2.0-only
//! What reports look like: two made-up ones, one of them of a run that failed, as tables and as
//! /tmp/report-demo.html. Every figure here is invented.

use anyhow::Result;
use overbook_report::schema::*;
use overbook_report::{compare, html, json, table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;

const WINDOW_NS: u64 = 2_000_000_000;

/// A variant: name, in words, gain of lock and IPI guests, factor on waits.
const VARIANTS: [(&str, &str, [f64; 2], f64); 3] = [
    ("eevdf", "the kernel's own scheduler, untouched", [1.0, 1.0], 1.0),
    ("deboost", "yielder penalized, target nominated", [1.12, 1.19], 0.7),
    ("handoff", "target runs next on the yielder's CPU", [1.41, 1.28], 0.25),
];

fn main() -> Result<()> {
    let good = report(1);
    let mut failed = report(2);
    failed.scenario.name = "storm".into();
    failed.scenario.title = "A hostile guest: PAUSE and IPI storms".into();
    failed.runs.truncate(5);
    failed.runs[4].error = Some("vm2: vCPU 3 shut down (triple fault)".into());
    failed.bounds.clear();
    failed.failure = Some(Failure {
        reason: "the machine's kernel panicked".into(),
        console: vec![
            "[   12.402113] BUG: kernel NULL pointer dereference, address: 0000000000000010".into(),
            "[   12.402119] RIP: 0010:kvm_vcpu_on_spin+0x9c/0x210 [kvm]".into(),
            "[   12.402204] Kernel panic - not syncing: Fatal exception <in interrupt>".into(),
        ],
    });
    if let Some(instrument) = &mut failed.instrument {
        instrument.ok = false;
        instrument.loop_skew_percent = 4.8;
        instrument.complaints =
            vec!["a fixed loop runs 4.8 % differently when other CPUs are busy (limit 3 %)".into()];
    }
    println!("{}\n{}", table::render(&good, true), table::render(&failed, false));
    println!(
        "{}\n{}",
        table::legends(&[&good, &failed], table::Shown::All),
        table::results(&[&good, &failed])
    );
    print!("{}", compare::render(&compare::compare(&good, &report(3))));
    let path = Path::new("/tmp/report-demo.html");
    json::write_atomically(path, &html::render_many(&[&good, &failed])?)?;
    println!("page: {}", path.display());
    Ok(())
}

fn report(seed: u64) -> Report {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut report = Report {
        schema: SCHEMA,
        overbook: "0.1.0-12-g0123abc (demo)".into(),
        scenario: scenario(seed),
        machine: machine(),
        instrument: Some(instrument()),
        ..Report::default()
    };
    for (name, about, ..) in VARIANTS {
        report.variants.push(VariantInfo { name: name.into(), about: about.into() });
    }
    for repetition in 0..5 {
        for (name, _, gains, waits) in VARIANTS {
            let vms = vec![
                vm("vm1", "lock", "locks", 21_300.0 * gains[0], waits, &mut random),
                vm("vm2", "ipi", "round trips", 8_410.0 * gains[1], waits, &mut random),
            ];
            report.runs.push(Run {
                variant: name.into(),
                repetition,
                window_ns: WINDOW_NS,
                vms,
                context_switches: random.random_range(9_000..9_500),
                migrations: random.random_range(300..400),
                extra: match name {
                    "eevdf" => BTreeMap::new(),
                    _ => BTreeMap::from([("yields redirected".into(), random.random_range(900.0..1000.0))]),
                },
                error: None,
            });
        }
    }
    for (vm, rate, limited_by) in [("vm1", 32_900.0, "cpu"), ("vm2", 11_200.0, "serial")] {
        report.bounds.push(VmBound {
            vm: vm.into(),
            share_cpus: 2.0,
            points: vec![BoundPoint { cpus: 4, rates: vec![rate * 1.3, rate * 1.31] }],
            cpu_ns_per_unit: 2e9 / rate,
            limited_by: limited_by.into(),
            rate,
        });
    }
    report
}

fn vm(name: &str, pattern: &str, unit: &str, rate: f64, waits: f64, random: &mut ChaCha8Rng) -> VmResult {
    let rate = rate * random.random_range(0.985..1.015);
    let work = (rate * WINDOW_NS as f64 / 1e9) as u64;
    let vcpus: Vec<VcpuResult> = (0..4).map(|_| vcpu(work / 4, waits, random)).collect();
    let tried = (waits * 24_000.0) as u64;
    VmResult {
        name: name.into(),
        pattern: pattern.into(),
        unit: unit.into(),
        work,
        rate,
        cpus_used: vcpus.iter().map(|v| v.run_ns as f64).sum::<f64>() / WINDOW_NS as f64,
        entitled_cpus: 2.0,
        kvm: KvmCounters {
            unseen: false,
            exits: BTreeMap::from([
                ("pause".into(), tried * 2),
                ("interrupt".into(), 3100),
                ("msr".into(), 800),
            ]),
            on_spin: tried * 2,
            yield_tried: tried,
            yield_ok: tried * 7 / 10,
            yield_same_rq: tried / 3,
            yield_other_rq: tried - tried / 3,
        },
        vcpus,
    }
}

fn vcpu(work: u64, waits: f64, random: &mut ChaCha8Rng) -> VcpuResult {
    let share = random.random_range(0.46..0.54);
    let run_ns = (share * WINDOW_NS as f64) as u64;
    let queued_ns = ((0.97 - share) * WINDOW_NS as f64) as u64;
    // Waits have two humps: siblings that run, and siblings that were preempted.
    let mut buckets = BTreeMap::new();
    for (middle_ns, count) in [(3_000.0, 5_000), (3_800_000.0 * waits, 400)] {
        for step in -24..=24_i32 {
            let upper = middle_ns * 1.0625_f64.powi(step);
            let weight = (-f64::from(step * step) / 160.0).exp();
            let counted = (f64::from(count) * weight * random.random_range(0.9..1.1)) as u64;
            *buckets.entry(upper as u64).or_default() += counted;
        }
    }
    buckets.retain(|_, count| *count > 0);
    let max_ns = buckets.keys().last().copied().unwrap_or_default();
    VcpuResult {
        work,
        spins: (waits * 2e6) as u64,
        interrupts: 0,
        wait: WaitHistogram { buckets: buckets.into_iter().collect(), max_ns },
        run_ns,
        queued_ns,
        steal_ns: queued_ns * 98 / 100,
        voluntary_switches: 40,
        involuntary_switches: 900,
        migrations: random.random_range(20..60),
    }
}

fn scenario(seed: u64) -> ScenarioInfo {
    ScenarioInfo {
        name: "demo".into(),
        title: "Lock holders preempted beside an IPI guest, 2:1".into(),
        text: "title = \"Lock holders preempted beside an IPI guest, 2:1\"\nseed = 1\n\n[host]\ncpus = 4\n\n\
               [[vms]]\npattern = \"lock\"\nvcpus = 4\n\n[[vms]]\npattern = \"ipi\"\nvcpus = 4\n"
            .into(),
        seed,
        overcommit: 2.0,
        placement: "free".into(),
        cgroups: "per-vm".into(),
        dilation: 4.0,
    }
}

fn machine() -> MachineInfo {
    MachineInfo {
        kernel: "6.18.15+deb14-cloud-amd64".into(),
        cpu_model: "QEMU Virtual CPU version 2.5+".into(),
        cpus: 4,
        llcs: 1,
        nodes: 1,
        smt: 1,
        accel: "tcg-icount".into(),
        emulator: "10.0.8 (Debian 1:10.0.8+ds-0)".into(),
        cpu_ips: 125e6,
        kvm_vendor: "kvm_amd".into(),
        ple: "pause filter count 3000, threshold 0".into(),
        apicv: "AVIC off (not supported by the CPU)".into(),
        knobs: BTreeMap::from([
            ("HZ".into(), "250".into()),
            ("base_slice_ns".into(), "2800000".into()),
            ("features".into(), "PLACE_LAG PLACE_DEADLINE_INITIAL RUN_TO_PARITY NEXT_BUDDY".into()),
        ]),
    }
}

fn instrument() -> Instrument {
    let row = |name: &str, p50_ns, limit_ns| TurnRow {
        name: name.into(),
        samples: 500,
        p50_ns,
        p99_ns: p50_ns * 3,
        max_ns: p50_ns * 7,
        limit_ns,
    };
    Instrument {
        loop_idle_ns: 8_000_000,
        loop_busy_ns: 8_020_000,
        loop_skew_percent: 0.25,
        turns: vec![
            row("store seen and answered, other CPUs idle", 18_200, 50_000),
            row("store seen and answered, other CPUs busy", 31_800, 50_000),
            row("wake-up, other CPUs busy", 64_100, 0),
        ],
        ok: true,
        complaints: Vec::new(),
    }
}
