// SPDX-License-Identifier: GPL-2.0-only
//! Plots as inline SVG.

use crate::schema::Report;
use crate::summary::{self, Row};
use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

const WIDTH: u32 = 760;

/// One colour per variant, told apart also by those who see red and green alike (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x0, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x0),
    RGBColor(0x0, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x0),
    RGBColor(0x80, 0x80, 0x80),
];
/// Legible on white and on near-black, as the page has both.
const INK: RGBColor = RGBColor(0x7d, 0x84, 0x90);

fn colour(report: &Report, variant: &str) -> RGBColor {
    let place = report.variants.iter().position(|v| v.name == variant).unwrap_or(0);
    COLOURS[place % COLOURS.len()]
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn svg(height: u32, draw: impl FnOnce(&Canvas) -> Result<()>) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|e| anyhow!("{e}"))?;
    }
    // The page scales it.
    Ok(text.replacen(&format!("width=\"{WIDTH}\" height=\"{height}\""), "", 1))
}

fn label(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Rates of the variants, with their range over the repetitions, against the bound.
pub fn rates(report: &Report, rows: &[Row]) -> Result<String> {
    let names: Vec<String> = rows.iter().map(|r| format!("{}, {}", r.variant, r.group)).collect();
    let bound = |row: &Row| row.of_bound.filter(|share| *share > 0.0).map(|share| row.rate / share);
    let top = rows.iter().map(|r| r.rate.max(bound(r).unwrap_or(0.0))).fold(0.0, f64::max) * 1.1;
    svg(60 + 44 * rows.len() as u32, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..top.max(1.0), 0.0..rows.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.25))
            .axis_style(INK)
            .x_label_style(label(13))
            .y_labels(0)
            .x_desc(format!("{} per second and VM (line: bound)", rows[0].unit))
            .draw()?;
        for (i, row) in rows.iter().enumerate() {
            let y = (rows.len() - 1 - i) as f64;
            let ink = colour(report, &row.variant);
            chart.draw_series([Rectangle::new([(0.0, y + 0.22), (row.rate, y + 0.78)], ink.filled())])?;
            let half = row.rate * row.spread_percent / 100.0;
            chart.draw_series([PathElement::new(
                [(row.rate - half, y + 0.5), (row.rate + half, y + 0.5)],
                INK.stroke_width(2),
            )])?;
            if let Some(bound) = bound(row) {
                chart.draw_series([PathElement::new(
                    [(bound, y + 0.08), (bound, y + 0.92)],
                    INK.stroke_width(2),
                )])?;
            }
            let place = chart.backend_coord(&(0.0, y + 0.5));
            area.draw(&Text::new(names[i].clone(), (8, place.1 - 7), label(14)))?;
        }
        Ok(())
    })
}

/// How long guests waited: the share of waits that were shorter, on a logarithmic axis.
pub fn waits(report: &Report, rows: &[Row]) -> Result<Option<String>> {
    let waiting: Vec<&Row> = rows.iter().filter(|r| !r.wait.buckets.is_empty()).collect();
    if waiting.is_empty() {
        return Ok(None);
    }
    let top = waiting.iter().map(|r| r.wait.max_ns).max().unwrap_or(1) as f64 / 1e3;
    svg(320, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d((1.0f64..top.max(10.0) * 1.5).log_scale(), 0.0..1.0)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(INK.mix(0.25))
            .axis_style(INK)
            .label_style(label(13))
            .x_label_formatter(&|us| crate::table::time((us * 1e3) as u64))
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .x_desc("wait, as the guest saw it")
            .y_desc("waits that were shorter")
            .draw()?;
        for (i, row) in waiting.iter().enumerate() {
            let total: u64 = row.wait.buckets.iter().map(|(_, c)| c).sum();
            let mut seen = 0;
            let mut line = Vec::new();
            for (upper, count) in &row.wait.buckets {
                let x = (*upper as f64 / 1e3).max(1.0);
                line.push((x, seen as f64 / total as f64));
                seen += count;
                line.push((x, seen as f64 / total as f64));
            }
            let ink = colour(report, &row.variant);
            chart.draw_series(LineSeries::new(line, ink.stroke_width(2)))?;
            area.draw(&Text::new(
                format!("{}, {}", row.variant, row.group),
                (80, 14 + 18 * i as i32),
                ("sans-serif", 14).into_font().color(&ink),
            ))?;
        }
        Ok(())
    })
    .map(Some)
}

/// Where the vCPUs' time went: running, or queued for a CPU. One bar per vCPU, first repetition.
pub fn vcpu_time(report: &Report, variant: &str) -> Result<Option<String>> {
    let runs = summary::runs_of(report, variant);
    let Some(run) = runs.first() else { return Ok(None) };
    let vcpus: Vec<(String, f64, f64)> = run
        .vms
        .iter()
        .flat_map(|vm| {
            vm.vcpus
                .iter()
                .enumerate()
                .map(move |(i, v)| (format!("{}/{i}", vm.name), v.run_ns as f64, v.queued_ns as f64))
        })
        .take(64)
        .collect();
    if vcpus.is_empty() {
        return Ok(None);
    }
    let window = run.window_ns.max(1) as f64;
    svg(70 + 15 * vcpus.len() as u32, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(44)
            .y_label_area_size(80)
            .build_cartesian_2d(0.0..1.0, 0.0..vcpus.len() as f64)?;
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .x_label_style(label(13))
            .x_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .y_labels(0)
            .x_desc("of the window: running (full), queued (pale), asleep (empty)")
            .draw()?;
        let ink = colour(report, variant);
        for (i, (name, ran, queued)) in vcpus.iter().enumerate() {
            let y = (vcpus.len() - 1 - i) as f64;
            let (ran, both) = ((ran / window).min(1.0), ((ran + queued) / window).min(1.0));
            chart.draw_series([Rectangle::new([(0.0, y + 0.1), (ran, y + 0.9)], ink.filled())])?;
            chart.draw_series([Rectangle::new([(ran, y + 0.1), (both, y + 0.9)], ink.mix(0.3).filled())])?;
            let place = chart.backend_coord(&(0.0, y + 0.5));
            area.draw(&Text::new(name.clone(), (8, place.1 - 6), label(12)))?;
        }
        Ok(())
    })
    .map(Some)
}
