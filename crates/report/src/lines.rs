// SPDX-License-Identifier: GPL-2.0-only
//! Plots of lines, for pages of other figures than the lab's.

use crate::bars::short;
use crate::plot::{COLOURS, INK, css, label, svg};
use anyhow::Result;
use plotters::prelude::*;

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is, for the legend.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A straight line across a plot, with what it stands for.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Where it is.
    pub at: f64,
    /// What it is, for the legend.
    pub name: String,
}

/// A plot of lines. Colours go by their order: first lines, then level marks, then upright ones.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// What the picture shows, for those who cannot see it.
    pub about: &'static str,
    /// What is along the axes, with units.
    pub x: &'static str,
    /// See `x`.
    pub y: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
    /// Marks at a height.
    pub levels: Vec<Mark>,
    /// Marks at a place along the x axis.
    pub uprights: Vec<Mark>,
    /// A shaded part of the x axis, and what it is.
    pub band: Option<(f64, f64, String)>,
    /// What of the y axis is shown at most; higher points are cut off.
    pub top: Option<f64>,
}

fn ink(nth: usize) -> RGBColor {
    COLOURS[nth % COLOURS.len()]
}

impl Lines {
    /// Colours with what they stand for.
    pub fn legend(&self) -> Vec<(String, String)> {
        let lines = self.lines.iter().map(|line| line.name.clone());
        let marks = self.levels.iter().chain(&self.uprights).map(|mark| mark.name.clone());
        let mut legend: Vec<(String, String)> =
            lines.chain(marks).enumerate().map(|(nth, name)| (css(ink(nth)), name)).collect();
        legend.extend(self.band.iter().map(|(_, _, name)| (css(INK), name.clone())));
        legend
    }

    /// The picture.
    ///
    /// # Errors
    /// It cannot be drawn.
    pub fn svg(&self) -> Result<String> {
        let finite = |value: &f64| value.is_finite();
        let xs = self.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
        let xs = xs.chain(self.uprights.iter().map(|mark| mark.at)).filter(finite);
        let right = xs.fold(0.0, f64::max);
        let ys = self.lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y));
        let highest = ys.chain(self.levels.iter().map(|mark| mark.at)).filter(finite).fold(0.0, f64::max);
        let top = self.top.map_or(highest * 1.05, |top| top.min(highest * 1.05));
        let (right, top) = (if right > 0.0 { right } else { 1.0 }, if top > 0.0 { top } else { 1.0 });
        svg(300, self.about, |area| {
            let mut chart = ChartBuilder::on(area)
                .margin(8)
                .margin_right(24)
                .x_label_area_size(44)
                .y_label_area_size(62)
                .build_cartesian_2d(0.0..right, 0.0..top)?;
            if let Some((from, to, _)) = &self.band {
                let (from, to) = (from.clamp(0.0, right), to.clamp(0.0, right));
                chart.draw_series([Rectangle::new([(from, 0.0), (to, top)], INK.mix(0.2).filled())])?;
            }
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(INK.mix(0.25))
                .axis_style(INK)
                .label_style(label(14))
                .x_labels(8)
                .y_labels(6)
                .x_label_formatter(&|x| short(*x))
                .y_label_formatter(&|y| short(*y))
                .x_desc(self.x)
                .y_desc(self.y)
                .draw()?;
            for (nth, line) in self.lines.iter().enumerate() {
                let points = line.points.iter().copied().filter(|(x, y)| finite(x) && finite(y));
                let points = points.map(|(x, y)| (x, y.min(top)));
                chart.draw_series(LineSeries::new(points, ink(nth).stroke_width(2)))?;
            }
            let level = |mark: &Mark| vec![(0.0, mark.at.min(top)), (right, mark.at.min(top))];
            let upright = |mark: &Mark| vec![(mark.at.min(right), 0.0), (mark.at.min(right), top)];
            let marks = self.levels.iter().map(level).chain(self.uprights.iter().map(upright));
            for (nth, points) in marks.enumerate() {
                let style = ink(self.lines.len() + nth).stroke_width(2);
                chart.draw_series([PathElement::new(points, style)])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::{Bar, bars};

    #[test]
    fn pictures_of_nothing_are_pictures() {
        for plot in [Lines::default().svg().unwrap(), bars("nothing", "x", short, &[]).unwrap()] {
            assert!(plot.starts_with("<svg") && !plot.contains("NaN"), "{plot}");
        }
    }

    #[test]
    fn every_line_has_its_own_colour_in_the_legend() {
        let line =
            |name: &str| Line { name: name.into(), points: vec![(0.0, 1.0), (2.0, f64::NAN), (3.0, 9.0)] };
        let plot = Lines {
            lines: vec![line("a"), line("b")],
            levels: vec![Mark { at: 5.0, name: "c".into() }],
            band: Some((1.0, 2.0, "d".into())),
            top: Some(6.0),
            ..Lines::default()
        };
        let legend = plot.legend();
        assert_eq!(legend.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        let svg = plot.svg().unwrap();
        let drawn = |colour: &str| svg.to_lowercase().contains(colour);
        assert!(legend[..3].iter().all(|(colour, _)| drawn(colour)) && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn names_are_escaped() {
        assert!(!bars("x", "y", short, &[Bar::new("<script>", 1.0)]).unwrap().contains("<script>"));
    }
}
