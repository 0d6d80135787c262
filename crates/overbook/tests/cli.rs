// SPDX-License-Identifier: GPL-2.0-only
//! Bad input gets one clear sentence and a non-zero exit.

use std::process::Command;
use tempfile::TempDir;

const ALONE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/alone.toml");

/// Runs the program; returns what it says on stderr.
fn complaint(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    let output = command.args(arguments).envs(environment.iter().copied()).output().unwrap();
    assert!(!output.status.success(), "{arguments:?} should fail");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<&str> = text.lines().filter(|line| line.starts_with("overbook:")).collect();
    assert_eq!(said.len(), 1, "one sentence, please: {text}");
    said[0].to_string()
}

#[test]
fn bad_scenarios_are_named_with_their_line() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("bad.toml");
    let text = "title = \"x\"\n[host]\ncpus = 99\n[[vm]]\nvcpus = 2\npattern = \"lock\"\n";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    for arguments in [["lab", "check", path], ["lab", "run", path]] {
        let said = complaint(&arguments, &[]);
        assert!(said.contains("bad.toml:3: cpus = 99 is out of range: 1 to 16"), "{said}");
    }
    assert!(complaint(&["lab", "check", "/nonexistent.toml"], &[]).contains("cannot read scenario"));
}

#[test]
fn a_missing_emulator_is_named_with_its_package() {
    let said = complaint(&["lab", "run", ALONE], &[("PATH", "/nonexistent")]);
    assert!(said.contains("qemu-system-x86") && said.contains("make setup"), "{said}");
}

#[test]
fn unknown_kernels_are_refused() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    // A stand-in for the emulator is enough: nothing is booted.
    let bin = dir.path().join("qemu-system-x86_64");
    std::fs::write(&bin, "#!/bin/sh\necho QEMU emulator version 0\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{out}:{}", std::env::var("PATH").unwrap());
    let arguments = ["lab", "run", ALONE, "--output", out, "--kernel", "/nonexistent/vmlinuz"];
    let said = complaint(&arguments, &[("PATH", &path), ("OVERBOOK_CACHE", out)]);
    assert!(said.contains("there is no kernel image"), "{said}");
}

#[test]
fn reports_that_are_none_are_refused() {
    let said = complaint(&["lab", "compare", "/dev/null", "/dev/null"], &[]);
    assert!(said.contains("no JSON"), "{said}");
}

#[test]
fn shipped_scenarios_are_sound() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    assert!(command.args(["lab", "check"]).args(files).status().unwrap().success());
}

#[test]
fn vm_processes_are_for_their_parents() {
    assert!(complaint(&["__vm"], &[]).contains("takes its orders from its parent"));
}
