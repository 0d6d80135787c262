// SPDX-License-Identifier: GPL-2.0-only
//! Tables for the terminal.

pub use crate::format::{three, time};

use crate::format::{NONE, count, cpus_range, legend, part, percent, ratio, spread};
use crate::schema::Report;
use crate::summary::{self, Row};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::fmt::Write;

/// Columns of the narrowest terminal that shows the tables whole.
pub const WIDTH: u16 = 120;

/// A rule below the header and none else.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─'));

/// A plain table of at most [`WIDTH`] columns; all but the first `left` are numbers.
pub fn plain(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(RULED).set_header(header).set_width(WIDTH);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    for row in rows {
        table.add_row(row);
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        // The rule's junctions already take a column each.
        column.set_padding((0, 1));
        if i >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Everything that a reader must know before he believes a number.
pub fn header(report: &Report) -> String {
    let (s, m) = (&report.scenario, &report.machine);
    let mut text = format!("{} — {}\n", s.name, s.title);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    let nodes = if m.nodes == 1 { "node" } else { "nodes" };
    line(
        "host",
        format!(
            "Linux {} on {}, {} CPUs, {} LLC, {} {nodes}, SMT {}",
            m.kernel, m.cpu_model, m.cpus, m.llcs, m.nodes, m.smt
        ),
    );
    let speed =
        if m.cpu_ips > 0.0 { format!(", {:.0} MIPS per CPU", m.cpu_ips / 1e6) } else { String::new() };
    let emulator = if m.emulator.is_empty() { String::new() } else { format!(", QEMU {}", m.emulator) };
    line("machine", format!("{}{speed}, dilation {}{emulator}", m.accel, s.dilation));
    let apicv = if m.apicv.is_empty() { String::new() } else { format!("; {}", m.apicv) };
    line("KVM", format!("{}; PLE: {}{apicv}", m.kvm_vendor, m.ple));
    line(
        "layout",
        format!(
            "{:.2} vCPUs per CPU, placement {}, cgroups {}, seed {}",
            s.overcommit, s.placement, s.cgroups, s.seed
        ),
    );
    match &report.instrument {
        None => line("instrument", "not checked: this is no machine of the lab".into()),
        Some(i) => {
            let skew = i.loop_skew_percent;
            line(
                "instrument",
                format!("fixed loop differs by {skew:.2} % between idle and busy neighbours (limit 3 %)"),
            );
            for row in &i.turns {
                let limit = match row.limit_ns {
                    0 => String::new(),
                    limit if row.p50_ns > limit => format!(" (limit {}: EXCEEDED)", time(limit)),
                    limit => format!(" (limit {})", time(limit)),
                };
                line("", format!("{:<52} {:>8}{limit}", row.name, time(row.p50_ns)));
            }
        }
    }
    text
}

/// What went wrong, loudly; empty if nothing did.
pub fn alarms(report: &Report) -> String {
    let mut text = String::new();
    if let Some(failure) = &report.failure {
        let _ = writeln!(text, "FAILED: {}", printable(&failure.reason));
        for line in &failure.console {
            let _ = writeln!(text, "  | {}", printable(line));
        }
    }
    if let Some(instrument) = &report.instrument {
        for complaint in &instrument.complaints {
            let _ = writeln!(text, "THE INSTRUMENT IS OUT OF ITS LIMITS: {complaint}");
        }
        if !instrument.ok && instrument.complaints.is_empty() {
            let _ = writeln!(text, "THE INSTRUMENT IS OUT OF ITS LIMITS");
        }
    }
    for run in summary::failed(report) {
        let _ = writeln!(text, "RUN NOT COUNTED: {}", printable(&run));
    }
    text
}

/// Consoles hold escape sequences, which must not reach a terminal.
fn printable(line: &str) -> String {
    line.trim_end().chars().map(|c| if c.is_control() && c != '\t' { '·' } else { c }).collect()
}

/// The whole report for a terminal of [`WIDTH`] columns.
pub fn render(report: &Report) -> String {
    let rows = summary::rows(report);
    let mut text = alarms(report) + &header(report) + "\n";
    if rows.is_empty() {
        return text + "no run to show\n";
    }
    text += &format!("{}\n\n{}\n", main_table(report, &rows), legend(&rows));
    text += &bounds(report);
    text += &format!("\nper second and VM\n{}\n", kvm_table(&rows));
    text += &format!("\nCPUs of one VM; switches and moves of its vCPUs per second\n{}\n", cpu_table(&rows));
    let extra = host_table(report);
    if !extra.is_empty() {
        text += &format!("\nhost and schedulers\n{extra}\n");
    }
    text
}

fn main_table(report: &Report, rows: &[Row]) -> String {
    let baseline = report.variants.first().map(|v| v.name.as_str());
    plain(
        &[
            "variant",
            "VMs",
            "work per s and VM",
            "spread",
            "ratio [95 %]",
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
                spread(row),
                ratio(row, baseline == Some(&row.variant)),
                percent(row.of_bound),
                percent(row.won_back),
                time(row.wait_ns.0),
                time(row.wait_ns.1),
                time(row.wait.max_ns),
            ]
        }),
    )
}

