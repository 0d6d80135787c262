// SPDX-License-Identifier: GPL-2.0-only
//! `overbook lab run`: scenarios, some at a time; what each measured as it ends.

use super::results::{self, Results};
use super::{Execution, KernelChoice, choose, conclude, interruption, show};
use crate::variants;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use overbook_cli::output::note;
use overbook_cli::values::number;
use overbook_kernels::{Cache, Emulator};
use overbook_lab::experiment::NEXT_LINE;
use overbook_lab::outside::machine::Engine;
use overbook_lab::outside::qemu::{self, Accel};
use overbook_lab::outside::run::{self, Order};
use overbook_lab::scenario::{Setting, Source};
use overbook_report::schema::Report;
use overbook_report::table::Shown;
use overbook_report::{summary, table};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

#[derive(Args)]
pub struct Run {
    /// Scenario files
    #[arg(required = true)]
    scenarios: Vec<PathBuf>,
    /// Measure the variants of this scenario instead
    #[arg(long, value_name = "SCENARIO")]
    variants_of: Option<PathBuf>,
    /// Value that replaces one of the scenarios; may be repeated
    #[arg(long = "set", value_name = "TABLE.KEY=VALUE")]
    settings: Vec<Setting>,
    /// Seed, instead of the scenario's
    #[arg(long, value_parser = number(0, i64::MAX as u64))]
    seed: Option<u64>,
    /// Repetitions, instead of the scenario's
    #[arg(long, value_name = "NUMBER", value_parser = number(1u32, 1000))]
    repetitions: Option<u32>,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "auto")]
    accel: Execution,
    /// Machines at a time [default: the CPUs of this machine]
    #[arg(long, short, value_name = "NUMBER", value_parser = number(1usize, 64))]
    jobs: Option<usize>,
    /// Folder for NAME.json of every scenario and one report.html
    #[arg(long, short, default_value = "lab-results")]
    output: PathBuf,
    /// Measure even if the instrument is out of its limits
    #[arg(long)]
    lenient: bool,
}

/// The first reason why a scenario failed, if it did.
fn why_failed(report: &Report) -> Option<String> {
    let whole = report.failure.as_ref().map(|failure| failure.reason.clone());
    let why = whole.or_else(|| summary::failed(report).into_iter().next())?;
    Some(format!("{}: {}", report.scenario.name, sentence(&why)))
}

/// The sentence in what a scheduler of ours said last; a verifier's log stands above. What anybody else said is kept whole.
fn sentence(why: &str) -> &str {
    let own = why.rsplit(NEXT_LINE).find_map(|line| line.strip_prefix("overbook: "));
    own.unwrap_or(why).trim()
}

impl Run {
    fn source<'a>(&'a self, file: &'a Path) -> Source<'a> {
        Source { file, variants_of: self.variants_of.as_deref(), settings: &self.settings }
    }

    pub fn run(&self, verbose: bool) -> Result<()> {
        // All mistakes in files come before the first minute is spent.
        let mut most_mb = 0;
        for file in &self.scenarios {
            most_mb = most_mb.max(variants::read(self.source(file))?.host.memory_mb());
        }
        let named = |file| (self.source(file).name(), file);
        results::check_names(&self.scenarios.iter().map(|file| named(file.as_path())).collect::<Vec<_>>())?;
        let cache = Cache::open_default()?;
        let emulator = Emulator::find(&cache)?;
        let shelters = vec![std::env::temp_dir(), Cache::default_dir()];
        let results = Results::open(&self.output, shelters)?;
        let kernel = self.kernel.resolve(&cache)?;
        let interrupted = interruption()?;
        let accel = choose(self.accel, &kernel, &emulator, &cache, &interrupted)?;
        note(format_args!("kernel {} ({}), {}, {emulator}", kernel.release, kernel.origin, accel.name()));
        let (jobs, engine) =
            (self.jobs(accel, most_mb), Engine { kernel: &kernel, emulator: &emulator, accel });
        let (results, mut failed) = self.run_all(results, engine, jobs, &interrupted, verbose);
        let reports = results.all();
        // Who has closed the output has the files, and a failure still is one.
        let said = match reports.is_empty() {
            true => Ok(()),
            false => conclude(&reports, if verbose { Shown::All } else { Shown::Tables }).and_then(|()| {
                show(&format!("report: {} (-v shows its counters here)", results.page().display()))
            }),
        };
        if interrupted.load(Ordering::Relaxed) {
            let lost = failed.iter().filter(|why| why.contains(" is lost: ")).map(|why| format!("; {why}"));
            let kept = kept(&results, self.scenarios.len()) + &lost.collect::<String>();
            bail!("interrupted: the machines were stopped, and {kept}");
        }
        // The last line names the reason as well: of a long output, the end is what is read and kept.
        failed.extend(reports.iter().filter_map(|report| why_failed(report)));
        if !failed.is_empty() {
            let all = self.scenarios.len();
            bail!("{} of {all} scenarios failed: {}", failed.len(), failed.join("; "));
        }
        said
    }

