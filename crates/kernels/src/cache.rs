// SPDX-License-Identifier: GPL-2.0-only
//! Where fetched kernels and what was built are kept: `kernels/RELEASE/`, `emulators/KEY/`, `patched/KEY/`,
//! `rivals/NAME-VERSION` and `roots/KEY/`, made elsewhere and moved in when complete, so that what has such a name is always whole. A kernel that
//! did not qualify leaves only its reason, in `rejected/`.

use crate::{Kernel, near};
use anyhow::{Context, Result};
use deb_version::compare_versions;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The cache's folder.
#[derive(Clone, Debug)]
pub struct Cache {
    dir: PathBuf,
}

/// Folder of kernels.
const KERNELS: &str = "kernels";

/// Folder of emulators.
pub(crate) const EMULATORS: &str = "emulators";

/// Folder of others' schedulers.
pub(crate) const RIVALS: &str = "rivals";

/// Folder of kernels with this project's patches.
pub(crate) const PATCHED: &str = "patched";

/// Folder of trees of packages.
pub(crate) const ROOTS: &str = "roots";

/// Names of what is not finished, or on its way out, begin so.
const SCRAP: &str = ".part-";

/// Reasons of an older set of rules do not count: raise this when [`crate::qualify()`] judges differently.
const RULES: &str = "2";

/// Held while something is fetched; the operating system gives it back with the file, also when killed.
pub struct Lock {
    _file: File,
}

impl Cache {
    /// `$OVERBOOK_CACHE`, else `$XDG_CACHE_HOME/overbook`, else `~/.cache/overbook`, else
    /// `/var/cache/overbook`.
    pub fn default_dir() -> PathBuf {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        var("OVERBOOK_CACHE")
            .or_else(|| var("XDG_CACHE_HOME").map(|d| d.join("overbook")))
            .or_else(|| var("HOME").map(|d| d.join(".cache/overbook")))
            .unwrap_or_else(|| "/var/cache/overbook".into())
    }

    /// The cache in [`Cache::default_dir`].
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open_default() -> Result<Cache> {
        Cache::open(&Cache::default_dir())
    }

    /// A cache in `dir`, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(dir: &Path) -> Result<Cache> {
        for part in [KERNELS, EMULATORS, PATCHED, RIVALS, ROOTS, "rejected", "apt"] {
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
        self.lock_parts("lock", &[KERNELS, EMULATORS], say)
    }

    /// The like for a part of the cache that can be added to meanwhile.
    pub(crate) fn lock_part(&self, part: &str, say: &mut dyn FnMut(&str)) -> Result<Lock> {
        self.lock_parts(&format!("lock-{part}"), &[part], say)
    }

