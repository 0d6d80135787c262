// SPDX-License-Identifier: GPL-2.0-only
//! `overbook lab`.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use overbook_kernels::{Cache, Kernel, Want};
use overbook_lab::protocol::{Soak, Task};
use overbook_lab::qemu::Accel;
use overbook_lab::run::{self, Order};
use overbook_lab::{Scenario, trial};
use overbook_report::schema::Report;
use overbook_report::{compare, html, json, summary, table};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Load, switch, kill and upset the host scheduler while VMs come and go, and look that all get on
    Soak(SoakArgs),
    /// Show on an emulated machine that the guest scheduler does what it promises, with injected steal times
    Guest(GuestArgs),
    /// Have `overbook report` look at VMs that contend on an emulated host, and write what `overbook top --from` shows
    Observe(ObserveArgs),
    /// List kernels: which there are, and why others will not do
    Kernels {
        /// Fetch a kernel first, of a series (6.18) or the newest that will do (newest); may be repeated
        #[arg(long)]
        fetch: Vec<String>,
    },
    /// Compare the medians of two JSON reports
    Compare {
        /// First report
        a: PathBuf,
        /// Second report
        b: PathBuf,
        /// Fail if any median differs by more than this many per cent
        #[arg(long, value_name = "PERCENT")]
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
    /// Seed, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Repetitions, instead of the scenario's
    #[arg(long)]
    repetitions: Option<u32>,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "auto")]
    accel: Execution,
    /// Machines at a time [default: the CPUs of this machine]
    #[arg(long, short)]
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
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Kills and CPU hotplugs in between; each takes some 20 s of model time, for the loads that follow
    #[arg(long, default_value_t = 2)]
    reloads: u32,
    /// CPUs of the host; the fewer, the faster is an emulated one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    cpus: u32,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
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
        tell(Task::Soak(soak), self.seed, &self.kernel, self.accel, &mut |text| println!("{text}"))
    }
}

#[derive(Args)]
pub struct GuestArgs {
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl GuestArgs {
    fn run(&self) -> Result<()> {
        tell(Task::GuestCheck, 1, &self.kernel, self.accel, &mut |text| println!("{text}"))
    }
}

#[derive(Args)]
pub struct ObserveArgs {
    /// Where snapshots are written
    #[arg(long, short, default_value = "recording.jsonl")]
    output: PathBuf,
    #[command(flatten)]
    kernel: KernelChoice,
    /// How the machine is executed
    #[arg(long, value_enum, default_value = "icount")]
    accel: Execution,
}

impl ObserveArgs {
    fn run(&self) -> Result<()> {
        let mut recording = String::new();
        tell(Task::Observe, 1, &self.kernel, self.accel, &mut |text| match text.starts_with('{') {
            true => recording += &format!("{text}\n"),
            false => println!("{text}"),
        })?;
        std::fs::write(&self.output, recording)
            .with_context(|| format!("cannot write {}", self.output.display()))?;
        println!("snapshots: {}", self.output.display());
        Ok(())
    }
}

/// Runs a task that only says how it goes.
fn tell(
    task: Task,
    seed: u64,
    kernel: &KernelChoice,
    accel: Execution,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let cache = Cache::open_default()?;
    let kernel = kernel.resolve(&cache)?;
    let interrupted = interruption()?;
    let accel = choose(accel, &kernel, &cache, &interrupted)?;
    println!("kernel {} ({}), {}", kernel.release, kernel.origin, accel.name());
    overbook_lab::soak::run(task, seed, &kernel, accel, &interrupted, say)
}

impl Lab {
    pub fn run(self) -> Result<()> {
        match self {
            Lab::Run(run) => run.run(),
            Lab::Soak(soak) => soak.run(),
            Lab::Guest(guest) => guest.run(),
            Lab::Observe(observe) => observe.run(),
            Lab::Check { scenarios } => check(&scenarios),
            Lab::Kernels { fetch } => kernels(&fetch),
            Lab::Compare { a, b, within } => compare_files(&a, &b, within),
        }
    }
}

fn check(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let (scenario, _) = Scenario::read(file)?;
        println!("{}: fine ({})", file.display(), scenario.title);
    }
    Ok(())
}

fn kernels(fetch: &[String]) -> Result<()> {
    let cache = Cache::open_default()?;
    let mut say = |text: &str| eprintln!("{text}");
    let mut failure = None;
    for series in fetch {
        let want = Want { series: Some(series.clone()), ..Want::default() };
        if let Err(e) = overbook_kernels::resolve(&want, &cache, &mut say) {
            failure = Some(e);
        }
    }
    let rows = overbook_kernels::list(&cache, &mut say)?.into_iter().map(|row| {
        let verdict = match row.verdict {
            Some(Ok(facts)) => format!("ok ({} Hz)", facts.hz),
            Some(Err(why)) => format!("no: {why}"),
            None => "not fetched".into(),
        };
        vec![row.release, row.origin, verdict]
    });
    println!("{}", table::plain(&["kernel", "origin", "suitable"], 3, rows));
    failure.map_or(Ok(()), Err)
}

