// SPDX-License-Identifier: GPL-2.0-only
//! The package installs, is complete, and leaves nothing behind when purged; into a folder, as root.

use super::text;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn dpkg(root: &Path, arguments: &[&str]) -> String {
    let output = Command::new("dpkg")
        .arg(format!("--root={}", root.display()))
        .args(["--force-script-chrootless", "--force-depends"])
        .args(arguments)
        .output()
        .expect("dpkg runs: this is tried on Debian only");
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// Files below a folder but dpkg's own.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => found.push(entry.path().strip_prefix(root).unwrap().to_path_buf()),
            }
        }
    }
    found.retain(|file| !file.starts_with("var/lib/dpkg") && !file.starts_with("var/log"));
    found.sort();
    found
}

/// Makes the package in a folder.
fn build(out: &Path) -> PathBuf {
    let repo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(repo.join("packaging/deb/build"))
        .args([Path::new(env!("CARGO_BIN_EXE_overbook")), out])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    fs::read_dir(out).unwrap().next().unwrap().unwrap().path()
}

/// Installed, started, upgraded, killed, replaced and purged, under a systemd that runs.
#[test]
fn the_package_works_under_systemd() {
    let out = TempDir::new().unwrap();
    let package = build(out.path());
    let cache = overbook_kernels::Cache::open_default().unwrap();
    let want = overbook_kernels::Want { series: Some("6.18".into()), ..Default::default() };
    let kernel = overbook_kernels::resolve(&want, &cache, &mut |_| {}).expect("a kernel is to be had");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb/try");
    let tried = Command::new(script)
        .args([&package, &kernel.image, kernel.config.as_ref().unwrap()])
        .output()
        .unwrap();
    assert!(tried.status.success() && text(&tried).contains("walk: all is well"), "{}", text(&tried));
}

#[test]
fn the_package_installs_and_goes_without_a_trace() {
    let (out, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let package = build(out.path());
    for folder in ["updates", "info", "triggers"] {
        fs::create_dir_all(root.path().join("var/lib/dpkg").join(folder)).unwrap();
    }
    fs::write(root.path().join("var/lib/dpkg/status"), "").unwrap();
    fs::write(root.path().join("var/lib/dpkg/available"), "").unwrap();

    dpkg(root.path(), &["--install", package.to_str().unwrap()]);
    let installed = files(root.path());
    for file in [
        "usr/bin/overbook",
        "lib/systemd/system/overbook-host.service",
        "lib/systemd/system/overbook-guest.service",
        "etc/default/overbook-host",
        "etc/overbook.toml",
        "usr/share/man/man1/overbook-host.1.gz",
        "usr/share/man/man1/overbook-lab-run.1.gz",
        "usr/share/bash-completion/completions/overbook",
    ] {
        assert!(installed.iter().any(|f| f == Path::new(file)), "{file} is missing: {installed:?}");
    }
    let program = root.path().join("usr/bin/overbook");
    assert!(Command::new(&program).arg("--version").status().unwrap().success());
    // The defaults that are installed are read, and ask for nothing unknown.
    let checked = Command::new(&program)
        .env("OVERBOOK_CONFIG", root.path().join("etc/overbook.toml"))
        .args(["host", "--slice-us", "0"])
        .output()
        .unwrap();
    assert!(text(&checked).contains("0 is not in 100..=100000"), "{}", text(&checked));

    let units: Vec<PathBuf> =
        installed.iter().filter(|f| f.extension().is_some_and(|e| e == "service")).cloned().collect();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(format!("--root={}", root.path().display()))
        .args(units.iter().map(|unit| Path::new("/").join(unit)))
        .output()
        .expect("systemd-analyze runs: `make setup` installs it");
    assert!(verified.status.success(), "{}", text(&verified));

    dpkg(root.path(), &["--remove", "overbook"]);
    assert!(files(root.path()).iter().all(|file| file.starts_with("etc")), "{:?}", files(root.path()));
    dpkg(root.path(), &["--purge", "overbook"]);
    assert_eq!(files(root.path()), Vec::<PathBuf>::new());
}
