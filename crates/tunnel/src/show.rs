// SPDX-License-Identifier: GPL-2.0-only
//! What a host has done, for people and programs.

use crate::report::Report;
use crate::scene::{Alike, Scene};
use overbook_report::table;
use serde_json::{Value, json};

/// Of latencies in rising order, the one below which `part` of them lie.
fn quantile(latencies: &[u64], part: f64) -> Option<u64> {
    latencies.get(((latencies.len() as f64 * part) as usize).min(latencies.len().saturating_sub(1))).copied()
}

/// Figures of those who are alike.
struct Row {
    name: String,
    cpus: f64,
    due: Option<f64>,
    units: Option<f64>,
    wait: u64,
    latencies: Vec<u64>,
}

fn row(alike: &Alike, report: &Report) -> Row {
    let vms = alike.vms.iter().filter_map(|vm| report.vms.get(*vm));
    let tasks: Vec<_> = alike.tasks.iter().filter_map(|task| report.tasks.get(*task as usize)).collect();
    let mut latencies: Vec<u64> = tasks.iter().flat_map(|task| &task.latencies).copied().collect();
    latencies.sort_unstable();
    let n = if alike.vms.is_empty() { tasks.len() } else { alike.vms.len() };
    Row {
        name: if n == 1 { alike.name.clone() } else { format!("{} × {n}", alike.name) },
        cpus: tasks.iter().map(|task| task.cpus).sum(),
        due: tasks.iter().map(|task| task.due).sum(),
        units: (!alike.vms.is_empty()).then(|| vms.map(|vm| vm.units).sum()),
        wait: tasks.iter().map(|task| task.longest_wait).max().unwrap_or(0),
        latencies,
    }
}

/// A table of everybody; those who are alike and many are one row, with their sums.
pub fn table(scene: &Scene, report: &Report) -> String {
    let header =
        ["", "CPUs had", "CPUs due", "off by", "units/s", "longest wait", "wake-up p50", "wake-up p99"];
    let rows = scene.rows.iter().map(|alike| {
        let row = row(alike, report);
        let time = |ns: Option<u64>| ns.map_or("-".into(), table::time);
        vec![
            row.name,
            format!("{:.3}", row.cpus),
            row.due.map_or("-".into(), |due| format!("{due:.3}")),
            row.due
                .filter(|due| *due > 0.0)
                .map_or("-".into(), |due| format!("{:+.1} %", (row.cpus / due - 1.0) * 100.0)),
            row.units.map_or("-".into(), table::three),
            table::time(row.wait),
            time(quantile(&row.latencies, 0.5)),
            time(quantile(&row.latencies, 0.99)),
        ]
    });
    table::plain(&header, 1, rows)
}

/// One line on the host as a whole.
pub fn summary(report: &Report) -> String {
    let seconds = report.window_ns as f64 / 1e9;
    let moves = match report.llc_moves {
        0 => String::new(),
        moves => format!(", {:.0} of them to another LLC", moves as f64 / seconds),
    };
    format!(
        "{seconds:.3} s measured; {:.0} switches a second{moves}, and {} events since the start; trace {:016x}",
        report.switches as f64 / seconds,
        report.events,
        report.digest
    )
}

/// Everything as JSON; every VM and every task by itself.
pub fn json(report: &Report) -> Value {
    let waits = |latencies: &[u64]| json!({ "count": latencies.len(), "p50_ns": quantile(latencies, 0.5), "p99_ns": quantile(latencies, 0.99) });
    let vms = report.vms.iter().map(|vm| {
        json!({
            "name": vm.name, "cpus": vm.cpus, "due_cpus": vm.due, "units_per_second": vm.units,
            "longest_wait_ns": vm.longest_wait, "booked_ns": vm.booked.0, "ran_ns": vm.booked.1,
        })
    });
    let tasks = report.tasks.iter().map(|task| {
        json!({
            "name": task.name, "cpus": task.cpus, "due_cpus": task.due, "longest_wait_ns": task.longest_wait,
            "wake_ups": waits(&task.latencies),
        })
    });
    json!({
        "window_ns": report.window_ns, "switches": report.switches, "llc_moves": report.llc_moves, "events": report.events,
        "digest": format!("{:016x}", report.digest), "findings": report.findings.lines(),
        "vms": vms.collect::<Vec<_>>(), "tasks": tasks.collect::<Vec<_>>(),
    })
}