fn compare_files(a: &Path, b: &Path, within: Option<f64>) -> Result<()> {
    let comparison = compare::compare(&json::read(a)?, &json::read(b)?);
    print!("{}", compare::render(&comparison));
    if let Some(limit) = within {
        let beyond = comparison
            .pairs
            .iter()
            .find(|pair| pair.change_percent().is_nan() || pair.change_percent().abs() > limit);
        if let Some(pair) = beyond {
            bail!(
                "{} of {} differs by {:+.2} %, more than {limit} %",
                pair.variant,
                pair.group,
                pair.change_percent()
            );
        }
        if comparison.pairs.is_empty() {
            bail!("the reports have nothing in common");
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
        overbook_kernels::resolve(&want, cache, &mut |text| eprintln!("{text}"))
    }
}

/// The execution that was asked for, or the best that works here.
fn choose(wanted: Execution, kernel: &Kernel, cache: &Cache, interrupted: &AtomicBool) -> Result<Accel> {
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
    let best = trial::best(kernel, &dir, &cache.dir().join("trial"), interrupted);
    let _ = std::fs::remove_dir_all(&dir);
    let (accel, why) = best?;
    eprintln!("execution: {} ({why})", accel.name());
    Ok(accel)
}

/// The first reason why a scenario failed, if it did.
fn why_failed(report: &Report) -> Option<String> {
    let whole = report.failure.as_ref().map(|failure| failure.reason.clone());
    let why = whole.or_else(|| summary::failed(report).into_iter().next())?;
    // A verifier's log stands above.
    let last = why.rsplit(" | ").next().unwrap_or(&why);
    Some(format!("{}: {last}", report.scenario.name))
}

impl Run {
    fn run(&self) -> Result<()> {
        // All mistakes in files come before the first minute is spent.
        for file in &self.scenarios {
            Scenario::read_with(file, self.variants_of.as_deref())?;
        }
        let emulator = overbook_lab::qemu::version()?;
        std::fs::create_dir_all(&self.output)
            .with_context(|| format!("cannot make the folder {}", self.output.display()))?;
        let cache = Cache::open_default()?;
        let kernel = self.kernel.resolve(&cache)?;
        let interrupted = interruption()?;
        let accel = choose(self.accel, &kernel, &cache, &interrupted)?;
        eprintln!("kernel {} ({}), {}, QEMU {emulator}", kernel.release, kernel.origin, accel.name());
        let reports = self.run_all(&kernel, accel, &interrupted)?;
        self.write(&reports)?;
        // The last line names the reason as well: of a long output, the end is what is read and kept.
        let failed: Vec<String> = reports.iter().filter_map(why_failed).collect();
        if !failed.is_empty() {
            bail!("{} of {} scenarios failed: {}", failed.len(), reports.len(), failed.join("; "));
        }
        Ok(())
    }

    /// Runs all scenarios, some at a time, and prints each as it ends. With icount, what runs beside a machine
    /// does not change its figures.
    fn run_all(&self, kernel: &Kernel, accel: Accel, interrupted: &AtomicBool) -> Result<Vec<Report>> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let jobs = match accel {
            Accel::Icount => self.jobs.unwrap_or(cpus).clamp(1, 64),
            // These measure against the real clock and would disturb each other.
            _ => 1,
        };
        let bars = MultiProgress::new();
        let queue = Mutex::new(self.scenarios.iter().enumerate());
        let done: Mutex<Vec<(usize, Result<Report>)>> = Mutex::new(Vec::new());
        let take = || queue.lock().ok().and_then(|mut queue| queue.next());
        thread::scope(|scope| {
            for _ in 0..jobs.min(self.scenarios.len()) {
                scope.spawn(|| {
                    while let Some((nth, file)) = take().filter(|_| !interrupted.load(Ordering::Relaxed)) {
                        let outcome = self.run_one(file, kernel, accel, interrupted, &bars);
                        if let Ok(report) = &outcome {
                            bars.suspend(|| println!("{}", table::render(report)));
                        }
                        if let Ok(mut done) = done.lock() {
                            done.push((nth, outcome));
                        }
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by_key(|(nth, _)| *nth);
        if done.len() < self.scenarios.len() {
            bail!("interrupted: the machines were stopped and nothing was written");
        }
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn run_one(
        &self,
        file: &Path,
        kernel: &Kernel,
        accel: Accel,
        interrupted: &AtomicBool,
        bars: &MultiProgress,
    ) -> Result<Report> {
        let order = Order {
            file,
            variants_of: self.variants_of.as_deref(),
            seed: self.seed,
            repetitions: self.repetitions,
            kernel,
            accel,
            lenient: self.lenient || accel != Accel::Icount,
            build: crate::BUILD,
        };
        let bar = bars.add(ProgressBar::new(1000));
        if let Ok(style) = ProgressStyle::with_template("{prefix:24!} {bar:30} {elapsed:>5} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(order.name());
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        let mut quiet = Progress { bar: &bar, said: String::new() };
        let report = run::run(&order, interrupted, &mut |share, text| quiet.show(share, text));
        bar.finish_and_clear();
        report.with_context(|| format!("{}", file.display()))
    }

    fn write(&self, reports: &[Report]) -> Result<()> {
        for report in reports {
            json::write(&self.output.join(format!("{}.json", report.scenario.name)), report)?;
        }
        let page = self.output.join("report.html");
        json::write_atomically(&page, &html::render_many(reports)?)?;
        println!("report: {}", page.display());
        Ok(())
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
            eprintln!("{}: {text}", self.bar.prefix());
            self.said = text.into();
        }
    }
}
