// SPDX-License-Identifier: GPL-2.0-only
//! Tables for the terminal.

use crate::schema::Report;
use crate::stats::quantile_ns;
use crate::summary::{self, Row};
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, Table};
use std::fmt::Write;

/// A time with three significant digits.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "0".into(),
        1..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} µs", three(ns as f64 / 1e3)),
        1_000_000..=999_999_999 => format!("{} ms", three(ns as f64 / 1e6)),
        _ => format!("{} s", three(ns as f64 / 1e9)),
    }
}

/// A number with about three significant digits, and no fewer than its integer part has.
pub fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `1.234 [1.200, 1.260]`.
pub fn ratio(row: &Row) -> String {
    match row.ratio {
        None => "baseline".into(),
        Some(ratio) => match ratio.interval {
            Some((low, high)) => format!("{:.3} [{low:.3}, {high:.3}]", ratio.point),
            None => format!("{:.3}", ratio.point),
        },
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:.1} %", s * 100.0))
}

/// A plain table; all columns but the first `left` are numbers.
pub fn plain(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        if i >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Everything that a reader must know before he believes a number.
pub fn header(report: &Report) -> String {
    let (s, m) = (&report.scenario, &report.machine);
    let mut text = String::new();
    let _ = writeln!(text, "{} — {}", s.name, s.title);
    let speed =
        if m.cpu_ips > 0.0 { format!(", {:.0} MIPS per CPU", m.cpu_ips / 1e6) } else { String::new() };
    let _ = writeln!(
        text,
        "  host       Linux {} on {}, {} CPUs, {} LLC, {} node(s), SMT {}",
        m.kernel, m.cpu_model, m.cpus, m.llcs, m.nodes, m.smt
    );
    let _ = writeln!(
        text,
        "  machine    {}{speed}, dilation {}{}",
        m.accel,
        s.dilation,
        if m.emulator.is_empty() { String::new() } else { format!(", QEMU {}", m.emulator) }
    );
    let _ = writeln!(text, "  KVM        {}; PLE: {}; {}", m.kvm_vendor, m.ple, m.apicv);
    let _ = writeln!(
        text,
        "  layout     {:.2} vCPUs per CPU, placement {}, cgroups {}, seed {}",
        s.overcommit, s.placement, s.cgroups, s.seed
    );
    if let Some(i) = &report.instrument {
        let _ = writeln!(
            text,
            "  instrument fixed loop differs by {:.2} % between idle and busy neighbours (limit 3 %)",
            i.loop_skew_percent
        );
        for row in &i.turns {
            let limit =
                if row.limit_ns > 0 { format!(" (limit {})", time(row.limit_ns)) } else { String::new() };
            let _ = writeln!(text, "             {:<52} {:>8}{limit}", row.name, time(row.p50_ns));
        }
    }
    text
}

/// What went wrong, loudly; empty if nothing did.
pub fn alarms(report: &Report) -> String {
    let mut text = String::new();
    if let Some(failure) = &report.failure {
        let _ = writeln!(text, "FAILED: {}", failure.reason);
        for line in &failure.console {
            let _ = writeln!(text, "  | {line}");
        }
    }
    for complaint in report.instrument.iter().flat_map(|i| &i.complaints) {
        let _ = writeln!(text, "THE INSTRUMENT IS OUT OF ITS LIMITS: {complaint}");
    }
    for run in summary::failed(report) {
        let _ = writeln!(text, "RUN NOT COUNTED: {run}");
    }
    text
}

/// The whole report for a terminal of 120 columns.
pub fn render(report: &Report) -> String {
    let rows = summary::rows(report);
    let mut text = alarms(report) + &header(report) + "\n";
    if rows.is_empty() {
        return text;
    }
    text += &plain(
        &[
            "variant",
            "VMs",
            "work per s and VM",
            "spread",
            "ratio to baseline [95 %]",
            "of bound",
            "won back",
            "wait p50",
            "p99",
            "max",
        ],
        2,
        rows.iter().map(|row| {
            vec![
                row.variant.clone(),
                row.group.clone(),
                format!("{} {}", three(row.rate), row.unit),
                format!("±{:.1} %", row.spread_percent),
                ratio(row),
                percent(row.of_bound),
                percent(row.won_back),
                time(quantile_ns(&row.wait, 0.5)),
                time(quantile_ns(&row.wait, 0.99)),
                time(row.wait.max_ns),
            ]
        }),
    );
    text += "\n\nper second and VM\n";
    text += &plain(
        &[
            "variant",
            "VMs",
            "PAUSE exits",
            "all exits",
            "on_spin",
            "yields",
            "delivered",
            "same rq",
            "switches",
            "moves",
            "CPUs used (of)",
            "steal",
        ],
        2,
        rows.iter().map(|row| {
            let c = &row.per_second;
            let part =
                |of: f64| if c.tried > 0.0 { format!("{:.0} %", of / c.tried * 100.0) } else { "–".into() };
            vec![
                row.variant.clone(),
                row.group.clone(),
                three(c.pause_exits),
                three(c.exits),
                three(c.on_spin),
                three(c.tried),
                part(c.ok),
                part(c.same_rq),
                three(c.switches),
                three(c.migrations),
                format!("{:.2} ({:.2})", row.cpus_used.0, row.entitled_cpus),
                format!("{:.2}", c.steal_cpus),
            ]
        }),
    );
    text.push('\n');
    if !report.bounds.is_empty() {
        let mut seen = Vec::new();
        for bound in &report.bounds {
            let line = format!(
                "bound: {:.0} per s, limited by {} ({:.2} CPUs of share, {} of CPU per unit)",
                bound.rate,
                bound.limited_by,
                bound.share_cpus,
                time(bound.cpu_ns_per_unit as u64)
            );
            if !seen.contains(&line) {
                let _ = writeln!(text, "{line}");
                seen.push(line);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_matters() {
        let text = render(&summary::sample());
        for expected in
            ["eevdf", "ours", "1.400 [", "2 × 4 lock", "seed 0", "limit 5 ns", "PAUSE exits", "of bound"]
        {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        assert!(!text.contains("FAILED"));
    }

    #[test]
    fn failures_come_first() {
        let mut report = summary::sample();
        report.failure =
            Some(crate::schema::Failure { reason: "a panic".into(), console: vec!["Oops".into()] });
        report.runs.clear();
        assert!(render(&report).starts_with("FAILED: a panic\n  | Oops"));
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(time(1_234), "1.23 µs");
        assert_eq!(time(12_345_678), "12.3 ms");
        assert_eq!(three(1234.5), "1234");
        assert_eq!(three(0.0), "0");
    }
}
