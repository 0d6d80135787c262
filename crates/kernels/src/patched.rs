// SPDX-License-Identifier: GPL-2.0-only
//! A kernel with this project's series (the folder `kernel/`), or with the first patches of it: Debian's source,
//! configured for the lab, built and kept in the cache. docs/kernel.md says what the patches do.

use crate::watched::{output, output_watched};
use crate::{Cache, Kernel, Want, apt, cache, resolve};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands for the kernel with the first of [`SERIES`], wherever a series of kernels is named; `patched-7.3` for another's,
/// and `patched-0` to `patched-13`, or `patched-7.3-0` and so on, for one with so many of the patches.
pub const PATCHED: &str = "patched";

/// Joins the name of the release.
const SUFFIX: &str = "-overbook";

/// What the kernel has beside what its architecture insists on.
const CONFIG: &str = include_str!("../../../kernel/config");

/// The patches for one series of kernels.
#[derive(Debug)]
pub struct Series {
    /// The kernels: `6.18`.
    pub kernels: &'static str,
    /// Names and texts, in their order.
    pub patches: &'static [(&'static str, &'static str)],
    /// Lines of the configuration that other kernels do not take.
    config: &'static str,
}

/// [`Series`], of files in `kernel/`.
macro_rules! series {
    ($kernels:literal: $($patch:literal)*) => {
        Series {
            kernels: $kernels,
            patches: &[$((
                $patch,
                include_str!(concat!("../../../kernel/", $kernels, "/", $patch, ".patch")),
            )),*],
            config: include_str!(concat!("../../../kernel/", $kernels, "/config")),
        }
    };
}

/// What there are patches for. The first has all of them.
pub static SERIES: [Series; 2] = [
    series!("6.18":
        "0001-deboost" "0002-lag-credit" "0003-proportional" "0004-strict" "0005-pull" "0006-ipi-tracking"
        "0007-receiver-first" "0008-ple-kvm" "0009-preferred-mask" "0010-preferred-sched" "0011-preferred-rt-nohz"
        "0012-steal-governor" "0013-preferred-custom"),
    series!("7.3":
        "0001-deboost" "0002-lag-credit" "0003-strict" "0004-pull" "0005-ipi-tracking" "0006-receiver-first"
        "0007-ple-kvm" "0008-preferred-mask" "0009-preferred-sched" "0010-preferred-rt-nohz" "0011-steal-governor"
        "0012-preferred-custom"),
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

/// Which patches a kernel has: all of a series, or the first so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Patches {
    /// Index into [`SERIES`].
    series: usize,
    count: usize,
}

impl Patches {
    /// All of the first series.
    pub const ALL: Patches = Patches { series: 0, count: SERIES[0].patches.len() };

    /// What `patched`, `patched-3`, `patched-7.3` or `patched-7.3-3` stands for; `None` for the name of another kernel.
    /// An error if there are not so many patches.
    pub fn named(name: &str) -> Option<Result<Patches>> {
        let mut words = name.split('-');
        if words.next() != Some(PATCHED) {
            return None;
        }
        let mut rest = words.peekable();
        let named = rest.peek().and_then(|word| SERIES.iter().position(|series| series.kernels == *word));
        if named.is_some() {
            rest.next();
        }
        let patches = Patches::all_of(named.unwrap_or(0));
        match (rest.next(), rest.next()) {
            (None, _) => Some(Ok(patches)),
            (Some(count), None) => Some(patches.first(count.parse().ok()?)),
            _ => None,
        }
    }

    fn all_of(series: usize) -> Patches {
        Patches { series, count: SERIES[series].patches.len() }
    }

    fn first(self, count: usize) -> Result<Patches> {
        let all = self.series().patches.len();
        ensure!(
            count <= all,
            "the series for {} has {all} patches: ask for 0 to {all}",
            self.series().kernels
        );
        Ok(Patches { count, ..self })
    }

