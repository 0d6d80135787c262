// SPDX-License-Identifier: GPL-2.0-only
//! Where the figures come from: the instrument and the machine.

use crate::format::time;
use crate::schema::Report;
use maud::{Markup, html};

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
                thead { tr {
                    th.l { "across CPUs" } th { "samples" } th { "median" } th { "limit" } th { "p99" } th { "max" }
                } }
                tbody { @for row in &found.turns { tr {
                    td.l { (row.name) } td { (row.samples) }
                    td.bad[row.limit_ns > 0 && row.p50_ns > row.limit_ns] { (time(row.p50_ns)) }
                    td { @if row.limit_ns > 0 { (time(row.limit_ns)) } @else { "–" } }
                    td { (time(row.p99_ns)) } td { (time(row.max_ns)) }
                } } }
            } }
        }
    }
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
