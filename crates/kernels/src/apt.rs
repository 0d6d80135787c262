// SPDX-License-Identifier: GPL-2.0-only
//! Debian's kernels by the ordinary client: private lists for suites that the system does not follow, from
//! the mirror that the system already uses.

use crate::watched::{output, output_watched};
use crate::{Cache, Kernel};
use anyhow::{Context, Result, bail};
use deb_version::compare_versions;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Suites that are looked at, where the mirror has them. The stable suites have no kernel with sched_ext.
pub const SUITES: [&str; 3] = ["trixie-backports", "sid", "forky"];

pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PREFIX: &str = "linux-image-";
const BASE: &str = "linux-base-";
const FLAVOUR: &str = "-cloud-amd64";

/// Lists older than this are fetched anew: old versions vanish from mirrors.
const LIST_AGE_SECONDS: u64 = 24 * 3600;

/// A kernel that Debian offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `uname -r`.
    pub release: String,
    /// Suite that has it.
    pub suite: String,
    /// Package version.
    pub version: String,
    /// Packages that hold the image and the modules.
    pub packages: Vec<String>,
    /// Parts of it that the suite no longer has, and without which it is no kernel.
    pub gone: Vec<String>,
    /// Bytes to download.
    pub size: u64,
}

impl Candidate {
    /// A name for this very build, whichever suite has it.
    pub fn key(&self) -> String {
        format!("{}_{}", self.release, self.version.replace([':', '/'], "_"))
    }

    /// Why it cannot be had, if that is so: a sentence without its subject.
    pub fn incomplete(&self) -> Option<String> {
        let gone = self.gone.join(" and ");
        (!gone.is_empty()).then(|| format!("Debian {} no longer has {gone}, a part of it", self.suite))
    }
}

/// apt with the lists of one suite.
struct Suite {
    name: &'static str,
    dir: PathBuf,
    /// Sources are wanted besides programs.
    sources: bool,
}

