// SPDX-License-Identifier: GPL-2.0-only
//! One `overbook guest` at a time, also while it loads or stands by and the kernel knows of none.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use overbook_scheduler::ending::{self, Refused};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

const FILE: &str = "/run/overbook/guest.lock";

/// Who may open it: its owner.
const OWN: u32 = 0o600;

/// Held until it is dropped, or the process ends, however it does.
pub struct Lock {
    _file: Flock<File>,
}

impl Lock {
    /// Takes the lock, waiting for another to end for as long as `patience`.
    ///
    /// # Errors
    /// Another has it, or the file cannot be made.
    pub fn take(patience: Duration) -> Result<Lock> {
        Lock::of(Path::new(FILE), patience)
    }

    /// Whether another has it, as far as this user can tell.
    pub fn is_taken() -> bool {
        is_held(Path::new(FILE))
    }

    fn of(path: &Path, patience: Duration) -> Result<Lock> {
        let problem = || format!("cannot lock {}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).with_context(problem)?;
        // Who can open it can lock it: no user may keep another from root's.
        let mut options = File::options();
        let mut file = options.write(true).create(true).mode(OWN).open(path).with_context(problem)?;
        file.set_permissions(Permissions::from_mode(OWN)).with_context(problem)?;
        let start = Instant::now();
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => return Ok(Lock { _file: file }),
                Err((file, Errno::EWOULDBLOCK)) => file,
                Err((_, why)) => return Err(why).with_context(problem),
            };
            if start.elapsed() >= patience {
                bail!(Refused(
                    "an `overbook guest` runs or stands by already: stop it first, or take over from it with --replace".into()
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether another has the lock of a file.
fn is_held(path: &Path) -> bool {
    Lock::of(path, Duration::ZERO).is_err_and(|why| ending::status(&why) == ending::REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/lock");
        // An older one made it for all to read.
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let first = Lock::of(&path, Duration::ZERO).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWN);
        let why = Lock::of(&path, Duration::from_millis(30)).err().unwrap();
        assert_eq!(ending::status(&why), ending::REFUSED, "starting again is of no use");
        assert!(is_held(&path));
        drop(first);
        assert!(Lock::of(&path, Duration::ZERO).is_ok() && !is_held(&path));
        // Who may not look knows nothing of another.
        assert!(!is_held(&dir.path().join("below/lock/is-no-folder")));
    }
}
