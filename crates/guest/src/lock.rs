// SPDX-License-Identifier: GPL-2.0-only
//! One `overbook guest` at a time, also while it loads or stands by and the kernel knows of none; and one that undoes.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use overbook_cli::files;
use overbook_scheduler::ending::Refused;
use std::fs::{File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const FILE: &str = "/run/overbook/guest.lock";

/// Who may open it: its owner.
const OWN: u32 = 0o600;

/// Longest wait for who only asks whether it is held.
const ASKS: Duration = Duration::from_millis(200);

/// Longest wait for who is about to end.
pub(crate) const LEAVES: Duration = Duration::from_secs(30);

/// Held until it is dropped, or the process ends, however it does, and with it all whom it was [lent](Lock::lend).
pub struct Lock {
    file: Flock<File>,
}

impl Lock {
    /// Takes the lock, waiting for another to end for as long as `patience`, and for who only asks in any case.
    ///
    /// # Errors
    /// Another has it, or the file cannot be made.
    pub fn take(patience: Duration) -> Result<Lock> {
        Lock::of(Path::new(FILE), patience.max(ASKS))?.ok_or_else(|| {
            let taken = "an `overbook guest` runs or stands by already: stop it first, or take over from it with --replace";
            Refused(taken.into()).into()
        })
    }

    /// Whether another has it, as far as this user can tell.
    pub fn is_taken() -> bool {
        is_held(Path::new(FILE))
    }

    /// A child that has this as its output holds the lock too, and keeps it if this process is killed.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn lend(&self) -> Result<Stdio> {
        Ok(self.file.try_clone().context("cannot share a lock")?.into())
    }

    /// The lock of a file; `None` if another has it for longer than `patience`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn of(path: &Path, patience: Duration) -> Result<Option<Lock>> {
        let problem = || format!("cannot lock {}", path.display());
        files::make_dir(path.parent().unwrap_or(Path::new("/"))).with_context(problem)?;
        // Who can open it can lock it: no user may keep another from root's.
        let mut options = File::options();
        let mut file = options.write(true).create(true).mode(OWN).open(path).with_context(problem)?;
        file.set_permissions(Permissions::from_mode(OWN)).with_context(problem)?;
        let start = Instant::now();
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => return Ok(Some(Lock { file })),
                Err((file, Errno::EWOULDBLOCK)) => file,
                Err((_, why)) => return Err(why).with_context(problem),
            };
            if start.elapsed() >= patience {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether another has the lock of a file. To ask is to share it for a moment, and makes no file.
fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::close;
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    #[test]
    fn only_one_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/lock");
        // An older one made it for all to read.
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let first = Lock::of(&path, Duration::ZERO).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWN);
        assert!(Lock::of(&path, Duration::from_millis(30)).unwrap().is_none());
        assert!(is_held(&path));
        drop(first);
        assert!(Lock::of(&path, Duration::ZERO).unwrap().is_some() && !is_held(&path));
        // Who may not look knows nothing of another.
        assert!(!is_held(&dir.path().join("below/lock/is-no-folder")));
    }

    #[test]
    fn a_child_holds_it_for_one_that_was_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::of(&path, Duration::ZERO).unwrap().unwrap();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(lock.lend().unwrap()).spawn().expect("cat");
        // SIGKILL closes what a process has open, and has it unlock nothing.
        let file = lock.file.as_raw_fd();
        std::mem::forget(lock);
        close(file).unwrap();
        assert!(is_held(&path));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(!is_held(&path));
    }
}