impl Suite {
    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let set = |key: &str, value: PathBuf| format!("{key}={}", value.display());
        for option in [
            set("Dir::State::Lists", self.dir.join("lists")),
            set("Dir::Cache", self.dir.join("cache")),
            set("Dir::Etc::sourcelist", self.dir.join("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".into(),
            // Started as root, apt would otherwise drop to a user who cannot write into root's cache.
            "APT::Sandbox::User=root".into(),
            // Preferences of the system that would stand in the way, and lists that nobody reads here.
            "APT::Default-Release=".into(),
            "Dir::Etc::preferences=/dev/null".into(),
            "Dir::Etc::preferencesparts=/dev/null".into(),
            "Acquire::Languages=none".into(),
            "Acquire::http::Timeout=20".into(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".into(),
        ] {
            command.arg("-o").arg(option);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// The mirror of Debian's main archive that this system uses.
pub(crate) fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    let format = "$(SITE)|$(CODENAME)|$(ORIGIN)|$(LABEL)";
    let text = output(command.args(["indextargets", "--format", format, "Created-By: Packages"]))?;
    main_site(&text).context(
        "apt knows no mirror of Debian's archive: run apt-get update on a Debian system, or give --kernel and --modules",
    )
}

/// The site of a plain suite: security, updates and backports may be served from elsewhere.
fn main_site(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let fields: Vec<&str> = line.split('|').collect();
        let [site, suite, "Debian", "Debian"] = fields[..] else { return None };
        suite.chars().all(|c| c.is_ascii_alphabetic()).then(|| site.to_string())
    })
}

/// How the system's apt gets through to its mirror, as options: proxies, certificates, patience.
pub(crate) fn network() -> Result<Vec<String>> {
    let all = output(Command::new("apt-config").arg("dump")).context("cannot read apt's configuration")?;
    Ok(network_of(&all).map(str::to_string).collect())
}

fn network_of(all: &str) -> impl Iterator<Item = &str> {
    const GROUPS: [&str; 5] = ["http::", "https::", "Check-", "Retries ", "ForceIPv"];
    let lines = all.lines().map(|line| line.trim_end_matches(';'));
    lines.filter(|line| {
        let option = line.strip_prefix("Acquire::");
        option.is_some_and(|option| GROUPS.iter().any(|group| option.starts_with(group)))
    })
}

/// Kernels that Debian offers, the newest first. The cache must be locked. With `update`, the lists are fetched
/// even if they are fresh.
///
/// # Errors
/// No suite's lists can be had.
pub fn candidates(cache: &Cache, update: bool, say: &mut dyn FnMut(&str)) -> Result<Vec<Candidate>> {
    let mirror = mirror()?;
    let mut found = Vec::new();
    let (mut failures, mut absent) = (Vec::new(), 0);
    for name in SUITES {
        let suite = Suite { name, dir: cache.dir().join("apt").join(name), sources: false };
        match refresh(&suite, &mirror, update, say).and_then(|()| offered(&suite)) {
            Ok(more) => found.extend(more),
            Err(why) if format!("{why:#}").contains("does not have a Release file") => {
                log::debug!("the mirror has no suite {name}");
                absent += 1;
            }
            Err(why) => failures.push(format!("{name}: {why:#}")),
        }
    }
    if found.is_empty()
        && let Some(first) = failures.first()
    {
        bail!(
            "Debian's package lists cannot be fetched: check the network, or give --kernel and --modules ({first})"
        );
    }
    if absent == SUITES.len() {
        bail!(
            "{mirror} has none of {}: is it a mirror of all of Debian, and does a proxy let it through?",
            SUITES.join(", ")
        );
    }
    for failure in failures {
        say(&format!("a package list of Debian cannot be fetched and is left out: {failure}"));
    }
    Ok(newest_first(found))
}

/// Sorts, and drops what a later suite has as well.
fn newest_first(mut found: Vec<Candidate>) -> Vec<Candidate> {
    let mut seen = HashSet::new();
    found.retain(|candidate| seen.insert(candidate.key()));
    found.sort_by(|a, b| compare_versions(&b.version, &a.version));
    found
}

fn refresh(suite: &Suite, mirror: &str, update: bool, say: &mut dyn FnMut(&str)) -> Result<()> {
    let stamp = suite.dir.join("stamp");
    let age = fs::metadata(&stamp).and_then(|m| m.modified()).ok().map(|t| t.elapsed().unwrap_or_default());
    if !update && age.is_some_and(|age| age.as_secs() < LIST_AGE_SECONDS) {
        return Ok(());
    }
    for dir in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(suite.dir.join(dir)).context("cannot write to the cache: is the disk full?")?;
    }
    if !Path::new(KEYRING).exists() {
        bail!("package debian-archive-keyring is not installed");
    }
    let mut lines = format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {} main\n", suite.name);
    if suite.sources {
        lines += &format!("deb-src [signed-by={KEYRING}] {mirror} {} main\n", suite.name);
    }
    fs::write(suite.dir.join("sources.list"), lines)
        .context("cannot write to the cache: is the disk full?")?;
    say(&format!("fetching the package list of Debian {}", suite.name));
    let fetched = update_lists(suite, &[], say).or_else(|why| {
        if !expired(&format!("{why:#}")) {
            return Err(why);
        }
        say(&format!(
            "the mirror's package list of Debian {} has expired, and is used all the same, as nothing of it is installed ({why:#})",
            suite.name
        ));
        update_lists(suite, &["-o", "Acquire::Check-Valid-Until=false"], say)
    });
    match fetched {
        Ok(_) => fs::write(stamp, "").context("cannot write to the cache: is the disk full?"),
        // What was fetched before is better than nothing: offline, say.
        Err(why) if age.is_some() => {
            say(&format!("using the older package list of Debian {}: {why:#}", suite.name));
            Ok(())
        }
        Err(why) => Err(why),
    }
}

fn update_lists(suite: &Suite, options: &[&str], say: &mut dyn FnMut(&str)) -> Result<String> {
    let mut command = suite.tool("apt-get");
    output_watched(command.args(["-q", "update", "--error-on=any"]).args(options), &mut |seconds| {
        say(&format!("still fetching the package list of Debian {} ({seconds} s)", suite.name));
    })
}

/// Whether apt has refused a mirror that is not kept up to date. Its signature is another matter.
fn expired(why: &str) -> bool {
    why.contains("Release file for") && why.contains("is expired")
}

fn offered(suite: &Suite) -> Result<Vec<Candidate>> {
    let names = output(suite.tool("apt-cache").args(["pkgnames", PREFIX]))?;
    let names: Vec<&str> = names.lines().filter(|n| release_of(n).is_some()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let shown = output(suite.tool("apt-cache").arg("show").args(&names))?;
    let mut found: Vec<Candidate> =
        shown.split("\n\n").filter_map(|stanza| parse(stanza, suite.name)).collect();
    // The image package of a split kernel is empty, and the sizes that count are the parts'.
    let split = |c: &&Candidate| c.packages.len() > 1;
    let parts: Vec<String> = found
        .iter()
        .filter(split)
        .flat_map(|c| c.packages.iter().map(|p| format!("{p}={}", c.version)))
        .collect();
    if !parts.is_empty() {
        // apt-cache fails if it knows none of them.
        let sizes = sizes(&output(suite.tool("apt-cache").arg("show").args(&parts)).unwrap_or_default());
        let split = found.iter_mut().filter(|c| c.packages.len() > 1);
        split.for_each(|candidate| keep_what_is_there(candidate, &sizes));
    }
    Ok(found)
}

/// Drops parts that the suite does not have. A mirror keeps old images for longer than what they depend on.
fn keep_what_is_there(candidate: &mut Candidate, sizes: &HashMap<(String, String), u64>) {
    let of = |package: &String| sizes.get(&(package.clone(), candidate.version.clone())).copied();
    let (there, gone): (Vec<String>, Vec<String>) =
        candidate.packages.iter().cloned().partition(|package| of(package).is_some());
    candidate.size = there.iter().filter_map(of).sum();
    candidate.packages = there;
    // That one holds the configuration only.
    candidate.gone = gone.into_iter().filter(|package| !package.starts_with(BASE)).collect();
}

/// Bytes to download, by package and version.
fn sizes(shown: &str) -> HashMap<(String, String), u64> {
    let one = |stanza: &str| {
        let key = (field(stanza, "Package")?.to_string(), field(stanza, "Version")?.to_string());
        Some((key, field(stanza, "Size")?.parse().ok()?))
    };
    shown.split("\n\n").filter_map(one).collect()
}

/// A field of one stanza.
fn field<'a>(stanza: &'a str, name: &str) -> Option<&'a str> {
    stanza.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).map(str::trim)
}

fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix(PREFIX)?;
    let numbered = release.starts_with(|c: char| c.is_ascii_digit());
    (numbered && release.ends_with(FLAVOUR)).then_some(release)
}

/// One stanza of `apt-cache show`. From 6.19 on, image and modules are packages of their own.
fn parse(stanza: &str, suite: &str) -> Option<Candidate> {
    let package = field(stanza, "Package")?;
    let release = release_of(package)?;
    let depends = field(stanza, "Depends").unwrap_or_default();
    let names: Vec<&str> = depends.split(',').filter_map(|d| d.split_whitespace().next()).collect();
    let part = |prefix: &str| {
        let wanted = format!("{prefix}{release}");
        names.contains(&wanted.as_str()).then_some(wanted)
    };
    let packages = match (part("linux-binary-"), part("linux-modules-")) {
        // linux-base-… holds the configuration then.
        (Some(binary), Some(modules)) => part(BASE).into_iter().chain([binary, modules]).collect(),
        _ => vec![package.to_string()],
    };
    Some(Candidate {
        release: release.into(),
        suite: suite.into(),
        version: field(stanza, "Version")?.into(),
        packages,
        gone: Vec::new(),
        size: field(stanza, "Size").and_then(|s| s.parse().ok()).unwrap_or(0),
    })
}

/// Downloads and unpacks a candidate beside the cache's kernels; the cache must be locked. Gives the tree, for
/// [`Cache::admit`], and the kernel in it.
///
/// # Errors
/// The mirror has it no more, or the disk is full.
pub fn fetch(cache: &Cache, candidate: &Candidate, say: &mut dyn FnMut(&str)) -> Result<(TempDir, Kernel)> {
    let dir = cache.dir().join("apt").join(&candidate.suite);
    let name = SUITES.iter().find(|s| **s == candidate.suite).copied().unwrap_or_default();
    let suite = Suite { name, dir, sources: false };
    let tree = cache.workshop()?;
    let megabytes = candidate.size.div_ceil(1_000_000);
    say(&format!("fetching kernel {} from Debian {} ({megabytes} MB)", candidate.release, candidate.suite));
    let packages = candidate.packages.iter().map(|p| format!("{p}={}", candidate.version));
    let mut download = suite.tool("apt-get");
    download.arg("-q").arg("download").args(packages).current_dir(tree.path());
    output_watched(&mut download, &mut |_| {
        let there = bytes_in(tree.path()) / 1_000_000;
        say(&format!("fetching kernel {}: {there} of {megabytes} MB", candidate.release));
    })
    .with_context(|| format!("cannot fetch kernel {}", candidate.release))?;
    say(&format!("unpacking kernel {}", candidate.release));
    unpack_all(tree.path())?;
    // Older packages are not merged into /usr.
    let base = if tree.path().join("usr/lib/modules").is_dir() {
        tree.path().join("usr")
    } else {
        tree.path().into()
    };
    if !base.join("lib/modules").join(&candidate.release).join("modules.dep").is_file() {
        // Only root has it on the path.
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        output(Command::new("depmod").env("PATH", path).arg("-b").arg(base).arg(&candidate.release))?;
    }
    let origin = format!("Debian {} {}", candidate.suite, candidate.version);
    let kernel = cache.finish(tree.path(), &candidate.release, &origin)?;
    Ok((tree, kernel))
}

