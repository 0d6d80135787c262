// SPDX-License-Identifier: GPL-2.0-only
//! `overbook report` beside VMs that contend, under EEVDF and under `overbook host`: what it prints, and the snapshots.

use super::kernel::scheduler_state;
use crate::instrument::Clock;
use crate::protocol::Event;
use anyhow::{Context, Result, bail};
use overbook_vmm::{GuestMemory, Load, Pattern, VmConfig, VmProcess};
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const RECORDING: &str = "/run/recording";

/// Says the reports and, as lines of JSON, the snapshots.
///
/// # Errors
/// KVM does not run the VMs, or a program of ours fails.
pub fn run(clock: &Clock, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    let mut vms = Vec::new();
    for (nth, pattern) in [Pattern::Lock, Pattern::Ipi, Pattern::Compute].into_iter().enumerate() {
        let memory = GuestMemory::create(&Load::new(pattern), 4, nth as u64, clock.ns_per_turn, 1.0)?;
        let config = VmConfig { name: pattern.name().into(), vcpus: 4, ple: true, memory: memory.path() };
        let mut vm = VmProcess::spawn(&config)?;
        vm.go()?;
        vms.push((vm, memory));
    }
    report(say)?;
    let mut host = Command::new("/proc/self/exe")
        .arg("host")
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start `overbook host`")?;
    // Verifying takes an emulated CPU some 20 s.
    while scheduler_state()? != "enabled" {
        if let Some(status) = host.try_wait()? {
            bail!("`overbook host` ended ({status})");
        }
        sleep(Duration::from_millis(100));
    }
    sleep(Duration::from_millis(500));
    let outcome = report(say);
    host.kill()?;
    host.wait()?;
    outcome
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