    fn lock_parts(&self, name: &str, parts: &[&str], say: &mut dyn FnMut(&str)) -> Result<Lock> {
        let path = self.dir.join(name);
        let file = File::create(&path).with_context(|| {
            format!("cannot write {}: OVERBOOK_CACHE names another place for the cache", path.display())
        })?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            say("another overbook fetches or builds the like for the lab: waiting for it");
            flock(&file, FlockOperation::LockExclusive).context("cannot lock the cache")?;
        }
        let entries = parts.iter().map(|part| fs::read_dir(self.dir.join(part)));
        for entry in entries.flatten().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(SCRAP) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(Lock { _file: file })
    }

    /// A folder to unpack a kernel into, before [`Cache::admit`].
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn workshop(&self) -> Result<tempfile::TempDir> {
        self.workshop_in(KERNELS)
    }

    /// The like for a part of the cache.
    pub(crate) fn workshop_in(&self, part: &str) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(SCRAP)
            // Otherwise nobody else could use a cache in /var.
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(self.dir.join(part))
            .context("cannot make a folder in the cache: is the disk full?")
    }

    /// The kernel in a complete tree that is not in the cache yet. `origin` is kept beside it.
    ///
    /// # Errors
    /// The tree holds no kernel, or the disk is full.
    pub fn finish(&self, tree: &Path, release: &str, origin: &str) -> Result<Kernel> {
        fs::write(tree.join("origin"), origin).context("cannot write to the cache: is the disk full?")?;
        kernel_in(tree, release).with_context(|| {
            format!("the packages of {release} hold no kernel image with modules: choose another")
        })
    }

    /// Moves a finished tree in, in place of an older build of the same release.
    ///
    /// # Errors
    /// The tree holds no kernel, or the disk is full.
    pub(crate) fn admit(&self, tree: tempfile::TempDir, release: &str) -> Result<Kernel> {
        self.remove(release)?;
        let home = self.dir.join(KERNELS).join(release);
        fs::rename(tree.keep(), &home).context("cannot move the kernel into the cache")?;
        kernel_in(&home, release)
            .with_context(|| format!("kernel {release} has vanished from the cache: fetch it again"))
    }

    /// Takes a kernel out. It goes under a scrap's name first: killed half way, it would look whole.
    fn remove(&self, release: &str) -> Result<()> {
        let home = self.dir.join(KERNELS).join(release);
        if home.exists() {
            let scrap = self.workshop()?;
            fs::rename(&home, scrap.path().join("old"))
                .context("cannot move an old kernel out of the cache")?;
        }
        Ok(())
    }

    /// Kernels that are there, the newest first.
    pub fn kernels(&self) -> Vec<Kernel> {
        let entries = fs::read_dir(self.dir.join(KERNELS)).into_iter().flatten().flatten();
        let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> =
            names.filter(|name| name.is_ascii() && !name.starts_with(SCRAP)).collect();
        names.sort_by(|a, b| compare_versions(b, a));
        names.iter().filter_map(|name| kernel_in(&self.dir.join(KERNELS).join(name), name)).collect()
    }

    /// The kernel of a name in another part of the cache.
    pub(crate) fn kernel_in(&self, part: &str, name: &str, release: &str) -> Option<Kernel> {
        kernel_in(&self.dir.join(part).join(name), release)
    }

    /// Remembers why a build will not do, so that it is not fetched again.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn reject(&self, key: &str, why: &str) -> Result<()> {
        fs::write(self.reason(key), why).context("cannot write to the cache: is the disk full?")
    }

    /// Why a build was rejected before, if it was.
    pub(crate) fn rejected(&self, key: &str) -> Option<String> {
        fs::read_to_string(self.reason(key)).ok()
    }

    fn reason(&self, key: &str) -> PathBuf {
        self.dir.join("rejected").join(format!("{RULES}_{key}"))
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
        let tree = tree(&cache, "1.2.3");
        cache.finish(tree.path(), "1.2.3", "a test").unwrap();
        assert!(cache.kernels().is_empty(), "a finished tree is not in the cache before it was judged");
        let kernel = cache.admit(tree, "1.2.3").unwrap();
        assert_eq!(cache.kernels(), [kernel]);
    }

    #[test]
    fn a_newer_build_replaces_the_older() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        for origin in ["first", "second"] {
            let tree = tree(&cache, "1.2.3");
            cache.finish(tree.path(), "1.2.3", origin).unwrap();
            assert_eq!(cache.admit(tree, "1.2.3").unwrap().origin, origin);
        }
        assert_eq!(fs::read_dir(dir.path().join(KERNELS)).unwrap().count(), 1, "nothing stays behind");
    }

    #[test]
    fn the_newest_kernel_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        for release in ["6.18.9", "7.2.13", "6.18.15"] {
            let tree = tree(&cache, release);
            cache.finish(tree.path(), release, "a test").unwrap();
            cache.admit(tree, release).unwrap();
        }
        let releases: Vec<String> = cache.kernels().into_iter().map(|k| k.release).collect();
        assert_eq!(releases, ["7.2.13", "6.18.15", "6.18.9"]);
    }

    #[test]
    fn reasons_are_kept_for_these_rules_only() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        fs::write(dir.path().join("rejected/k"), "by rules of old").unwrap();
        assert_eq!(cache.rejected("k"), None);
        cache.reject("k", "too old").unwrap();
        assert_eq!(cache.rejected("k").as_deref(), Some("too old"));
    }

    #[test]
    fn a_second_fetch_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let first = cache.lock(&mut |_| {}).unwrap();
        let (told, hears) = std::sync::mpsc::channel();
        let other = cache.clone();
        let second = std::thread::spawn(move || {
            drop(other.lock(&mut |word| told.send(word.to_string()).unwrap()).unwrap())
        });
        assert!(hears.recv().unwrap().contains("waiting"), "it says why nothing happens");
        drop(first);
        second.join().unwrap();
    }

    #[test]
    fn an_impossible_place_is_one_sentence() {
        let error = Cache::open(Path::new("/proc/overbook")).unwrap_err().to_string();
        assert!(error.contains("OVERBOOK_CACHE") && !error.contains('\n'));
    }
}
