// SPDX-License-Identifier: GPL-2.0-only
//! `overbook`: semantics-aware vCPU scheduling for oversubscribed KVM hosts.

// These panic where nobody reads, or the disk is full: see overbook_cli::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod config;
mod evidence;
mod generate;
mod guest;
mod host;
mod lab;
mod label;
mod metrics;
mod report;
mod top;
mod tunnel;
mod variants;

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use overbook_cli::output::{Stdout, is_closed, note};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Version and commit.
const BUILD: &str = env!("OVERBOOK_BUILD");

/// Semantics-aware vCPU scheduling for oversubscribed KVM hosts.
#[derive(Parser)]
#[command(name = "overbook", version = BUILD, propagate_version = true, arg_required_else_help = true, args_override_self = true)]
struct Cli {
    /// More messages; twice for all of libbpf's.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Schedule this KVM host: fair between VMs, the most useful vCPU inside one (needs root and a kernel with sched_ext)
    Host(Box<host::Host>),
    /// Schedule this guest: use fewer CPUs when its host cannot serve all (needs root and cgroup v2)
    Guest(Box<guest::Guest>),
    /// Say what of this machine the schedulers can use, feature by feature, and what to do about the rest
    Check(check::Check),
    /// Show what VMs do and wait for, live; changes nothing
    Top(top::Top),
    /// Say how much CPU time this host burns in spins, and for whom; changes nothing
    Report(report::ReportArgs),
    /// Answer Prometheus with ready times of all VMs, whoever schedules them; changes nothing
    Metrics(metrics::Metrics),
    /// Keep labels of a Kubernetes node that say how far it can go; schedules nothing
    Label(label::Label),
    /// Measure schedulers on an emulated (or nested) oversubscribed KVM host
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Run the host scheduler's own sources on modelled hosts of up to 1,024 CPUs, without a kernel
    #[command(subcommand)]
    Tunnel(tunnel::Tunnel),
    /// Run micro-guests on this host's own KVM and report
    Bench(bench::Bench),
    /// Write one file to hand on: what this host is and how it does with and without the scheduler; no names, no addresses
    Evidence(evidence::Evidence),
    /// Write man pages and shell completions
    #[command(hide = true)]
    Generate(generate::Generate),
    /// Say what class the XML of a libvirt domain, on standard input, asks for: packaging/libvirt/qemu calls it
    #[command(hide = true)]
    DomainClass,
    #[command(name = overbook_vmm::VM_SUBCOMMAND, hide = true)]
    Vm,
    #[command(name = overbook_guest::keeper::SUBCOMMAND, hide = true)]
    GuestKeeper,
}

fn main() -> ExitCode {
    if overbook_lab::inside::is_init() {
        overbook_lab::inside::main();
    }
    let outcome = run().and_then(|()| Ok(Stdout.flush()?));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if is_closed(&e) => end_as_by_sigpipe(),
        Err(e) => {
            note(format_args!("overbook: {e:#}"));
            ExitCode::from(overbook_scheduler::ending::status(&e))
        }
    }
}

/// A negative number behind an option is its value, and refused as that.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(with_negative_numbers)
}

fn parsed(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let matches = with_negative_numbers(Cli::command()).try_get_matches_from(arguments)?;
    Cli::from_arg_matches(&matches)
}

