// SPDX-License-Identifier: GPL-2.0-only
//! smoke
use overbook_tunnel::*;
fn show(report: &Report) {
    for vm in &report.vms {
        println!("{vm:?}");
    }
    for t in report.tasks.iter().take(12) {
        println!(
            "{} {:.3} {:?} wait {:.1} ms lat {:?}",
            t.name,
            t.cpus,
            t.due,
            t.longest_wait as f64 / 1e6,
            t.latencies.get(t.latencies.len() / 2)
        );
    }
    println!(
        "{:#?} events {} switches {} digest {:x}",
        report.findings.lines(),
        report.events,
        report.switches,
        report.digest
    );
}
#[test]
fn hogs() {
    let mut w = World::new(Host::default()).unwrap();
    for i in 0..10 {
        w.task(TaskSpec::new(&format!("hog{i}"), Kind::Hog));
    }
    w.task(TaskSpec::new("sleeper", Kind::Sleeper(200_000, 2_000_000)));
    w.measure_from(200_000_000);
    let t = std::time::Instant::now();
    w.run(1_200_000_000);
    println!("{:?}", t.elapsed());
    show(&w.report());
}
#[test]
fn locks() {
    let mut w = World::new(Host::default()).unwrap();
    w.vm(VmSpec::new("a", 4, Pattern::Lock));
    w.vm(VmSpec::new("b", 4, Pattern::Lock));
    w.measure_from(200_000_000);
    w.run(1_200_000_000);
    show(&w.report());
}
#[test]
fn patterns() {
    for p in [
        Pattern::Compute,
        Pattern::Ipi,
        Pattern::Shootdown,
        Pattern::Barrier,
        Pattern::KernelReceiver,
        Pattern::UserReceiver,
        Pattern::HaltedReceiver,
        Pattern::Messages,
        Pattern::Sleeper,
        Pattern::Pause,
        Pattern::Storm,
        Pattern::Ticket,
    ] {
        println!("--- {p:?}");
        let mut w = World::new(Host::default()).unwrap();
        w.vm(VmSpec::new("a", 4, p));
        w.vm(VmSpec::new("b", 4, p));
        w.measure_from(200_000_000);
        w.run(1_200_000_000);
        show(&w.report());
    }
}
#[test]
fn big() {
    let mut w = World::new(Host { cpus: 256, llcs: 4, nodes: 2, ..Host::default() }).unwrap();
    for i in 0..250 {
        w.vm(VmSpec::new(&format!("v{i}"), 8, if i % 2 == 0 { Pattern::Lock } else { Pattern::Compute }));
    }
    w.measure_from(200_000_000);
    let t = std::time::Instant::now();
    w.run(1_200_000_000);
    println!("{:?}", t.elapsed());
    let mut r = w.report();
    r.vms.truncate(6);
    show(&r);
}

#[test]
fn races() {
    for seed in 1..40 {
        let mut w = World::new(Host { seed, interleave: 8, llcs: 2, ..Host::default() }).unwrap();
        w.vm(VmSpec::new("a", 4, Pattern::Lock));
        w.vm(VmSpec::new("b", 4, Pattern::Shootdown));
        w.vm(VmSpec::new("c", 4, Pattern::Messages));
        for i in 0..4 {
            w.task(TaskSpec::new(&format!("s{i}"), Kind::Sleeper(200_000, 1_000_000)));
        }
        w.run(200_000_000);
        let r = w.report();
        println!("{seed}: {:?} {} {:x}", r.findings.lines(), r.events, r.digest);
    }
}
