// SPDX-License-Identifier: GPL-2.0-only
use overbook_policy::class::Class;
use overbook_tunnel::check::Bounds;
use overbook_tunnel::{Host, Kind, Pattern, Report, TaskSpec, VmSpec, World};
const MS: u64 = 1_000_000;

fn show(what: &str, report: &Report) {
    println!("== {what}: {} switches", report.switches);
    for vm in &report.vms {
        let mut l: Vec<u64> = report.tasks.iter().filter(|t| t.name.starts_with(&format!("{}/", vm.name))).flat_map(|t| t.latencies.clone()).collect();
        l.sort_unstable();
        let q = |p: usize| l.get(l.len() * p / 1000).copied().unwrap_or(0) as f64 / 1e3;
        println!("{:<10} cpus {:.3} due {:?} units {:.0} longest {:.1} ms wakes {} p50 {:.0} p90 {:.0} p99 {:.0} us", vm.name, vm.cpus, vm.due.map(|d| (d*1000.0).round()/1000.0), vm.units, vm.longest_wait as f64/1e6, l.len(), q(500), q(900), q(990));
    }
    println!("{:?}", report.findings.lines());
}

fn world(hz: u32) -> World {
    World::new(Host { hz, bounds: Bounds::default(), ..Host::default() }).unwrap()
}

#[test]
fn explore() {
    use Class::*;
    for hz in [250, 1000] {
        for classes in [[Normal, Normal, Normal], [Latency, Normal, Batch]] {
            for pattern in [Pattern::Compute, Pattern::Lock, Pattern::Ipi, Pattern::Messages, Pattern::Barrier] {
                let mut w = world(hz);
                for (i, class) in classes.into_iter().enumerate() {
                    let group = Some(w.group(0, 100));
                    w.vm(VmSpec { class, group, ..VmSpec::new(["a", "b", "c"][i], 4, pattern) });
                }
                w.measure_from(500 * MS);
                w.run(4500 * MS);
                show(&format!("hz {hz} {pattern:?} {classes:?}"), &w.report());
            }
        }
        // web: sleepers at 20, 50, 100, 150 % of their share beside a compute VM and messages
        for outside in [100_000u64, 300_000, 600_000, 1_000_000] {
            for classes in [[Normal, Normal, Normal], [Latency, Normal, Normal], [Normal, Normal, Batch], [Latency, Normal, Batch]] {
                let mut w = world(hz);
                for (i, pattern) in [Pattern::Sleeper, Pattern::Compute, Pattern::Sleeper].into_iter().enumerate() {
                    let group = Some(w.group(0, 100));
                    let outside_ns = if i == 2 { 2_000_000 } else { outside };
                    w.vm(VmSpec { class: classes[i], group, outside_ns, ..VmSpec::new(["web", "db", "ci"][i], 4, pattern) });
                }
                w.measure_from(500 * MS);
                w.run(4500 * MS);
                show(&format!("hz {hz} web {outside} {classes:?}"), &w.report());
            }
        }
    }
}
