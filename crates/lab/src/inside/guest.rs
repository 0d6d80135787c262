// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest` does what it promises: this machine is the guest; steal times are injected (`--steal-from`), all else is
//! real. [`cpusets`] and [`sched_ext`] are for two cores of two siblings each, [`packing`] for all other shapes.

mod injected;
mod worker;

use super::program::overbook;
use super::{cpusets, packing, preferred as chosen, sched_ext};
use crate::machine::describe::{PREFERRED, online_cpus};
use crate::machine::shape::{SHAPES, Shape};
use crate::machine::task::now_ns;
use crate::protocol::Event;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

pub(super) use injected::Injected;
pub(super) use worker::{Worker, places};

const STAT: &str = "/run/stat";
/// Longest wait for anything but a load.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a scheduler is being loaded: workers mostly rest then. Verifying takes an emulated CPU some 12 s of computing, and
/// beside workers that never rest it has a half of one CPU of four.
static LOADING: AtomicBool = AtomicBool::new(false);

/// Longest wait for a load. Every emulated CPU computes in its turns only: 200 s on a machine of 16.
fn load_patience() -> Result<Duration> {
    Ok(Duration::from_secs(45) * online_cpus()?.len() as u32)
}

/// Checks a machine of a shape; says every step that holds.
///
/// # Errors
/// The first one that does not.
pub fn check(shape: &Shape, say: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    say(Event::Log(format!("{}: {}", shape.name, shape.about)))?;
    if shape.name == SHAPES[0].name {
        cpusets::check(&mut |text| say(Event::Log(text.into())))?;
        sched_ext::check(&mut |text| say(Event::Log(text.into())))
    } else {
        if !shape.arguments.is_empty() {
            chosen::check(&mut |text| say(Event::Log(text.into())))?;
        }
        packing::check(shape, say)
    }
}

pub(super) fn preferred() -> String {
    fs::read_to_string(PREFERRED).unwrap_or_default().trim().to_string()
}

pub(super) fn stats() -> Result<Value> {
    let output = overbook(&["guest", "--status"])?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("`overbook guest --status` prints no JSON: {}", String::from_utf8_lossy(&output.stderr))
    })
}

pub(super) fn wait(patience: Duration, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = now_ns();
    while !done()? {
        if now_ns() - start > patience.as_nanos() as u64 {
            let status = overbook(&["guest", "--status"]).map_or_else(
                |e| e.to_string(),
                |o| String::from_utf8_lossy(&[o.stdout, o.stderr].concat()).into_owned(),
            );
            bail!(
                "it did not {what} within {} s; preferred: {:?}; {status}",
                patience.as_secs(),
                preferred()
            );
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A running `overbook guest`.
pub(super) struct Guest(Child);

impl Guest {
    pub fn start(more: &[&str]) -> Result<Guest> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["guest", "--steal-from", STAT]).args(more).stdin(Stdio::null());
        Ok(Guest(command.spawn().context("cannot start `overbook guest`")?))
    }

    pub fn wait(
        &mut self,
        patience: Duration,
        what: &str,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        wait(patience, what, || {
            if let Some(status) = self.0.try_wait()? {
                bail!("`overbook guest` ended ({status}) and did not {what}");
            }
            done()
        })
    }

    /// Workers rest until it is loaded.
    pub fn wait_for_load(&mut self, what: &str, done: impl FnMut() -> Result<bool>) -> Result<()> {
        LOADING.store(true, Ordering::Relaxed);
        let loaded = load_patience().and_then(|patience| self.wait(patience, what, done));
        LOADING.store(false, Ordering::Relaxed);
        loaded
    }

    pub fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }

    pub fn end(mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "`overbook guest` ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
