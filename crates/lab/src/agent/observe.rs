// SPDX-License-Identifier: GPL-2.0-only
//! `overbook report` beside VMs that contend, under EEVDF and under `overbook host`: what it prints, and the snapshots.
//! Then metrics are scraped, and a second scheduler takes over from the first.

use super::kernel::serves_statistics;
use super::ready;
use crate::describe::scheduler_state;
use crate::instrument::Clock;
use crate::protocol::Event;
use anyhow::{Context, Result, bail, ensure};
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

/// Says the reports and, as lines of JSON, the snapshots.
///
/// # Errors
/// KVM does not run the VMs, or a program of ours fails.
pub fn run(clock: &Clock, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    let mut vms = Vec::new();
    for (nth, pattern) in [Pattern::Lock, Pattern::Ipi, Pattern::Compute].into_iter().enumerate() {
        let memory = GuestMemory::create(&Load::new(pattern), VCPUS, nth as u64, clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: pattern.name().into(), vcpus: VCPUS, ple: true, memory: memory.path() };
        let mut vm = VmProcess::spawn(&config)?;
        vm.go()?;
        vms.push((vm, memory));
    }
    let pids: Vec<i32> = vms.iter().map(|(vm, _)| vm.pid()).collect();
    report(say)?;
    ready::look("EEVDF", &pids, say)?;
    let mut first = Host::start(&["--metrics"])?;
    report(say)?;
    ready::look("overbook", &pids, say)?;
    say(Event::Log(format!("metrics: {} lines", metrics()?.lines().count())))?;
    // A newer version takes over.
    let mut second = Host::spawn(&["--replace"])?;
    let status = first.0.wait()?;
    ensure!(status.success(), "the scheduler that was replaced ended with {status}");
    second.wait_until_enabled()?;
    let before = works(&vms)?;
    sleep(Duration::from_secs(1));
    let after = works(&vms)?;
    ensure!(before.iter().zip(&after).all(|(a, b)| a < b), "a VM stands still: {before:?}, {after:?}");
    say(Event::Log("one scheduler has taken over from another, and all VMs get on".into()))?;
    // Thrown out by hand: who starts it again must know that somebody wanted that.
    fs::write("/proc/sysrq-trigger", "S")?;
    let status = second.0.wait()?;
    ensure!(status.code() == Some(UNLOADED_BY_HAND), "the scheduler ended with {status} after SysRq-S");
    say(Event::Log(format!("SysRq-S has unloaded the scheduler, which ended with {status}")))
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

fn report(say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    let output = Command::new("/proc/self/exe")
        .args(["report", "--seconds", "4", "--spin-gap-us", "250", "--record", RECORDING])
        .output()?;
    if !output.status.success() {
        bail!("`overbook report` failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    say(Event::Log(String::from_utf8_lossy(&output.stdout).into_owned()))?;
    for line in fs::read_to_string(RECORDING)?.lines() {
        say(Event::Log(line.into()))?;
    }
    Ok(())
}
