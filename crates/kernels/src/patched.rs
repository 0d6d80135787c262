// SPDX-License-Identifier: GPL-2.0-only
//! A kernel with this project's series (the folder `kernel/`), or with the first patches of it: Debian's source,
//! configured for the lab, built and kept in the cache. docs/kernel.md says what the patches do.

use crate::watched::{output, output_watched};
use crate::{Cache, Kernel, Want, apt, cache, resolve};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

/// Stands for the kernel with the series, wherever a series of kernels is named; `patched-0` to `patched-13` for one
/// with so many of its patches.
pub const PATCHED: &str = "patched";

/// The series of kernels that the patches are for.
const BASE: &str = "6.18";

/// Joins the name of the release.
const SUFFIX: &str = "-overbook";

/// What the kernel has beside what its architecture insists on.
const CONFIG: &str = include_str!("../../../kernel/config");

/// The patches, in their order.
pub const PATCHES: [(&str, &str); 13] = [
    ("deboost", include_str!("../../../kernel/6.18/0001-deboost.patch")),
    ("lag-credit", include_str!("../../../kernel/6.18/0002-lag-credit.patch")),
    ("proportional", include_str!("../../../kernel/6.18/0003-proportional.patch")),
    ("strict", include_str!("../../../kernel/6.18/0004-strict.patch")),
    ("pull", include_str!("../../../kernel/6.18/0005-pull.patch")),
    ("ipi-tracking", include_str!("../../../kernel/6.18/0006-ipi-tracking.patch")),
    ("receiver-first", include_str!("../../../kernel/6.18/0007-receiver-first.patch")),
    ("ple-kvm", include_str!("../../../kernel/6.18/0008-ple-kvm.patch")),
    ("preferred-mask", include_str!("../../../kernel/6.18/0009-preferred-mask.patch")),
    ("preferred-sched", include_str!("../../../kernel/6.18/0010-preferred-sched.patch")),
    ("preferred-rt-nohz", include_str!("../../../kernel/6.18/0011-preferred-rt-nohz.patch")),
    ("steal-governor", include_str!("../../../kernel/6.18/0012-steal-governor.patch")),
    ("preferred-custom", include_str!("../../../kernel/6.18/0013-preferred-custom.patch")),
];

/// Headers that the patches include, below `include/overbook/`.
const HEADERS: [(&str, &str); 10] = [
    ("types.h", include_str!("../../../policy/types.h")),
    ("math.h", include_str!("../../../policy/math.h")),
    ("vtime.h", include_str!("../../../policy/vtime.h")),
    ("steal.h", include_str!("../../../policy/steal.h")),
    ("relations.h", include_str!("../../../policy/relations.h")),
    ("published/credit.h", include_str!("../../../policy/published/credit.h")),
    ("published/deboost.h", include_str!("../../../policy/published/deboost.h")),
    ("published/ipi.h", include_str!("../../../policy/published/ipi.h")),
    ("published/proportional.h", include_str!("../../../policy/published/proportional.h")),
    ("published/ratelimit.h", include_str!("../../../policy/published/ratelimit.h")),
];

/// How many of the patches a kernel has: all, or the first so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Patches(usize);

impl Patches {
    /// The whole series.
    pub const ALL: Patches = Patches(PATCHES.len());

    /// The first `count`.
    ///
    /// # Errors
    /// There are not so many.
    pub fn first(count: usize) -> Result<Patches> {
        ensure!(count <= PATCHES.len(), "the series has {} patches: ask for 0 to {0}", PATCHES.len());
        Ok(Patches(count))
    }

    /// What `patched`, or `patched-3`, stands for; `None` for the name of another kernel.
    pub fn named(name: &str) -> Option<Result<Patches>> {
        match name.strip_prefix(PATCHED)? {
            "" => Some(Ok(Patches::ALL)),
            rest => Some(Patches::first(rest.strip_prefix('-')?.parse().ok()?)),
        }
    }

