// SPDX-License-Identifier: GPL-2.0-only
//! sched_ext schedulers of others, to be measured beside ours: built from crates.io, and kept in the cache.

use crate::cache::{self, Cache};
use crate::watched::{output, output_watched};
use anyhow::{Context, Result, bail};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates, each with a program of its name, and their versions.
pub const RIVALS: [(&str, &str); 7] = [
    ("scx_bpfland", "1.1.4"),
    ("scx_cosmos", "1.1.7"),
    ("scx_flash", "1.1.4"),
    ("scx_lavd", "1.1.4"),
    ("scx_layered", "1.1.4"),
    ("scx_p2dq", "1.1.4"),
    ("scx_rustland", "1.1.4"),
];

/// Where the cache has a rival, built or not.
fn home(cache: &Cache, name: &str) -> Option<PathBuf> {
    let (_, version) = RIVALS.iter().find(|(rival, _)| *rival == name)?;
    Some(cache.dir().join(cache::RIVALS).join(format!("{name}-{version}")))
}

/// Whether a rival is built.
pub fn is_built(cache: &Cache, name: &str) -> bool {
    home(cache, name).is_some_and(|home| home.is_file())
}

/// The program of a name: one of [`RIVALS`], one on the PATH, or a path with a slash.
///
/// # Errors
/// It is not there.
pub fn find(cache: &Cache, name: &str) -> Result<PathBuf> {
    let is_file = |path: &PathBuf| path.is_file();
    if name.contains('/') {
        return Some(PathBuf::from(name))
            .filter(is_file)
            .with_context(|| format!("there is no program {name}"));
    }
    if let Some(home) = home(cache, name) {
        let missing = || format!("{name} is not there: build it with `overbook lab rivals --build {name}`");
        return Some(home).filter(is_file).with_context(missing);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(name)).find(is_file).with_context(|| {
        let known: Vec<&str> = RIVALS.iter().map(|(name, _)| *name).collect();
        format!("there is no scheduler {name}: install it, or take one of {}", known.join(", "))
    })
}

/// Builds these rivals, or all of them if none is named, unless the cache has them.
///
/// # Errors
/// A name is unknown, crates.io cannot be reached, or a build fails.
pub fn build(cache: &Cache, names: &[String], say: &mut dyn FnMut(&str)) -> Result<()> {
    if let Some(name) = names.iter().find(|name| home(cache, name).is_none()) {
        bail!("{name} is none of the schedulers that can be built: see `overbook lab rivals`");
    }
    let wanted = RIVALS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name));
    let _lock = cache.lock_part(cache::RIVALS, say)?;
    // They share most of what they need.
    let shop = cache.workshop_in(cache::RIVALS)?;
    let missing: Vec<_> = wanted.filter(|(name, _)| !is_built(cache, name)).collect();
    for (nth, (name, version)) in missing.iter().enumerate() {
        let step = format!("building {name} {version} ({} of {})", nth + 1, missing.len());
        say(&step);
        install(name, version, shop.path(), &mut |seconds| say(&format!("{step}: {seconds} s")))?;
        let program = shop.path().join("bin").join(name);
        output(Command::new("strip").arg(&program))?;
        fs::rename(program, home(cache, name).context("a rival without a place")?)
            .with_context(|| format!("cannot move {name} into the cache"))?;
    }
    Ok(())
}

fn install(name: &str, version: &str, shop: &Path, tick: &mut dyn FnMut(u64)) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["install", "--locked", "--no-track", "--version", version, name]);
    cargo.arg("--root").arg(shop).arg("--target-dir").arg(shop.join("target"));
    // Not where the settings of a project would count.
    cargo.current_dir(shop);
    if env::var_os("BPF_CLANG").is_none() {
        cargo.env("BPF_CLANG", "clang-19");
    }
    output_watched(&mut cargo, tick).map(drop).with_context(|| format!("{name} cannot be built"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_told_how_to_be_had() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        let why = |name: &str| find(&cache, name).unwrap_err().to_string();
        assert!(why("scx_lavd").contains("overbook lab rivals --build scx_lavd"));
        assert!(why("scx_nonsense").contains("take one of scx_bpfland"));
        assert!(why("/nonexistent/scx").contains("there is no program"));
        assert!(find(&cache, "sh").is_ok(), "what is on the PATH is found");
        fs::write(home(&cache, "scx_lavd").unwrap(), "").unwrap();
        assert!(is_built(&cache, "scx_lavd") && !is_built(&cache, "scx_flash"));
        assert!(find(&cache, "scx_lavd").is_ok());
        assert!(build(&cache, &["scx_nonsense".into()], &mut |_| {}).is_err());
        build(&cache, &["scx_lavd".into()], &mut |_| {}).unwrap();
    }
}
