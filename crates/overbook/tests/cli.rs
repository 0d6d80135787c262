// SPDX-License-Identifier: GPL-2.0-only
//! Bad input gets one clear sentence and a non-zero exit.

mod common;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/headline/lock-2to1.toml");

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

/// The exit status with such a file of defaults.
fn status_with(text: &str, arguments: &[&str]) -> Option<i32> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("overbook.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    command.args(arguments).env("OVERBOOK_CONFIG", file).output().unwrap().status.code()
}

/// What clap says of arguments that it refuses.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_overbook")).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().next().unwrap_or_default().to_string()
}

#[test]
fn values_are_refused_in_words() {
    for (arguments, expected) in [
        (&["lab", "run", SCENARIO, "--repetitions", "0"][..], "a number from 1 to 1000 belongs here"),
        (&["lab", "run", SCENARIO, "--repetitions", "x"], "a number from 1 to 1000 belongs here"),
        (&["bench", "--vms", "none"], "a number from 1 to 64 belongs here"),
        (&["host", "--metrics", "here"], "as in 127.0.0.1:9836"),
        // Whether a scheduler runs or not.
        (&["host", "--set", "slice-us"], "KEY=VALUE belongs here, as in slice-us=3000"),
        (&["host", "--set", "slice-us=1"], "a number from 100 to 100000 belongs here"),
        (&["host", "--set", "gang=on"], "there are slice-us, patience-ms, relations, latency-vms, batch-vms"),
        (&["host", "--set", "relations=full"], "there are on, off"),
        (&["host", "--set", "latency-vms=a["], "\"a[\" is no pattern: invalid range pattern"),
        (&["host", "--class", "web"], "as in web1=latency; classes are normal, latency, batch"),
        (&["host", "--class", "web=fast"], "classes are normal, latency, batch"),
        (&["guest", "--set", "preferred=9-"], "not a list of CPUs: write numbers and ranges, as in 0-3,8"),
        (&["guest", "--set", "preferred="], "no CPU would be preferred: name some, or say auto"),
        (&["guest", "--set", "high=99999"], "a number from 0 to 10000 belongs here"),
        (&["guest", "--set", "governor=slow"], "there are step, proportional"),
    ] {
        let said = refusal(arguments);
        assert!(said.starts_with("error: invalid value") && said.ends_with(expected), "{said}");
    }
}

#[test]
fn of_what_is_done_instead_of_scheduling_one_is_wanted() {
    for arguments in [
        &["host", "--set", "slice-us=2000", "--monitor", "1"][..],
        &["host", "--class", "web1=latency", "--set", "slice-us=2000"],
        &["host", "--dry-run", "--monitor", "1"],
        &["guest", "--clean-up", "--dry-run"],
        &["guest", "--status", "--set", "low=1"],
    ] {
        let said = refusal(arguments);
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

fn help(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_overbook")).args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_says_what_belongs_together() {
    for command in ["host", "guest"] {
        let help = help(&[command]);
        let (_, metrics) = help.split_once("\nMetrics:\n").expect("a heading of its own");
        assert!(metrics.trim_start().starts_with("--metrics"), "{metrics}");
    }
    assert!(help(&["lab", "kernels"]).contains("may be repeated"));
}

#[test]
fn defaults_of_a_service_are_named_where_one_is_wrong() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    command.args(["host", "--nonsense"]).env("INVOCATION_ID", "1").env("OPTIONS", "--nonsense");
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.starts_with("/etc/default/overbook-host") && said.contains("--nonsense"), "{said}");
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
    let guest = SCENARIO.replace("headline/lock-2to1", "guest/guest-messages");
    let said = complaint(&["lab", "run", SCENARIO, "--variants-of", &guest], &[]);
    assert!(said.contains("do not fit") && said.contains("`guest` needs a [guest]"), "{said}");
}

#[test]
fn a_missing_emulator_is_named_with_its_package() {
    let dir = TempDir::new().unwrap();
    let cache = dir.path().to_str().unwrap();
    let said = complaint(&["lab", "run", SCENARIO], &[("PATH", "/nonexistent"), ("OVERBOOK_CACHE", cache)]);
    assert!(said.contains("qemu-system-x86") && said.contains("make setup"), "{said}");
}

#[test]
fn unknown_kernels_are_refused() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let path = stand_in(&dir);
    let results = dir.path().join("results");
    let output = results.to_str().unwrap();
    let arguments = ["lab", "run", SCENARIO, "--output", output, "--kernel", "/nonexistent/vmlinuz"];
    let said = complaint(&arguments, &[("PATH", &path), ("OVERBOOK_CACHE", out)]);
    assert!(said.contains("there is no kernel image"), "{said}");
    assert!(!results.exists(), "no folder for results that never come");
}

