// SPDX-License-Identifier: GPL-2.0-only
//! Kernels for the lab: found on this host or fetched from Debian, checked, and kept in a cache.
//!
//! * `qualify`: whether a kernel will do, and if not, why, in one sentence.
//! * [`cache`]: where fetched kernels are kept, safe against being killed in the middle.
//! * `apt`: Debian's packages, by the ordinary client with lists of its own.
//! * `modules`: a module with all that it needs.
//! * [`emulator`]: QEMU with this project's patches, built from Debian's source.
//! * [`patched`]: a kernel with this project's patches, built from Debian's source.
//! * [`rivals`]: sched_ext schedulers of others, built from crates.io.
//! * [`roots`]: trees of Debian packages for Linux guests.

mod apt;
pub mod cache;
pub mod emulator;
mod image;
mod kfuncs;
mod modules;
pub mod patched;
mod qualify;
pub mod rivals;
pub mod roots;
mod watched;

use anyhow::{Context, Result, bail};
use deb_version::compare_versions;
use patched::Patches;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use cache::Cache;
pub use emulator::Emulator;
pub use modules::{module_closure, read_module};
pub use qualify::Facts;
use qualify::qualify;

/// Stands for the newest kernel that qualifies, of whatever series.
pub const NEWEST: &str = "newest";

/// Series that are looked for when none is named, the preferred first: the long-term one, then what there is.
pub const SERIES: [&str; 2] = ["6.18", NEWEST];

/// Downloads that may fail before a search gives up: the network or the disk is to blame then.
const FAILURES: usize = 2;

/// A kernel on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The bootable image (bzImage).
    pub image: PathBuf,
    /// The folder that holds `modules.dep`.
    pub modules: PathBuf,
    /// Build configuration, if it came along.
    pub config: Option<PathBuf>,
    /// Where it came from, in words.
    pub origin: String,
}

/// Which kernel is wanted; the default leaves the choice to [`resolve`].
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// A series (`6.18`), the beginning of a release, [`NEWEST`], or [`patched::PATCHED`].
    pub series: Option<String>,
    /// An image by hand.
    pub image: Option<PathBuf>,
    /// Its modules; beside the image or under /lib/modules if absent.
    pub modules: Option<PathBuf>,
}

/// One line of `overbook lab kernels`.
#[derive(Clone, Debug)]
pub struct Listed {
    /// `uname -r`, or the package's name.
    pub release: String,
    /// Where it is or would come from.
    pub origin: String,
    /// Facts of a suitable kernel, or why it is not; `None` if it was not fetched yet.
    pub verdict: Option<std::result::Result<Facts, String>>,
}

/// Finds the kernel to boot: the one given by hand; else the running host's own; else the newest fetched or
/// fetchable one of [`SERIES`]. A suitable kernel in the cache is taken without the network, but for [`NEWEST`].
///
/// # Errors
/// Nothing suitable is to be had; one sentence says why and what to do.
pub fn resolve(want: &Want, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    find(want, false, cache, say)
}

/// Like [`resolve`], but looks whether Debian has something newer than the cache. If it cannot be had, the
/// cache's kernel is taken.
///
/// # Errors
/// As [`resolve`].
pub fn update(want: &Want, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    find(want, true, cache, say)
}

fn find(want: &Want, update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    if let Some(image) = &want.image {
        let kernel = by_hand(image, want.modules.as_deref())?;
        judge(&kernel, say)
            .map_err(|why| anyhow::anyhow!("kernel {} will not do: {why}", image.display()))?;
        return Ok(kernel);
    }
    if want.modules.is_some() {
        bail!("--modules goes with a kernel image: give --kernel FILE too");
    }
    if want.series.is_none()
        && let Some(kernel) = running()
    {
        match judge(&kernel, say) {
            Ok(_) => return Ok(kernel),
            Err(why) => log::debug!("the running kernel {} will not do: {why}", kernel.release),
        }
    }
    if let Some(patches) = want.series.as_deref().and_then(Patches::named) {
        return patched::find(patches?, cache, say);
    }
    let series: Vec<&str> = match &want.series {
        Some(one) => vec![one],
        None => SERIES.to_vec(),
    };
    let mut reasons = Vec::new();
    for one in series {
        match of_series(one, update, cache, say) {
            Ok(kernel) => return Ok(kernel),
            Err(why) => reasons.push(format!("{one}: {why:#}")),
        }
    }
    bail!(
        "no suitable kernel, so name another series, or give --kernel and --modules ({})",
        reasons.join("; ")
    )
}

/// Looks at a kernel, and says that it does: that takes a second or two.
fn judge(kernel: &Kernel, say: &mut dyn FnMut(&str)) -> Result<Facts, String> {
    say(&format!("checking kernel {} ({})", kernel.release, kernel.origin));
    qualify(kernel)
}