/// Whether a source could not be had as the suite has another version of it by now.
pub(crate) fn is_gone(why: &anyhow::Error) -> bool {
    let why = format!("{why:#}");
    ["Can not find version", "Unable to find a source package"].iter().any(|words| why.contains(words))
}

/// Downloads the source of a package as a suite has it now, and other packages, into a folder. The cache must be
/// locked. With `update`, the lists are fetched even if they are fresh.
///
/// # Errors
/// The mirror has them not, or the disk is full.
pub(crate) fn source(
    cache: &Cache,
    name: &'static str,
    package: &str,
    others: &[&str],
    to: &Path,
    update: bool,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    // Lists of their own: those of programs come more often, and are kept where there are no sources.
    let dir = cache.dir().join("apt").join(format!("{name}-sources"));
    let suite = Suite { name, dir, sources: true };
    refresh(&suite, &mirror()?, update, say)?;
    say(&format!("fetching the source of {package} from Debian {name}"));
    let mut download = suite.tool("apt-get");
    download.args(["-q", "source", "--tar-only", package]).current_dir(to);
    output_watched(&mut download, &mut |_| {
        say(&format!("fetching the source of {package}: {} MB", bytes_in(to) / 1_000_000));
    })
    .with_context(|| format!("cannot fetch the source of {package}"))?;
    if !others.is_empty() {
        output(suite.tool("apt-get").arg("-q").arg("download").args(others).current_dir(to))
            .with_context(|| format!("cannot fetch {}", others.join(" and ")))?;
    }
    Ok(())
}

/// Downloads a package of a suite, and unpacks it, into a folder. The cache must be locked.
///
/// # Errors
/// The mirror has it not, or the disk is full.
pub(crate) fn unpack(
    cache: &Cache,
    name: &'static str,
    package: &str,
    to: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let suite = Suite { name, dir: cache.dir().join("apt").join(name), sources: false };
    refresh(&suite, &mirror()?, false, say)?;
    say(&format!("fetching {package} from Debian {name}"));
    let mut download = suite.tool("apt-get");
    download.args(["-q", "download", package]).current_dir(to);
    output_watched(&mut download, &mut |_| {
        say(&format!("fetching {package}: {} MB", bytes_in(to) / 1_000_000));
    })
    .with_context(|| format!("cannot fetch {package}"))?;
    unpack_all(to)
}

/// Unpacks all packages of a folder there, and removes them.
fn unpack_all(dir: &Path) -> Result<()> {
    for file in fs::read_dir(dir)?.flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|x| x == "deb") {
            output(Command::new("dpkg").arg("-x").arg(&file).arg(dir))?;
            fs::remove_file(&file)?;
        }
    }
    Ok(())
}

