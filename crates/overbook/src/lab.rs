// SPDX-License-Identifier: GPL-2.0-only
//! `overbook lab`.

mod machines;
mod results;
mod tables;

use crate::variants;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use overbook_cli::output::{Stdout, note};
use overbook_cli::values::number;
use overbook_kernels::{Cache, Emulator, Kernel, Want};
use overbook_lab::machine::shape::SHAPES;
use overbook_lab::outside::qemu::Accel;
use overbook_lab::outside::run::{self, Order};
use overbook_lab::outside::trial;
use overbook_lab::protocol::{Soak, Task, View};
use overbook_lab::scenario::{Setting, Source};
use overbook_observe::Snapshot;
use overbook_observe::far::Far;
use overbook_observe::snapshot::{beginnings, read_recording};
use overbook_report::format::signed;
use overbook_report::markdown::Kind;
use overbook_report::schema::Report;
use overbook_report::table::Shown;
use overbook_report::{compare, json, markdown, summary, table};
use results::Results;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

#[derive(Subcommand)]
pub enum Lab {
    /// Run scenarios, print their tables, write JSON and an HTML report
    Run(Run),
    /// Check scenario files without running them
    Check {
        /// Scenario files
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
    },
    /// Load, change, kill and upset the host scheduler while VMs come and go, and look that all get on
    Soak(SoakArgs),
    /// Show on an emulated machine that the guest scheduler does what it promises, with injected steal times
    Guest(GuestArgs),
    /// Have `overbook report` or `evidence` look at VMs that contend on an emulated host, and write what they write
    Observe(ObserveArgs),
    /// List kernels: which there are, and why others will not do
    Kernels {
        /// Fetch a kernel first, of a series (6.18) or the newest that will do (newest), or build one with this project's
        /// patches (patched is 6.18 with all, patched-7.3 another), or with the first N of them (patched-N,
        /// patched-7.3-N); may be repeated
        #[arg(long, value_name = "SERIES")]
        fetch: Vec<String>,
        /// Build the kernel with this project's patches: the same as `--fetch patched`
        #[arg(long)]
        build: bool,
        /// Only unpack the kernel's source into a new folder, without the patches, for work on them
        #[arg(long, value_name = "DIR", conflicts_with_all = ["fetch", "build"])]
        source: Option<PathBuf>,
        /// Of which kernels, with `--source`
        #[arg(long, value_name = "SERIES", default_value = "6.18", requires = "source")]
        series: String,
    },
    /// Say which emulator is used, and why
    Emulator {
        /// Build the lab's own emulator first, if it is not built; takes some minutes
        #[arg(long)]
        build: bool,
    },
    /// List schedulers of others that scenarios can name
    Rivals {
        /// Build them first, if they are not built; some minutes each
        #[arg(long)]
        build: bool,
        /// Build only these [default: all]
        #[arg(requires = "build")]
        names: Vec<String>,
    },
    /// Show the result of JSON reports again; with -v all their tables
    Show {
        /// JSON files that the lab wrote
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// Print a table for documents, in Markdown
        #[arg(long)]
        markdown: bool,
    },
    /// Write the tables of documents anew, from the results that they name in comments
    Tables {
        /// Markdown files
        #[arg(required = true)]
        documents: Vec<PathBuf>,
        /// Change nothing; fail if a table is not what its results say
        #[arg(long)]
        check: bool,
    },
    /// Compare the medians of two JSON reports
    Compare {
        /// First report
        a: PathBuf,
        /// Second report
        b: PathBuf,
        /// Fail if any median differs by more than this many per cent
        #[arg(long, value_name = "PERCENT", value_parser = number(0.0, 1e6))]
        within: Option<f64>,
    },
}

#[derive(Args)]
pub struct KernelChoice {
    /// Kernel: an image file, or a series (6.18), a release or `newest` to fetch [default: this host's if it will
    /// do, else 6.18, else the newest that will do]
    #[arg(long, value_name = "FILE|SERIES")]
    kernel: Option<String>,
    /// Modules of a kernel given as a file: the folder that holds modules.dep
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
}

/// How the machine is executed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Execution {
    /// KVM if a trial boot shows that it runs guests of its own, else icount
    Auto,
    /// Nested KVM
    Kvm,
    /// Emulation in which time counts instructions: repeatable
    Icount,
    /// Emulation on parallel threads: not repeatable, a cross-check
    Parallel,
    /// Emulated; CPUs take turns in one thread, against the real clock: fast and rough, for soaks
    Single,
}

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

