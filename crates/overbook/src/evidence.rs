// SPDX-License-Identifier: GPL-2.0-only
//! `overbook evidence`: what this host is and how it does with and without `overbook host`, in one file without names or
//! addresses, made to be handed on. docs/evidence.md says what is in it.

mod figures;
mod layout;
mod machine;
mod own;
mod schedulers;
#[cfg(test)]
mod tests;

use crate::host::stop_at_signals;
use crate::report::sleep_until;
use crate::top::SpinGap;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use figures::{BenchPiece, Compared, HostPiece, Numbers, Piece};
use layout::Layout;
use machine::Machine;
use overbook_cli::output::{Stdout, note};
use overbook_cli::values::number;
use overbook_lab::bench;
use overbook_observe::far::Far;
use overbook_observe::{Observer, Snapshot, Window, vms};
use overbook_report::json::{check_writable, write_atomically};
use overbook_scheduler::preflight;
use overbook_vmm::Pattern;
use own::Own;
use schedulers::{Switch, Who, turns};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Version of the file's form.
const SCHEMA: u32 = 1;
/// Pieces of the time; each pattern of our guests has four of them, two under each scheduler.
const PIECES: usize = 16;
/// What our guests do.
const PATTERNS: [Pattern; 4] = [Pattern::Lock, Pattern::Ipi, Pattern::Shootdown, Pattern::Compute];
/// What is missing where they do not run.
const OUR_GUESTS: &str = "figures of guests of our own";
/// Time between two snapshots.
const STEP: Duration = Duration::from_secs(1);

/// Whether guests of our own run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// If this host has no VMs, whom they would disturb
    Auto,
    /// Also beside this host's VMs: they take CPUs from them
    Always,
    /// Not at all
    Never,
}

#[derive(Args)]
pub struct Evidence {
    /// Length of all measurements, in seconds
    #[arg(long, default_value_t = 600.0, value_parser = number(1.0, 86_400.0))]
    seconds: f64,
    /// File to write
    #[arg(long, short, value_name = "FILE", default_value = "overbook-evidence.json")]
    output: PathBuf,
    /// Run guests of our own, as `overbook bench` does
    #[arg(long, value_enum, default_value = "auto")]
    bench: When,
    /// Load no scheduler
    #[arg(long)]
    as_it_is: bool,
    #[command(flatten)]
    gap: SpinGap,
}

/// The file.
#[derive(Serialize)]
struct Document {
    evidence: u32,
    overbook: &'static str,
    complete: bool,
    seconds: f64,
    machine: Machine,
    vms: Layout,
    missing: Vec<String>,
    compared: Vec<Compared>,
    pieces: Vec<Piece>,
    far: Option<Far>,
}

