// SPDX-License-Identifier: GPL-2.0-only
//! Puts back what `overbook guest` has changed outside the scheduler, however it ends. The kernel takes tasks back by
//! itself; nobody does that for cpusets, kernel threads, irqbalance, interrupts and the published list. So a small process
//! of its own waits at the end of a pipe: it is told what would have to be undone, and undoes it when the pipe closes, be
//! it by SIGKILL. Whoever kills both (`systemctl kill`, the OOM killer of a cgroup) leaves the same in [`FILE`], and
//! `overbook guest --clean-up`, which the service calls at its end, or the next start undo it. They wait for a keeper that is
//! at it: what it puts back late, and the file that it removes, might be its successor's.

use crate::cpusets::Changed;
use crate::irqbalance::Irqbalance;
use crate::lock::{LEAVES, Lock};
use crate::publish::Published;
use crate::steer::Steering;
use anyhow::{Context, Result};
use overbook_cli::cpulist::Cpus;
use overbook_cli::files;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Name of the hidden subcommand that runs [`serve`].
pub const SUBCOMMAND: &str = "guest-keeper";

/// What has to be undone, while there is something.
pub const FILE: &str = "/run/overbook/undo.json";

/// Locked by a keeper and its employer, until both have ended.
const LOCK: &str = "/run/overbook/undo.lock";

/// What has to be undone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// The published list.
    pub published: Option<PathBuf>,
    /// irqbalance's socket, and what it had banned before.
    pub irqbalance: Option<(String, Cpus)>,
    /// Interrupts that were moved.
    pub steering: Option<Steering>,
    /// Cpusets that were narrowed, and kernel threads that were moved.
    #[serde(default)]
    pub cpusets: Option<Changed>,
}

impl Undo {
    fn run(self) {
        if let Some(file) = self.published {
            drop(Published::new(&file));
        }
        if let Some((socket, banned)) = self.irqbalance {
            // If it has ended meanwhile, it starts anew with its own configuration.
            let _ = Irqbalance { socket, banned }.restore();
        }
        if let Some(mut steering) = self.steering {
            steering.restore();
        }
        if let Some(mut cpusets) = self.cpusets {
            cpusets.restore();
        }
        let _ = fs::remove_file(FILE);
    }

    /// Replaces what is in [`FILE`].
    fn save(&self) -> Result<()> {
        files::replace(Path::new(FILE), &serde_json::to_vec(self)?)
            .with_context(|| format!("cannot write {FILE}"))
    }
}

/// Undoes what a killed `overbook guest` has left, if its keeper could not; waits for the keeper. Nobody else may be running.
///
/// # Errors
/// What it has left cannot be read, or its keeper does not end.
pub fn clean_up() -> Result<()> {
    let _alone = alone()?;
    undo_what_is_left()
}

/// Once nobody undoes anything.
fn alone() -> Result<Lock> {
    let lock = Lock::of(Path::new(LOCK), LEAVES)?;
    lock.context(
        "an earlier `overbook guest` is still being cleaned up after: wait, then start this one again",
    )
}

fn undo_what_is_left() -> Result<()> {
    let text = match fs::read_to_string(FILE) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.with_context(|| format!("cannot read {FILE}"))?,
    };
    let undo: Undo = serde_json::from_str(&text)
        .with_context(|| format!("{FILE} is not readable: remove it, and restart irqbalance"))?;
    undo.run();
    log::info!("an `overbook guest` was killed with all that belongs to it: what it had changed is put back");
    Ok(())
}

/// The keeper, as its employer sees it. Dropping it has everything undone, and waits for that.
pub struct Keeper {
    child: Child,
    /// What it was told last.
    told: Option<Undo>,
    _lock: Lock,
}

impl Keeper {
    /// Starts it.
    ///
    /// # Errors
    /// No process can be started, or an earlier keeper does not end.
    pub fn start() -> Result<Keeper> {
        let lock = alone()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(SUBCOMMAND).stdin(Stdio::piped()).stdout(lock.lend()?);
        let child = command.spawn().context("cannot start the process that cleans up")?;
        Ok(Keeper { child, told: None, _lock: lock })
    }

    /// Says what has to be undone from now on, before it is done.
    ///
    /// # Errors
    /// It has been killed, or [`FILE`] cannot be written.
    pub fn tell(&mut self, undo: Undo) -> Result<()> {
        if self.told.as_ref() == Some(&undo) {
            return Ok(());
        }
        undo.save()?;
        let pipe = self.child.stdin.as_mut().context("the process that cleans up is gone")?;
        let mut line = serde_json::to_vec(&undo)?;
        line.push(b'\n');
        pipe.write_all(&line).context("the process that cleans up is gone")?;
        self.told = Some(undo);
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // If somebody has killed it, its work is ours.
        if !self.child.wait().is_ok_and(|status| status.success())
            && let Err(why) = undo_what_is_left()
        {
            log::warn!("{why:#}");
        }
    }
}

/// The keeper's own life.
pub fn serve() {
    // Ctrl-C at a terminal goes to all processes of the session, and must not end this one before the pipe does.
    // SAFETY: takes no arguments.
    unsafe { libc::setsid() };
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: ignoring a signal runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Whoever never had an employer has nothing to undo, not even what another has written down.
    if let Some(undo) = last(std::io::stdin().lock()) {
        undo.run();
    }
}

/// What was said last, whole: the employer may have been killed in the middle of a line, before it did what that says.
fn last(from: impl BufRead) -> Option<Undo> {
    let lines = from.lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(&line).ok()).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_says_nothing() {
        let line = |banned: usize| {
            let undo = Undo { irqbalance: Some(("x".into(), Cpus::from([banned]))), ..Undo::default() };
            serde_json::to_string(&undo).unwrap()
        };
        let text = format!("{}\n{}\n{}", line(1), line(2), &line(3)[..20]);
        assert_eq!(last(text.as_bytes()).map(|undo| serde_json::to_string(&undo).unwrap()), Some(line(2)));
        assert_eq!(last("".as_bytes()), None);
    }
}
