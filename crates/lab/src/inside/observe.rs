// SPDX-License-Identifier: GPL-2.0-only
//! `overbook report` beside VMs that contend, under EEVDF and under `overbook host`: what it prints, and the snapshots.
//! Then metrics are scraped, and a second scheduler takes over from the first. Or: beside some VMs, and then beside twice as
//! many. Or `overbook evidence`.

use super::kernel::serves_statistics;
use super::program::overbook;
use super::ready;
use crate::machine::describe::scheduler_state;
use crate::machine::instrument::Clock;
use crate::protocol::{Event, View};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overbook_vmm::{GuestMemory, Load, Pattern, VmConfig, VmProcess};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Of every VM.
const VCPUS: u32 = 4;
const RECORDING: &str = "/run/recording";
/// Exit status of a scheduler that somebody unloaded (docs/install.md#when-it-ends).
const UNLOADED_BY_HAND: i32 = 3;
/// Exit status of a scheduler that the kernel threw out.
const THROWN_OUT: i32 = 4;

/// Says the reports and, as lines of JSON, the snapshots.
///
/// # Errors
/// KVM does not run the VMs, or a program of ours fails.
pub fn run(view: View, clock: &Clock, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    if view == View::Twice {
        let _first = halting(clock)?;
        report("3", say)?;
        let _second = halting(clock)?;
        return report("3", say);
    }
    let contending = [Pattern::Lock, Pattern::Ipi, Pattern::Compute];
    let vms = start(&contending.map(|pattern| (pattern.name().into(), Load::new(pattern), VCPUS)), clock)?;
    if view == View::Evidence {
        return evidence(say);
    }
    let pids: Vec<i32> = vms.iter().map(|(vm, _)| vm.pid()).collect();
    report("4", say)?;
    ready::look("EEVDF", &pids, say)?;
    let mut first = while_stopped(&vms, || Host::start(&["--metrics"]))?;
    report("8", say)?;
    ready::look("overbook", &pids, say)?;
    say(Event::Log(format!("metrics: {} lines", metrics()?.lines().count())))?;
    // A newer version takes over.
    let mut second = while_stopped(&vms, || {
        let second = Host::spawn(&["--replace"])?;
        let status = first.0.wait()?;
        ensure!(status.success(), "the scheduler that was replaced ended with {status}");
        Ok(second)
    })?;
    second.wait_until_enabled()?;
    get_on(&vms)?;
    say(Event::Log("one scheduler has taken over from another, and all VMs get on".into()))?;
    // Thrown out by hand: who starts it again must know that somebody wanted that.
    fs::write("/proc/sysrq-trigger", "S")?;
    let status = second.0.wait()?;
    ensure!(status.code() == Some(UNLOADED_BY_HAND), "the scheduler ended with {status} after SysRq-S");
    say(Event::Log(format!("SysRq-S has unloaded the scheduler, which ended with {status}")))?;
    thrown_out(&vms)?;
    get_on(&vms)?;
    say(Event::Log("the watchdog has thrown the scheduler out, which said so, and all VMs get on".into()))
}

/// The kernel's watchdog with the patience of a tick: of twelve vCPUs on four CPUs one always waits for longer.
fn thrown_out(vms: &Vms) -> Result<()> {
    let mut host = Command::new("/proc/self/exe")
        .arg("host")
        .env("SCX_TIMEOUT_MS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    while_stopped(vms, || {
        while scheduler_state()? == "disabled" && host.try_wait()?.is_none() {
            sleep(Duration::from_millis(10));
        }
        Ok(())
    })?;
    let output = host.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(THROWN_OUT)
            && text.contains("the kernel's watchdog threw the scheduler out"),
        "the scheduler ended with {} where the watchdog has no patience: {text}",
        output.status
    );
    ensure!(scheduler_state()? == "disabled", "it is still loaded");
    Ok(())
}

/// All VMs do something within a second.
fn get_on(vms: &[(VmProcess, GuestMemory)]) -> Result<()> {
    let before = works(vms)?;
    sleep(Duration::from_secs(1));
    let after = works(vms)?;
    ensure!(before.iter().zip(&after).all(|(a, b)| a < b), "a VM stands still: {before:?}, {after:?}");
    Ok(())
}

