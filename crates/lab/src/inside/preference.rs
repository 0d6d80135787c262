// SPDX-License-Identifier: GPL-2.0-only
//! For how long CPUs of a Linux guest are preferred, all together. Nothing is done until they change, as each look would
//! take the guest's CPUs from its load.

use super::governor;
use crate::machine::describe;
use crate::machine::task::now_ns;
use anyhow::{Context, Result, anyhow, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// How often it is looked whether to end, and at the kernel's own governor, which tells nobody; ms. A guest that is packed
/// by one is not to be looked at more often than one that is packed by the other.
const REST_MS: u16 = 1000;

/// Sums since the start.
#[derive(Default)]
struct Sums {
    /// Preferred CPUs since `at`.
    cpus: u64,
    at: u64,
    preferred_ns: u64,
    changes: u64,
}

/// Preferred CPUs, and who looks at them.
#[derive(Default)]
pub struct Preferred {
    online: u64,
    sums: Mutex<Sums>,
    /// Why nobody looks any more.
    fault: Mutex<Option<String>>,
}

impl Preferred {
    /// All of so many CPUs are, from now on.
    pub fn new(online: u64) -> Preferred {
        let sums = Mutex::new(Sums { cpus: online, at: now_ns(), ..Sums::default() });
        Preferred { online, sums, ..Preferred::default() }
    }

    /// Looks whenever `overbook guest` says others, until told to end.
    pub fn watch(&self, gone: &AtomicBool) {
        if let (Err(why), Ok(mut fault)) = (self.look_until(gone), self.fault.lock()) {
            *fault = Some(format!("preferred CPUs cannot be watched: {why:#}"));
        }
    }

    fn look_until(&self, gone: &AtomicBool) -> Result<()> {
        let folder =
            Path::new(describe::PREFERRED).parent().context("the file of preferred CPUs is in a folder")?;
        fs::create_dir_all(folder).context("cannot make the folder of preferred CPUs")?;
        let changes = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        changes.add_watch(folder, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE)?;
        while !gone.load(Ordering::Relaxed) {
            let _ = poll(&mut [PollFd::new(changes.as_fd(), PollFlags::POLLIN)], PollTimeout::from(REST_MS));
            while changes.read_events().is_ok_and(|events| !events.is_empty()) {}
            self.look()?;
        }
        Ok(())
    }

    fn look(&self) -> Result<()> {
        let found = describe::preferred_cpus().or_else(governor::preferred_cpus);
        let cpus = found.map_or(self.online, |cpus| cpus.len() as u64);
        self.change(cpus, now_ns())
    }

    fn change(&self, cpus: u64, now: u64) -> Result<()> {
        let mut sums = self.sums.lock().map_err(|_| anyhow!("a counter is broken"))?;
        sums.preferred_ns += sums.cpus * now.saturating_sub(sums.at);
        sums.changes += u64::from(sums.cpus != cpus);
        (sums.cpus, sums.at) = (cpus, now);
        Ok(())
    }

    /// For how long CPUs were preferred, all together, ns, and how often their number changed.
    ///
    /// # Errors
    /// They cannot be watched.
    pub fn so_far(&self) -> Result<(u64, u64)> {
        if let Some(why) = self.fault.lock().map_err(|_| anyhow!("a counter is broken"))?.clone() {
            bail!(why);
        }
        let sums = self.sums.lock().map_err(|_| anyhow!("a counter is broken"))?;
        Ok((sums.preferred_ns + sums.cpus * now_ns().saturating_sub(sums.at), sums.changes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_by_what_was_preferred_in_it() {
        let preferred = Preferred::new(4);
        let start = preferred.sums.lock().unwrap().at;
        preferred.change(2, start + 100).unwrap();
        preferred.change(2, start + 150).unwrap();
        preferred.change(4, start + 200).unwrap();
        let sums = preferred.sums.lock().unwrap();
        assert_eq!((sums.preferred_ns, sums.changes), (4 * 100 + 2 * 100, 2));
    }
}
