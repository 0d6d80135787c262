// SPDX-License-Identifier: GPL-2.0-only
//! `overbook`: semantics-aware vCPU scheduling for oversubscribed KVM hosts.

mod bench;
mod check;
mod config;
mod generate;
mod guest;
mod host;
mod lab;
mod report;
mod top;
mod tunnel;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Schedule this KVM host: directed yield that sticks (needs root and a kernel with sched_ext)
    Host(Box<host::Host>),
    /// Schedule this guest: use fewer CPUs when its host cannot serve all (needs root and a kernel with sched_ext)
    Guest(Box<guest::Guest>),
    /// Say what of this machine the schedulers can use, feature by feature, and what to do about the rest
    Check,
    /// Show what VMs do and wait for, live; changes nothing
    Top(top::Top),
    /// Say how much CPU time this host burns in spins, and for whom; changes nothing
    Report(report::ReportArgs),
    /// Measure schedulers on an emulated (or nested) oversubscribed KVM host
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Run the host scheduler's own sources on modelled hosts of up to 1,024 CPUs, without a kernel
    #[command(subcommand)]
    Tunnel(tunnel::Tunnel),
    /// Run micro-guests on this host's own KVM and report
    Bench(bench::Bench),
    /// Write man pages and shell completions
    #[command(hide = true)]
    Generate(generate::Generate),
    #[command(name = overbook_vmm::VM_SUBCOMMAND, hide = true)]
    Vm,
    #[command(name = overbook_guest::keeper::SUBCOMMAND, hide = true)]
    GuestKeeper,
}

fn main() -> ExitCode {
    if overbook_lab::agent::is_init() {
        overbook_lab::agent::main();
    }
    let arguments = match config::with_defaults(std::env::args_os().collect()) {
        Ok(arguments) => arguments,
        Err(e) => {
            eprintln!("overbook: {e:#}");
            return ExitCode::FAILURE;
        }
    };
    let cli = Cli::parse_from(arguments);
    let level = match cli.verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .init();
    let outcome = match cli.command {
        Command::Host(options) => options.run(),
        Command::Guest(options) => options.run(),
        Command::Check => check::run(),
        Command::Generate(generate) => generate.run(Cli::command()),
        Command::Top(top) => top.run(),
        Command::Report(report) => report.run(),
        Command::Lab(lab) => lab.run(),
        Command::Tunnel(tunnel) => tunnel.run(),
        Command::Bench(bench) => bench.run(),
        Command::Vm => overbook_vmm::serve(),
        Command::GuestKeeper => overbook_guest::keeper::serve(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("overbook: {e:#}");
            ExitCode::FAILURE
        }
    }
}