fn of_series(series: &str, update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    // What is the newest is not known to the cache.
    let look = update || series == NEWEST;
    if !look && let Some(kernel) = cached(series, cache, say) {
        return Ok(kernel);
    }
    let _lock = cache.lock(say)?;
    // Another process may have fetched it while this one waited.
    if !look && let Some(kernel) = cached(series, cache, say) {
        return Ok(kernel);
    }
    from_debian(series, update, cache, say).or_else(|why| {
        let kernel = if look { cached(series, cache, say) } else { None };
        let Some(kernel) = kernel else { return Err(why) };
        say(&format!("staying with {}: {why:#}", kernel.release));
        Ok(kernel)
    })
}

fn cached(series: &str, cache: &Cache, say: &mut dyn FnMut(&str)) -> Option<Kernel> {
    cache.kernels().into_iter().find(|k| matches(&k.release, series) && judge(k, say).is_ok())
}

fn from_debian(series: &str, update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let mut reasons = Vec::new();
    let mut failures = 0;
    say("looking at what Debian has");
    for candidate in apt::candidates(cache, update, say)?.into_iter().filter(|c| matches(&c.release, series))
    {
        let mut leave = |why: &str| reasons.push(format!("{}: {why}", candidate.release));
        if let Some(why) = cache.rejected(&candidate.key()).or_else(|| candidate.incomplete()) {
            leave(&why);
            continue;
        }
        let origin = format!("Debian {} {}", candidate.suite, candidate.version);
        if let Some(kernel) =
            cache.kernels().into_iter().find(|k| k.release == candidate.release && k.origin == origin)
            && judge(&kernel, say).is_ok()
        {
            return Ok(kernel);
        }
        let (tree, kernel) = match apt::fetch(cache, &candidate, say) {
            Ok(fetched) => fetched,
            // Mirrors drop old versions: the lists may be behind.
            Err(why) if !update => {
                log::debug!("{why:#}");
                return from_debian(series, true, cache, say);
            }
            Err(why) => {
                say(&format!("{} cannot be had: {why:#}", candidate.release));
                leave(&format!("{why:#}"));
                failures += 1;
                if failures < FAILURES {
                    continue;
                }
                break;
            }
        };
        match judge(&kernel, say) {
            Ok(_) => return cache.admit(tree, &candidate.release),
            Err(why) => {
                cache.reject(&candidate.key(), &why)?;
                say(&format!("{} will not do: {why}", candidate.release));
                leave(&why);
            }
        }
    }
    if reasons.is_empty() {
        bail!("Debian has no such kernel in the suites that were looked at ({})", apt::SUITES.join(", "));
    }
    bail!("{}", reasons.join("; "))
}

/// `6.18` matches 6.18.15+deb13-cloud-amd64, not 6.180.
fn matches(release: &str, series: &str) -> bool {
    series == NEWEST
        || release.strip_prefix(series).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn by_hand(image: &Path, modules: Option<&Path>) -> Result<Kernel> {
    if !image.is_file() {
        bail!("there is no kernel image {}: give the path of a vmlinuz", image.display());
    }
    let name = image.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut head = Vec::new();
    let read = File::open(image).and_then(|file| file.take(image::HEAD).read_to_end(&mut head));
    read.with_context(|| {
        format!("cannot read the kernel image {}: run as root, or give another", image.display())
    })?;
    // What the image says itself counts more than its name.
    let named = image::release(&head).or_else(|| name.strip_prefix("vmlinuz-").map(str::to_string));
    let release = match (named, modules.and_then(Path::file_name)) {
        (Some(release), _) => release,
        (None, Some(folder)) => folder.to_string_lossy().into_owned(),
        (None, None) => {
            bail!(
                "cannot tell the release of {name}: give --modules DIR with the folder that holds modules.dep"
            )
        }
    };
    let modules = match modules {
        Some(dir) => dir.to_path_buf(),
        None => near(image, &release)
            .with_context(|| format!("no modules for {release} beside {name}: give --modules DIR"))?,
    };
    if !modules.join("modules.dep").is_file() {
        bail!("{} holds no modules.dep: run depmod for it, or give another --modules", modules.display());
    }
    let configs = [image.with_file_name(format!("config-{release}")), modules.join("config")];
    Ok(Kernel {
        config: configs.into_iter().find(|path| path.is_file()),
        release,
        image: image.into(),
        modules,
        origin: "given by hand".into(),
    })
}

/// Modules in the tree that the image belongs to (`X/boot/vmlinuz`, `X/lib/modules`), or the system's.
fn near(image: &Path, release: &str) -> Option<PathBuf> {
    let tree = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places = [tree.join("usr/lib/modules"), tree.join("lib/modules"), PathBuf::from("/lib/modules")];
    places.into_iter().map(|dir| dir.join(release)).find(|dir| dir.join("modules.dep").is_file())
}

/// The running host's own kernel, if its image and modules are there.
fn running() -> Option<Kernel> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_string();
    let image = PathBuf::from(format!("/boot/vmlinuz-{release}"));
    let kernel = by_hand(&image, None).ok()?;
    Some(Kernel { origin: "this host".into(), ..kernel })
}