    fn series(self) -> &'static Series {
        &SERIES[self.series]
    }

    /// What [`Patches::named`] understands.
    fn name(self) -> String {
        let mut name = PATCHED.to_string();
        if self.series > 0 {
            name = format!("{name}-{}", self.series().kernels);
        }
        if self.count < self.series().patches.len() {
            name = format!("{name}-{}", self.count);
        }
        name
    }

    /// Lines of the configuration, without the options that only patches behind these bring.
    fn options(self) -> impl Iterator<Item = &'static str> {
        let later = &self.series().patches[self.count..];
        let brings =
            |option: &str| later.iter().any(|(_, patch)| patch.contains(&format!("\n+config {option}\n")));
        let lines = CONFIG.lines().chain(self.series().config.lines());
        lines.filter(move |line| match line.strip_prefix("CONFIG_").and_then(|l| l.split_once('=')) {
            Some((option, _)) => !brings(option),
            None => false,
        })
    }

    /// Changes with the patches, the headers and the configuration, and with Debian's kernel.
    fn key(self, base: &Kernel) -> String {
        let mut hasher = DefaultHasher::new();
        let Series { patches, config, .. } = self.series();
        (&patches[..self.count], HEADERS, CONFIG, config, &base.release, &base.origin).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }

    /// The kernel, if the cache has it.
    fn built(self, cache: &Cache, base: &Kernel) -> Option<Kernel> {
        cache.kernel_in(cache::PATCHED, &self.key(base), &release(base))
    }

    /// Debian's kernel, whose source is patched: the cache's, or with `update` what is newest.
    fn base(self, update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
        let want = Want { series: Some(self.series().kernels.into()), ..Want::default() };
        if update { crate::update(&want, cache, say) } else { resolve(&want, cache, say) }
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
    let base = patches.base(false, cache, say)?;
    patches.built(cache, &base).with_context(|| {
        let name = patches.name();
        format!("the kernel with the project's patches was not built: `overbook lab kernels --fetch {name}` does it")
    })
}

/// Those with all patches of their series that were built, without the network.
pub fn built_already(cache: &Cache) -> Vec<Kernel> {
    let of = |series: usize| {
        let bases = cache.kernels().into_iter();
        let mut bases = bases.filter(move |kernel| crate::matches(&kernel.release, SERIES[series].kernels));
        bases.find_map(|base| Patches::all_of(series).built(cache, &base))
    };
    (0..SERIES.len()).filter_map(of).collect()
}

