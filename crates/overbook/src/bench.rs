// SPDX-License-Identifier: GPL-2.0-only
//! `overbook bench`: the lab's guests on this very host.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use overbook_cli::output::{Stdout, note};
use overbook_cli::values::number;
use overbook_lab::bench;
use overbook_lab::scenario::{Scenario, Variant, Vm};
use overbook_report::{Report, html, json, summary, table};
use overbook_vmm::Pattern;
use std::io::Write;
use std::path::PathBuf;

/// Patterns by their names in scenario files.
#[derive(Clone, Copy)]
struct Named(Pattern);

impl ValueEnum for Named {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Named; 9] = {
            let mut all = [Named(Pattern::Lock); 9];
            let mut i = 0;
            while i < all.len() {
                all[i] = Named(Pattern::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.name()))
    }
}

/// The tables, if anything was measured: of a failure alone, the last sentence says all.
fn shown(report: &Report) -> Option<String> {
    let measured = report.runs.iter().any(|run| run.error.is_none());
    measured
        .then(|| format!("{}\n{}", table::render(report, true), table::legends(&[report], table::Shown::All)))
}

#[derive(Args)]
pub struct Bench {
    /// Number of VMs
    #[arg(long, default_value_t = 2, value_parser = number(1u32, 64))]
    vms: u32,
    /// vCPUs of each VM [default: the CPUs of this host]
    #[arg(long, value_parser = number(1u32, 256))]
    vcpus: Option<u32>,
    /// What the guests do
    #[arg(long, value_enum, default_value = "lock")]
    pattern: Named,
    /// Measured time, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = number(0.05, 3600.0))]
    seconds: f64,
    /// Repetitions
    #[arg(long, default_value_t = 3, value_parser = number(1u32, 1000))]
    repetitions: u32,
    /// CPU time in the critical section or handler, in µs
    #[arg(long, value_parser = number(0.0, 1e7))]
    critical_us: Option<f64>,
    /// CPU time between operations, in µs
    #[arg(long, value_parser = number(0.0, 1e7))]
    outside_us: Option<f64>,
    /// Compare with a run in which PAUSE exits are off
    #[arg(long)]
    without_ple: bool,
    /// Do not measure the bound (docs/lab.md)
    #[arg(long)]
    no_bound: bool,
    /// Seed of the guests' random choices
    #[arg(long, default_value_t = 1, value_parser = number(0, i64::MAX as u64))]
    seed: u64,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the result as a page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Bench {
    pub fn run(&self) -> Result<()> {
        for file in [&self.json, &self.html].into_iter().flatten() {
            json::check_writable(file)?;
        }
        let interrupted = crate::lab::interruption()?;
        let report = bench::run(&self.scenario()?, crate::BUILD, &interrupted, &mut |text| note(text))?;
        // Files first: what was measured outlives an output that is closed.
        if let Some(file) = &self.json {
            json::write(file, &report)?;
        }
        if let Some(file) = &self.html {
            json::write_atomically(file, &html::render(&report)?)?;
        }
        if let Some(text) = shown(&report) {
            write!(Stdout, "{text}")?;
        }
        if let Some(failure) = &report.failure {
            bail!("not all was measured: {}", failure.reason);
        }
        if let Some(why) = summary::failed(&report).first() {
            bail!("a run failed, and no further one was tried: {why}");
        }
        Ok(())
    }

    fn scenario(&self) -> Result<Scenario> {
        let cpus = bench::usable_cpus()?.len() as u32;
        let pattern = self.pattern.0;
        let vm = Vm {
            count: self.vms,
            critical_us: self.critical_us,
            outside_us: self.outside_us,
            ..Vm::new(pattern, self.vcpus.unwrap_or(cpus.max(pattern.min_vcpus())))
        };
        let mut scenario = Scenario::native(&format!("{} on this host", pattern.name()), cpus, vec![vm]);
        scenario.seed = self.seed;
        scenario.measure.seconds = self.seconds;
        scenario.measure.repetitions = self.repetitions;
        scenario.measure.bound = !self.no_bound;
        if self.without_ple {
            let about = "PAUSE exits off, and with them directed yield".into();
            scenario.variants.push(Variant {
                name: "no-ple".into(),
                about,
                ple: false,
                ..Variant::default()
            });
        }
        scenario.validate().context("these options do not fit together")?;
        Ok(scenario)
    }
}

/// Two VMs of a pattern with a vCPU per CPU each, once, for some seconds.
///
/// # Errors
/// This is no time for a measurement.
pub fn plain(pattern: Pattern, seconds: f64) -> Result<Scenario> {
    let cpus = bench::usable_cpus()?.len() as u32;
    let vm = Vm { count: 2, ..Vm::new(pattern, cpus.max(pattern.min_vcpus())) };
    let mut scenario = Scenario::native(&format!("{} on this host", pattern.name()), cpus, vec![vm]);
    scenario.measure.seconds = seconds;
    scenario.measure.repetitions = 1;
    scenario.measure.bound = false;
    scenario.validate()?;
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_report::schema::Run;

    #[test]
    fn a_failure_alone_has_no_table() {
        let failed = Run { error: Some("no work".into()), ..Run::default() };
        let mut report = Report { runs: vec![failed], ..Report::default() };
        assert_eq!(shown(&report), None);
        report.runs.insert(0, Run::default());
        assert!(shown(&report).unwrap().contains("no work"));
    }
}
