// SPDX-License-Identifier: GPL-2.0-only
//! Plots of bars that are named, one below the other.

use crate::format::three;
use crate::plot::{COLOURS, Canvas, INK, label, room, svg};
use anyhow::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Room for a name, in letters. What matters comes first.
const NAME: usize = 24;

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it stands for; what does not fit is cut.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// Its colour.
    pub ink: RGBColor,
    /// What it could reach at most: an upright line.
    pub bound: Option<f64>,
    /// The least and the most that were seen: a whisker.
    pub range: Option<(f64, f64)>,
}

impl Bar {
    /// One of the first colour, without a bound.
    pub fn new(name: &str, value: f64) -> Bar {
        Bar { name: name.into(), value, ink: COLOURS[0], bound: None, range: None }
    }

    fn most(&self) -> f64 {
        let range = self.range.map_or(0.0, |(_, high)| high);
        self.value.max(self.bound.unwrap_or(0.0)).max(range)
    }
}

/// A chart of rows, each of height 1.
pub(crate) type Rows<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Sets up a chart of rows from 0 to `top`, with room for their names, and `above` pixels above; see [`bars`] for `x` and
/// `tick`.
///
/// # Errors
/// It cannot be drawn.
pub(crate) fn rows<'a, 'b, 'n>(
    area: &'a Canvas<'b>,
    above: u32,
    names: impl ExactSizeIterator<Item = &'n str>,
    top: f64,
    x: &str,
    tick: fn(f64) -> String,
) -> Result<Rows<'a, 'b>> {
    let height = names.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(above)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(room(names))
        .build_cartesian_2d(0.0..top, 0.0..height)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(INK.mix(0.25))
        .axis_style(INK)
        .x_labels(6)
        .x_label_style(label(14))
        .x_label_formatter(&|value| tick(*value))
        .y_labels(0)
        .x_desc(x)
        .draw()?;
    Ok(chart)
}

/// Draws them; `about` says what the picture shows for those who cannot see it, `x` what is along the axis, and `tick`
/// writes a value there.
///
/// # Errors
/// They cannot be drawn.
pub fn bars(about: &str, x: &str, tick: fn(f64) -> String, bars: &[Bar]) -> Result<String> {
    let most = bars.iter().map(Bar::most).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.05 } else { 1.0 };
    svg(64 + 30 * bars.len() as u32, about, |area| {
        let names: Vec<String> = bars.iter().map(|bar| bar.name.chars().take(NAME).collect()).collect();
        let mut chart = rows(area, 8, names.iter().map(String::as_str), top, x, tick)?;
        for (i, (bar, name)) in bars.iter().zip(names).enumerate() {
            let y = (bars.len() - 1 - i) as f64;
            let line = |points: [(f64, f64); 2]| {
                PathElement::new(points.map(|(x, dy)| (x, y + dy)), INK.stroke_width(2))
            };
            chart.draw_series([Rectangle::new([(0.0, y + 0.2), (bar.value, y + 0.8)], bar.ink.filled())])?;
            chart.draw_series(bar.bound.map(|bound| line([(bound, 0.0), (bound, 1.0)])))?;
            if let Some((low, high)) = bar.range {
                let whisker =
                    [[(low, 0.5), (high, 0.5)], [(low, 0.35), (low, 0.65)], [(high, 0.35), (high, 0.65)]];
                chart.draw_series(whisker.map(line))?;
            }
            let place = chart.backend_coord(&(0.0, y + 0.5));
            area.draw(&Text::new(name, (8, place.1 - 6), label(14)))?;
        }
        Ok(())
    })
}

/// Ticks of axes are round.
pub fn short(value: f64) -> String {
    let text = three(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