    /// Lines of the configuration, without the options that only patches behind these bring.
    fn options(self) -> impl Iterator<Item = &'static str> {
        let later = &PATCHES[self.0..];
        let brings =
            |option: &str| later.iter().any(|(_, patch)| patch.contains(&format!("\n+config {option}\n")));
        CONFIG.lines().filter(move |line| {
            match line.strip_prefix("CONFIG_").and_then(|l| l.split_once('=')) {
                Some((option, _)) => !brings(option),
                None => false,
            }
        })
    }

    /// Changes with the patches, the headers and the configuration, and with Debian's kernel.
    fn key(self, base: &Kernel) -> String {
        let mut hasher = DefaultHasher::new();
        (&PATCHES[..self.0], HEADERS, CONFIG, &base.release, &base.origin).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The kernel, if the cache has it.
    fn built(self, cache: &Cache, base: &Kernel) -> Option<Kernel> {
        cache.kernel_in(cache::PATCHED, &self.key(base), &release(base))
    }
}

/// `6.18.15-overbook` of 6.18.15+deb13-cloud-amd64.
fn release(base: &Kernel) -> String {
    let version = base.release.split(['+', '-']).next().unwrap_or_default();
    version.to_string() + SUFFIX
}

/// The kernel with these patches in the cache.
///
/// # Errors
/// It was not built, or Debian's kernel that it is made of cannot be had.
pub fn find(patches: Patches, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let base = base(cache, say)?;
    patches.built(cache, &base).with_context(|| {
        let name = if patches == Patches::ALL { PATCHED.into() } else { format!("{PATCHED}-{}", patches.0) };
        format!("the kernel with the project's patches was not built: `overbook lab kernels --fetch {name}` does it")
    })
}

/// Whether the one with all was built, without the network.
pub fn built_already(cache: &Cache) -> Option<Kernel> {
    let bases = cache.kernels().into_iter().filter(|kernel| crate::matches(&kernel.release, BASE));
    bases.filter_map(|base| Patches::ALL.built(cache, &base)).next()
}

fn base(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    resolve(&Want { series: Some(BASE.into()), ..Want::default() }, cache, say)
}

/// Builds the kernels with so many patches each, but for those that the cache has: one after the other, in one source.
///
/// # Errors
/// The source cannot be had, a tool is missing, a patch does not apply, or the disk is full.
pub fn build(wanted: &[Patches], cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let base = base(cache, say)?;
    let _lock = cache.lock_part(cache::PATCHED, say)?;
    let mut missing: Vec<Patches> =
        wanted.iter().copied().filter(|patches| patches.built(cache, &base).is_none()).collect();
    missing.sort();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let shop = cache.workshop_in(cache::PATCHED)?;
    let source = shop.path().join("source");
    unpack(cache, &base, &source, say)?;
    let mut there = 0;
    for patches in missing {
        let done = cache.workshop_in(cache::PATCHED)?;
        for (name, patch) in &PATCHES[there..patches.0] {
            let file = shop.path().join(format!("{name}.patch"));
            fs::write(&file, patch).context(FULL)?;
            output(Command::new("patch").args(["-p1", "-s", "-d"]).arg(&source).arg("-i").arg(&file))
                .with_context(|| format!("the patch {name} does not apply to {}", base.release))?;
        }
        there = patches.0;
        configure(patches, &source)?;
        compile(&source, say)?;
        install(&base, &source, done.path())?;
        fs::rename(done.keep(), cache.dir().join(cache::PATCHED).join(patches.key(&base)))
            .context("cannot move the kernel into the cache")?;
    }
    Ok(())
}