fn run() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match parsed(config::with_defaults(&arguments, Cli::command())?) {
        Ok(cli) => cli,
        Err(e) => {
            if let Some(file) = config::service_options(&arguments).filter(|_| e.use_stderr()) {
                note(format_args!("{file} holds options of this service, and this is wrong:"));
            }
            e.exit()
        }
    };
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .init();
    match cli.command {
        Command::Host(options) => options.run(),
        Command::Guest(options) => options.run(),
        Command::Check(check) => check.run(),
        Command::Generate(generate) => generate.run(Cli::command()),
        Command::Top(top) => top.run(),
        Command::Report(report) => report.run(),
        Command::Metrics(metrics) => metrics.run(),
        Command::Label(label) => label.run(),
        Command::DomainClass => host::domain_class(),
        Command::Lab(lab) => lab.run(cli.verbose > 0),
        Command::Tunnel(tunnel) => tunnel.run(),
        Command::Bench(bench) => bench.run(),
        Command::Evidence(evidence) => evidence.run(),
        Command::Vm => overbook_vmm::serve(),
        Command::GuestKeeper => {
            overbook_guest::keeper::serve();
            Ok(())
        }
    }
}

/// Whoever read the output has had enough: ends as any tool does then, once all that was held has been let go.
fn end_as_by_sigpipe() -> ExitCode {
    // SAFETY: plain system calls; the default action takes no code of ours.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGPIPE);
    }
    // Only where the signal is blocked.
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    /// All commands that do something, each with the words that lead to it; hidden ones too.
    fn leaves(command: &Command, words: &[String]) -> Vec<(Vec<String>, Command)> {
        if command.get_subcommands().next().is_none() {
            return vec![(words.to_vec(), command.clone())];
        }
        let below = |sub: &Command| leaves(sub, &[words, &[sub.get_name().to_string()]].concat());
        command.get_subcommands().flat_map(below).collect()
    }

    #[test]
    fn the_walk_tries_every_command() {
        let lines = include_str!("../tests/data/walk.txt");
        for (words, _) in leaves(&Cli::command(), &[]) {
            let name = words.join(" ");
            let tried = |line: &str| line.trim_start_matches('!').strip_prefix(&name).is_some_and(ends_word);
            assert!(lines.lines().any(tried), "tests/data/walk.txt does not try `{name}`");
        }
    }

    fn ends_word(rest: &str) -> bool {
        rest.is_empty() || rest.starts_with(' ')
    }

    fn takes_value(arg: &&Arg) -> bool {
        arg.get_long().is_some() && arg.get_action().takes_values()
    }

    #[test]
    fn wrong_values_are_refused_in_words_that_people_use() {
        let mut tried = 0;
        for (words, command) in leaves(&Cli::command(), &["overbook".into()]) {
            for arg in command.get_arguments().filter(takes_value) {
                let option = format!("--{}=no-such-thing", arg.get_long().unwrap_or_default());
                let Err(why) = Cli::try_parse_from(words.iter().chain([&option])) else { continue };
                let said = why.to_string();
                for jargon in ["invalid digit", "float literal", "u32", "u64", "usize", "syntax"] {
                    assert!(!said.contains(jargon), "{words:?} {option}: {said}");
                }
                tried += 1;
            }
        }
        assert!(tried > 40, "{tried}");
    }

    #[test]
    fn negative_numbers_are_values() {
        let words = ["overbook", "tunnel", "run", "x.toml", "--seconds", "-1"];
        let why = parsed(words.map(OsString::from).to_vec()).err().unwrap().to_string();
        assert!(why.contains("invalid value '-1'"), "{why}");
    }

    #[test]
    fn no_number_is_without_bounds() {
        for (words, command) in leaves(&Cli::command(), &["overbook".into()]) {
            for arg in command.get_arguments().filter(takes_value) {
                let numeric = |value: &str| {
                    let option = format!("--{}={value}", arg.get_long().unwrap_or_default());
                    let outcome = Cli::try_parse_from(words.iter().chain([&option]));
                    outcome.is_ok()
                };
                // What takes a number but no text takes neither of these, which panic where a duration is made of them.
                if numeric("1") && !numeric("no-such-thing") {
                    for beyond in ["nan", "inf", "-1", "1e30"] {
                        assert!(
                            !numeric(beyond),
                            "{words:?} --{} takes {beyond}",
                            arg.get_long().unwrap_or_default()
                        );
                    }
                }
            }
        }
    }
}
