// SPDX-License-Identifier: GPL-2.0-only
//! How far, as a page.

use super::{Far, Moment};
use anyhow::Result;
use overbook_report::bars::{Bar, bars, short};
use overbook_report::format::fixed;
use overbook_report::html::plain::{self, Part};
use overbook_report::lines::{Line, Lines, Mark};

/// VMs of the table and the bars; what drives a host is among them.
const SHOWN: usize = 20;

/// The columns of the table.
const COLUMNS: [(&str, &str); 5] = [
    ("VM", "its name"),
    ("pid", "its process"),
    ("vCPUs", "while it was there"),
    ("wants", "CPUs that it would use if it never waited, on average over the recording"),
    (
        "part",
        "of what is wanted by VMs; each interval counts by how many vCPUs wait in it at the ratio above",
    ),
];

/// The page.
///
/// # Errors
/// A plot cannot be drawn.
pub fn render(far: &Far) -> Result<String> {
    let shown = &far.drivers[..far.drivers.len().min(SHOWN)];
    let table = shown.iter().map(|driver| {
        vec![
            driver.name.clone(),
            driver.pid.to_string(),
            fixed(driver.vcpus, 0),
            fixed(driver.wants, 2),
            format!("{} %", fixed(driver.part_percent, 1)),
        ]
    });
    let drivers: Vec<Bar> = shown.iter().map(|driver| Bar::new(&driver.name, driver.part_percent)).collect();
    let (curve, load, ready) = (curve(far), load(far), ready(far));
    let parts = [
        Part::Plot {
            title: "Ready time by ratio",
            svg: curve.svg()?,
            legend: curve.legend(),
            note: "The line says what mean ready time to expect with more or fewer VMs like these. Where it meets the \
                   level, the ratio is read.",
        },
        Part::Plot {
            title: "Load",
            svg: load.svg()?,
            legend: load.legend(),
            note: "Wanted: what would run if nothing ever waited. Where it is above the CPUs, somebody must wait.",
        },
        Part::Plot {
            title: "Ready time",
            svg: ready.svg()?,
            legend: ready.legend(),
            note: "Mean over all vCPUs, as it was measured.",
        },
        Part::Plot {
            title: "Who drives it",
            svg: bars("VMs by their part of what is wanted", "part of what is wanted, %", short, &drivers)?,
            legend: Vec::new(),
            note: "A VM whose bar is long brings the ratio down most; elsewhere, or at another hour, it would weigh less.",
        },
        Part::Table { title: "VMs", columns: COLUMNS.to_vec(), rows: table.collect() },
    ];
    Ok(plain::render("Overbook: how far this host can go", &far.sentences(), &parts))
}

fn curve(far: &Far) -> Lines {
    let points = far.curve.iter().map(|point| (point.ratio, point.ready_percent)).collect();
    let mut uprights = vec![Mark { at: far.present.ratio, name: "there are now".into() }];
    uprights.extend(far.ratio.map(|at| Mark { at, name: format!("at {} %", fixed(far.ready_percent, 1)) }));
    Lines {
        about: "ready time by ratio",
        x: "vCPUs per CPU",
        y: "ready time, %",
        lines: vec![Line { name: "to expect".into(), points }],
        levels: vec![Mark { at: far.ready_percent, name: "asked about".into() }],
        uprights,
        band: far
            .low
            .filter(|_| far.sure)
            .map(|low| (low, far.high.unwrap_or(f64::MAX), "95 % interval of the ratio".into())),
        top: Some(4.0 * f64::max(far.ready_percent, far.present.ready_percent)),
    }
}

/// A line's name, and its figure at a moment.
type Named = (&'static str, fn(&Moment) -> f64);

/// Lines over time; in hours where there are several.
fn course(far: &Far, about: &'static str, y: &'static str, lines: &[Named]) -> Lines {
    let hours = far.seconds > 7200.0;
    let (unit, x) = if hours { (3600.0, "h since it began") } else { (1.0, "s since it began") };
    let line = |(name, of): &Named| Line {
        name: name.to_string(),
        points: far.course.iter().map(|moment| (moment.at / unit, of(moment))).collect(),
    };
    Lines { about, x, y, lines: lines.iter().map(line).collect(), ..Lines::default() }
}

fn load(far: &Far) -> Lines {
    let lines: [Named; 2] = [("wanted", |m| m.wants), ("used", |m| m.used)];
    let levels = vec![Mark { at: far.cpus, name: "CPUs".into() }];
    Lines { levels, ..course(far, "CPUs wanted and used over time", "CPUs", &lines) }
}

fn ready(far: &Far) -> Lines {
    let levels = vec![Mark { at: far.ready_percent, name: "asked about".into() }];
    Lines {
        levels,
        ..course(far, "ready time over time", "ready time, %", &[("measured", |m| m.ready_percent)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::recorded;
    use super::*;

    #[test]
    fn a_page_begins_with_the_answer_and_has_its_plots() {
        let vms = [("db", 4, 0.6, 0.01, 0.1), ("web <1>", 4, 0.2, 0.005, 0.0)];
        let far = Far::of(&recorded(4, 30, 0.1, &vms), 5.0).unwrap();
        let page = render(&far).unwrap();
        assert!(page.find(&far.answer()).unwrap() < page.find("<svg").unwrap());
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("web &lt;1&gt;") && !page.contains("web <1>") && !page.contains("NaN"));
    }

    #[test]
    fn an_idle_host_has_a_page_as_well() {
        let far = Far::of(&recorded(4, 30, 0.0, &[("a", 4, 0.0001, 0.0, 0.0)]), 5.0).unwrap();
        let page = render(&far).unwrap();
        assert!(page.contains("too idle to tell") && !page.contains("NaN") && !page.contains("inf"));
    }
}
