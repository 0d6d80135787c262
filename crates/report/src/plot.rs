// SPDX-License-Identifier: GPL-2.0-only
//! Plots as inline SVG.

use crate::bars::{Bar, bars, rows};
use crate::format::count;
use crate::loads::Load;
use crate::schema::{Report, Run, VcpuResult};
use crate::summary::{self, Row};
use crate::{stats, table};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

const WIDTH: u32 = 540;
/// vCPUs of one plot; more would be a wall.
const MOST_VCPUS: usize = 64;

/// One colour per variant, told apart also by those who see red and green alike (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0x0, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x0),
    RGBColor(0x0, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x0),
    RGBColor(0x80, 0x80, 0x80),
];
/// Stands for the page's own text colour, which differs between light and dark.
pub(crate) const INK: RGBColor = RGBColor(0x7d, 0x84, 0x91);
const INK_TEXT: &str = "\"#7D8491\"";

fn colour(report: &Report, variant: &str) -> RGBColor {
    let place = report.variants.iter().position(|v| v.name == variant).unwrap_or(0);
    COLOURS[place % COLOURS.len()]
}

/// The colour of a variant, for legends.
pub fn css_colour(report: &Report, variant: &str) -> String {
    css(colour(report, variant))
}

/// A colour as pages write it.
pub(crate) fn css(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

pub(crate) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) fn svg(height: u32, about: &str, draw: impl FnOnce(&Canvas) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    // The page scales it.
    let size = format!("width=\"{WIDTH}\" height=\"{height}\"");
    let text = text.replacen(&size, &format!("role=\"img\" aria-label=\"{about}\""), 1);
    Ok(text.replace(INK_TEXT, "\"currentColor\""))
}

pub(crate) fn label(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Room for the longest name; there are no font metrics, so by the width of a usual letter.
pub(crate) fn room<'a>(names: impl Iterator<Item = &'a str>) -> u32 {
    names.map(|name| name.chars().count() as u32 * 8 + 22).max().unwrap_or(0).clamp(60, 220)
}

/// Rates of the variants, with their range over the repetitions, against the bound. All rows have one unit.
///
/// # Errors
/// The plot cannot be drawn.
pub fn rates(report: &Report, rows: &[Row]) -> Result<String> {
    let Some(first) = rows.first() else { return Ok(String::new()) };
    let bar = |row: &Row| Bar {
        name: row.variant.clone(),
        value: row.rate,
        ink: colour(report, &row.variant),
        bound: row.bound,
        range: (row.repetitions > 1).then_some(row.rate_range),
    };
    let x = format!("{} per second and VM", first.unit);
    bars("rates of the variants", &x, count, &rows.iter().map(bar).collect::<Vec<_>>())
}

/// Loads side by side: what the baseline, Overbook and the best of the others do of the bound. A picture of its own, to
/// stand in a document.
///
/// # Errors
/// The plot cannot be drawn.
pub fn loads(loads: &[Load]) -> Result<String> {
    const KINDS: [&str; 3] = ["EEVDF", "Overbook", "best of the others"];
    let share = |row: &Row| row.of_bound.unwrap_or(0.0);
    let shares = |load: &Load| {
        [share(&load.baseline), load.ours.as_ref().map_or(0.0, share), load.best.as_ref().map_or(0.0, share)]
    };
    let top = loads.iter().flat_map(shares).fold(1.0, f64::max) * 1.03;
    let height = 84 + 34 * loads.len() as u32;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let names = loads.iter().map(|load| load.name.as_str());
        let x = "work, of what could be done if no vCPU waited for a preempted sibling";
        let mut chart = rows(&area, 28, names, top, x, |share| format!("{:.0} %", share * 100.0))?;
        for (i, load) in loads.iter().enumerate() {
            let y = (loads.len() - 1 - i) as f64;
            for (nth, share) in shares(load).into_iter().enumerate() {
                let upper = y + 0.9 - 0.27 * nth as f64;
                let bar = Rectangle::new([(0.0, upper - 0.25), (share, upper)], COLOURS[nth].filled());
                chart.draw_series([bar])?;
            }
            let place = chart.backend_coord(&(0.0, y + 0.5));
            area.draw(&Text::new(load.name.clone(), (8, place.1 - 6), label(13)))?;
        }
        let bound = PathElement::new([(1.0, 0.0), (1.0, loads.len() as f64)], INK.stroke_width(2));
        chart.draw_series([bound])?;
        for (nth, kind) in KINDS.into_iter().enumerate() {
            let left = 90 + 110 * nth as i32;
            area.draw(&Rectangle::new([(left, 10), (left + 12, 20)], COLOURS[nth].filled()))?;
            area.draw(&Text::new(kind, (left + 18, 8), label(14)))?;
        }
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    Ok(text)
}