#[derive(Args)]
pub struct SoakArgs {
    /// Rounds; one takes about a second of model time
    #[arg(long, default_value_t = 20, value_parser = number(1u32, 100_000))]
    rounds: u32,
    /// Kills and CPU hotplugs in between; each takes some 20 s of model time, as the scheduler loads again
    #[arg(long, default_value_t = 2, value_parser = number(0u32, 100_000))]
    reloads: u32,
    /// CPUs of the host; with fewer, each emulated one is faster
    #[arg(long, default_value_t = 4, value_parser = number(2u32, 16))]
    cpus: u32,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, value_parser = number(0, i64::MAX as u64))]
    seed: u64,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl SoakArgs {
    fn run(&self) -> Result<()> {
        let soak = Soak { rounds: self.rounds, reloads: self.reloads, cpus: self.cpus };
        tell(Task::Soak(soak), self.seed, &self.kernel, self.accel, &mut show)
    }
}

#[derive(Args)]
pub struct GuestArgs {
    /// Topology of the guest; may be repeated [default: all of them]
    #[arg(long, value_name = "NAME", value_parser = SHAPES.map(|shape| shape.name))]
    topology: Vec<String>,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl GuestArgs {
    fn run(&self) -> Result<()> {
        let all = || SHAPES.iter().map(|shape| shape.name.to_string()).collect();
        let names = if self.topology.is_empty() { all() } else { self.topology.clone() };
        for name in names {
            tell(Task::GuestCheck(name), 1, &self.kernel, self.accel, &mut show)?;
        }
        Ok(())
    }
}

/// What `overbook lab observe` looks at.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// A lock, IPIs and computing, under EEVDF and under `overbook host`
    Schedulers,
    /// VMs that compute and halt, and then twice as many: does that have the ready time that was to be expected?
    Twice,
    /// What `overbook evidence` makes of the first ones
    Evidence,
}