impl Document {
    /// Text without a word of `own`.
    fn text(&self, own: &Own) -> Result<String> {
        let mut value = serde_json::to_value(self)?;
        own.remove_from(&mut value);
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    /// Says why figures under `overbook host` are missing, or some of them.
    fn miss_ours(&mut self, why: &anyhow::Error) {
        let some = self.pieces.iter().any(|piece| piece.scheduler == "overbook");
        let what = if some { "some figures under `overbook host`" } else { "figures under `overbook host`" };
        self.miss(what, &format!("{why:#}"));
    }

    /// Says what is missing and why: all of it to who runs this, and only its first words to the file.
    fn miss(&mut self, what: &str, why: &str) {
        let text = format!("{what}: {}", brief(why));
        if !self.missing.contains(&text) {
            note(format_args!("missing: {what}: {why}"));
            self.missing.push(text);
        }
    }
}

/// A reason without its details, among which may be paths of groups, and so names of VMs, and without what it quotes,
/// which may be another's scheduler.
fn brief(why: &str) -> String {
    let first = why.split(": ").next().unwrap_or_default();
    let known = |word: &str| !word.contains(['/', '"']) || word == "/dev/kvm";
    first.split(' ').map(|word| if known(word) { word } else { own::REMOVED }).collect::<Vec<_>>().join(" ")
}

impl Evidence {
    pub fn run(&self) -> Result<()> {
        let stop = stop_at_signals()?;
        let (found, mut own) = (vms::find(), Own::of(Path::new("/")));
        let machine = machine::look(Path::new("/"), machine::signature());
        let layout = layout::look(Path::new("/"), &found, machine.layout.cpus);
        let mut document = Document {
            evidence: SCHEMA,
            overbook: crate::BUILD,
            complete: false,
            seconds: self.seconds,
            machine,
            vms: layout,
            missing: Vec::new(),
            compared: Vec::new(),
            pieces: Vec::new(),
            far: None,
        };
        // Found out before minutes are spent; and who is interrupted has what there is.
        // What an earlier one has measured stays until there is something new.
        let earlier = self.output.is_file();
        if earlier {
            check_writable(&self.output)?;
        } else {
            write_atomically(&self.output, &document.text(&own)?)?;
        }
        let outcome = self.measure(&mut document, &mut own, &stop);
        document.compared = figures::compare(&document.pieces);
        let stopped = stop.load(Ordering::Relaxed);
        document.complete = outcome.is_ok() && !stopped;
        if !(earlier && document.pieces.is_empty()) {
            write_atomically(&self.output, &document.text(&own)?)?;
        }
        outcome?;
        self.conclude(&document, earlier, stopped)
    }

    /// What was measured, in words.
    fn conclude(&self, document: &Document, earlier: bool, stopped: bool) -> Result<()> {
        let file = self.output.display();
        if document.pieces.iter().all(|piece| piece.host.is_none() && piece.bench.is_none()) {
            let why = document.missing.last().filter(|_| !stopped);
            bail!(
                "nothing was measured, and {file} {}: {}",
                if earlier { "is as it was" } else { "says only what this machine is" },
                why.map_or("it was interrupted", String::as_str)
            );
        }
        for compared in &document.compared {
            let ratio = compared.ratio.map_or_else(|| "–".into(), |ratio| format!("{ratio:.3}"));
            let (before, ours) = (compared.before, compared.overbook);
            writeln!(Stdout, "{}: {before:.2} → {ours:.2} ({ratio})", compared.what)?;
        }
        writeln!(Stdout, "{file}: nothing of it was sent anywhere; read it, then hand it on if you like")?;
        Ok(())
    }

