// SPDX-License-Identifier: GPL-2.0-only
//! QEMU with this project's patches (the folder `emulator/`), built from Debian's source and kept in the cache; else
//! the system's own. docs/lab.md says what the patches mend.

use crate::cache::Cache;
use crate::roots::SUITE;
use crate::watched::{output, output_watched};
use crate::{apt, cache};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// Folders with the distribution's firmware, which the lab's own emulator is told of.
pub const FIRMWARE: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];

/// Tools that the build asks for, and that are only unpacked beside it: Debian 12's own are too old.
const TOOLS: [&str; 2] = ["meson", "python3-pycotap"];

/// Devices and machines, in place of all that there are.
const DEVICES: &str = include_str!("../../../emulator/devices.mak");

/// The series, in its order.
const PATCHES: [(&str, &str); 7] = [
    ("pause-filter", include_str!("../../../emulator/0001-pause-filter.patch")),
    ("injected-once", include_str!("../../../emulator/0002-injected-once.patch")),
    ("virq-lock", include_str!("../../../emulator/0003-virq-lock.patch")),
    ("pause-turn", include_str!("../../../emulator/0004-pause-turn.patch")),
    ("turns", include_str!("../../../emulator/0005-turns.patch")),
    ("nothing-left", include_str!("../../../emulator/0006-nothing-left.patch")),
    ("guest-weight", include_str!("../../../emulator/0007-guest-weight.patch")),
];

/// All features are off but these.
const OPTIONS: [&str; 11] = [
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=overbook",
    "--enable-system",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-fdt=system",
    "--disable-tools",
    "--disable-download",
    "--disable-install-blobs",
];

/// An emulator that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// The program.
    pub program: PathBuf,
    /// The first line of `--version`, without the program's name; and whether it has the patches.
    pub version: String,
    /// It has this project's patches.
    pub patched: bool,
}

impl fmt::Display for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QEMU {}", self.version)
    }
}

impl Emulator {
    /// The patched one if it was built, else the system's.
    ///
    /// # Errors
    /// There is none.
    pub fn find(cache: &Cache) -> Result<Emulator> {
        match built(cache) {
            Some(program) => Emulator::at(program, true),
            None => Emulator::at(PROGRAM.into(), false),
        }
    }

    fn at(program: PathBuf, patched: bool) -> Result<Emulator> {
        let shown = Command::new(&program).arg("--version").output().with_context(|| {
            format!(
                "cannot run {}: install it with `make setup` (package qemu-system-x86)",
                program.display()
            )
        })?;
        if !shown.status.success() {
            let why = String::from_utf8_lossy(&shown.stderr);
            let why = why.lines().next().unwrap_or("it fails without a word").to_string();
            bail!(
                "{} does not run ({why}): remove it, and run `overbook lab emulator --build`",
                program.display()
            );
        }
        let text = String::from_utf8_lossy(&shown.stdout);
        let line = text.lines().next().unwrap_or_default();
        let with = if patched { " with Overbook's patches" } else { "" };
        let version = line.trim_start_matches("QEMU emulator version ").to_string() + with;
        Ok(Emulator { program, version, patched })
    }
}

/// Changes with the patches, the devices and the options.
fn key() -> String {
    let mut hasher = DefaultHasher::new();
    (PATCHES, DEVICES, OPTIONS).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The build of these patches in the cache.
fn built(cache: &Cache) -> Option<PathBuf> {
    let home = cache.dir().join(cache::EMULATORS).join(key()).join(PROGRAM);
    home.is_file().then_some(home)
}

/// Builds the emulator unless the cache has it.
///
/// # Errors
/// The source cannot be had, a tool is missing, a patch does not apply, or the disk is full.
pub fn build(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<Emulator> {
    let _lock = cache.lock(say)?;
    if built(cache).is_none() {
        let shop = cache.workshop_in(cache::EMULATORS)?;
        make(cache, shop.path(), say)?;
        let done = cache.workshop_in(cache::EMULATORS)?;
        fs::copy(shop.path().join("build").join(PROGRAM), done.path().join(PROGRAM))
            .context("cannot copy the emulator into the cache: is the disk full?")?;
        output(Command::new("strip").arg(done.path().join(PROGRAM)))?;
        fs::rename(done.keep(), cache.dir().join(cache::EMULATORS).join(key()))
            .context("cannot move the emulator into the cache")?;
    }
    Emulator::find(cache)
}

/// Fetches, patches, configures and builds, in an empty folder.
fn make(cache: &Cache, shop: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let source = shop.join("source");
    let tools = shop.join("tools");
    for dir in [&source, &tools, &shop.join("build")] {
        fs::create_dir(dir).context("cannot make a folder in the cache: is the disk full?")?;
    }
    apt::source(cache, SUITE, "qemu", &TOOLS, shop, false, say)?;
    say("unpacking QEMU");
    for file in fs::read_dir(shop)?.flatten().map(|entry| entry.path()) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".deb") {
            output(Command::new("dpkg").arg("-x").arg(&file).arg(&tools))?;
        } else if name.contains(".orig.tar.") {
            output(
                Command::new("tar").arg("-C").arg(&source).args(["--strip-components=1", "-xf"]).arg(&file),
            )?;
        }
    }
    for (name, patch) in PATCHES {
        let file = shop.join(format!("{name}.patch"));
        fs::write(&file, patch).context("cannot write to the cache: is the disk full?")?;
        output(Command::new("patch").args(["-p1", "-s", "-d"]).arg(&source).arg("-i").arg(&file))
            .with_context(|| format!("the patch {name} does not apply to Debian's QEMU"))?;
    }
    let devices = source.join("configs/devices/x86_64-softmmu/overbook.mak");
    fs::write(devices, DEVICES).context("cannot write to the cache: is the disk full?")?;
    without_blobs(&source)?;
    compile(&source, &shop.join("build"), &tools.join("usr/lib/python3/dist-packages"), say)
}

