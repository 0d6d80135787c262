// SPDX-License-Identifier: GPL-2.0-only
//! Tables for the terminal.

pub use crate::format::{three, time};

use crate::columns::{self, Column, legend, telling};
use crate::format::{counter, counter_name, repetitions};
use crate::schema::Report;
use crate::summary::{self, Outcome, Row};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use std::fmt::Write;

/// Columns of the narrowest terminal that shows everything whole.
pub const WIDTH: u16 = 80;

/// Variants side by side that [`WIDTH`] has room for, beside the name of a counter.
const ABREAST: usize = 4;

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

/// A name and text beside it, in as many lines as it takes; words are not divided.
fn entry(name: &str, width: usize, text: &str) -> String {
    let mut lines = vec![format!("  {name:<width$}")];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line + 1 + word.chars().count() > usize::from(WIDTH) && line > width + 2 {
            lines.push(format!("  {:<width$}", ""));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// What a reader must know before believing a number; in full, what the instrument found as well.
pub fn header(report: &Report, full: bool) -> String {
    let (s, m) = (&report.scenario, &report.machine);
    let mut text = format!("{} — {}\n", s.name, s.title);
    let mut line = |name: &str, value: &str| text += &entry(name, 10, value);
    let speed =
        if m.cpu_ips > 0.0 { format!(", {:.0} MIPS per CPU", m.cpu_ips / 1e6) } else { String::new() };
    if full {
        let nodes = if m.nodes == 1 { "node" } else { "nodes" };
        let (cpus, llcs, model) = (m.cpus, m.llcs, &m.cpu_model);
        line(
            "host",
            &format!(
                "Linux {} on {model}, {cpus} CPUs, {llcs} LLC, {} {nodes}, SMT {}",
                m.kernel, m.nodes, m.smt
            ),
        );
        let emulator = if m.emulator.is_empty() { String::new() } else { format!(", QEMU {}", m.emulator) };
        line("machine", &format!("{}{speed}, dilation {}{emulator}", m.accel, s.dilation));
        let apicv = if m.apicv.is_empty() { String::new() } else { format!("; {}", m.apicv) };
        line("KVM", &format!("{}; PLE: {}{apicv}", m.kvm_vendor, m.ple));
    } else {
        line("host", &format!("Linux {}, {} CPUs, {}{speed}", m.kernel, m.cpus, m.accel));
    }
    let dilation = if full { String::new() } else { format!(", dilation {}", s.dilation) };
    let (placement, cgroups, seed) = (&s.placement, &s.cgroups, s.seed);
    line(
        "layout",
        &format!(
            "{:.2} vCPUs per CPU, placement {placement}, cgroups {cgroups}, seed {seed}{dilation}",
            s.overcommit
        ),
    );
    match &report.instrument {
        None => line("instrument", "not checked: this is no machine of the lab"),
        Some(i) if !full => line("instrument", if i.ok { "within its limits" } else { "OUT OF ITS LIMITS" }),
        Some(i) => {
            let skew = i.loop_skew_percent;
            line(
                "instrument",
                &format!("a fixed loop differs by {skew:.2} % between idle and busy neighbours (limit 3 %)"),
            );
            for row in &i.turns {
                let limit = match row.limit_ns {
                    0 => String::new(),
                    limit if row.p50_ns > limit => format!(" (limit {}: EXCEEDED)", time(limit)),
                    limit => format!(" (limit {})", time(limit)),
                };
                line("", &format!("{}: {}{limit}", row.name, time(row.p50_ns)));
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

/// A report for a terminal of [`WIDTH`] columns; in full, with all counters.
pub fn render(report: &Report, full: bool) -> String {
    let rows = summary::rows(report);
    let mut text = alarms(report) + &header(report, full) + "\n";
    if rows.is_empty() {
        return text + "no run to show\n";
    }
    let mut part = |title: &str, columns: &[Column]| {
        if let Some(table) = table(columns, &rows) {
            let title = if title.is_empty() { String::new() } else { format!("{title}\n") };
            text += &format!("{title}{table}\n\n");
        }
    };
    part("", &columns::WORK);
    part("", &columns::WAITS);
    if full {
        part("events per second and VM", &columns::EVENTS);
        part("directed yields per second and VM", &columns::YIELDS);
        part("CPUs of one VM", &columns::CPUS);
        text += &host_table(report);
    }
    text += &format!("{}\n", repetitions(&rows));
    if full {
        text += &bounds(report);
    }
    text
}

/// How much is shown of reports, and so which columns a legend is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// [`results`] alone.
    Results,
    /// What [`render`] shows.
    Tables,
    /// What [`render`] shows in full.
    All,
}

/// What the columns say that are shown of these reports.
pub fn legends(reports: &[&Report], what: Shown) -> String {
    let rows: Vec<Row> = reports.iter().flat_map(|report| summary::rows(report)).collect();
    let mut shown: Vec<&[Column]> = vec![&columns::WORK];
    if what != Shown::Results {
        shown.push(&columns::WAITS);
    }
    if what == Shown::All {
        shown.extend([&columns::EVENTS[..], &columns::YIELDS, &columns::CPUS]);
    }
    let entries: Vec<_> = shown.into_iter().flat_map(|columns| legend(columns, &rows)).collect();
    let width = entries.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    entries.into_iter().map(|(name, means)| entry(name, width + 1, means)).collect()
}

/// The result in a few lines: what each variant did, in the order of the reports.
pub fn results(reports: &[&Report]) -> String {
    let outcomes = summary::outcomes(reports);
    let rows: Vec<Row> = outcomes.iter().map(|outcome| outcome.row.clone()).collect();
    let shown = telling(&columns::WORK, &rows);
    let header: Vec<&str> = ["scenario", "variant"].into_iter().chain(shown.iter().map(|c| c.name)).collect();
    let line = |(nth, outcome): (usize, &Outcome)| {
        // A name says what it heads.
        let again = nth > 0 && outcomes[nth - 1].name == outcome.name;
        let name = if again { String::new() } else { outcome.name.clone() };
        let cells = shown.iter().map(|column| (column.cell)(&outcome.row));
        [name, outcome.row.variant.clone()].into_iter().chain(cells).collect()
    };
    let mut text = String::new();
    if !outcomes.is_empty() {
        text += &plain(&header, 2, outcomes.iter().enumerate().map(line));
        text.push('\n');
    }
    for report in reports.iter().filter(|report| !summary::rows(report).iter().any(|row| row.repetitions > 0))
    {
        let _ = writeln!(text, "{}: no result", report.scenario.name);
    }
    text
}

/// A table of those columns that say anything, if any does.
fn table(columns: &[Column], rows: &[Row]) -> Option<String> {
    let shown = telling(columns, rows);
    let header: Vec<&str> = ["variant", "VMs"].into_iter().chain(shown.iter().map(|c| c.name)).collect();
    let line = |row: &Row| {
        let cells = shown.iter().map(|column| (column.cell)(row));
        [row.variant.clone(), row.group.clone()].into_iter().chain(cells).collect()
    };
    (!shown.is_empty()).then(|| plain(&header, 2, rows.iter().map(line)))
}

/// Counters that are nobody's but the scheduler's or the host's; a row each, as variants differ in what they have.
fn host_table(report: &Report) -> String {
    let (counters, zero) = summary::telling_counters(report);
    if counters.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for first in (0..report.variants.len()).step_by(ABREAST) {
        let variants = report.variants.iter().skip(first).take(ABREAST).map(|v| v.name.as_str());
        let header: Vec<&str> = std::iter::once("host and schedulers").chain(variants).collect();
        let rows = counters.iter().map(|(name, values)| {
            let figures = values.iter().skip(first).take(ABREAST).map(|value| counter(name, *value));
            std::iter::once(counter_name(name).to_string()).chain(figures).collect::<Vec<String>>()
        });
        text += &format!("{}\n\n", plain(&header, 1, rows));
    }
    if zero > 0 { format!("{text}{zero} more are zero throughout.\n\n") } else { text }
}

fn bounds(report: &Report) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for bound in &report.bounds {
        let line = format!(
            "{} per s, limited by {}\n  ({:.2} CPUs of share, {} of CPU time per unit)",
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
    let text = |(line, vms): &(String, Vec<&str>)| format!("Bound of {}: {line}.\n", vms.join(", "));
    lines.iter().map(text).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_what_matters() {
        let text = render(&summary::sample(), true) + &legends(&[&summary::sample()], Shown::All);
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
            "Bound of vm1, vm2: 1,500 per s",
            "Medians of 5 repetitions",
            "won back",
            "never waited for a preempted",
        ] {
            assert!(text.contains(expected), "no {expected:?} in\n{text}");
        }
        assert!(!text.contains("FAILED") && !text.contains('\x1b'));
    }

    #[test]
    fn counters_are_for_those_who_ask() {
        let text = render(&summary::sample(), false) + &legends(&[&summary::sample()], Shown::Tables);
        assert!(text.contains("1.400 [") && text.contains("wait p99") && text.contains("within its limits"));
        for counter in ["PAUSE exits", "entitled", "limit 5 ns", "Bound of"] {
            assert!(!text.contains(counter), "{counter} in\n{text}");
        }
    }

    #[test]
    fn legends_explain_what_is_shown_and_nothing_else() {
        let report = summary::sample();
        let all = [&columns::WORK[..], &columns::WAITS, &columns::EVENTS, &columns::YIELDS, &columns::CPUS];
        for (what, shown) in [
            (Shown::Results, results(&[&report])),
            (Shown::Tables, render(&report, false)),
            (Shown::All, render(&report, true)),
        ] {
            let legend = legends(&[&report], what);
            for column in all.into_iter().flatten().filter(|column| !column.means.is_empty()) {
                // Headings are broken where columns are narrow: their first words will do.
                let word = column.name.split(' ').next().unwrap();
                let explained = legend.lines().any(|line| line.trim_start().starts_with(column.name));
                assert!(
                    !explained || shown.contains(word),
                    "{} is explained, not shown:\n{shown}",
                    column.name
                );
            }
            assert!(
                legend.contains("of bound") && legend.contains("won back") == (what != Shown::Results),
                "{legend}"
            );
        }
    }

    #[test]
    fn the_result_is_some_lines_in_the_order_given() {
        let (mut first, mut second) = (summary::sample(), summary::sample());
        first.scenario.name = "zebra-2to1".into();
        second.scenario.name = "ape-2to1".into();
        second.runs.clear();
        let text = results(&[&first, &second]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(
            lines[0].contains("of bound")
                && lines[2].starts_with(" zebra-2to1")
                && lines[2].contains("eevdf")
        );
        assert!(lines[3].contains("ours") && lines[3].contains("1.400 [") && !lines[3].contains("zebra"));
        assert_eq!(lines[4], "ape-2to1: no result");
    }

    #[test]
    fn failures_come_first() {
        let mut report = summary::sample();
        let console = vec!["\x1b[31mOops\r".into()];
        report.failure = Some(crate::schema::Failure { reason: "a panic".into(), console });
        report.runs.clear();
        assert!(render(&report, false).starts_with("FAILED: a panic\n  | ·[31mOops\n"));
    }

    #[test]
    fn an_instrument_out_of_limits_is_never_silent() {
        let mut report = summary::sample();
        report.instrument.as_mut().unwrap().ok = false;
        assert!(render(&report, false).starts_with("THE INSTRUMENT IS OUT OF ITS LIMITS\n"));
    }

    #[test]
    fn everything_fits_the_terminal() {
        let mut report = summary::sample();
        let usual = render(&report, false);
        let lines = usual.lines().skip_while(|line| !line.contains("variant")).take(4);
        let narrow: Vec<&str> = lines.collect();
        assert!(
            narrow[2].contains("eevdf") && narrow[3].contains("ours"),
            "a usual row is one line:\n{usual}"
        );
        let long = "handoff-without-redirection";
        report.variants[1].name = long.into();
        for run in &mut report.runs {
            run.extra.insert("overbook: VMs whose counters have a long name".into(), 1e9);
            run.vms.iter_mut().for_each(|vm| vm.unit = "round trips".into());
            run.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).for_each(|vcpu| vcpu.spins = 812_345);
            if run.variant == "ours" {
                run.variant = long.into();
            }
        }
        report.machine.emulator = "10.0.8 (Debian 1:10.0.8+ds-0 with a name that does not end)".into();
        let all = render(&report, true) + &legends(&[&report], Shown::All) + &results(&[&report]);
        for line in all.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "too wide:\n{line}");
        }
    }
}