    fn measure(&self, document: &mut Document, own: &mut Own, stop: &AtomicBool) -> Result<()> {
        let mut may_load = self.may_load().inspect_err(|why| document.miss_ours(why)).is_ok();
        let has_vms = document.vms.vms > 0;
        if !has_vms {
            let seen = if preflight::is_root() {
                "no VM runs here"
            } else {
                "no VM runs here that this user may see"
            };
            document.miss("figures of this host's VMs", seen);
        }
        let mut benches = self.runs_guests(document);
        let mut observer = has_vms.then(|| self.gap.observer());
        let (mut switch, mut numbers, mut recorded) = (Switch::default(), Numbers::default(), Vec::new());
        let half = Duration::from_secs_f64(
            self.seconds / PIECES as f64 / if has_vms && benches { 2.0 } else { 1.0 },
        );
        for (nth, who) in turns(PIECES, may_load).into_iter().enumerate() {
            if stop.load(Ordering::Relaxed) || (observer.is_none() && !benches) {
                break;
            }
            let who = if may_load { who } else { Who::AsItIs };
            if let Err(why) = switch.to(who, stop) {
                document.miss_ours(&why);
                may_load = false;
            }
            let mut piece = Piece { scheduler: scheduler(), ..Piece::default() };
            let mut seen = Vec::new();
            if let Some(observer) = &mut observer {
                seen = watch(observer, half, stop)?;
                seen.iter().flat_map(|snapshot| snapshot.vms.values()).for_each(|vm| own.add(&vm.name));
                if let Some(why) = seen.first().and_then(Snapshot::blind) {
                    document.miss("spins and yields of this host's VMs", why);
                }
                if let [first, .., last] = &seen[..] {
                    piece.host = Some(HostPiece::of(&Window::between(first, last), &mut numbers));
                }
            }
            if benches && !stop.load(Ordering::Relaxed) {
                // Four pieces in a row are of one pattern: A B B A.
                match guests(PATTERNS[nth / 4 % PATTERNS.len()], half, stop) {
                    Ok(bench) => piece.bench = Some(bench),
                    Err(why) => {
                        document.miss(OUR_GUESTS, &format!("{why:#}"));
                        benches = false;
                    }
                }
            }
            if scheduler() != piece.scheduler {
                document.miss("a piece of the time", "another scheduler came in the middle of it");
                continue;
            }
            if who == Who::AsItIs {
                recorded.extend(seen);
            }
            if piece.host.is_some() || piece.bench.is_some() {
                document.pieces.push(piece);
                write_atomically(&self.output, &document.text(own)?)?;
                note(format_args!("piece {} of {PIECES}", nth + 1));
            }
        }
        if let Err(why) = switch.to(Who::AsItIs, stop) {
            document.miss_ours(&why);
        }
        if has_vms {
            match Far::of(&recorded, 5.0) {
                Ok(far) => document.far = Some(figures::far(far, &mut numbers)),
                Err(why) => document.miss("how far this host can go", &why),
            }
        }
        Ok(())
    }

    /// Whether guests of our own run, too; says so in the document if not.
    fn runs_guests(&self, document: &mut Document) -> bool {
        let has_vms = document.vms.vms > 0;
        let runs = self.bench == When::Always || (self.bench == When::Auto && !has_vms);
        if !runs {
            let why =
                if has_vms { "they would disturb this host's VMs (--bench always)" } else { "--bench never" };
            document.miss(OUR_GUESTS, why);
        }
        runs
    }

    /// Whether `overbook host` may be loaded for half of the time.
    fn may_load(&self) -> Result<()> {
        if self.as_it_is {
            bail!("--as-it-is");
        }
        Ok(preflight::check(false)?)
    }
}

/// Who schedules now.
fn scheduler() -> String {
    known_scheduler(preflight::loaded().as_deref().unwrap_or("EEVDF")).into()
}

/// The name of a scheduler, if it says nothing about whose it is.
fn known_scheduler(name: &str) -> &'static str {
    match name {
        "EEVDF" => "EEVDF",
        ours if ours.starts_with("overbook") => "overbook",
        _ => "another of sched_ext",
    }
}

/// Snapshots of some time, which begins with the first of them.
fn watch(observer: &mut Observer, length: Duration, stop: &AtomicBool) -> Result<Vec<Snapshot>> {
    let end = Instant::now() + length;
    let mut snapshots = vec![observer.snapshot()?];
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        sleep_until((Instant::now() + STEP).min(end), stop);
        snapshots.push(observer.snapshot()?);
    }
    // Each piece is a recording of its own: what lies between two is nobody's.
    let begin = snapshots[0].at_ns;
    snapshots.iter_mut().for_each(|snapshot| snapshot.at_ns -= begin);
    Ok(snapshots)
}

/// Two VMs with a vCPU per CPU each.
fn guests(pattern: Pattern, length: Duration, stop: &AtomicBool) -> Result<BenchPiece> {
    // What the lab can measure.
    let scenario = crate::bench::plain(pattern, length.as_secs_f64().clamp(0.05, 3600.0))?;
    let report = bench::run(&scenario, crate::BUILD, stop, &mut |_| ())?;
    let run = report.runs.first().context("nothing was run")?;
    match &run.error {
        None => Ok(BenchPiece::of(run)),
        Some(why) => bail!("{why}"),
    }
}