/// How long guests waited: the share of waits that were shorter, on a logarithmic axis; `None` if nobody waited.
///
/// # Errors
/// The plot cannot be drawn.
pub fn waits(report: &Report, rows: &[Row]) -> Result<Option<String>> {
    let waiting: Vec<&Row> = rows.iter().filter(|r| r.wait.buckets.iter().any(|(_, n)| *n > 0)).collect();
    if waiting.is_empty() {
        return Ok(None);
    }
    let bounds = waiting.iter().flat_map(|row| &row.wait.buckets).map(|(upper, _)| (*upper).max(1) as f64);
    let (low, high) = bounds.fold((f64::INFINITY, 1.0_f64), |(low, high), x| (low.min(x), high.max(x)));
    // Whole decades below, and never less than one in all.
    let low = 10.0_f64.powf((low * 0.99).log10().floor());
    let high = (high * 1.3).max(low * 10.0);
    svg(300, "distribution of waits", |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .build_cartesian_2d((low..high).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.25))
            .axis_style(INK)
            .label_style(label(14))
            .y_labels(6)
            .x_label_formatter(&|ns| short_time(*ns))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .x_desc("wait, as the guest saw it")
            .y_desc("waits that were shorter")
            .draw()?;
        for row in waiting {
            let total: u64 = row.wait.buckets.iter().map(|(_, n)| n).sum();
            let mut seen = 0;
            let mut line = vec![(low, 0.0)];
            for (upper, n) in &row.wait.buckets {
                let x = (*upper).max(1) as f64;
                line.push((x, seen as f64 / total as f64));
                seen += n;
                line.push((x, seen as f64 / total as f64));
            }
            line.push((high, 1.0));
            chart.draw_series(LineSeries::new(line, colour(report, &row.variant).stroke_width(2)))?;
        }
        Ok(())
    })
    .map(Some)
}

/// Ticks of the logarithmic axis are round.
fn short_time(ns: f64) -> String {
    table::time(ns.round() as u64).replace(".00 ", " ").replace(".0 ", " ")
}

/// Where the vCPUs' time went: running, queued for a CPU, or asleep; medians over the repetitions.
///
/// # Errors
/// The plot cannot be drawn.
pub fn vcpu_time(report: &Report, variant: &str) -> Result<Option<String>> {
    let bars = vcpu_bars(report, variant);
    if bars.is_empty() {
        return Ok(None);
    }
    svg(64 + 16 * bars.len() as u32, "time of the vCPUs", |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(room(bars.iter().map(|bar| bar.name.as_str())))
            .build_cartesian_2d(0.0..1.0, 0.0..bars.len() as f64)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .x_labels(6)
            .x_label_style(label(14))
            .x_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .y_labels(0)
            .x_desc("of the measured window")
            .draw()?;
        let ink = colour(report, variant);
        for (i, bar) in bars.iter().enumerate() {
            let y = (bars.len() - 1 - i) as f64;
            let (ran, both) = (bar.ran.min(1.0), (bar.ran + bar.queued).min(1.0));
            let told = (bar.ran + bar.steal).min(1.0);
            chart.draw_series([
                Rectangle::new([(0.0, y + 0.12), (ran, y + 0.88)], ink.filled()),
                Rectangle::new([(ran, y + 0.12), (both, y + 0.88)], ink.mix(0.35).filled()),
            ])?;
            chart
                .draw_series([PathElement::new([(told, y + 0.05), (told, y + 0.95)], INK.stroke_width(2))])?;
            let place = chart.backend_coord(&(0.0, y + 0.5));
            area.draw(&Text::new(bar.name.clone(), (8, place.1 - 6), label(12)))?;
        }
        Ok(())
    })
    .map(Some)
}

/// One vCPU; shares of the window.
struct VcpuBar {
    name: String,
    ran: f64,
    queued: f64,
    steal: f64,
}

fn vcpu_bars(report: &Report, variant: &str) -> Vec<VcpuBar> {
    let runs = summary::runs_of(report, variant);
    let Some(first) = runs.first() else { return Vec::new() };
    let median = |vm: usize, vcpu: usize, of: fn(&VcpuResult) -> u64| {
        let share = |run: &&Run| {
            let vcpu = run.vms.get(vm)?.vcpus.get(vcpu)?;
            Some(of(vcpu) as f64 / run.window_ns.max(1) as f64)
        };
        stats::median(&runs.iter().filter_map(share).collect::<Vec<f64>>())
    };
    let vcpus =
        first.vms.iter().enumerate().flat_map(|(i, vm)| (0..vm.vcpus.len()).map(move |j| (i, j, &vm.name)));
    let bar = |(i, j, name): (usize, usize, &String)| VcpuBar {
        name: format!("{name}/{j}"),
        ran: median(i, j, |v| v.run_ns),
        queued: median(i, j, |v| v.queued_ns),
        steal: median(i, j, |v| v.steal_ns),
    };
    vcpus.take(MOST_VCPUS).map(bar).collect()
}
