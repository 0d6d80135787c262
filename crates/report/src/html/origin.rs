// SPDX-License-Identifier: GPL-2.0-only
//! Where the figures come from: the instrument and the machine.

use super::words;
use crate::format::time;
use crate::schema::{Report, TurnRow};
use maud::{Markup, html};

/// The columns of the instrument's table, and what they say.
const TURNS: [(&str, &str); 6] = [
    ("across CPUs", "what was timed, before anything was measured"),
    ("samples", "how often"),
    ("median", "half of the samples took longer"),
    ("limit", "what the median may be; beyond it the emulator distorts too much to believe the figures"),
    ("p99", "one sample in a hundred took longer"),
    ("max", "the longest sample"),
];

/// What the instrument found when it checked itself.
pub fn instrument(report: &Report) -> Markup {
    let Some(found) = &report.instrument else {
        return html! { h2 { "The instrument" } p.about { "Not checked: this is no machine of the lab." } };
    };
    html! {
        h2 { "The instrument's check of itself" }
        p.about {
            @if found.ok { "Within its limits. " } @else { strong { "Out of its limits. " } }
            "A fixed loop took " (time(found.loop_idle_ns)) " with the other CPUs idle and " (time(found.loop_busy_ns))
            " with them busy: a difference of " (format!("{:.2}", found.loop_skew_percent)) " %, limit 3 %."
        }
        @if !found.turns.is_empty() {
            div.scroll { table {
                thead { tr { @for (nth, (name, _)) in TURNS.iter().enumerate() { th.l[nth == 0] { (name) } } } }
                tbody { @for row in &found.turns { tr {
                    td.l { (row.name) } td { (row.samples) }
                    td.bad[is_over(row)] { (time(row.p50_ns)) }
                    td { @if row.limit_ns > 0 { (time(row.limit_ns)) } @else { "–" } }
                    td { (time(row.p99_ns)) } td { (time(row.max_ns)) }
                } } }
            } }
            (words(TURNS))
            @if found.turns.iter().any(is_over) { p.note { "Red: over its limit." } }
        }
    }
}

/// Whether a median is beyond what it may be.
fn is_over(row: &TurnRow) -> bool {
    row.limit_ns > 0 && row.p50_ns > row.limit_ns
}

/// The machine and all its knobs.
pub fn machine(report: &Report) -> Markup {
    let m = &report.machine;
    html! {
        h2 { "Machine" }
        dl {
            dt { "kernel" } dd { (m.kernel) }
            dt { "CPUs" } dd { (m.cpus) " × " (m.cpu_model) ", " (m.llcs) " LLC, NUMA nodes: " (m.nodes) ", SMT " (m.smt) }
            dt { "execution" } dd {
                (m.accel)
                @if !m.emulator.is_empty() { ", QEMU " (m.emulator) }
                @if m.cpu_ips > 0.0 { ", " (format!("{:.0}", m.cpu_ips / 1e6)) " MIPS per CPU" }
                ", dilation " (report.scenario.dilation)
            }
            dt { "KVM" } dd { (m.kvm_vendor) "; PLE: " (m.ple) "; " (m.apicv) }
            dt { "seed" } dd { (report.scenario.seed) }
            dt { "overbook" } dd { (report.overbook) }
            @for (name, value) in &m.knobs { dt { (name) } dd { (value) } }
        }
    }
}
