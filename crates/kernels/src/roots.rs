// SPDX-License-Identifier: GPL-2.0-only
//! Trees of Debian packages that Linux guests take their programs from: unpacked by mmdebstrap, and kept in the cache.

use crate::cache::{self, Cache};
use crate::watched::{output, output_watched};
use crate::{apt, apt::KEYRING};
use anyhow::{Context, Result};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::Command;

/// The suite whose packages are taken, and the emulator's source: a stable one, as others drop a version when the next comes.
pub(crate) const SUITE: &str = "trixie";

/// What every tree has besides: a shell, and the programs that scripts call.
const ALWAYS: [&str; 2] = ["coreutils", "dash"];

/// Folders that only a reader wants, and devices, which not everybody may make.
const LEFT_OUT: [&str; 5] =
    ["./dev", "./usr/share/doc", "./usr/share/info", "./usr/share/locale", "./usr/share/man"];

/// The tree of these packages and all that they depend on, not installed: no script of theirs has run.
///
/// # Errors
/// A package is unknown, the mirror cannot be reached, or the disk is full.
pub fn make(cache: &Cache, packages: &[String], say: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let mut names: Vec<&str> = packages.iter().map(String::as_str).chain(ALWAYS).collect();
    names.sort_unstable();
    names.dedup();
    let mut hasher = DefaultHasher::new();
    (SUITE, &names, LEFT_OUT).hash(&mut hasher);
    let home = cache.dir().join(cache::ROOTS).join(format!("{:016x}", hasher.finish()));
    if home.is_dir() {
        return Ok(home);
    }
    let _lock = cache.lock_part(cache::ROOTS, say)?;
    if home.is_dir() {
        return Ok(home);
    }
    let shop = cache.workshop_in(cache::ROOTS)?;
    let (tar, tree) = (shop.path().join("root.tar"), shop.path().join("tree"));
    let what = packages.join(", ");
    let mut unpack = Command::new("mmdebstrap");
    unpack.args(["--variant=extract", "--quiet", "--architectures=amd64"]);
    // Nothing of what is unpacked runs, so others than root need no root folder of their own.
    unpack.args((!rustix::process::geteuid().is_root()).then_some("--mode=chrootless"));
    unpack.args(apt::network()?.iter().map(|option| format!("--aptopt={option}")));
    unpack.arg("--aptopt=APT::Install-Recommends \"false\"").arg(format!("--include={}", names.join(",")));
    unpack.arg(SUITE).arg(&tar);
    unpack.arg(format!("deb [signed-by={KEYRING}] {} {SUITE} main", apt::mirror()?));
    say(&format!("fetching {what} from Debian {SUITE}"));
    output_watched(&mut unpack, &mut |seconds| {
        say(&format!("fetching {what} from Debian {SUITE} ({seconds} s)"));
    })
    .with_context(|| format!("cannot fetch {what}"))?;
    fs::create_dir(&tree).context("cannot make a folder in the cache: is the disk full?")?;
    let mut tar_x = Command::new("tar");
    tar_x.args(LEFT_OUT.map(|name| format!("--exclude={name}")));
    output(tar_x.args(["--no-same-owner", "-C"]).arg(&tree).arg("-xf").arg(&tar))
        .with_context(|| format!("cannot unpack {what}"))?;
    for dir in ["bin", "lib", "lib64", "sbin"] {
        // Only an installation would make these.
        let _ = std::os::unix::fs::symlink(format!("usr/{dir}"), tree.join(dir));
    }
    fs::rename(&tree, &home).context("cannot move a tree of packages into the cache")?;
    Ok(home)
}
