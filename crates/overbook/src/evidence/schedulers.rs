// SPDX-License-Identifier: GPL-2.0-only
//! EEVDF and `overbook host` in turns.

use anyhow::{Context, Result, bail};
use overbook_scheduler::preflight;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after a change nothing is looked at.
const SETTLE: Duration = Duration::from_secs(1);

/// Who is to schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Nobody of sched_ext's, or whoever is there already.
    AsItIs,
    /// `overbook host`.
    Overbook,
}

/// The order of both: each comes first as often as the other, so that a drift of the load is neither's.
pub fn turns(pieces: usize, may_load: bool) -> Vec<Who> {
    let of = |nth: usize| match nth % 4 {
        1 | 2 if may_load => Who::Overbook,
        _ => Who::AsItIs,
    };
    (0..pieces).map(of).collect()
}

/// `overbook host` as a process of ours; it goes with the value, and with us.
#[derive(Default)]
pub struct Switch(Option<Child>);

impl Switch {
    /// Has somebody schedule.
    ///
    /// # Errors
    /// `overbook host` does not come up, or has ended by itself; it has said why.
    pub fn to(&mut self, who: Who, stop: &AtomicBool) -> Result<()> {
        match (who, self.0.is_some()) {
            (Who::AsItIs, true) => self.end()?,
            (Who::Overbook, true) => return self.still_runs(),
            (Who::Overbook, false) => self.begin(stop)?,
            (Who::AsItIs, false) => return Ok(()),
        }
        crate::report::sleep_until(Instant::now() + SETTLE, stop);
        Ok(())
    }

    fn begin(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("host").stdin(Stdio::null()).stdout(Stdio::null());
        // Ctrl-C is for us, who end it.
        command.process_group(0);
        // No defaults of this machine's: figures of two hosts are to be of one scheduler.
        command.env("OVERBOOK_CONFIG", "/dev/null");
        // SAFETY: a system call only.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().context("cannot start `overbook host`")?;
        loop {
            if let Some(status) = child.try_wait()? {
                bail!("`overbook host` did not come up, and ended with {}", words(status));
            }
            if preflight::loaded().is_some_and(|name| name.starts_with("overbook")) {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.0 = Some(child);
        Ok(())
    }

    /// An error if it does not.
    fn still_runs(&mut self) -> Result<()> {
        let Some(child) = &mut self.0 else { return Ok(()) };
        match child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                self.0 = None;
                bail!("`overbook host` ended by itself, with {}", words(status));
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        self.still_runs()?;
        let Some(mut child) = self.0.take() else { return Ok(()) };
        // SAFETY: a system call on a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        child.wait()?;
        Ok(())
    }
}

/// How a process has ended.
fn words(status: ExitStatus) -> String {
    status.code().map_or_else(|| "a signal".into(), |code| format!("status {code}"))
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_has_ended_by_itself_is_told_of_once() {
        let ended = |code: u32| {
            let mut child = Command::new("sh").args(["-c", &format!("exit {code}")]).spawn().expect("sh");
            child.wait().unwrap();
            Switch(Some(child))
        };
        let stop = AtomicBool::new(true);
        for who in [Who::Overbook, Who::AsItIs] {
            let mut switch = ended(3);
            let why = switch.to(who, &stop).unwrap_err().to_string();
            assert_eq!(why, "`overbook host` ended by itself, with status 3");
            switch.to(Who::AsItIs, &stop).unwrap();
        }
    }

    #[test]
    fn both_have_half_of_the_time_and_neither_is_always_first() {
        let all = turns(8, true);
        assert_eq!(all.iter().filter(|who| **who == Who::Overbook).count(), 4);
        assert_eq!(
            (all[0], all[1], all[2], all[3]),
            (Who::AsItIs, Who::Overbook, Who::Overbook, Who::AsItIs)
        );
        assert!(turns(8, false).iter().all(|who| *who == Who::AsItIs));
    }
}