/// Bytes of the files in a folder.
fn bytes_in(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stanzas_name_their_packages() {
        let one = "Package: linux-image-6.18.15+deb13-cloud-amd64\nVersion: 6.18.15-1~bpo13+1\n\
            Depends: kmod, linux-base-6.18.15+deb13-cloud-amd64 (= 6.18.15-1~bpo13+1)\nSize: 49146196\n";
        let candidate = parse(one, "s").unwrap();
        assert_eq!(candidate.release, "6.18.15+deb13-cloud-amd64");
        assert_eq!(candidate.packages, ["linux-image-6.18.15+deb13-cloud-amd64"]);
        assert_eq!(candidate.size, 49_146_196);
        let split = "Package: linux-image-7.2.13+deb14-cloud-amd64\nVersion: 7.2.13-1\nDepends: dracut | x, \
            linux-base-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), linux-binary-7.2.13+deb14-cloud-amd64 (= 7.2.13-1), \
            linux-modules-7.2.13+deb14-cloud-amd64 (= 7.2.13-1)\n";
        let packages = parse(split, "s").unwrap().packages;
        assert_eq!(
            packages[1..],
            ["linux-binary-7.2.13+deb14-cloud-amd64", "linux-modules-7.2.13+deb14-cloud-amd64"]
        );
        let packages = parse(&split.replace("linux-base-", "other-"), "s").unwrap().packages;
        assert_eq!(packages.len(), 2, "the configuration's package is no condition");
        assert!(parse("Package: linux-image-cloud-amd64\nVersion: 1\n", "s").is_none());
        assert!(release_of("linux-image-6.18.15+deb13-cloud-amd64-dbg").is_none());
        assert!(release_of("linux-image-6.18.15+deb13-cloud-amd64-unsigned").is_none());
    }

    #[test]
    fn sizes_belong_to_one_version() {
        let shown = "Package: a\nVersion: 1\nSize: 10\n\nPackage: a\nVersion: 2\nSize: 20\n\nPackage: b\nVersion: 1\n";
        let sizes = sizes(shown);
        assert_eq!(sizes[&("a".to_string(), "2".to_string())], 20);
        assert_eq!(sizes.len(), 2);
    }

    #[test]
    fn a_kernel_whose_parts_are_gone_says_so() {
        let mut candidate = parse(
            "Package: linux-image-7.1.3+deb13-cloud-amd64\nVersion: 7.1.3-1\nDepends: linux-base-7.1.3+deb13-cloud-amd64 (= 7.1.3-1), \
             linux-binary-7.1.3+deb13-cloud-amd64 (= 7.1.3-1), linux-modules-7.1.3+deb13-cloud-amd64 (= 7.1.3-1)\n",
            "trixie-backports",
        )
        .unwrap();
        let there = |parts: &[&str]| -> HashMap<(String, String), u64> {
            let key = |p: &&str| (format!("linux-{p}-7.1.3+deb13-cloud-amd64"), "7.1.3-1".to_string());
            parts.iter().map(|p| (key(p), 10)).collect()
        };
        let mut whole = candidate.clone();
        keep_what_is_there(&mut whole, &there(&["binary", "modules"]));
        assert_eq!(
            (whole.packages.len(), whole.size, whole.incomplete()),
            (2, 20, None),
            "it does without linux-base"
        );
        keep_what_is_there(&mut candidate, &there(&["binary"]));
        let why = "Debian trixie-backports no longer has linux-modules-7.1.3+deb13-cloud-amd64, a part of it";
        assert_eq!(candidate.incomplete().as_deref(), Some(why));
    }

    #[test]
    fn an_expired_list_is_told_from_a_forged_one() {
        assert!(expired(
            "apt-get: E: Release file for http://a.example/x/InRelease is expired (invalid since 16d)"
        ));
        assert!(!expired("apt-get: E: The repository 'http://a.example x' is not signed."));
        assert!(!expired("apt-get: E: The following signatures were invalid: EXPKEYSIG; the key is expired"));
    }

    #[test]
    fn how_apt_gets_through_is_told_from_what_it_is() {
        let all = "APT::Architecture \"amd64\";\nAcquire::http::Proxy \"http://a.example:3142\";\n\
                   Acquire::https::CAInfo \"/etc/ca\";\nAcquire::Retries \"3\";\nAcquire::Languages \"none\";\n\
                   Acquire::Check-Valid-Until \"false\";\n";
        let options: Vec<&str> = network_of(all).collect();
        let proxy = "Acquire::http::Proxy \"http://a.example:3142\"";
        let ca = "Acquire::https::CAInfo \"/etc/ca\"";
        let rest = ["Acquire::Retries \"3\"", "Acquire::Check-Valid-Until \"false\""];
        assert_eq!(options, [[proxy, ca], rest].concat());
    }

    #[test]
    fn the_mirror_is_the_main_archive() {
        let targets = "http://a.example/sec|bookworm-security|Debian|Debian-Security\n\
            http://b.example/more|bookworm-backports|Debian Backports|Debian Backports\n\
            http://c.example/new|bookworm-updates|Debian|Debian\n\
            http://d.example/main|bookworm|Debian|Debian\n";
        assert_eq!(main_site(targets).as_deref(), Some("http://d.example/main"));
        assert_eq!(main_site("http://a.example/other|nodistro|X|X\n"), None);
    }

    #[test]
    fn candidates_come_newest_first_and_once() {
        let one = |suite: &str, version: &str| Candidate {
            release: version.split(['-', '~']).next().unwrap().into(),
            suite: suite.into(),
            version: version.into(),
            packages: Vec::new(),
            gone: Vec::new(),
            size: 0,
        };
        let found = vec![
            one("bpo", "7.2.9-1~bpo13+1"),
            one("bpo", "7.2.12-1~bpo13+1"),
            one("sid", "7.2.12-1"),
            one("forky", "7.2.12-1"),
            one("sid", "7.2.13-1"),
        ];
        let order: Vec<String> =
            newest_first(found).into_iter().map(|c| c.suite + " " + &c.version).collect();
        assert_eq!(order, ["sid 7.2.13-1", "sid 7.2.12-1", "bpo 7.2.12-1~bpo13+1", "bpo 7.2.9-1~bpo13+1"]);
    }
}
