// SPDX-License-Identifier: GPL-2.0-only
//! What was measured: tables and plots of a page.

use crate::format::{NONE, count, cpus_range, part, percent, ratio, spread, three, time};
use crate::plot;
use crate::schema::Report;
use crate::summary::{self, Row};
use anyhow::Result;
use maud::{Markup, PreEscaped, html};

/// More vCPUs than these are shown only when asked for.
const MANY_VCPUS: usize = 16;

/// All that follows the main table.
pub fn all(report: &Report, rows: &[Row]) -> Result<Markup> {
    let mut groups: Vec<&str> = rows.iter().map(|row| row.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let (mut rates, mut waits) = (Vec::new(), Vec::new());
    for group in groups {
        // Groups differ in their units of work, so each has its own axis.
        let of_group: Vec<Row> = rows.iter().filter(|row| row.group == group).cloned().collect();
        rates.push((group, plot::rates(report, &of_group)?));
        if let Some(plot) = plot::waits(report, &of_group)? {
            waits.push((group, plot));
        }
    }
    Ok(html! {
        (variants(report))
        h2 { "Work done" }
        @for (group, plot) in &rates { h3 { (group) } div.scroll { (PreEscaped(plot)) } }
        p.note { "Bars: medians. Whiskers: slowest and fastest repetition. Upright line: the bound, what the VM could do if it never waited for a preempted sibling." }
        (bounds(report))
        @if !waits.is_empty() {
            h2 { "Waiting for siblings" }
            (legend(report))
            @for (group, plot) in &waits { h3 { (group) } div.scroll { (PreEscaped(plot)) } }
            p.note { "The higher and the further left, the shorter the waits. All repetitions together." }
        }
        (vcpus(report)?)
        h2 { "Events per second and VM" }
        (events(report, rows))
        h2 { "CPUs of one VM" }
        (cpus(report, rows))
        (host(report))
    })
}

/// The headline.
pub fn main_table(report: &Report, rows: &[Row]) -> Markup {
    table(
        report,
        rows,
        &["work per s and VM", "spread", "ratio [95 %]", "of bound", "won back", "wait p50", "p99", "max"],
        |row, is_baseline| {
            html! {
                td.main { (three(row.rate)) " " (row.unit) } td { (spread(row)) } td.main { (ratio(row, is_baseline)) }
                td { (percent(row.of_bound)) } td { (percent(row.won_back)) }
                td { (time(row.wait_ns.0)) } td { (time(row.wait_ns.1)) } td { (time(row.wait.max_ns)) }
            }
        },
    )
}

/// A table with a row for every [`Row`]; a rule sets variants apart.
fn table(report: &Report, rows: &[Row], header: &[&str], cells: impl Fn(&Row, bool) -> Markup) -> Markup {
    let baseline = report.variants.first().map(|v| v.name.as_str());
    html! {
        div.scroll { table {
            thead { tr { th.l { "variant" } th.l { "VMs" } @for name in header { th { (name) } } } }
            tbody { @for (nth, row) in rows.iter().enumerate() {
                @let is_first = nth > 0 && rows[nth - 1].variant != row.variant && rows[nth - 1].group != row.group;
                @let is_baseline = baseline == Some(&row.variant);
                tr.first[is_first].base[is_baseline] {
                    td.l { (row.variant) } td.l { (row.group) }
                    (cells(row, is_baseline))
                }
            } }
        } }
    }
}

fn variants(report: &Report) -> Markup {
    html! {
        @if report.variants.iter().any(|v| !v.about.is_empty()) {
            dl { @for v in &report.variants { dt { (v.name) } dd { (v.about) } } }
        }
    }
}

fn legend(report: &Report) -> Markup {
    html! {
        ul.legend { @for v in &report.variants {
            li { i style={ "background:" (plot::css_colour(report, &v.name)) } {} (v.name) }
        } }
    }
}

fn bounds(report: &Report) -> Markup {
    html! {
        @if !report.bounds.is_empty() {
            details {
                summary { "How the bounds came about" }
                div.scroll { table {
                    thead { tr {
                        th.l { "VM" } th { "bound per s" } th { "limited by" } th { "CPUs of share" }
                        th { "CPU time per unit" } th { "alone: CPUs, work per s" }
                    } }
                    tbody { @for bound in &report.bounds { tr {
                        td.l { (bound.vm) } td { (three(bound.rate)) } td { (bound.limited_by) }
                        td { (format!("{:.2}", bound.share_cpus)) } td { (time(bound.cpu_ns_per_unit as u64)) }
                        td { @for point in &bound.points {
                            (point.cpus) ": " (point.rates.iter().map(|r| three(*r)).collect::<Vec<_>>().join(", ")) " "
                        } }
                    } } }
                } }
            }
        }
    }
}

fn vcpus(report: &Report) -> Result<Markup> {
    let few = report
        .runs
        .first()
        .is_none_or(|run| run.vms.iter().map(|vm| vm.vcpus.len()).sum::<usize>() <= MANY_VCPUS);
    let mut plots = Vec::new();
    for variant in &report.variants {
        if let Some(plot) = plot::vcpu_time(report, &variant.name)? {
            plots.push((&variant.name, plot));
        }
    }
    Ok(html! {
        @if !plots.is_empty() {
            h2 { "Time of the vCPUs" }
            p.note { "Full: running. Pale: runnable, queued for a CPU. Empty: asleep. Upright line: the end of the steal time that the guest was told of, from where running ends; it should meet the end of the pale part." }
            @for (name, plot) in &plots {
                details open[few] { summary { (name) } div.scroll { (PreEscaped(plot)) } }
            }
        }
    })
}

fn events(report: &Report, rows: &[Row]) -> Markup {
    table(
        report,
        rows,
        &["spin turns", "PAUSE exits", "all exits", "on_spin", "yields tried", "ok", "same rq", "other rq"],
        |row, _| {
            let c = &row.per_second;
            html! {
                td { (count(c.spins)) } td { (count(c.pause_exits)) } td { (count(c.exits)) } td { (count(c.on_spin)) }
                td { (count(c.tried)) } td { (part(c.ok, c.tried)) } td { (part(c.same_rq, c.tried)) } td { (part(c.other_rq, c.tried)) }
            }
        },
    )
}

fn cpus(report: &Report, rows: &[Row]) -> Markup {
    table(
        report,
        rows,
        &["used", "min..max", "entitled", "steal", "switches per s", "moves per s"],
        |row, _| {
            let c = &row.per_second;
            html! {
                td { (format!("{:.2}", row.cpus_used.0)) } td { (cpus_range(row)) } td { (format!("{:.2}", row.entitled_cpus)) }
                td { (format!("{:.2}", c.steal_cpus)) } td { (count(c.switches)) } td { (count(c.migrations)) }
            }
        },
    )
}

/// Counters of the host and of the schedulers.
fn host(report: &Report) -> Markup {
    html! {
        h2 { "Host and schedulers" }
        div.scroll { table {
            thead { tr { th.l { "counter" } @for v in &report.variants { th { (v.name) } } } }
            tbody { @for (name, values) in summary::host_counters(report) {
                tr { td.l { (name) } @for value in values { td { (value.map_or_else(|| NONE.into(), count)) } } }
            } }
        } }
    }
}
