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
fn variants_of_another_kind_of_machine_are_refused() {
    let guest = ALONE.replace("alone", "guest-phases");
    let said = complaint(&["lab", "run", ALONE, "--variants-of", &guest], &[]);
    assert!(said.contains("do not fit") && said.contains("`guest` needs a [guest]"), "{said}");
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
    let path = stand_in(&dir);
    let arguments = ["lab", "run", ALONE, "--output", out, "--kernel", "/nonexistent/vmlinuz"];
    let said = complaint(&arguments, &[("PATH", &path), ("OVERBOOK_CACHE", out)]);
    assert!(said.contains("there is no kernel image"), "{said}");
}

/// Two files of one name, and a folder that cannot be written to, are found before anything is booted or fetched.
#[test]
fn results_have_a_place_before_anything_is_booted() {
    let dir = TempDir::new().unwrap();
    let path = stand_in(&dir);
    let twin = dir.path().join("alone.toml");
    std::fs::copy(ALONE, &twin).unwrap();
    let said = complaint(&["lab", "run", ALONE, twin.to_str().unwrap()], &[("PATH", &path)]);
    assert!(said.contains("would both write alone.json"), "{said}");
    let said = complaint(&["lab", "run", ALONE, "--output", "/proc/self"], &[("PATH", &path)]);
    assert!(said.contains("cannot write to /proc/self"), "{said}");
    let said = complaint(&["lab", "observe", "--output", "/proc/self/x"], &[("PATH", &path)]);
    assert!(said.contains("cannot write to /proc/self"), "{said}");
}

/// A stand-in for the emulator is enough where nothing is booted. Returns the search path with it.
fn stand_in(dir: &TempDir) -> String {
    let bin = dir.path().join("qemu-system-x86_64");
    std::fs::write(&bin, "#!/bin/sh\necho QEMU emulator version 0\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&bin, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap())
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

#[test]
fn bad_windows_and_recordings_are_refused() {
    assert!(complaint(&["report", "--seconds", "0"], &[]).contains("choose from 0.1 to 86400 seconds"));
    assert!(complaint(&["top", "--from", "/dev/null"], &[]).contains("no terminal"));
    assert!(complaint(&["report", "--from", "/dev/null"], &[]).contains("the recording is empty"));
    let said = complaint(&["report", "--from", ALONE], &[]);
    assert!(said.contains("alone.toml:1: not a recorded snapshot"), "{said}");
}

#[test]
fn a_recording_is_reported_as_text_and_json() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/recording.jsonl");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
        let output = command.args(["report", "--from", recording]).args(more).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&[]).contains("3 VMs with 12 vCPUs"), "{}", run(&[]));
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(json["vcpus"], 12);
    assert!(json["burnt"].as_f64() > Some(0.0));
}

#[test]
fn defaults_come_from_a_file_and_the_command_line_wins() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("overbook.toml");
    let file = file.to_str().unwrap();
    std::fs::write(file, "[guest]\nlow = 900\nhigh = 800\n").unwrap();
    let config = [("OVERBOOK_CONFIG", file)];
    assert!(complaint(&["guest"], &config).contains("--low exceeds --high"));
    let said = complaint(&["guest", "--low", "100", "--replay", "/nonexistent"], &config);
    assert!(said.contains("cannot read trace"), "{said}");
    std::fs::write(file, "[guest]\nlow = \n").unwrap();
    assert!(complaint(&["guest"], &config).contains("overbook.toml: line 2"));
    assert!(complaint(&["guest"], &[("OVERBOOK_CONFIG", "/nonexistent")]).contains("cannot read defaults"));
}

#[test]
fn check_goes_through_every_feature() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    let text = String::from_utf8(command.arg("check").output().unwrap().stdout).unwrap();
    for what in ["sched_ext", "BTF", "cpu.max", "KVM", "hypervisor", "QEMU"] {
        assert!(text.contains(what), "{what} is missing: {text}");
    }
}

#[test]
fn nobody_is_told_anything_where_no_scheduler_runs() {
    for arguments in
        [&["guest", "--preferred", "0"][..], &["guest", "--status"], &["host", "--switch", "credit"]]
    {
        assert!(complaint(arguments, &[]).contains("no scheduler of ours is running"), "{arguments:?}");
    }
    assert!(complaint(&["guest", "--preferred", "9-"], &[]).contains("not a list of CPUs"));
}
