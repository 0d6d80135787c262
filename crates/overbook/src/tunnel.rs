// SPDX-License-Identifier: GPL-2.0-only
//! `overbook tunnel`.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use overbook_cli::output::Stdout;
use overbook_cli::values;
use overbook_observe::far::{Far, representatives};
use overbook_observe::snapshot::read_recording;
use overbook_report::format::NONE;
use overbook_report::json::{check_writable, write_atomically};
use overbook_report::table;
use overbook_tunnel::replay::Load;
use overbook_tunnel::{agree, picture, replay, scene, show};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Tunnel {
    /// Run scenarios, print who had what, and fail if something that must hold does not
    Run(Run),
    /// Compare results of `overbook lab run` with what the tunnel says of the same scenarios
    Agree {
        /// JSON files that the lab wrote
        #[arg(required = true)]
        results: Vec<PathBuf>,
    },
    /// Replay the load of a recording of `overbook report --record`, as it is and at the ratio that it is told
    Replay(Replay),
}

#[derive(Args)]
pub struct Replay {
    /// The recording
    recording: PathBuf,
    /// Ready time that vCPUs may have, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = values::number(0.1, 90.0))]
    ready: f64,
    /// Time from one piece of work of a vCPU to its next, in ms, which recordings do not have
    #[arg(long, value_name = "MS", default_value_t = 10.0, value_parser = values::number(0.1, 10_000.0))]
    cycle_ms: f64,
    /// Modelled time of each interval that stands for the recording
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Intervals that stand for the recording
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = values::number(1usize, 1000))]
    intervals: usize,
    /// Seed
    #[arg(long, default_value_t = 1, value_parser = values::number(0, u64::MAX))]
    seed: u64,
}

impl Replay {
    fn run(&self) -> Result<()> {
        let snapshots = read_recording(&self.recording)?;
        let name = self.recording.display();
        let far = match Far::of(&snapshots, self.ready) {
            Ok(far) => far,
            Err(why) => bail!("{name} cannot be replayed: {why}"),
        };
        let loads: Vec<Load> = representatives(&snapshots, self.intervals)
            .into_iter()
            .map(|wanted| Load { cpus: wanted.cpus, others: wanted.others, vms: wanted.vms })
            .collect();
        let percent = |ready: f64| format!("{ready:.2} %");
        let mut rows = Vec::new();
        let (ratio, ready) = self.ready_of(&loads, 1.0)?;
        let recorded = percent(far.present.ready_percent);
        rows.push(vec!["as recorded".into(), format!("{ratio:.2}"), recorded, percent(ready)]);
        if let Some(told) = far.ratio {
            let (ratio, ready) = self.ready_of(&loads, told / far.present.ratio)?;
            let expected = far.ready_at(ratio).map_or_else(|| NONE.into(), percent);
            rows.push(vec![format!("at {} %", self.ready), format!("{ratio:.2}"), expected, percent(ready)]);
        }
        let header = ["", "vCPUs per CPU", "ready time", "in the tunnel"];
        writeln!(Stdout, "{}\n{}.", table::plain(&header, 1, rows), far.answer())?;
        Ok(())
    }

    /// The ratio, and the mean ready time in percent, of `times` the loads.
    fn ready_of(&self, loads: &[Load], times: f64) -> Result<(f64, f64)> {
        let options = replay::Options {
            cycle_ns: (self.cycle_ms * 1e6) as u64,
            window_ns: (self.seconds * 1e9) as u64,
            parts: 1,
            seed: self.seed,
        };
        let (mut vcpus, mut cpus, mut waits) = (0.0, 0.0, 0.0);
        for load in loads.iter().map(|load| load.times(times)) {
            let told = replay::run(&load, &options)?;
            vcpus += load.vcpus() as f64;
            cpus += f64::from(load.cpus);
            waits += replay::ready(&told[0], &told[1]) * load.vcpus() as f64;
        }
        Ok((vcpus / cpus, 100.0 * waits / vcpus))
    }
}

#[derive(Args)]
pub struct Run {
    /// Scenario files
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Seed, instead of the scenario's
    #[arg(long, value_parser = values::number(0, u64::MAX))]
    seed: Option<u64>,
    /// Measured window in seconds before dilation, instead of the scenario's
    #[arg(long, value_parser = seconds)]
    seconds: Option<f64>,
    /// Run this variant, instead of the first that is Overbook's
    #[arg(long)]
    variant: Option<String>,
    /// Set a variable of the scheduler, as in `slice_ns=2000000`
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, u64)>,
    /// Print what ran where, and why, in this window, in ms since the start
    #[arg(long, value_name = "FROM..TO", value_parser = window, conflicts_with = "json")]
    trace: Option<Range<u64>>,
    /// Draw what ran where, in the window of --trace or the first 100 ms of the measured one
    #[arg(long, value_name = "FILE.svg|.html", value_parser = picture_file)]
    picture: Option<PathBuf>,
    /// Print everything as one line of JSON per scenario
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds, 0.001 to 3600".into()),
    }
}