fn kvm_table(rows: &[Row]) -> String {
    plain(
        &[
            "variant",
            "VMs",
            "spin turns",
            "PAUSE exits",
            "all exits",
            "on_spin",
            "yields tried",
            "ok",
            "same rq",
            "other rq",
        ],
        2,
        rows.iter().map(|row| {
            let c = &row.per_second;
            vec![
                row.variant.clone(),
                row.group.clone(),
                count(c.spins),
                count(c.pause_exits),
                count(c.exits),
                count(c.on_spin),
                count(c.tried),
                part(c.ok, c.tried),
                part(c.same_rq, c.tried),
                part(c.other_rq, c.tried),
            ]
        }),
    )
}

fn cpu_table(rows: &[Row]) -> String {
    plain(
        &["variant", "VMs", "used", "min..max", "entitled", "steal", "switches", "moves"],
        2,
        rows.iter().map(|row| {
            let c = &row.per_second;
            vec![
                row.variant.clone(),
                row.group.clone(),
                format!("{:.2}", row.cpus_used.0),
                cpus_range(row),
                format!("{:.2}", row.entitled_cpus),
                format!("{:.2}", c.steal_cpus),
                count(c.switches),
                count(c.migrations),
            ]
        }),
    )
}

/// Counters that are nobody's but the scheduler's or the host's; a row each, as variants differ in what they have.
fn host_table(report: &Report) -> String {
    let counters = summary::host_counters(report);
    let figure = |value: Option<f64>| value.map_or_else(|| NONE.into(), count);
    let names: Vec<&str> = report.variants.iter().map(|v| v.name.as_str()).collect();
    let rows = counters.into_iter().map(|(name, values)| {
        std::iter::once(name).chain(values.into_iter().map(figure)).collect::<Vec<String>>()
    });
    plain(&[&["counter"], &names[..]].concat(), 1, rows)
}

fn bounds(report: &Report) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for bound in &report.bounds {
        let line = format!(
            "{} per s, limited by {} ({:.2} CPUs of share, {} of CPU time per unit)",
            three(bound.rate),
            bound.limited_by,
            bound.share_cpus,
            time(bound.cpu_ns_per_unit as u64)
        );
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, vms)) => vms.push(&bound.vm),
            None => lines.push((line, vec![&bound.vm])),
        }
    }
    lines.iter().map(|(line, vms)| format!("Bound of {}: {line}.\n", vms.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_matters() {
        let text = render(&summary::sample());
        for expected in [
            "eevdf",
            "ours",
            "1.400 [",
            "2 × 4 lock",
            "seed 0",
            "limit 5 ns",
            "PAUSE exits",
            "of bound",
            "entitled",
            "Bound of vm1, vm2: 1500 per s",
            "Medians of 5 repetitions",
            "context switches",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        assert!(!text.contains("FAILED") && !text.contains('\x1b'));
    }

    #[test]
    fn failures_come_first() {
        let mut report = summary::sample();
        let console = vec!["\x1b[31mOops\r".into()];
        report.failure = Some(crate::schema::Failure { reason: "a panic".into(), console });
        report.runs.clear();
        assert!(render(&report).starts_with("FAILED: a panic\n  | ·[31mOops\n"));
    }

    #[test]
    fn an_instrument_out_of_limits_is_never_silent() {
        let mut report = summary::sample();
        report.instrument.as_mut().unwrap().ok = false;
        assert!(render(&report).starts_with("THE INSTRUMENT IS OUT OF ITS LIMITS\n"));
    }

    #[test]
    fn tables_fit_the_terminal() {
        let mut report = summary::sample();
        let long = "handoff-without-redirection";
        report.variants[1].name = long.into();
        for run in &mut report.runs {
            run.vms.iter_mut().for_each(|vm| vm.unit = "round trips".into());
            if run.variant == "ours" {
                run.variant = long.into();
            }
        }
        let rows = summary::rows(&report);
        let narrow = main_table(&summary::sample(), &summary::rows(&summary::sample()));
        assert_eq!(narrow.lines().count(), 4, "a usual row needs no second line:\n{narrow}");
        for table in [
            main_table(&report, &rows),
            kvm_table(&rows),
            cpu_table(&rows),
            host_table(&report),
            legend(&rows),
        ] {
            for line in table.lines() {
                assert!(line.chars().count() <= usize::from(WIDTH), "too wide:\n{line}");
            }
        }
    }
}