/// Two files of one name, and a folder that cannot be written to, are found before anything is booted or fetched.
#[test]
fn results_have_a_place_before_anything_is_booted() {
    let dir = TempDir::new().unwrap();
    let path = stand_in(&dir);
    let twin = dir.path().join("lock-2to1.toml");
    std::fs::copy(SCENARIO, &twin).unwrap();
    let said = complaint(&["lab", "run", SCENARIO, twin.to_str().unwrap()], &[("PATH", &path)]);
    assert!(said.contains("would both write lock-2to1.json"), "{said}");
    let said = complaint(&["lab", "run", SCENARIO, "--output", "/proc/self"], &[("PATH", &path)]);
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
fn reports_with_nothing_in_common_are_named_with_what_they_measured() {
    let lab = |name| format!("{}/../../docs/results/make-lab/{name}-2to1.json", env!("CARGO_MANIFEST_DIR"));
    let said = complaint(&["lab", "compare", &lab("lock"), &lab("ipi")], &[]);
    for name in ["lock", "ipi"] {
        let expected = format!("{name}-2to1.json measured scenario {name}-2to1 (variants: eevdf, ");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_result_is_shown_again() {
    let report = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/report.json");
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
        let output = command.args(["lab", "show", report]).args(more).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&[]).contains("scenario") && !run(&[]).contains("CPUs of one VM"), "{}", run(&[]));
    assert!(run(&["-v"]).contains("CPUs of one VM"));
    // What has more columns in its tables than in its result explains those of the result.
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/make-lab/lock-2to1.json");
    let (brief, full) = (run(&[lab]), run(&[lab, "-v"]));
    assert!(brief.contains("  of bound ") && !brief.contains("won back"), "{brief}");
    assert!(full.contains("  won back ") && full.contains("  entitled "), "{full}");
    assert!(run(&["--markdown"]).starts_with("| scenario |"));
}

#[test]
fn shipped_scenarios_are_sound() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let below =
        |dir: &Path| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let files: Vec<_> = below(Path::new(dir)).iter().flat_map(|folder| below(folder)).collect();
    // Commands in results name a file without its folder.
    let names: HashSet<_> = files.iter().map(|file| file.file_name().unwrap()).collect();
    assert!(files.len() > 20 && names.len() == files.len(), "{files:?}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    assert!(command.args(["lab", "check"]).args(files).status().unwrap().success());
}

#[test]
fn vm_processes_are_for_their_parents() {
    assert!(complaint(&["__vm"], &[]).contains("takes its orders from its parent"));
}

#[test]
fn outputs_are_tried_before_the_work_and_kept_if_it_fails() {
    let dir = TempDir::new().unwrap();
    let (file, other) = (dir.path().join("recording.jsonl"), dir.path().join("none/page.html"));
    std::fs::write(&file, "of a day\n").unwrap();
    let (file, other) = (file.to_str().unwrap(), other.to_str().unwrap());
    complaint(&["lab", "observe", "-o", file, "--kernel", "/nonexistent"], &[]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "of a day\n");
    let new = dir.path().join("new.jsonl");
    let said = complaint(&["report", "--record", new.to_str().unwrap(), "--html", other], &[]);
    assert!(said.contains("there is no folder") && !new.exists(), "{said}");
}

#[test]
fn bad_windows_and_recordings_are_refused() {
    assert!(refusal(&["report", "--seconds", "0"]).contains("a number from 0.1 to 86400 belongs here"));
    assert!(complaint(&["top", "--from", "/dev/null"], &[]).contains("no terminal"));
    assert!(complaint(&["report", "--from", "/dev/null"], &[]).contains("/dev/null has no snapshot"));
    let said = complaint(&["report", "--from", SCENARIO], &[]);
    assert!(said.contains("lock-2to1.toml:1: not a recorded snapshot"), "{said}");
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
    // Of 4 CPUs, and with two recordings in the file.
    let used = json["used"].as_f64().unwrap();
    assert!((3.5..4.1).contains(&used), "{used}");
}

#[test]
fn what_a_recording_does_not_know_is_not_told() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("recording");
    let snapshot = |at: u64| {
        format!(
            r#"{{"at_ns":{at},"cpus":4,"scheduler":"EEVDF","vms":{{"7":{{"name":"web","vcpus":{{"0":{{"tid":8,"run_ns":{at},"wait_ns":0}}}}}}}},"overbook":null,"sight":{{"blind":"no BTF"}}}}"#
        )
    };
    std::fs::write(&file, format!("{}\n{}\n", snapshot(1), snapshot(1_000_000_001))).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
        let output = command.args(["report", "--from"]).arg(&file).args(more).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run(&[]);
    assert!(text.contains("spins cannot be seen: no BTF") && text.contains("Nothing can be said"), "{text}");
    assert!(!text.contains("nothing to speak of"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let vm = &json["window"]["vms"][0];
    assert!(vm["run"].is_number() && vm["spin"].is_null() && vm["yields"].is_null(), "{vm}");
}

/// As on the command line: a service that starts again every 30 s with a wrong file is of no use.
#[test]
fn a_mistake_in_the_file_of_defaults_ends_as_a_wrong_option_does() {
    assert_eq!(status_with("[host]\nslice-us = 7\n", &["host"]), Some(2));
    assert_eq!(status_with("[guest]\nnonsense = 1\n", &["host"]), Some(2));
    assert_eq!(status_with("[guest]\nlow = 900\nhigh = 800\n", &["guest"]), Some(2));
    assert_eq!(status_with("[guest\n", &["guest"]), Some(2));
}

#[test]
fn defaults_come_from_a_file_and_the_command_line_wins() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("overbook.toml");
    let file = file.to_str().unwrap();
    std::fs::write(file, "[guest]\nlow = 900\nhigh = 800\n").unwrap();
    let config = [("OVERBOOK_CONFIG", file)];
    assert!(complaint(&["guest"], &config).contains("raise high to"));
    let said = complaint(&["guest", "--low", "100", "--replay", "/nonexistent"], &config);
    assert!(said.contains("cannot read trace"), "{said}");
    std::fs::write(file, "[guest]\nlow = \n").unwrap();
    assert!(complaint(&["guest"], &config).contains("overbook.toml:2: "));
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
    common::nothing_is_at_work();
    for arguments in [
        &["guest", "--set", "preferred=0"][..],
        &["guest", "--set", "governor=step", "--set", "low=100", "--set", "high=200"],
        &["guest", "--status"],
        &["guest", "--monitor", "1"],
        &["host", "--monitor", "1"],
        &["host", "--set", "slice-us=2000"],
        &["host", "--set", "slice-us=2000", "--set", "relations=off"],
    ] {
        assert!(complaint(arguments, &[]).contains("no scheduler of ours is running"), "{arguments:?}");
    }
    // Classes are for whoever schedules later, too, but of VMs that are there.
    assert!(complaint(&["host", "--class", "web1=latency"], &[]).contains("no VM that runs here"));
}

/// What `overbook tunnel run` prints, and whether it is content.
fn tunnel(arguments: &[&str]) -> (bool, String) {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut command = Command::new(env!("CARGO_BIN_EXE_overbook"));
    let output = command.args(["tunnel", "run"]).args(arguments).current_dir(scenarios).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_tunnel_prints_tables_traces_and_pictures() {
    let dir = TempDir::new().unwrap();
    let picture = dir.path().join("x.html");
    let arguments = ["tunnel/pinned.toml", "--seconds", "0.02", "--trace", "300..300.2", "--picture"];
    let run = || tunnel(&[&arguments[..], &[picture.to_str().unwrap()]].concat());
    let (fine, text) = run();
    assert!(fine && text.contains("CPUs had") && text.contains("lock1/"), "{text}");
    assert_eq!(text, run().1, "two runs of one seed differ");
    assert!(std::fs::read_to_string(&picture).unwrap().contains("<svg"));
    let (fine, text) =
        tunnel(&["headline/lock-2to1.toml", "--seconds", "0.01", "--json", "--set", "slice_ns=10000000"]);
    assert!(fine && text.contains("\"units_per_second\""), "{text}");
}

#[test]
fn the_tunnel_fails_in_one_sentence() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("x.toml");
    let text = "title = \"t\"\n[tunnel]\nwait_ms = 1\n[host]\ncpus = 1\n[measure]\nseconds = 0.05\n\
                [[task]]\nname = \"hog\"\ncount = 4\ndoes = \"hog\"\n";
    std::fs::write(&file, text).unwrap();
    let (fine, text) = tunnel(&[file.to_str().unwrap()]);
    let last = text.lines().last().unwrap_or_default();
    assert!(
        !fine && last.starts_with("overbook: what must hold does not: ") && last.contains("wait: hog"),
        "{text}"
    );
    for (arguments, words) in [
        (["headline/lock-2to1.toml", "--trace", "5"], "two times in ms"),
        (["headline/lock-2to1.toml", "--trace", "99999..100000"], "the run ends at"),
        (["headline/lock-2to1.toml", "--picture", "x.png"], "ends in .svg or .html"),
        (["headline/lock-2to1.toml", "--picture", "/nonexistent/x.svg"], "there is no folder /nonexistent"),
        (["headline/lock-2to1.toml", "--set", "slice_ns"], "a variable and a number"),
        (["headline/lock-2to1.toml", "--set", "slice=1"], "no setting \"slice\""),
        (["headline/lock-2to1.toml", "--seconds", "0"], "give seconds"),
        (["tunnel/none.toml", "--seed", "1"], "cannot read scenario"),
    ] {
        let (fine, text) = tunnel(&arguments);
        assert!(!fine && text.contains(words), "{arguments:?}: {text}");
    }
}