/// Does something while no VM runs: beside twelve vCPUs that contend, a scheduler's BPF would be verified for minutes.
fn while_stopped<T>(vms: &Vms, what: impl FnOnce() -> Result<T>) -> Result<T> {
    let tell = |signal| vms.iter().try_for_each(|(vm, _)| kill(Pid::from_raw(vm.pid()), signal));
    tell(Signal::SIGSTOP)?;
    let result = what();
    tell(Signal::SIGCONT)?;
    result
}

/// Three VMs of two vCPUs that work for 1, 3 and 6 of 10 ms and halt for the rest.
fn halting(clock: &Clock) -> Result<Vms> {
    let of = |ms: u32| {
        let (outside_us, halt_us) = (1000.0 * f64::from(ms), 1000.0 * f64::from(10 - ms));
        (format!("works-{ms}"), Load { outside_us, halt_us, ..Load::new(Pattern::Compute) }, 2)
    };
    start(&[1, 3, 6].map(of), clock)
}

type Vms = Vec<(VmProcess, GuestMemory)>;

fn start(loads: &[(String, Load, u32)], clock: &Clock) -> Result<Vms> {
    let mut vms = Vec::new();
    for (nth, (name, load, vcpus)) in loads.iter().enumerate() {
        let memory = GuestMemory::create(load, *vcpus, nth as u64, clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: name.clone(), vcpus: *vcpus, ple: true, memory: memory.path() };
        let mut vm = VmProcess::spawn(&config)?;
        vm.go()?;
        vms.push((vm, memory));
    }
    // A guest takes a moment to come up.
    sleep(Duration::from_millis(300));
    Ok(vms)
}

/// What `overbook evidence` prints, and what it writes.
fn evidence(say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    const FILE: &str = "/run/evidence.json";
    let arguments = ["evidence", "--seconds", "16", "--spin-gap-us", "250", "--output", FILE];
    let output = overbook(&arguments)?;
    say(Event::Log(
        [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
    ))?;
    ensure!(output.status.success(), "`overbook evidence` failed: {}", output.status);
    say(Event::Log(fs::read_to_string(FILE)?))
}

/// Work of every VM so far.
fn works(vms: &[(VmProcess, GuestMemory)]) -> Result<Vec<u64>> {
    let work = |memory: &GuestMemory| (0..VCPUS).map(|i| Ok(memory.counters(i)?.work)).sum();
    vms.iter().map(|(_, memory)| work(memory)).collect()
}

/// What a scraper gets.
fn metrics() -> Result<String> {
    let mut stream = TcpStream::connect("127.0.0.1:9836").context("nobody serves metrics")?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    ensure!(
        text.contains(" 200 ")
            && text.contains("overbook_vm_spin_seconds_total{vm=\"lock\"")
            && text.contains("overbook_vcpu_ready_seconds_total{vm=\"lock\""),
        "no metrics of the VMs: {text}"
    );
    Ok(text)
}

/// A running `overbook host`.
struct Host(Child);

impl Host {
    fn spawn(arguments: &[&str]) -> Result<Host> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("host").args(arguments).stdin(Stdio::null());
        Ok(Host(command.spawn().context("cannot start `overbook host`")?))
    }

    fn start(arguments: &[&str]) -> Result<Host> {
        let mut host = Host::spawn(arguments)?;
        host.wait_until_enabled()?;
        Ok(host)
    }

    /// Verifying takes an emulated CPU some 20 s.
    fn wait_until_enabled(&mut self) -> Result<()> {
        while scheduler_state()? != "enabled" || !serves_statistics() {
            if let Some(status) = self.0.try_wait()? {
                bail!("`overbook host` ended ({status})");
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn report(seconds: &str, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    // A recording of its own each time.
    let _ = fs::remove_file(RECORDING);
    let output = overbook(&["report", "--seconds", seconds, "--spin-gap-us", "250", "--record", RECORDING])?;
    if !output.status.success() {
        bail!("`overbook report` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    say(Event::Log(String::from_utf8_lossy(&output.stdout).into_owned()))?;
    for line in fs::read_to_string(RECORDING)?.lines() {
        say(Event::Log(line.into()))?;
    }
    Ok(())
}