#[derive(Args)]
pub struct ObserveArgs {
    /// Where snapshots, or the evidence, are written
    #[arg(long, short, default_value = "recording.jsonl")]
    output: PathBuf,
    /// What is looked at
    #[arg(long, value_enum, default_value = "schedulers")]
    what: What,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl ObserveArgs {
    fn run(&self) -> Result<()> {
        // Found out before minutes are spent.
        let mut file =
            File::create(&self.output).with_context(|| format!("cannot write {}", self.output.display()))?;
        let mut recording = String::new();
        let view = match self.what {
            What::Schedulers => View::Schedulers,
            What::Twice => View::Twice,
            What::Evidence => View::Evidence,
        };
        tell(Task::Observe(view), 1, &self.kernel, self.accel, &mut |text| match text.starts_with('{') {
            true => {
                recording += &format!("{text}\n");
                Ok(())
            }
            false => show(text),
        })?;
        file.write_all(recording.as_bytes())
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        if self.what == What::Twice {
            writeln!(Stdout, "{}", twice(&read_recording(&self.output)?)?)?;
        }
        writeln!(Stdout, "written: {}", self.output.display())?;
        Ok(())
    }
}

/// What the first recording of two says of the load of the second, which is more of the same.
fn twice(snapshots: &[Snapshot]) -> Result<String> {
    let second = beginnings(snapshots).last().copied().unwrap_or(0);
    let far = |snapshots: &[Snapshot], ready| Far::of(snapshots, ready).map_err(|why| anyhow::anyhow!(why));
    let had = far(&snapshots[second..], 5.0)?.present;
    let told = far(&snapshots[..second], had.ready_percent.clamp(0.1, 90.0))?;
    Ok(format!(
        "at {:.2} vCPUs per CPU the ready time is {:.2} %; by the recording at {:.2} (ready time {:.2} %) that ratio is {}",
        had.ratio,
        had.ready_percent,
        told.present.ratio,
        told.present.ready_percent,
        told.ratio.map_or_else(|| "beyond what can be told".into(), |ratio| format!("{ratio:.2}"))
    ))
}

fn show(text: &str) -> Result<()> {
    Ok(writeln!(Stdout, "{text}")?)
}

/// Runs a task that only says how it goes.
fn tell(
    task: Task,
    seed: u64,
    kernel: &KernelChoice,
    accel: Execution,
    say: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<()> {
    let cache = Cache::open_default()?;
    let kernel = kernel.resolve(&cache)?;
    let interrupted = interruption()?;
    let emulator = Emulator::find(&cache)?;
    let accel = choose(accel, &kernel, &emulator, &cache, &interrupted)?;
    writeln!(Stdout, "kernel {} ({}), {}", kernel.release, kernel.origin, accel.name())?;
    // The machine goes on where nobody reads.
    let mut said = Ok(());
    overbook_lab::outside::soak::run(task, seed, &kernel, &emulator, accel, &interrupted, &mut |text| {
        if said.is_ok() {
            said = say(text);
        }
    })?;
    said
}

impl Lab {
    pub fn run(self, verbose: bool) -> Result<()> {
        match self {
            Lab::Run(run) => run.run(verbose),
            Lab::Soak(soak) => soak.run(),
            Lab::Guest(guest) => guest.run(),
            Lab::Observe(observe) => observe.run(),
            Lab::Check { scenarios } => check(&scenarios),
            Lab::Kernels { source: Some(dir), series, .. } => machines::kernel_source(&series, &dir),
            Lab::Kernels { fetch, build, .. } => machines::kernels(&fetch, build),
            Lab::Emulator { build } => machines::emulator(build),
            Lab::Rivals { build, names } => machines::rivals(build, &names),
            Lab::Show { reports, markdown: as_markdown } => show_again(&reports, as_markdown, verbose),
            Lab::Tables { documents, check } => tables::write(&documents, check),
            Lab::Compare { a, b, within } => compare_files(&a, &b, within),
        }
    }
}

fn check(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let scenario = variants::read(Source { file, variants_of: None, settings: &[] })?;
        writeln!(Stdout, "{}: fine ({})", file.display(), scenario.heading())?;
    }
    Ok(())
}

fn show_again(files: &[PathBuf], as_markdown: bool, verbose: bool) -> Result<()> {
    let reports = files.iter().map(|file| json::read(file)).collect::<Result<Vec<Report>>>()?;
    let reports: Vec<&Report> = reports.iter().collect();
    if as_markdown {
        return Ok(write!(Stdout, "{}", markdown::table(Kind::Work, &reports))?);
    }
    if verbose {
        reports.iter().try_for_each(|report| show(&table::render(report, true)))?;
    }
    conclude(&reports, if verbose { Shown::All } else { Shown::Results })
}

/// What stands at the end of a run: what the columns say that are shown, and the result.
fn conclude(reports: &[&Report], shown: Shown) -> Result<()> {
    let legends = table::legends(reports, shown);
    let gap = if legends.is_empty() { "" } else { "\n" };
    write!(Stdout, "{legends}{gap}{}", table::results(reports))?;
    Ok(())
}

fn compare_files(a: &Path, b: &Path, within: Option<f64>) -> Result<()> {
    let (first, second) = (json::read(a)?, json::read(b)?);
    let comparison = compare::compare(&first, &second);
    if comparison.pairs.is_empty() {
        bail!(
            "these reports have no variant of the same VMs in common: {} measured {}, {} measured {}; choose two \
             of the same scenario",
            a.display(),
            compare::measured(&first),
            b.display(),
            compare::measured(&second)
        );
    }
    write!(Stdout, "{}", compare::render(&comparison))?;
    if let Some(limit) = within {
        let beyond = comparison
            .pairs
            .iter()
            .find(|pair| pair.change_percent().is_nan() || pair.change_percent().abs() > limit);
        if let Some(pair) = beyond {
            bail!(
                "{} of {} differs by {} %, more than {limit} %",
                pair.variant,
                pair.group,
                signed(pair.change_percent(), 2)
            );
        }
    }
    Ok(())
}

/// Raised by Ctrl-C and by termination; a second one ends the program at once, and its machines with it.
pub fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

impl KernelChoice {
    fn resolve(&self, cache: &Cache) -> Result<Kernel> {
        let (image, series) = match &self.kernel {
            Some(name) if name.contains('/') || Path::new(name).is_file() => {
                (Some(PathBuf::from(name)), None)
            }
            other => (None, other.clone()),
        };
        let want = Want { series, image, modules: self.modules.clone() };
        overbook_kernels::resolve(&want, cache, &mut |text| note(text))
    }
}

/// The execution that was asked for, or the best that works here.
fn choose(
    wanted: Execution,
    kernel: &Kernel,
    emulator: &Emulator,
    cache: &Cache,
    interrupted: &AtomicBool,
) -> Result<Accel> {
    match wanted {
        Execution::Kvm => return Ok(Accel::Kvm),
        Execution::Icount => return Ok(Accel::Icount),
        Execution::Single => return Ok(Accel::Single),
        Execution::Parallel => return Ok(Accel::Parallel),
        Execution::Auto => {}
    }
    let dir = std::env::temp_dir();
    let dir = dir.join(format!("overbook-trial-{}", std::process::id()));
    std::fs::create_dir_all(&dir).context("cannot make a temporary folder: is the disk full?")?;
    let best = trial::best(kernel, emulator, &dir, &cache.dir().join("trial"), interrupted);
    let _ = std::fs::remove_dir_all(&dir);
    let (accel, why) = best?;
    note(format_args!("execution: {} ({why})", accel.name()));
    Ok(accel)
}

/// The first reason why a scenario failed, if it did.
fn why_failed(report: &Report) -> Option<String> {
    let whole = report.failure.as_ref().map(|failure| failure.reason.clone());
    let why = whole.or_else(|| summary::failed(report).into_iter().next())?;
    Some(format!("{}: {}", report.scenario.name, sentence(&why)))
}

/// The sentence in what a scheduler said last: its own, else the last one. A verifier's log stands above.
fn sentence(why: &str) -> &str {
    let own = why.rsplit(" | ").find_map(|line| line.strip_prefix("overbook: "));
    own.or_else(|| why.rsplit(" | ").next()).unwrap_or(why).trim()
}

impl Run {
    fn source<'a>(&'a self, file: &'a Path) -> Source<'a> {
        Source { file, variants_of: self.variants_of.as_deref(), settings: &self.settings }
    }