/// Builds the kernels with these patches, but for those that the cache has: one after the other, those of a series in one
/// source. With `update`, of what is newest in Debian.
///
/// # Errors
/// The source cannot be had, a tool is missing, a patch does not apply, or the disk is full.
pub fn build(wanted: &[Patches], update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<()> {
    for series in 0..SERIES.len() {
        let mut of_series: Vec<Patches> = wanted.iter().copied().filter(|p| p.series == series).collect();
        of_series.sort();
        of_series.dedup();
        if !of_series.is_empty() {
            build_series(&of_series, update, cache, say)?;
        }
    }
    Ok(())
}

/// Those of one series, the fewest patches first.
fn build_series(wanted: &[Patches], update: bool, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<()> {
    let base = wanted[0].base(update, cache, say)?;
    let _lock = cache.lock_part(cache::PATCHED, say)?;
    let missing: Vec<&Patches> =
        wanted.iter().filter(|patches| patches.built(cache, &base).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let shop = cache.workshop_in(cache::PATCHED)?;
    let source = shop.path().join("source");
    let from = unpack(wanted[0], cache, &base, &source, say).map_err(|why| match update {
        false if apt::is_gone(&why) => {
            let newer = format!("overbook lab kernels --fetch {} --update", wanted[0].name());
            why.context(format!(
                "Debian has the source of {} no more: `{newer}` takes what it has",
                base.origin
            ))
        }
        _ => why,
    })?;
    let mut there = 0;
    for patches in missing {
        let done = cache.workshop_in(cache::PATCHED)?;
        for (name, patch) in &patches.series().patches[there..patches.count] {
            let file = shop.path().join(format!("{name}.patch"));
            fs::write(&file, patch).context(FULL)?;
            output(Command::new("patch").args(["-p1", "-s", "-d"]).arg(&source).arg("-i").arg(&file))
                .with_context(|| format!("the patch {name} does not apply to {}", base.release))?;
        }
        there = patches.count;
        configure(*patches, &source)?;
        compile(&source, say)?;
        install(&base, from, &source, done.path())?;
        fs::rename(done.keep(), cache.dir().join(cache::PATCHED).join(patches.key(&base)))
            .context("cannot move the kernel into the cache")?;
    }
    Ok(())
}

/// Debian's source in a folder of the caller's, without a patch, but with the headers that the patches include.
///
/// # Errors
/// There are no patches for such kernels, the folder is there, the source cannot be had, or the disk is full.
pub fn source(kernels: &str, to: &Path, cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<()> {
    let series = SERIES.iter().position(|series| series.kernels == kernels).with_context(|| {
        let all: Vec<&str> = SERIES.iter().map(|series| series.kernels).collect();
        format!("there are no patches for kernels {kernels:?}: name one of {}", all.join(", "))
    })?;
    let patches = Patches::all_of(series);
    let base = patches.base(false, cache, say)?;
    let _lock = cache.lock_part(cache::PATCHED, say)?;
    unpack(patches, cache, &base, to, say).map(drop)
}

/// What a kernel was made of.
#[derive(Clone, Copy)]
enum Source {
    /// Linux as it was released: the source package.
    Released,
    /// With Debian's own patches: what Debian has for builders.
    Debians,
}

/// Fetches, and unpacks into a new folder; says what. The caller holds the lock.
fn unpack(
    patches: Patches,
    cache: &Cache,
    base: &Kernel,
    source: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<Source> {
    ensure!(!source.exists(), "the folder {} is there: name a new one", source.display());
    let shop = cache.workshop_in(cache::PATCHED)?;
    let (from, tarball) = fetch(patches, cache, base, shop.path(), say)?;
    let cannot = || format!("cannot make the folder {}", source.display());
    let parent = source.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::Builder::new();
    let part = part.prefix(".part-").permissions(Permissions::from_mode(0o755)).tempdir_in(parent);
    let part = part.with_context(cannot)?;
    say("unpacking Linux");
    let mut unpack = Command::new("tar");
    unpack.arg("-C").arg(part.path()).args(["--strip-components=1", "-xf"]).arg(&tarball);
    output_watched(&mut unpack, &mut |seconds| say(&format!("unpacking Linux ({seconds} s)")))?;
    for (name, header) in HEADERS {
        let path = part.path().join("include/overbook").join(name);
        fs::create_dir_all(path.parent().unwrap_or(part.path())).context(FULL)?;
        fs::write(path, header).context(FULL)?;
    }
    fs::rename(part.keep(), source).with_context(cannot)?;
    Ok(from)
}

const FULL: &str = "cannot write to the cache: is the disk full?";

/// The source that Debian's kernel was built of, as an archive: the source package, or where the mirror has it no more,
/// the package that has the same for builders, with Debian's own patches.
fn fetch(
    patches: Patches,
    cache: &Cache,
    base: &Kernel,
    shop: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(Source, PathBuf)> {
    let words: Vec<&str> = base.origin.split(' ').collect();
    let ["Debian", suite, version] = words[..] else {
        bail!("{} is not Debian's ({}): it has no source here", base.release, base.origin);
    };
    let suite = apt::SUITES.into_iter().find(|name| *name == suite).context("no such suite")?;
    let _lock = cache.lock(say)?;
    let name = format!("linux-source-{}", patches.series().kernels);
    let source = |update, say: &mut dyn FnMut(&str)| {
        apt::source(cache, suite, &format!("linux={version}"), &[], shop, update, say)
    };
    // The list of sources may be older than that of kernels.
    match source(false, say).or_else(|_| source(true, say)) {
        Ok(()) => Ok((Source::Released, find_in(shop, ".orig.tar.")?)),
        Err(why) => {
            apt::unpack(cache, suite, &format!("{name}={version}"), shop, say).map_err(|_| why)?;
            Ok((Source::Debians, find_in(&shop.join("usr/src"), ".tar.")?))
        }
    }
}

/// The only file in a folder whose name has this part.
fn find_in(dir: &Path, part: &str) -> Result<PathBuf> {
    let files = fs::read_dir(dir)?.flatten().map(|entry| entry.path());
    let mut files =
        files.filter(|file| file.file_name().is_some_and(|name| name.to_string_lossy().contains(part)));
    files.next().context("the package has no source of Linux")
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
    lost.map_or(Ok(()), |option| {
        bail!("this source does not take {option}: mend kernel/{}/config", patches.series().kernels)
    })
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
fn install(base: &Kernel, from: Source, source: &Path, done: &Path) -> Result<()> {
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
    let whose = match from {
        Source::Released => "the project's",
        Source::Debians => "Debian's and the project's",
    };
    fs::write(done.join("origin"), format!("{} with {whose} patches", base.origin)).context(FULL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_that_is_included_comes_along() {
        let patches = SERIES.iter().flat_map(|series| series.patches);
        let texts = patches.map(|(name, text)| ("", *name, *text));
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
        for (name, patch) in SERIES.iter().flat_map(|series| series.patches) {
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
        let fewer = Patches::ALL.first(12).unwrap();
        assert_eq!(built(fewer), None, "another number of patches makes another kernel");
        let other = Kernel { origin: "Debian sid 6.18.15-2".into(), ..base.clone() };
        assert_ne!(Patches::ALL.key(&base), Patches::ALL.key(&other));
    }

    #[test]
    fn a_name_says_how_many_patches() {
        let named = |name| {
            Patches::named(name).map(|patches| match patches {
                Ok(patches) => (patches.name(), patches.series().kernels, patches.count),
                Err(why) => (why.to_string(), "", 0),
            })
        };
        let is = |name: &str, kernels, count| Some((name.to_string(), kernels, count));
        assert_eq!(named("patched"), is("patched", "6.18", 13));
        assert_eq!(named("patched-0"), is("patched-0", "6.18", 0));
        assert_eq!(named("patched-6.18-13"), is("patched", "6.18", 13));
        assert_eq!(named("patched-7.3"), is("patched-7.3", "7.3", 12));
        assert_eq!(named("patched-7.3-2"), is("patched-7.3-2", "7.3", 2));
        let too_many = "the series for 7.3 has 12 patches: ask for 0 to 12";
        assert_eq!(named("patched-7.3-13"), is(too_many, "", 0));
        for other in ["patched-x", "patched-7.2", "patched-7.3-1-1", "patchedx", "6.18"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn options_come_with_their_patches() {
        let has = |count: usize, option: &str| {
            Patches::ALL.first(count).unwrap().options().any(|line| line == option)
        };
        assert!(has(13, "CONFIG_STEAL_GOVERNOR=y") && has(12, "CONFIG_STEAL_GOVERNOR=y"));
        assert!(!has(11, "CONFIG_STEAL_GOVERNOR=y") && has(11, "CONFIG_PREFERRED_CPU=y"));
        assert!(!has(0, "CONFIG_PREFERRED_CPU=y") && has(0, "CONFIG_SCHED_CLASS_EXT=y"));
        for series in 0..SERIES.len() {
            let all: Vec<&str> = Patches::all_of(series).options().collect();
            let distinct: std::collections::HashSet<&str> = all.iter().copied().collect();
            assert_eq!(all.len(), distinct.len(), "an option stands twice in kernel/config");
        }
    }
}
