// SPDX-License-Identifier: GPL-2.0-only
//! A picture of a traced window: a row per CPU, time to the right, a colour per VM or kind of task.

use crate::scene::Scene;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::ops::Range;

const WIDTH: u32 = 1200;
/// Rows of the legend; more would be a wall.
const MOST_NAMED: usize = 16;
/// Of a legend's row.
const LINE: i32 = 18;

/// Colours that those who see red and green alike tell apart (Okabe and Ito); then hues as far apart as they go.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
];

fn colour(nth: usize) -> RGBAColor {
    match COLOURS.get(nth) {
        Some(colour) => colour.to_rgba(),
        None => HSLColor((nth as f64 * 0.618_034) % 1.0, 0.55, 0.35 + 0.1 * (nth % 4) as f64).to_rgba(),
    }
}

/// Who ran where: CPU, colour, from, to; turns that follow each other in one colour are one.
fn turns(scene: &Scene, colours: &[usize]) -> Vec<(u32, usize, u64, u64)> {
    let mut runs: Vec<_> = scene.world.trace.runs.clone();
    runs.sort_unstable_by_key(|(cpu, _, from, _)| (*cpu, *from));
    let mut turns: Vec<(u32, usize, u64, u64)> = Vec::new();
    let mut before = u32::MAX;
    for (cpu, task, from, to) in runs {
        match turns.last_mut() {
            Some(last) if before == task && last.0 == cpu && last.3 == from => last.3 = to,
            _ => turns.push((cpu, colours.get(task as usize).copied().unwrap_or(0), from, to)),
        }
        before = task;
    }
    turns
}

/// Draws the window as SVG.
///
/// # Errors
/// The drawing library refuses.
pub fn svg(scene: &Scene, title: &str, window: &Range<u64>) -> Result<String> {
    let cpus = scene.cpus();
    // VMs have a colour each, tasks one per entry of the file.
    let mut names: Vec<String> = Vec::new();
    let mut colours =
        vec![0; scene.rows.iter().flat_map(|row| &row.tasks).max().map_or(0, |most| *most as usize + 1)];
    for row in &scene.rows {
        if row.vms.is_empty() {
            row.tasks.iter().for_each(|task| colours[*task as usize] = names.len());
            names.push(row.name.clone());
            continue;
        }
        let size = row.tasks.len() / row.vms.len();
        for (nth, tasks) in row.tasks.chunks(size.max(1)).enumerate() {
            tasks.iter().for_each(|task| colours[*task as usize] = names.len());
            names.push(if row.vms.len() == 1 {
                row.name.clone()
            } else {
                format!("{}{}", row.name, nth + 1)
            });
        }
    }
    let height = (cpus * (1600 / cpus).clamp(4, 28)).max(120) + 110;
    let mut text = String::new();
    {
        let fail = |e: &dyn std::fmt::Display| anyhow!("cannot draw the picture: {e}");
        let area =
            SVGBackend::with_string(&mut text, (WIDTH, height.max(LINE as u32 * 20))).into_drawing_area();
        area.fill(&WHITE).map_err(|e| fail(&e))?;
        let (left, right) = area.split_horizontally(WIDTH - 170);
        let ms = |ns: u64| ns as f64 / 1e6;
        let mut chart = ChartBuilder::on(&left)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(ms(window.start)..ms(window.end), f64::from(cpus)..0.0)
            .map_err(|e| fail(&e))?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_desc("ms since the start")
            .y_desc("CPU")
            .y_label_formatter(&|cpu| format!("{cpu:.0}"))
            .light_line_style(TRANSPARENT)
            .draw()
            .map_err(|e| fail(&e))?;
        let boxes = turns(scene, &colours).into_iter().map(|(cpu, nth, from, to)| {
            let top = f64::from(cpu);
            Rectangle::new([(ms(from), top + 0.06), (ms(to), top + 0.94)], colour(nth).filled())
        });
        chart.draw_series(boxes).map_err(|e| fail(&e))?;
        let write = |row: usize, colour: RGBAColor, name: &str| -> Result<()> {
            let y = 50 + row as i32 * LINE;
            right.draw(&Rectangle::new([(4, y), (16, y + 12)], colour.filled())).map_err(|e| fail(&e))?;
            right.draw(&Text::new(name.to_string(), (22, y), ("sans-serif", 13))).map_err(|e| fail(&e))
        };
        for (nth, name) in names.iter().take(MOST_NAMED).enumerate() {
            write(nth, colour(nth), name)?;
        }
        if names.len() > MOST_NAMED {
            write(MOST_NAMED, TRANSPARENT, &format!("and {} more", names.len() - MOST_NAMED))?;
        }
        area.present().map_err(|e| fail(&e))?;
    }
    Ok(text)
}

/// The picture as a page.
pub fn html(svg: &str, title: &str) -> String {
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!("<!doctype html>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n{svg}\n")
}