/// Debian's source has no firmware images of others; the build wants them to be there, as compressed files.
fn without_blobs(source: &Path) -> Result<()> {
    let list = fs::read_to_string(source.join("pc-bios/meson.build")).context("this is no source of QEMU")?;
    for name in list.split('\'').filter(|word| word.starts_with("edk2-") && word.ends_with(".fd")) {
        let mut empty = Command::new("bzip2");
        let file = source.join("pc-bios").join(name);
        fs::write(&file, "").context("cannot write to the cache: is the disk full?")?;
        output(empty.arg("-f").arg(&file))?;
    }
    Ok(())
}

fn compile(source: &Path, build: &Path, python: &Path, say: &mut dyn FnMut(&str)) -> Result<()> {
    let mut configure = Command::new(source.join("configure"));
    configure.args(OPTIONS).arg("--python=/usr/bin/python3").env("PYTHONPATH", python).current_dir(build);
    say("configuring QEMU");
    output_watched(&mut configure, &mut |seconds| say(&format!("configuring QEMU ({seconds} s)")))
        .context("QEMU cannot be configured")?;
    let log = build.join("ninja.log");
    // Its own words are wanted while it runs.
    let mut ninja = Command::new("sh");
    ninja.args(["-c", "exec ninja \"$0\" > ninja.log", PROGRAM]).env("PYTHONPATH", python).current_dir(build);
    let outcome = output_watched(&mut ninja, &mut |_| {
        let step = fs::read_to_string(&log).unwrap_or_default();
        let step =
            step.lines().rev().find_map(|line| line.strip_prefix('[')?.split(']').next().map(str::to_string));
        say(&format!("building QEMU: step {}", step.unwrap_or_else(|| "0".into()).replace('/', " of ")));
    });
    outcome.map(drop).map_err(|e| {
        let why = fs::read_to_string(&log).unwrap_or_default();
        let line = why.lines().find(|line| line.contains("error:")).map(str::to_string);
        e.context(line.unwrap_or_else(|| "QEMU cannot be built".into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_build_it_is_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        assert_eq!(built(&cache), None);
        let home = dir.path().join(cache::EMULATORS).join(key());
        fs::create_dir_all(&home).unwrap();
        assert_eq!(built(&cache), None, "a folder alone is no emulator");
        fs::write(home.join(PROGRAM), "#!/bin/sh\necho QEMU emulator version 1.2.3\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(home.join(PROGRAM), fs::Permissions::from_mode(0o755)).unwrap();
        let found = Emulator::find(&cache).unwrap();
        assert_eq!(found.to_string(), "QEMU 1.2.3 with Overbook's patches");
        fs::write(home.join(PROGRAM), "#!/bin/sh\necho libfdt.so.1: no such file >&2\nexit 127\n").unwrap();
        let why = Emulator::find(&cache).unwrap_err().to_string();
        assert!(why.contains("does not run (libfdt.so.1: no such file): remove it"), "{why}");
    }

    #[test]
    fn every_patch_says_why() {
        for (name, patch) in PATCHES {
            assert!(patch.contains("\nSubject: ") && patch.contains("\n---\n"), "{name}");
            let (words, _) = patch.split_once("\n---\n").unwrap();
            let why = words.split_once("\n\n").map_or(0, |(_, why)| why.split_whitespace().count());
            assert!(why > 20, "{name} has {why} words of reason");
        }
    }
}
