// SPDX-License-Identifier: GPL-2.0-only
//! Overbook's own scheduler, attached for the length of a run.

use super::last_words;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Lines of a scheduler's messages that are told of its failure: the verifier's last ones are among them.
const LAST_WORDS: usize = 40;

/// The scheduler that this boot has loaded: loading verifies every program and takes an emulated CPU many seconds,
/// attaching with other arguments takes none.
pub struct Scheduler {
    /// `host` or `guest`.
    command: &'static str,
    loaded: Option<Loaded>,
}

/// A loaded `overbook host` or `guest`, attached or not. Dropping it unloads the scheduler.
struct Loaded {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// A file, since nobody reads along: a pipe would fill up.
    messages: File,
}

impl Scheduler {
    /// `overbook host` or `overbook guest`; nothing is loaded yet.
    pub fn new(command: &'static str) -> Scheduler {
        Scheduler { command, loaded: None }
    }

    /// Attaches the scheduler with `arguments` (those of its command), loading it first if need be, with its
    /// times stretched by `dilation`.
    ///
    /// # Errors
    /// It does not load; the message is its own.
    pub fn attach(&mut self, arguments: &[String], dilation: f64) -> Result<()> {
        // How much is said is settled when it starts.
        let (says, arguments): (Vec<&str>, Vec<&str>) = arguments
            .iter()
            .map(String::as_str)
            .partition(|a| a.trim_start_matches('-').chars().all(|c| c == 'v'));
        let loaded = match &mut self.loaded {
            Some(loaded) => loaded,
            none => none.insert(Loaded::start(self.command, &says, dilation)?),
        };
        let outcome = loaded.ask(&format!("attach {}", serde_json::to_string(&arguments)?));
        if outcome.is_err() {
            self.loaded = None;
        }
        outcome.map(drop)
    }

    /// Detaches it again and returns its counters since it was attached, by name.
    ///
    /// # Errors
    /// The kernel had thrown it out; the message is the kernel's.
    pub fn detach(&mut self) -> Result<BTreeMap<String, f64>> {
        let outcome = self.loaded.as_mut().context("it is not loaded")?.ask("detach");
        if outcome.is_err() {
            self.loaded = None;
        }
        Ok(flatten(&outcome?))
    }
}

impl Loaded {
    fn start(command: &str, says: &[&str], dilation: f64) -> Result<Loaded> {
        let messages = tempfile::tempfile().context("no room for the scheduler's messages")?;
        let mut child = Command::new("/proc/self/exe")
            .args(says)
            .args([command, "--hold", "--stretch", &dilation.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages.try_clone()?)
            .spawn()
            .context("cannot start the scheduler")?;
        let input = child.stdin.take().context("no pipe to the scheduler")?;
        let output = child.stdout.take().context("no pipe from the scheduler")?;
        let mut loaded = Loaded { child, input, answers: BufReader::new(output).lines(), messages };
        loaded.answer()?;
        Ok(loaded)
    }

    fn ask(&mut self, line: &str) -> Result<Value> {
        // If it is gone, its last words say more than the pipe.
        let _ = writeln!(self.input, "{line}");
        self.answer()
    }

    fn answer(&mut self) -> Result<Value> {
        match self.answers.next() {
            Some(Ok(line)) => Ok(serde_json::from_str(&line)?),
            _ => {
                let status = self.child.wait()?;
                bail!("the scheduler failed ({status}): {}", last_words(&self.messages, LAST_WORDS))
            }
        }
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
        for (tier, counts) in vm["tiers"].as_object().into_iter().flatten() {
            for (key, value) in counts.as_object().into_iter().flatten() {
                add(&format!("VMs {tier} {key}"), value);
            }
        }
    }
    for (name, program) in stats["programs"].as_object().into_iter().flatten() {
        let of = |key: &str| program[key].as_f64().unwrap_or(0.0);
        counters.insert(format!("cost of {name}: instructions verified"), of("verified"));
        if of("runs") > 0.0 {
            counters.insert(format!("cost of {name}: runs"), of("runs"));
            counters.insert(format!("cost of {name}: ns per run"), of("run_ns") / of("runs"));
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
            "settings": "slice-us=3000", "keep": 3, "vms": {"7": {"name": "a", "asked": 2}, "9": {"name": "b", "asked": 5}}
        });
        let counters = super::flatten(&stats);
        assert_eq!(counters["overbook: keep"], 3.0);
        assert_eq!(counters["overbook: VMs asked"], 7.0);
        assert_eq!(counters.len(), 2);
    }
}
