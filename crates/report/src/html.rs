// SPDX-License-Identifier: GPL-2.0-only
//! A page that needs no network.

use crate::plot;
use crate::schema::Report;
use crate::stats::quantile_ns;
use crate::summary::{self, Row};
use crate::table::{ratio, three, time};
use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1d2129; --pale: #667085; --paper: #fdfdfc; --line: #d9dce1; --bad: #b3261e; --card: #f4f5f6 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --pale: #99a1ae; --paper: #15171a; --line: #343a43; --bad: #ff8a80; --card: #1d2024 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 4rem }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 2.5rem 0 .25rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p.about { color: var(--pale); margin-top: 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; width: 100% }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap } th { color: var(--pale); font-weight: 500 }
th.l, td.l { text-align: left } tr.base td { color: var(--pale) } td.main { font-weight: 600 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .9rem } dt { color: var(--pale) } dd { margin: 0; overflow-wrap: anywhere }
svg { width: 100%; height: auto; display: block } pre { background: var(--card); padding: .8rem 1rem; overflow-x: auto; font-size: .8rem; border-radius: 6px }
.alarm { border-left: 4px solid var(--bad); padding: .5rem 1rem; background: var(--card) } .alarm strong { color: var(--bad) }
details { margin: .5rem 0 } summary { cursor: pointer; color: var(--pale) }
";

/// The page of one report.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(report: &Report) -> Result<String> {
    render_many(std::slice::from_ref(report))
}

/// One page for several reports.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render_many(reports: &[Report]) -> Result<String> {
    let sections = reports.iter().map(section).collect::<Result<Vec<Markup>>>()?;
    let title = match reports {
        [one] => format!("Overbook lab: {}", one.scenario.name),
        many => format!("Overbook lab: {} scenarios", many.len()),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { @for section in &sections { (section) } }
        }
    };
    Ok(page.into_string())
}

fn section(report: &Report) -> Result<Markup> {
    let rows = summary::rows(report);
    let scenario = &report.scenario;
    let plots = if rows.is_empty() {
        html! {}
    } else {
        let waits = plot::waits(report, &rows)?;
        html! {
            h2 { "Work done" }
            (PreEscaped(plot::rates(report, &rows)?))
            @if let Some(waits) = waits {
                h2 { "Waiting for siblings" }
                (PreEscaped(waits))
            }
            h2 { "Time of the vCPUs" }
            @for variant in &report.variants {
                @if let Some(plot) = plot::vcpu_time(report, &variant.name)? {
                    details { summary { (variant.name) } (PreEscaped(plot)) }
                }
            }
        }
    };
    Ok(html! {
        h1 { (scenario.title) }
        p.about {
            (scenario.name) ": " (three(scenario.overcommit)) " vCPUs per CPU on " (report.machine.cpus) " CPUs, Linux "
            (report.machine.kernel) ", placement " (scenario.placement) ", cgroups " (scenario.cgroups)
        }
        (alarms(report))
        @if !rows.is_empty() { (main_table(&rows)) }
        (plots)
        @if !rows.is_empty() { h2 { "Events per second and VM" } (counter_table(&rows)) }
        (instrument(report))
        (machine(report))
        details { summary { "Scenario file" } pre { (scenario.text) } }
    })
}

fn alarms(report: &Report) -> Markup {
    let text = crate::table::alarms(report);
    html! { @if !text.is_empty() { div.alarm { strong { "Read this first" } pre { (text) } } } }
}

fn main_table(rows: &[Row]) -> Markup {
    let share = |share: Option<f64>| share.map_or_else(|| "–".into(), |s| format!("{:.1} %", s * 100.0));
    html! {
        div.scroll { table {
            tr {
                th.l { "variant" } th.l { "VMs" } th { "work per s and VM" } th { "spread" } th { "ratio [95 %]" }
                th { "of bound" } th { "won back" } th { "wait p50" } th { "p99" } th { "max" }
            }
            @for row in rows {
                tr.base[row.ratio.is_none()] {
                    td.l { (row.variant) } td.l { (row.group) }
                    td.main { (three(row.rate)) " " (row.unit) } td { "± " (format!("{:.1}", row.spread_percent)) " %" }
                    td.main { (ratio(row)) } td { (share(row.of_bound)) } td { (share(row.won_back)) }
                    td { (time(quantile_ns(&row.wait, 0.5))) } td { (time(quantile_ns(&row.wait, 0.99))) } td { (time(row.wait.max_ns)) }
                }
            }
        } }
    }
}

