// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler passes the gauntlet.

use overbook_tunnel::gauntlet::TRIALS;

#[test]
fn the_scheduler_passes_all_trials() {
    let mut failed = Vec::new();
    for trial in TRIALS {
        let start = std::time::Instant::now();
        let report = trial.run(None).unwrap();
        println!("{:<22} {:>5} ms  {} events, {} switches", trial.name, start.elapsed().as_millis(), report.events, report.switches);
        for vm in &report.vms { println!("      {} cpus {:.3} due {:?} units {:.0} wait {:.1}", vm.name, vm.cpus, vm.due, vm.units, vm.longest_wait as f64/1e6); }
        for t in &report.tasks {  if !t.name.contains('/') { println!("      {} {:.4} {:.4?} wait {:.1} p50 {:?} p95 {:?} p98 {:?} p99 {:?}", t.name, t.cpus, t.due, t.longest_wait as f64/1e6, t.latencies.get(t.latencies.len()/2).map(|x| x/1000), t.latencies.get(t.latencies.len()*95/100).map(|x| x/1000), t.latencies.get(t.latencies.len()*98/100).map(|x| x/1000), t.latencies.get(t.latencies.len()*99/100).map(|x| x/1000)); }}
        for line in report.findings.lines() {
            failed.push(format!("{}: {line}", trial.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