    fn run(&self, verbose: bool) -> Result<()> {
        // All mistakes in files come before the first minute is spent.
        for file in &self.scenarios {
            variants::read(self.source(file))?;
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
        let (results, mut failed) = self.run_all(results, &kernel, &emulator, accel, &interrupted, verbose);
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

    /// Runs all scenarios, some at a time; keeps and prints what each measured as it ends. With icount, what runs beside
    /// a machine does not change its figures. Returns also why others have no result.
    fn run_all(
        &self,
        results: Results,
        kernel: &Kernel,
        emulator: &Emulator,
        accel: Accel,
        interrupted: &AtomicBool,
        verbose: bool,
    ) -> (Results, Vec<String>) {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let jobs = match accel {
            Accel::Icount => self.jobs.unwrap_or(cpus),
            // These measure against the real clock and would disturb each other.
            _ => 1,
        };
        let bars = MultiProgress::new();
        let queue = Mutex::new(self.scenarios.iter().enumerate());
        let ended = Mutex::new((results, Printer::default(), Vec::new()));
        let take = || queue.lock().ok().and_then(|mut queue| queue.next());
        thread::scope(|scope| {
            for _ in 0..jobs.min(self.scenarios.len()) {
                scope.spawn(|| {
                    while let Some((nth, file)) = take().filter(|_| !interrupted.load(Ordering::Relaxed)) {
                        let outcome = self.run_one(file, kernel, emulator, accel, interrupted, &bars);
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
        kernel: &Kernel,
        emulator: &Emulator,
        accel: Accel,
        interrupted: &AtomicBool,
        bars: &MultiProgress,
    ) -> Result<Report> {
        let order = Order {
            source: self.source(file),
            seed: self.seed,
            repetitions: self.repetitions,
            kernel,
            emulator,
            accel,
            lenient: self.lenient || accel != Accel::Icount,
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
        let why = "the scheduler failed (exit status: 1): 12: (85) call x | overbook: the kernel refuses it | Caused by | ";
        assert_eq!(sentence(why), "the kernel refuses it");
        assert_eq!(sentence("vCPU 1: triple fault"), "vCPU 1: triple fault");
        assert_eq!(sentence("variant a: the scheduler failed: one | two"), "two");
    }
}