fn counter_table(rows: &[Row]) -> Markup {
    html! {
        div.scroll { table {
            tr {
                th.l { "variant" } th.l { "VMs" } th { "PAUSE exits" } th { "all exits" } th { "on_spin" } th { "yields tried" }
                th { "delivered" } th { "same runqueue" } th { "switches" } th { "moves" } th { "CPUs used" } th { "entitled" } th { "steal, CPUs" }
            }
            @for row in rows {
                @let c = &row.per_second;
                tr {
                    td.l { (row.variant) } td.l { (row.group) }
                    td { (three(c.pause_exits)) } td { (three(c.exits)) } td { (three(c.on_spin)) } td { (three(c.tried)) }
                    td { (three(c.ok)) } td { (three(c.same_rq)) } td { (three(c.switches)) } td { (three(c.migrations)) }
                    td { (format!("{:.2}", row.cpus_used.0)) } td { (format!("{:.2}", row.entitled_cpus)) } td { (format!("{:.2}", c.steal_cpus)) }
                }
            }
        } }
    }
}

fn instrument(report: &Report) -> Markup {
    let Some(found) = &report.instrument else { return html! {} };
    html! {
        h2 { "The instrument's check of itself" }
        p.about {
            "A fixed loop took " (time(found.loop_idle_ns)) " with the other CPUs idle and " (time(found.loop_busy_ns))
            " with them busy: a difference of " (format!("{:.2}", found.loop_skew_percent)) " %, limit 3 %."
        }
        div.scroll { table {
            tr { th.l { "across CPUs" } th { "median" } th { "p99" } th { "max" } th { "limit" } }
            @for row in &found.turns {
                tr {
                    td.l { (row.name) } td { (time(row.p50_ns)) } td { (time(row.p99_ns)) } td { (time(row.max_ns)) }
                    td { @if row.limit_ns > 0 { (time(row.limit_ns)) } @else { "–" } }
                }
            }
        } }
    }
}

fn machine(report: &Report) -> Markup {
    let m = &report.machine;
    html! {
        h2 { "Machine" }
        dl {
            dt { "kernel" } dd { (m.kernel) }
            dt { "CPUs" } dd { (m.cpus) " × " (m.cpu_model) ", " (m.llcs) " LLC, " (m.nodes) " node(s), SMT " (m.smt) }
            dt { "execution" } dd { (m.accel) " " (m.emulator) ", " (format!("{:.0}", m.cpu_ips / 1e6)) " MIPS per CPU, dilation " (report.scenario.dilation) }
            dt { "KVM" } dd { (m.kvm_vendor) "; PLE: " (m.ple) "; " (m.apicv) }
            dt { "seed" } dd { (report.scenario.seed) }
            dt { "overbook" } dd { (report.overbook) }
            @for (name, value) in &m.knobs { dt { (name) } dd { (value) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_escape_their_text() {
        let page = render(&summary::sample()).unwrap();
        assert!(page.contains("A &lt;sample&gt;") && !page.contains("<sample>"));
        assert!(page.matches("<svg").count() >= 3);
        for outside in ["src=", "@import", "url(", "<link"] {
            assert!(!page.contains(outside), "the page reaches outside: {outside}");
        }
    }

    #[test]
    fn a_failure_without_runs_still_has_a_page() {
        let failure = crate::schema::Failure { reason: "boom".into(), console: Vec::new() };
        let report = Report { failure: Some(failure), ..Report::default() };
        assert!(render(&report).unwrap().contains("boom"));
    }
}
