// SPDX-License-Identifier: GPL-2.0-only
//! Where fetched kernels are kept: `kernels/RELEASE/`, made elsewhere and moved in when complete, so that a
//! folder of that name is always whole. What did not qualify leaves only its reason, in `rejected/`.

use crate::{Kernel, near};
use anyhow::{Context, Result};
use fd_lock::RwLock;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The cache's folder.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

/// Held while something is fetched.
pub struct Lock {
    // The guard borrows the lock, and both live as long as this.
    _guard: fd_lock::RwLockWriteGuard<'static, File>,
}

impl Cache {
    /// `$OVERBOOK_CACHE`, else `$XDG_CACHE_HOME/overbook`, else `~/.cache/overbook`, else
    /// `/var/cache/overbook`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open_default() -> Result<Cache> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = var("OVERBOOK_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("overbook")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/overbook")))
            .unwrap_or_else(|| "/var/cache/overbook".into());
        Cache::open(&dir)
    }

    /// A cache in `dir`, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path) -> Result<Cache> {
        for part in ["kernels", "rejected", "apt"] {
            fs::create_dir_all(dir.join(part)).with_context(|| {
                format!(
                    "cannot make the cache {}: is the disk full? OVERBOOK_CACHE names another place",
                    dir.display()
                )
            })?;
        }
        Ok(Cache { dir: dir.into() })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the right to fetch, and removes what a killed fetch left behind.
    ///
    /// # Errors
    /// The lock file cannot be opened.
    pub fn lock(&self, say: &mut dyn FnMut(&str)) -> Result<Lock> {
        let file = File::create(self.dir.join("lock")).context("cannot open the cache's lock")?;
        // Given back by the operating system with the file, at the latest at the end of the process.
        let lock: &'static mut RwLock<File> = Box::leak(Box::new(RwLock::new(file)));
        let lock: *mut RwLock<File> = lock;
        // SAFETY: the box is never freed, and the two borrows do not overlap: a failed attempt holds nothing.
        let guard = match unsafe { (*lock).try_write() } {
            Ok(guard) => guard,
            Err(_) => {
                say("another overbook is fetching a kernel: waiting for it");
                // SAFETY: as above.
                unsafe { (*lock).write() }.context("cannot lock the cache")?
            }
        };
        let lock = Lock { _guard: guard };
        for entry in fs::read_dir(self.dir.join("kernels"))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(".part-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(lock)
    }

    /// A folder to unpack a kernel into, before [`Cache::admit`].
    ///
    /// # Errors
    /// It cannot be made.
    pub fn workshop(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(".part-")
            .tempdir_in(self.dir.join("kernels"))
            .context("cannot make a folder in the cache: is the disk full?")
    }

    /// Moves a complete tree in. `origin` is kept beside it.
    ///
    /// # Errors
    /// The tree holds no kernel, or the disk is full.
    pub fn admit(&self, tree: tempfile::TempDir, release: &str, origin: &str) -> Result<Kernel> {
        fs::write(tree.path().join("origin"), origin)?;
        kernel_in(tree.path(), release)
            .with_context(|| format!("the packages of {release} hold no kernel image with modules"))?;
        let home = self.dir.join("kernels").join(release);
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::rename(tree.keep(), &home).context("cannot move the kernel into the cache")?;
        kernel_in(&home, release).with_context(|| format!("kernel {release} has vanished from the cache"))
    }

    /// Kernels that are there, by name, newest series last.
    pub fn kernels(&self) -> Vec<Kernel> {
        let entries = fs::read_dir(self.dir.join("kernels")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names.iter().filter_map(|name| kernel_in(&self.dir.join("kernels").join(name), name)).collect()
    }

    /// Remembers why a fetched kernel will not do, and gives its room back.
    ///
    /// # Errors
    /// The disk is full.
    pub fn reject(&self, key: &str, kernel: &Kernel, why: &str) -> Result<()> {
        fs::write(self.dir.join("rejected").join(key), why)?;
        let _ = fs::remove_dir_all(self.dir.join("kernels").join(&kernel.release));
        Ok(())
    }

    /// Why a package was rejected before, if it was.
    pub fn rejected(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.dir.join("rejected").join(key)).ok()
    }
}

/// The kernel in an unpacked tree. Debian keeps image and configuration in /boot, and from 7.2 on beside the
/// modules.
fn kernel_in(home: &Path, release: &str) -> Option<Kernel> {
    let boot = home.join("boot");
    let modules = near(&boot.join("vmlinuz"), release).filter(|dir| dir.starts_with(home))?;
    let found = |name: &str| {
        let places = [boot.join(format!("{name}-{release}")), modules.join(name)];
        places.into_iter().find(|path| path.is_file())
    };
    Some(Kernel {
        release: release.into(),
        image: found("vmlinuz")?,
        config: found("config"),
        origin: fs::read_to_string(home.join("origin")).ok()?,
        modules,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(cache: &Cache, release: &str) -> tempfile::TempDir {
        let tree = cache.workshop().unwrap();
        let modules = tree.path().join("usr/lib/modules").join(release);
        fs::create_dir_all(tree.path().join("boot")).unwrap();
        fs::create_dir_all(&modules).unwrap();
        fs::write(tree.path().join(format!("boot/vmlinuz-{release}")), "x").unwrap();
        fs::write(modules.join("modules.dep"), "").unwrap();
        tree
    }

    #[test]
    fn kernels_come_in_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let half = tree(&cache, "1.2.3").keep();
        assert!(cache.kernels().is_empty(), "an unfinished fetch is no kernel");
        drop(cache.lock(&mut |_| {}).unwrap());
        assert!(!half.exists(), "a killed fetch is removed by the next");
        let kernel = cache.admit(tree(&cache, "1.2.3"), "1.2.3", "a test").unwrap();
        assert_eq!(cache.kernels(), [kernel.clone()]);
        cache.reject("k", &kernel, "too old").unwrap();
        assert!(cache.kernels().is_empty());
        assert_eq!(cache.rejected("k").as_deref(), Some("too old"));
    }

    #[test]
    fn an_impossible_place_is_one_sentence() {
        let error = Cache::open(Path::new("/proc/overbook")).unwrap_err().to_string();
        assert!(error.contains("OVERBOOK_CACHE") && !error.contains('\n'));
    }
}
