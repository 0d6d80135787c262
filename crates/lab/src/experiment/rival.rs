// SPDX-License-Identifier: GPL-2.0-only
//! A sched_ext scheduler of others, loaded for the length of a run.

use super::last_words;
use crate::machine::describe::scheduler_state;
use crate::machine::task::now_ns;
use crate::scenario::program;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Longest wait for a load: the kernel verifies every program, and an emulated CPU takes its time for it.
const LOAD_PATIENCE: Duration = Duration::from_secs(600);

/// Longest wait for the kernel to take all tasks back.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Lines of what it said that a failure keeps.
const LAST_WORDS: usize = 4;

/// A scheduler that runs. Dropping it unloads it.
pub struct Rival {
    name: String,
    child: Child,
    /// A file, since nobody reads along: a pipe would fill up.
    messages: File,
}

impl Rival {
    /// Starts a program of /bin, and waits until it schedules.
    ///
    /// # Errors
    /// It ends, or does not come to it.
    pub fn start(name: &str, arguments: &[String]) -> Result<Rival> {
        // One that is there still would be taken for this one.
        ensure!(scheduler_state()? == "disabled", "another scheduler is loaded still");
        let messages = tempfile::tempfile().context("no room for the scheduler's messages")?;
        let file = program(name);
        let child = Command::new(format!("/bin/{file}"))
            .args(arguments)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(messages.try_clone()?)
            .stderr(messages.try_clone()?)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let mut rival = Rival { name: file.into(), child, messages };
        let start = now_ns();
        while scheduler_state()? != "enabled" {
            if let Some(status) = rival.child.try_wait()? {
                bail!("{} did not load ({status}): {}", rival.name, rival.last_words());
            }
            if now_ns() - start > LOAD_PATIENCE.as_nanos() as u64 {
                let seconds = LOAD_PATIENCE.as_secs();
                bail!("{} did not load within {seconds} s: {}", rival.name, rival.last_words());
            }
            sleep(Duration::from_millis(50));
        }
        Ok(rival)
    }

    /// Ends it.
    ///
    /// # Errors
    /// The kernel had thrown it out, or it had ended by itself; with what it said last.
    pub fn end(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended meanwhile ({status}): {}", self.name, self.last_words());
        }
        if scheduler_state()? != "enabled" {
            bail!("the kernel has thrown {} out: {}", self.name, self.last_words());
        }
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        ensure!(is_gone()?, "{} did not end within {} s", self.name, END_PATIENCE.as_secs());
        Ok(())
    }

    fn last_words(&self) -> String {
        last_words(&self.messages, LAST_WORDS)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The next run begins without it.
        let _ = is_gone();
    }
}

/// Whether the kernel has taken all tasks back, once it has or has had the time for it.
fn is_gone() -> Result<bool> {
    let start = now_ns();
    while scheduler_state()? != "disabled" {
        if now_ns() - start > END_PATIENCE.as_nanos() as u64 {
            return Ok(false);
        }
        sleep(Duration::from_millis(50));
    }
    Ok(true)
}
