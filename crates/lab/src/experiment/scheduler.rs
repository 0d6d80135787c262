// SPDX-License-Identifier: GPL-2.0-only
//! Overbook's own host scheduler, loaded for the length of a run.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const STATE: &str = "/sys/kernel/sched_ext/state";
const STEP: Duration = Duration::from_millis(10);
/// Patience in steps: loading verifies every program, which takes an emulated CPU seconds.
const LOAD_STEPS: u32 = 12_000;
const UNLOAD_STEPS: u32 = 3_000;

/// The running `overbook host`. Dropping it unloads the scheduler.
pub struct Loaded {
    child: Child,
    /// A file, since nobody reads along: a pipe would fill up.
    messages: File,
}

/// Loads the scheduler with `arguments` and waits until it schedules.
///
/// # Errors
/// It does not load; the message is its own.
pub fn load(arguments: &[String]) -> Result<Loaded> {
    let messages = tempfile::tempfile().context("no room for the scheduler's messages")?;
    let child = Command::new("/proc/self/exe")
        .args(["host", "--json"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(messages.try_clone()?)
        .spawn()
        .context("cannot start `overbook host`")?;
    let mut loaded = Loaded { child, messages };
    for _ in 0..LOAD_STEPS {
        if fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled") {
            return Ok(loaded);
        }
        if loaded.child.try_wait()?.is_some() {
            bail!("`overbook host` did not start: {}", loaded.last_words());
        }
        sleep(STEP);
    }
    bail!("`overbook host` does not come up");
}

impl Loaded {
    /// Unloads the scheduler and returns its counters by name.
    ///
    /// # Errors
    /// The kernel had unloaded it, or it did not end well; the message is its own.
    pub fn unload(mut self) -> Result<BTreeMap<String, f64>> {
        // It may be gone already: its status tells.
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
        for _ in 0..UNLOAD_STEPS {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("`overbook host` failed: {}", self.last_words());
                }
                return self.counters();
            }
            sleep(STEP);
        }
        bail!("`overbook host` does not end");
    }

    fn last_words(&mut self) -> String {
        let mut text = String::new();
        // What cannot be read is not told; the failure itself is.
        let _ = self.messages.seek(SeekFrom::Start(0)).and_then(|_| self.messages.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(40)..].join(" | ")
    }

    fn counters(&mut self) -> Result<BTreeMap<String, f64>> {
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut text)?;
        }
        let stats: Value = serde_json::from_str(text.trim()).context("`overbook host` left no statistics")?;
        Ok(flatten(&stats))
    }
}

/// Counters of the host as they are, those of VMs added up.
fn flatten(stats: &Value) -> BTreeMap<String, f64> {
    let mut counters = BTreeMap::new();
    let mut add = |key: &str, value: &Value| {
        if let Some(number) = value.as_f64() {
            *counters.entry(format!("overbook: {}", key.replace('_', " "))).or_insert(0.0) += number;
        }
    };
    for (key, value) in stats.as_object().into_iter().flatten() {
        add(key, value);
    }
    for vm in stats["vms"].as_object().into_iter().flatten().map(|(_, vm)| vm) {
        for (key, value) in vm.as_object().into_iter().flatten() {
            add(&format!("VMs {key}"), value);
        }
    }
    counters
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // However it ends, the kernel takes all tasks back.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_of_vms_are_added() {
        let stats = serde_json::json!({
            "yield_policy": "handoff", "keep": 3, "vms": {"7": {"name": "a", "asked": 2}, "9": {"name": "b", "asked": 5}}
        });
        let counters = super::flatten(&stats);
        assert_eq!(counters["overbook: keep"], 3.0);
        assert_eq!(counters["overbook: VMs asked"], 7.0);
        assert_eq!(counters.len(), 2);
    }
}