    /// How many machines run at a time: as many as are wanted, or as there are CPUs, if their memory is there.
    fn jobs(&self, accel: Accel, most_mb: u32) -> usize {
        if accel != Accel::Icount {
            // These measure against the real clock and would disturb each other.
            return 1;
        }
        let wanted = self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let room = qemu::room_for(most_mb);
        if room < wanted.min(self.scenarios.len()) {
            note(format_args!("{room} at a time: there is no memory for more machines of {most_mb} MiB"));
        }
        wanted.min(room)
    }

    /// Runs all scenarios, some at a time; keeps and prints what each measured as it ends. With icount, what runs beside
    /// a machine does not change its figures. Returns also why others have no result.
    fn run_all(
        &self,
        results: Results,
        engine: Engine,
        jobs: usize,
        interrupted: &AtomicBool,
        verbose: bool,
    ) -> (Results, Vec<String>) {
        let bars = MultiProgress::new();
        let queue = Mutex::new(self.scenarios.iter().enumerate());
        let ended = Mutex::new((results, Printer::default(), Vec::new()));
        let take = || queue.lock().ok().and_then(|mut queue| queue.next());
        thread::scope(|scope| {
            for _ in 0..jobs.min(self.scenarios.len()) {
                scope.spawn(|| {
                    while let Some((nth, file)) = take().filter(|_| !interrupted.load(Ordering::Relaxed)) {
                        let outcome = self.run_one(file, engine, interrupted, &bars);
                        let Ok(mut ended) = ended.lock() else { return };
                        let (results, printer, failed) = &mut *ended;
                        let text =
                            outcome.as_ref().map_or_else(|_| String::new(), |r| table::render(r, verbose));
                        // Kept before it is printed: nobody may be there to read.
                        let kept = outcome.and_then(|report| {
                            results.keep(nth, report, &mut |text| bars.suspend(|| note(text)))
                        });
                        failed.extend(kept.err().map(|e| format!("{e:#}")));
                        bars.suspend(|| printer.add(nth, text));
                    }
                });
            }
        });
        let (results, printer, failed) = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        printer.finish();
        (results, failed)
    }

    fn run_one(
        &self,
        file: &Path,
        engine: Engine,
        interrupted: &AtomicBool,
        bars: &MultiProgress,
    ) -> Result<Report> {
        let order = Order {
            source: self.source(file),
            seed: self.seed,
            repetitions: self.repetitions,
            engine,
            lenient: self.lenient || engine.accel != Accel::Icount,
            build: crate::BUILD,
        };
        let bar = bars.add(ProgressBar::new(1000));
        if let Ok(style) = ProgressStyle::with_template("{prefix:24!} {bar:30} {elapsed:>5} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(order.source.name());
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        let mut quiet = Progress { bar: &bar, said: String::new() };
        let report = run::run(&order, interrupted, &mut |share, text| quiet.show(share, text));
        bar.finish_and_clear();
        report.with_context(|| format!("{}", file.display()))
    }
}

/// Says what of an interrupted run is on disk.
fn kept(results: &Results, all: usize) -> String {
    match results.all().len() {
        0 => "nothing was measured yet".into(),
        1 => format!("the result of one scenario of {all} is in {}", results.dir().display()),
        n => format!("the results of {n} scenarios of {all} are in {}", results.dir().display()),
    }
}

/// Prints texts in their order, each as soon as those before it are there.
#[derive(Default)]
struct Printer {
    next: usize,
    waiting: BTreeMap<usize, String>,
}

impl Printer {
    fn add(&mut self, nth: usize, text: String) {
        self.waiting.insert(nth, text);
        while let Some(text) = self.waiting.remove(&self.next) {
            print(&text);
            self.next += 1;
        }
    }

    /// Those before them did not come.
    fn finish(self) {
        self.waiting.values().for_each(|text| print(text));
    }
}

/// Results are written to files as well, so a closed output is no failure.
fn print(text: &str) {
    if !text.is_empty() {
        let _ = show(text);
    }
}

/// A bar on a terminal; lines elsewhere, so that a log shows that it goes on.
struct Progress<'a> {
    bar: &'a ProgressBar,
    said: String,
}

impl Progress<'_> {
    fn show(&mut self, share: f64, text: &str) {
        self.bar.set_position((share * 1000.0) as u64);
        self.bar.set_message(text.to_string());
        if self.bar.is_hidden() && self.said != text {
            note(format_args!("{}: {text}", self.bar.prefix()));
            self.said = text.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_schedulers_last_words_the_reason_is_kept() {
        let said = ["12: (85) call x", "overbook: the kernel refuses it", "Caused by", ""].join(NEXT_LINE);
        let why = format!("the scheduler failed (exit status: 1): {said}");
        assert_eq!(sentence(&why), "the kernel refuses it");
        for other in ["vCPU 1: triple fault", "linux1 has stopped: it last said \"a | Kernel panic\""] {
            assert_eq!(sentence(other), other);
        }
    }
}