/// Debian's source in a folder of the caller's, without a patch, but with the headers that the patches include.
///
/// # Errors
/// The folder is there, the source cannot be had, or the disk is full.
pub fn source(to: &Path, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<()> {
    let base = base(cache, say)?;
    let _lock = cache.lock_part(cache::PATCHED, say)?;
    unpack(cache, &base, to, say)
}

/// Fetches, and unpacks into a new folder. The caller holds the lock.
fn unpack(cache: &Cache, base: &Kernel, source: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    fs::create_dir(source).with_context(|| format!("cannot make the folder {}", source.display()))?;
    let shop = cache.workshop_in(cache::PATCHED)?;
    fetch(cache, base, shop.path(), say)?;
    say("unpacking Linux");
    for file in fs::read_dir(shop.path())?.flatten().map(|entry| entry.path()) {
        if file.file_name().is_some_and(|name| name.to_string_lossy().contains(".orig.tar.")) {
            let mut unpack = Command::new("tar");
            unpack.arg("-C").arg(source).args(["--strip-components=1", "-xf"]).arg(&file);
            output_watched(&mut unpack, &mut |seconds| say(&format!("unpacking Linux ({seconds} s)")))?;
        }
    }
    for (name, header) in HEADERS {
        let path = source.join("include/overbook").join(name);
        fs::create_dir_all(path.parent().unwrap_or(source)).context(FULL)?;
        fs::write(path, header).context(FULL)?;
    }
    Ok(())
}

const FULL: &str = "cannot write to the cache: is the disk full?";

/// The source that Debian's kernel was built of.
fn fetch(cache: &Cache, base: &Kernel, shop: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let words: Vec<&str> = base.origin.split(' ').collect();
    let ["Debian", suite, version] = words[..] else {
        bail!("{} is not Debian's ({}): it has no source here", base.release, base.origin);
    };
    let suite = apt::SUITES.into_iter().find(|name| *name == suite).context("no such suite")?;
    let _lock = cache.lock(say)?;
    apt::source(cache, suite, &format!("linux={version}"), &[], shop, say)
}

/// [`CONFIG`] and no more, all of it.
fn configure(patches: Patches, source: &Path) -> Result<()> {
    let wanted = source.join("overbook.config");
    let options: String = patches.options().flat_map(|line| [line, "\n"]).collect();
    fs::write(&wanted, options).context(FULL)?;
    output(kbuild(source).env("KCONFIG_ALLCONFIG", &wanted).arg("allnoconfig"))
        .context("the kernel cannot be configured")?;
    let made = fs::read_to_string(source.join(".config")).context("the kernel was not configured")?;
    let lost = patches.options().find(|option| !made.lines().any(|line| line == *option));
    lost.map_or(Ok(()), |option| bail!("this source does not take {option}: mend kernel/config"))
}

fn kbuild(source: &Path) -> Command {
    let mut make = Command::new("make");
    // Two builds of one series are the same.
    make.current_dir(source).args(["-s", "KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=overbook"]);
    make.args(["KBUILD_BUILD_HOST=lab", "LOCALVERSION="]);
    // Only root has depmod on the path.
    make.env("PATH", std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin");
    make.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("MAKELEVEL");
    make
}

fn compile(source: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = kbuild(source);
    make.arg(format!("-j{jobs}")).args(["bzImage", "modules"]);
    say("building the kernel");
    output_watched(&mut make, &mut |seconds| {
        if seconds.is_multiple_of(15) {
            say(&format!("building the kernel: {} min {} s of some 6 min", seconds / 60, seconds % 60));
        }
    })
    .map(drop)
    .context("the kernel cannot be built")
}

/// Where Debian's packages have image, configuration and modules.
fn install(base: &Kernel, source: &Path, done: &Path) -> Result<()> {
    let release = release(base);
    let boot = done.join("boot");
    fs::create_dir(&boot).context(FULL)?;
    let built = source.join("arch/x86/boot/bzImage");
    fs::copy(built, boot.join(format!("vmlinuz-{release}"))).context(FULL)?;
    fs::copy(source.join(".config"), boot.join(format!("config-{release}"))).context(FULL)?;
    let to = format!("INSTALL_MOD_PATH={}", done.join("usr").display());
    output(kbuild(source).args([&to, "INSTALL_MOD_STRIP=1", "modules_install"]))
        .context("the kernel's modules cannot be installed")?;
    let modules = done.join("usr/lib/modules").join(&release);
    // A link into a source that goes.
    let _ = fs::remove_file(modules.join("build"));
    fs::write(done.join("origin"), format!("{} with the project's patches", base.origin)).context(FULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_that_is_included_comes_along() {
        let texts = PATCHES.iter().map(|(name, text)| ("", *name, *text));
        let headers = HEADERS
            .iter()
            .map(|(name, text)| (name.rsplit_once('/').map_or("", |(dir, _)| dir), *name, *text));
        for (dir, name, text) in texts.chain(headers) {
            for line in text.lines().filter(|line| line.contains("#include")) {
                let wanted = match (line.split_once("<overbook/"), line.split_once("#include \"")) {
                    (Some((_, rest)), _) => rest.trim_end_matches('>').to_string(),
                    (None, Some((_, rest))) if !dir.is_empty() || HEADERS.iter().any(|(n, _)| *n == name) => {
                        let rest = rest.trim_end_matches('"');
                        rest.strip_prefix("../").map_or_else(
                            || if dir.is_empty() { rest.into() } else { format!("{dir}/{rest}") },
                            str::to_string,
                        )
                    }
                    _ => continue,
                };
                assert!(HEADERS.iter().any(|(there, _)| *there == wanted), "{name} includes {wanted}");
            }
        }
    }

    #[test]
    fn every_patch_says_why() {
        for (name, patch) in PATCHES {
            assert!(patch.contains("\nSubject: ") && patch.contains("\n---\n"), "{name}");
            let (words, _) = patch.split_once("\n---\n").unwrap();
            let why = words.split_once("\n\n").map_or(0, |(_, why)| why.split_whitespace().count());
            assert!(why > 60, "{name} has {why} words of reason");
        }
    }

    #[test]
    fn a_kernel_that_was_not_built_says_how() {
        let base = Kernel {
            release: "6.18.15+deb13-cloud-amd64".into(),
            image: "/x".into(),
            modules: "/x".into(),
            config: None,
            origin: "Debian trixie-backports 6.18.15-1~bpo13+1".into(),
        };
        assert_eq!(release(&base), "6.18.15-overbook");
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let built = |patches: Patches| patches.built(&cache, &base).map(|kernel| kernel.release);
        assert_eq!(built(Patches::ALL), None);
        let home = dir.path().join(cache::PATCHED).join(Patches::ALL.key(&base));
        let modules = home.join("usr/lib/modules/6.18.15-overbook");
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(built(Patches::ALL), None, "a folder alone is no kernel");
        fs::create_dir(home.join("boot")).unwrap();
        for file in
            ["boot/vmlinuz-6.18.15-overbook", "usr/lib/modules/6.18.15-overbook/modules.dep", "origin"]
        {
            fs::write(home.join(file), "x").unwrap();
        }
        assert_eq!(built(Patches::ALL).as_deref(), Some("6.18.15-overbook"));
        assert_eq!(built(Patches(12)), None, "another number of patches makes another kernel");
        let other = Kernel { origin: "Debian sid 6.18.15-2".into(), ..base.clone() };
        assert_ne!(Patches::ALL.key(&base), Patches::ALL.key(&other));
    }

    #[test]
    fn a_name_says_how_many_patches() {
        let named = |name| Patches::named(name).map(|patches| patches.map_err(|e| e.to_string()));
        assert_eq!(named("patched"), Some(Ok(Patches(13))));
        assert_eq!(named("patched-0"), Some(Ok(Patches(0))));
        assert_eq!(named("patched-14"), Some(Err("the series has 13 patches: ask for 0 to 13".into())));
        assert_eq!(named("patched-x"), None);
        assert_eq!(named("6.18"), None);
    }

    #[test]
    fn options_come_with_their_patches() {
        let has = |count: usize, option: &str| Patches(count).options().any(|line| line == option);
        assert!(has(13, "CONFIG_STEAL_GOVERNOR=y") && has(12, "CONFIG_STEAL_GOVERNOR=y"));
        assert!(!has(11, "CONFIG_STEAL_GOVERNOR=y") && has(11, "CONFIG_PREFERRED_CPU=y"));
        assert!(!has(0, "CONFIG_PREFERRED_CPU=y") && has(0, "CONFIG_SCHED_CLASS_EXT=y"));
        let all: Vec<&str> = Patches::ALL.options().collect();
        let distinct: std::collections::HashSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len(), "an option stands twice in kernel/config");
    }
}
