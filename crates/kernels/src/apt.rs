// SPDX-License-Identifier: GPL-2.0-only
//! Debian's kernels by the ordinary client: private lists for suites that the system does not follow, from
//! the mirror that the system already uses.

use crate::{Cache, Kernel};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suites that are looked at, where the mirror has them.
pub const SUITES: [&str; 2] = ["trixie-backports", "sid"];

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PREFIX: &str = "linux-image-";
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
    /// Bytes to download.
    pub size: u64,
}

impl Candidate {
    /// A name for this very build.
    pub fn key(&self) -> String {
        format!("{}_{}_{}", self.suite, self.release, self.version.replace([':', '/'], "_"))
    }
}

/// apt with the lists of one suite.
struct Suite {
    name: &'static str,
    dir: PathBuf,
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
        ] {
            command.arg("-o").arg(option);
        }
        command.env("LC_ALL", "C");
        command
    }
}

fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {program}: fetching a kernel needs Debian's tools; give --kernel and --modules instead"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned() + &text;
        let line =
            message.lines().find(|l| l.starts_with("E:") || l.contains("rror")).or(message.lines().last());
        bail!("{program}: {}", line.unwrap_or("failed without a word").trim());
    }
    Ok(text)
}

/// The mirror of Debian's main archive that this system uses.
fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    let text =
        output(command.args(["indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"]))?;
    main_site(&text).context(
        "apt knows no mirror of Debian's archive: check the system's sources, or give --kernel and --modules",
    )
}

/// The site of a plain suite: security and updates may be served from elsewhere.
fn main_site(targets: &str) -> Option<String> {
    let pairs = targets.lines().filter_map(|l| l.split_once(' '));
    let plain = pairs.filter(|(_, name)| name.chars().all(|c| c.is_ascii_alphabetic()));
    plain.map(|(site, _)| site.to_string()).find(|site| site.trim_end_matches('/').ends_with("/debian"))
}

/// Kernels that Debian offers, the newest first. The cache must be locked.
///
/// # Errors
/// No suite's lists can be had.
pub fn candidates(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Vec<Candidate>> {
    let mirror = mirror()?;
    let mut found = Vec::new();
    let mut failures = Vec::new();
    for name in SUITES {
        let suite = Suite { name, dir: cache.dir().join("apt").join(name) };
        match refresh(&suite, &mirror, say).and_then(|()| offered(&suite)) {
            Ok(more) => found.extend(more),
            Err(why) => failures.push(format!("{name}: {why:#}")),
        }
    }
    if found.is_empty() && !failures.is_empty() {
        bail!("Debian's package lists cannot be fetched ({})", failures.join("; "));
    }
    found.sort_by(|a, b| order(&b.version, &a.version));
    Ok(found)
}

fn refresh(suite: &Suite, mirror: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
    let stamp = suite.dir.join("stamp");
    let age = fs::metadata(&stamp).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    if age.is_some_and(|age| age.as_secs() < LIST_AGE_SECONDS) {
        return Ok(());
    }
    for dir in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(suite.dir.join(dir)).context("cannot write to the cache: is the disk full?")?;
    }
    if !Path::new(KEYRING).exists() {
        bail!("package debian-archive-keyring is not installed");
    }
    let line = format!("deb [signed-by={KEYRING}] {mirror} {} main\n", suite.name);
    fs::write(suite.dir.join("sources.list"), line)?;
    say(&format!("fetching the package list of Debian {}", suite.name));
    output(suite.tool("apt-get").args(["-q", "update"]))?;
    fs::write(stamp, "")?;
    Ok(())
}