fn pair(text: &str) -> Result<(String, u64), String> {
    let pair =
        text.split_once('=').and_then(|(key, value)| Some((key.trim().into(), value.trim().parse().ok()?)));
    pair.ok_or_else(|| "give a variable and a number, such as slice_ns=2000000".into())
}

fn window(text: &str) -> Result<Range<u64>, String> {
    let ns =
        |ms: &str| ms.parse::<f64>().ok().filter(|ms| (0.0..1e9).contains(ms)).map(|ms| (ms * 1e6) as u64);
    let window = text.split_once("..").and_then(|(from, to)| Some(ns(from)?..ns(to)?));
    window
        .filter(|window| window.start < window.end)
        .ok_or_else(|| "give two times in ms, such as 100..105.5".into())
}

fn picture_file(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    match file.extension().is_some_and(|extension| extension == "svg" || extension == "html") {
        true => Ok(file),
        false => Err("name a file that ends in .svg or .html".into()),
    }
}

impl Tunnel {
    pub fn run(&self) -> Result<()> {
        match self {
            Tunnel::Run(run) => run.run(),
            Tunnel::Agree { results } => compare(results),
            Tunnel::Replay(replay) => replay.run(),
        }
    }
}

fn compare(results: &[PathBuf]) -> Result<()> {
    let mut rows = Vec::new();
    for file in results {
        let (scenario, figures) = agree::figures(file)?;
        rows.extend(figures.iter().map(|figure| agree::row(&scenario, figure)));
    }
    let table = table::plain(&["scenario", "of", "figure", "lab", "tunnel", "error"], 3, rows);
    writeln!(Stdout, "{table}")?;
    Ok(())
}

impl Run {
    fn run(&self) -> Result<()> {
        if self.picture.is_some() && self.scenarios.len() > 1 {
            bail!("a picture is of one scenario: name one file");
        }
        if let Some(file) = &self.picture {
            check_writable(file)?;
        }
        // All mistakes in files come before the first is run.
        let scenarios = self.scenarios.iter().map(|file| scene::read(file)).collect::<Result<Vec<_>>>()?;
        let mut broken = Vec::new();
        for (file, scenario) in self.scenarios.iter().zip(&scenarios) {
            let name = file.display();
            let found = self.one(scenario).with_context(|| name.to_string())?;
            if !found.is_empty() {
                broken.push(format!("{name}: {}", found.join("; ")));
            }
        }
        match broken.is_empty() {
            true => Ok(()),
            false => bail!("what must hold does not: {}", broken.join("; ")),
        }
    }

    /// Runs a scenario; returns what was found wrong.
    fn one(&self, scenario: &overbook_lab::Scenario) -> Result<Vec<String>> {
        let settle = scenario.measure.settle_seconds * scenario.host.dilation * 1e9;
        let default = settle as u64..settle as u64 + 100_000_000;
        let traced = self.trace.clone().or(self.picture.is_some().then_some(default)).unwrap_or(0..0);
        let options = scene::Options {
            seed: self.seed,
            seconds: self.seconds,
            set: self.set.clone(),
            variant: self.variant.clone(),
            traced: traced.clone(),
        };
        let mut scene = scene::build(scenario, &options)?;
        if traced.start >= scene.until {
            let end = scene.until as f64 / 1e6;
            bail!("the run ends at {end} ms: trace what is before that, or give more --seconds");
        }
        let report = scene.run();
        let mut out = std::io::BufWriter::new(Stdout);
        if self.trace.is_some() && !self.json {
            for line in &scene.world.trace.lines {
                writeln!(out, "{line}")?;
            }
        }
        match self.json {
            true => writeln!(out, "{}", show::json(&report))?,
            false => {
                writeln!(
                    out,
                    "{}\n{}\n{}",
                    scenario.title,
                    show::table(&scene, &report),
                    show::summary(&report)
                )?;
            }
        }
        for line in report.findings.lines().iter().filter(|_| !self.json) {
            writeln!(out, "BROKEN {line}")?;
        }
        out.flush()?;
        if let Some(file) = &self.picture {
            let svg = picture::svg(&scene, &scenario.title, &traced)?;
            let page = file.extension().is_some_and(|extension| extension == "html");
            let text = if page { picture::html(&svg, &scenario.title) } else { svg };
            write_atomically(file, &text)?;
        }
        Ok(report.findings.lines())
    }
}
