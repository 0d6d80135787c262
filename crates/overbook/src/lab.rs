// SPDX-License-Identifier: GPL-2.0-only
//! `overbook lab`.

mod machines;
mod results;
mod run;
mod tables;
mod tasks;

use crate::variants;
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use overbook_cli::output::{Stdout, note};
use overbook_cli::values::number;
use overbook_kernels::{Cache, Emulator, Kernel, Want};
use overbook_lab::outside::qemu::Accel;
use overbook_lab::outside::trial;
use overbook_lab::scenario::Source;
use overbook_report::format::signed;
use overbook_report::markdown::Kind;
use overbook_report::schema::Report;
use overbook_report::table::Shown;
use overbook_report::{compare, json, markdown, table};
use run::Run;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tasks::{GuestArgs, ObserveArgs, SoakArgs};

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
        /// Take what is newest in Debian of each series fetched, and not what the cache has of it
        #[arg(long, requires = "fetch")]
        update: bool,
        /// Only unpack the kernel's source into a new folder, without the patches, for work on them
        #[arg(long, value_name = "DIR", conflicts_with = "fetch")]
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

fn show(text: &str) -> Result<()> {
    Ok(writeln!(Stdout, "{text}")?)
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
            Lab::Kernels { fetch, update, .. } => machines::kernels(&fetch, update),
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
        let kind = match overbook_lab::Scenario::read(file)? {
            (scenario, _) if scenario.tunnel.is_some() => {
                overbook_tunnel::scene::read(file)?;
                "for the wind tunnel".into()
            }
            _ => variants::read(Source { file, variants_of: None, settings: &[] })?.heading(),
        };
        writeln!(Stdout, "{}: fine ({kind})", file.display())?;
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
        if let Some(gap) = comparison.gaps.first() {
            bail!("nobody can tell whether all is within {limit} %: {gap}");
        }
        let mut all = comparison.pairs.iter().chain(&comparison.per_vm);
        let beyond = all.find(|pair| pair.change_percent().is_nan() || pair.change_percent().abs() > limit);
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
    let (accel, why) = trial::best(kernel, emulator, &cache.dir().join("trial"), interrupted)?;
    note(format_args!("execution: {} ({why})", accel.name()));
    Ok(accel)
}