/// `7.3` of 7.3.4+deb13-cloud-amd64.
fn series_of(release: &str) -> String {
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Of every series from the long-term one on, the newest build of each suite. Candidates come newest first.
fn worth_a_line(mut candidates: Vec<apt::Candidate>) -> Vec<apt::Candidate> {
    let mut seen = HashSet::new();
    candidates.retain(|candidate| {
        let series = series_of(&candidate.release);
        compare_versions(&series, SERIES[0]).is_ge() && seen.insert((series, candidate.suite.clone()))
    });
    candidates
}

/// All kernels that are known: this host's, fetched ones, and what Debian offers.
///
/// # Errors
/// The cache cannot be read.
pub fn list(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    let host = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    all.push(match running() {
        Some(kernel) => {
            Listed { verdict: Some(judge(&kernel, say)), release: kernel.release, origin: kernel.origin }
        }
        None => Listed {
            release: host.trim().into(),
            origin: "this host".into(),
            verdict: Some(Err("its image in /boot or its modules are not installed".into())),
        },
    });
    let mut seen = Vec::new();
    for kernel in cache.kernels().into_iter().chain(patched::built_already(cache)) {
        seen.push(kernel.release.clone());
        let verdict = Some(judge(&kernel, say));
        all.push(Listed { verdict, release: kernel.release, origin: kernel.origin });
    }
    let candidates = cache.lock(say).and_then(|_lock| apt::candidates(cache, false, say));
    let candidates = candidates.unwrap_or_else(|e| {
        say(&format!("{e:#}"));
        Vec::new()
    });
    for candidate in worth_a_line(candidates) {
        if seen.contains(&candidate.release) {
            continue;
        }
        let verdict = cache.rejected(&candidate.key()).or_else(|| candidate.incomplete()).map(Err);
        all.push(Listed {
            release: candidate.release,
            origin: format!("Debian {}", candidate.suite),
            verdict,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_match_whole_numbers() {
        assert!(matches("6.18.15+deb13-cloud-amd64", "6.18"));
        assert!(matches("6.18.15+deb13-cloud-amd64", "6.18.15"));
        assert!(!matches("6.18.15+deb13-cloud-amd64", "6.1"));
        assert!(!matches("6.180.1", "6.18"));
        assert!(matches("7.3.4+deb13-cloud-amd64", NEWEST));
    }

    #[test]
    fn the_list_has_one_line_for_a_series() {
        let one = |release: &str, suite: &str| apt::Candidate {
            release: release.into(),
            suite: suite.into(),
            version: release.into(),
            packages: Vec::new(),
            gone: Vec::new(),
            size: 0,
        };
        let found = [
            ("7.3.4", "a"),
            ("7.2.13", "b"),
            ("7.2.12", "a"),
            ("7.2.9", "a"),
            ("6.18.15", "a"),
            ("6.17.8", "a"),
        ];
        let left = worth_a_line(found.map(|(release, suite)| one(release, suite)).to_vec());
        let left: Vec<&str> = left.iter().map(|candidate| candidate.release.as_str()).collect();
        assert_eq!(left, ["7.3.4", "7.2.13", "7.2.12", "6.18.15"]);
    }

    #[test]
    fn modules_alone_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let want = Want { modules: Some("/x".into()), ..Want::default() };
        let error = resolve(&want, &cache, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(error, "--modules goes with a kernel image: give --kernel FILE too");
    }

    #[test]
    fn images_by_hand_are_checked() {
        let complain = |image: &Path, modules| by_hand(image, modules).unwrap_err().to_string();
        assert!(complain(Path::new("/nonexistent"), None).contains("there is no kernel image"));
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("bzImage");
        std::fs::write(&image, "x").unwrap();
        assert!(complain(&image, None).contains("give --modules"));
        assert!(complain(&image, Some(dir.path())).contains("no modules.dep"));
        let boot = dir.path().join("boot");
        let modules = dir.path().join("lib/modules/1.2.3");
        std::fs::create_dir_all(&boot).unwrap();
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::write(boot.join("vmlinuz-1.2.3"), "x").unwrap();
        std::fs::write(modules.join("modules.dep"), "").unwrap();
        let kernel = by_hand(&boot.join("vmlinuz-1.2.3"), None).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.modules), ("1.2.3", modules));
    }
}
