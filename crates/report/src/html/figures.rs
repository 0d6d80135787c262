// SPDX-License-Identifier: GPL-2.0-only
//! What was measured: tables and plots of a page.

use super::words;
use crate::columns::{self, Column, telling};
use crate::format::{counter, counter_name, three, time};
use crate::plot;
use crate::schema::Report;
use crate::summary::{self, Row};
use anyhow::Result;
use maud::{Markup, PreEscaped, html};

/// More vCPUs than these are shown only when asked for.
const MANY_VCPUS: usize = 16;

/// The columns of the bounds' table, and what they say.
const BOUNDS: [(&str, &str); 6] = [
    ("VM", "whose bound it is"),
    (
        "bound per s",
        "what the VM could do if it never waited for a preempted sibling: the smaller of two limits",
    ),
    (
        "limited by",
        "which of the two it is: `serial`, what the VM does alone; `cpu`, what its share of CPUs buys",
    ),
    ("CPUs of share", "CPUs that the VM is entitled to"),
    ("CPU time per unit", "of work, without what was spent in spin loops"),
    ("alone: CPUs, work per s", "the VM alone with a vCPU on each of so many CPUs, every repetition"),
];

/// The first column of the table of counters.
const COUNTER: (&str, &str) =
    ("counter", "of the host, or of the scheduler; beside it the median of each variant's repetitions");

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
        div.pair {
            div {
                h2 { "Work done" }
                @for (group, plot) in &rates { h3 { (group) } div.scroll { (PreEscaped(plot)) } }
                p.note { "Bars: medians. Whiskers: slowest and fastest repetition. Upright line: the bound, what the VM could do if it never waited for a preempted sibling." }
                (bounds(report))
            }
            @if !waits.is_empty() {
                div {
                    h2 { "Waiting for siblings" }
                    (legend(report))
                    @for (group, plot) in &waits { h3 { (group) } div.scroll { (PreEscaped(plot)) } }
                    p.note { "The higher and the further left, the shorter the waits. All repetitions together." }
                }
            }
        }
        (vcpus(report)?)
        (titled("Events per second and VM", &[&columns::EVENTS, &columns::YIELDS], rows))
        (titled("CPUs of one VM", &[&columns::CPUS], rows))
        (host(report))
    })
}

/// The table of what was done, and for how long guests waited.
pub fn main_table(rows: &[Row]) -> Markup {
    let shown = [telling(&columns::WORK, rows), telling(&columns::WAITS, rows)].concat();
    html! { (table(&shown, rows)) (explained(&shown)) }
}

/// A table with its heading and what its columns say, if any says something.
fn titled(title: &str, columns: &[&'static [Column]], rows: &[Row]) -> Markup {
    let shown: Vec<&Column> = columns.iter().flat_map(|columns| telling(columns, rows)).collect();
    html! { @if !shown.is_empty() { h2 { (title) } (table(&shown, rows)) (explained(&shown)) } }
}

/// A table with a row for every [`Row`]; a rule sets variants apart.
fn table(columns: &[&Column], rows: &[Row]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th.l { (columns::VARIANT.0) } th.l { (columns::VMS.0) }
                @for column in columns { th title=(column.means) { (column.name) } }
            } }
            tbody { @for (nth, row) in rows.iter().enumerate() {
                @let is_first = nth > 0 && rows[nth - 1].variant != row.variant && rows[nth - 1].group != row.group;
                tr.first[is_first].base[row.is_baseline] {
                    td.l { (row.variant) } td.l { (row.group) }
                    @for column in columns { td { ((column.cell)(row)) } }
                }
            } }
        } }
    }
}

/// What columns are called, and what they say.
pub fn meanings<'a>(columns: &'a [&Column]) -> impl Iterator<Item = (&'a str, &'a str)> {
    columns.iter().map(|column| (column.name, column.means))
}

/// What the columns of [`table`] say.
fn explained(columns: &[&Column]) -> Markup {
    words([columns::VARIANT, columns::VMS].into_iter().chain(meanings(columns)))
}

/// The variants with their colours.
fn variants(report: &Report) -> Markup {
    html! {
        dl { @for v in &report.variants { dt { (swatch(report, &v.name)) (v.name) } dd { (v.about) } } }
        p.note { "Each variant has its colour in all plots below." }
    }
}

fn legend(report: &Report) -> Markup {
    html! { ul.legend { @for v in &report.variants { li { (swatch(report, &v.name)) (v.name) } } } }
}

/// The colour of a variant's plots.
fn swatch(report: &Report, variant: &str) -> Markup {
    html! { i.swatch style={ "background:" (plot::css_colour(report, variant)) } {} }
}

fn bounds(report: &Report) -> Markup {
    html! {
        @if !report.bounds.is_empty() {
            details {
                summary { "How the bounds came about" }
                div.scroll { table {
                    thead { tr { @for (nth, (name, _)) in BOUNDS.iter().enumerate() { th.l[nth == 0] { (name) } } } }
                    tbody { @for bound in &report.bounds { tr {
                        td.l { (bound.vm) } td { (three(bound.rate)) } td { (bound.limited_by) }
                        td { (format!("{:.2}", bound.share_cpus)) } td { (time(bound.cpu_ns_per_unit as u64)) }
                        td { @for point in &bound.points {
                            (point.cpus) ": " (point.rates.iter().map(|r| three(*r)).collect::<Vec<_>>().join(", ")) " "
                        } }
                    } } }
                } }
                (words(BOUNDS))
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
            div.pair { @for (name, plot) in &plots {
                details open[few] { summary { (name) } div.scroll { (PreEscaped(plot)) } }
            } }
        }
    })
}

/// Counters of the host and of the schedulers.
fn host(report: &Report) -> Markup {
    let (counters, zero) = summary::telling_counters(report);
    html! {
        @if !counters.is_empty() {
            h2 { "Host and schedulers" }
            div.scroll { table.narrow {
                thead { tr { th.l { (COUNTER.0) } @for v in &report.variants { th { (v.name) } } } }
                tbody { @for (name, values) in &counters {
                    tr { td.l { (counter_name(name)) } @for value in values { td { (counter(name, *value)) } } }
                } }
            } }
            (words([COUNTER]))
            @if zero > 0 { p.note { (zero) " more are zero throughout; the JSON file has them." } }
        }
    }
}