fn offered(suite: &Suite) -> Result<Vec<Candidate>> {
    let names = output(suite.tool("apt-cache").args(["pkgnames", PREFIX]))?;
    let names: Vec<&str> = names.lines().filter(|n| release_of(n).is_some()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let shown = output(suite.tool("apt-cache").arg("show").args(&names))?;
    let mut found = Vec::new();
    for stanza in shown.split("\n\n") {
        let Some(mut candidate) = parse(stanza, suite.name) else { continue };
        if candidate.packages.len() > 1 {
            // The image package is empty then, and the sizes that count are the others'.
            let parts = output(suite.tool("apt-cache").arg("show").args(&candidate.packages))?;
            candidate.size =
                parts.lines().filter_map(|l| l.strip_prefix("Size: ")?.parse::<u64>().ok()).sum();
        }
        found.push(candidate);
    }
    Ok(found)
}

fn release_of(package: &str) -> Option<&str> {
    let release = package.strip_prefix(PREFIX)?;
    let numbered = release.starts_with(|c: char| c.is_ascii_digit());
    (numbered && release.ends_with(FLAVOUR)).then_some(release)
}

/// One stanza of `apt-cache show`. From 6.19 on, image and modules are packages of their own.
fn parse(stanza: &str, suite: &str) -> Option<Candidate> {
    let field =
        |name: &str| stanza.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).map(str::trim);
    let package = field("Package")?;
    let release = release_of(package)?;
    let depends = field("Depends").unwrap_or_default();
    let needed = depends.split(',').filter_map(|d| d.split_whitespace().next());
    // linux-base-… holds the configuration then.
    let prefixes = ["linux-base-", "linux-binary-", "linux-modules-"];
    let mut parts: Vec<String> = needed
        .filter(|name| name.ends_with(release) && prefixes.iter().any(|prefix| name.starts_with(prefix)))
        .map(str::to_string)
        .collect();
    if parts.len() < prefixes.len() {
        parts.clear();
    }
    Some(Candidate {
        release: release.into(),
        suite: suite.into(),
        version: field("Version")?.into(),
        packages: if parts.is_empty() { vec![package.into()] } else { parts },
        size: field("Size").and_then(|s| s.parse().ok()).unwrap_or(0),
    })
}

/// Debian's order of versions, as dpkg itself says it.
fn order(a: &str, b: &str) -> std::cmp::Ordering {
    let is = |relation: &str| {
        let status = Command::new("dpkg").args(["--compare-versions", a, relation, b]).status();
        status.is_ok_and(|s| s.success())
    };
    if a == b || is("eq") {
        std::cmp::Ordering::Equal
    } else if is("lt") {
        std::cmp::Ordering::Less
    } else {
        std::cmp::Ordering::Greater
    }
}

/// Downloads and unpacks a candidate into the cache, which must be locked.
///
/// # Errors
/// The mirror has it no more, or the disk is full.
pub fn fetch(cache: &Cache, candidate: &Candidate, say: &mut dyn FnMut(&str)) -> Result<Kernel> {
    let dir = cache.dir().join("apt").join(&candidate.suite);
    let name = SUITES.iter().find(|s| **s == candidate.suite).copied().unwrap_or_default();
    let suite = Suite { name, dir };
    let tree = cache.workshop()?;
    say(&format!(
        "fetching kernel {} from Debian {} ({} MB)",
        candidate.release,
        candidate.suite,
        candidate.size >> 20
    ));
    let packages = candidate.packages.iter().map(|p| format!("{p}={}", candidate.version));
    output(suite.tool("apt-get").arg("-q").arg("download").args(packages).current_dir(tree.path()))
        .with_context(|| format!("cannot fetch kernel {}", candidate.release))?;
    say(&format!("unpacking kernel {}", candidate.release));
    for entry in
        fs::read_dir(tree.path())?.flatten().filter(|e| e.path().extension().is_some_and(|x| x == "deb"))
    {
        output(Command::new("dpkg").arg("-x").arg(entry.path()).arg(tree.path()))?;
        fs::remove_file(entry.path())?;
    }
    let base = if tree.path().join("usr/lib/modules").is_dir() {
        tree.path().join("usr")
    } else {
        tree.path().into()
    };
    output(Command::new("depmod").arg("-b").arg(base).arg(&candidate.release))?;
    let origin = format!("Debian {} {}", candidate.suite, candidate.version);
    cache.admit(tree, &candidate.release, &origin)
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
        assert!(parse("Package: linux-image-cloud-amd64\nVersion: 1\n", "s").is_none());
        assert!(release_of("linux-image-6.18.15+deb13-cloud-amd64-dbg").is_none());
    }

    #[test]
    fn the_mirror_is_the_main_archive() {
        let targets =
            "http://a.example/debian-security bookworm-security\nhttp://b.example/debian bookworm\n";
        assert_eq!(main_site(targets).as_deref(), Some("http://b.example/debian"));
        assert_eq!(main_site("http://a.example/other nodistro\n"), None);
    }

    #[test]
    fn versions_are_ordered_as_debian_does() {
        assert_eq!(order("6.18.9-1", "6.18.15-1"), std::cmp::Ordering::Less);
        assert_eq!(order("7.2.13-1", "7.2.13-1~bpo13+1"), std::cmp::Ordering::Greater);
    }
}
