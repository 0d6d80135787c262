// SPDX-License-Identifier: GPL-2.0-only
//! The kernel series (`kernel/`): every switch does what it says, and nothing while it is off.

use super::{overbook, run, text, vm, write};
use overbook_report::schema::Report;
use overbook_report::summary;
use std::collections::BTreeSet;
use tempfile::TempDir;

/// What directed yields do on any kernel; all else is counted by a mechanism that has a switch.
const ALWAYS: [&str; 2] = ["kernel: calls", "kernel: remote"];

/// A variant, the switches that it sets, and what must then be counted. Nothing else may be, but for `ALWAYS`.
const VARIANTS: [(&str, &str, &[&str]); 13] = [
    ("off", "", &[]),
    ("debooster", "vcpu_debooster_enabled = 1", &["deboosted"]),
    ("debooster-mended", "vcpu_debooster_enabled = 2", &["deboosted"]),
    ("credit", "yield_to_lag_credit = 1", &["credited", "unprotected"]),
    ("credit-paid", "yield_to_lag_credit = 2", &["credited", "unprotected"]),
    ("proportional", "yield_to_proportional = 1", &["proportional"]),
    ("strict", "yield_to_strict = 1", &["strict"]),
    ("pull", "yield_to_pull = 1", &["pulled"]),
    ("tracking", "ipi_tracking_enabled = 1", &["ipi_tracked", "directed_yield_receiver"]),
    ("tracking-vectors", "ipi_tracking_enabled = 2", &["ipi_tracked", "directed_yield_receiver"]),
    ("relaxed", "enable_relaxed_boost = 1", &["directed_yield_relaxed"]),
    ("ple-kvm", "ple_kvm = 1", &["directed_yield_ple_kvm"]),
    ("off-again", "", &[]),
];

/// What was counted in a variant, of all that the series counts.
fn counted(report: &Report, variant: &str, nr_counts: usize) -> BTreeSet<String> {
    let run = report.runs.iter().find(|run| run.variant == variant).unwrap();
    let kernel = run.extra.iter().filter(|(name, _)| name.starts_with("kernel: "));
    let counts: Vec<(&String, f64)> = kernel.map(|(name, count)| (name, *count)).collect();
    assert_eq!(counts.len(), nr_counts, "{variant}: the series counts {counts:?}");
    assert!(run.extra[ALWAYS[0]] > 0.0, "{variant}: nobody yielded to anybody");
    let risen = counts.into_iter().filter(|(name, count)| *count > 0.0 && !ALWAYS.contains(&name.as_str()));
    risen.map(|(name, _)| name.trim_start_matches("kernel: ").to_string()).collect()
}

/// Two VMs that contend for locks and two that wait for answers, each in a group of its own, on four CPUs.
fn every_switch_does_what_it_says(kernel: &str, release: &str, applies: &dyn Fn(&str) -> bool) {
    let dir = TempDir::new().unwrap();
    let mut body = "[host]\ncpus = 4\n[layout]\ncgroups = \"per-vm\"\n\
        [measure]\nseconds = 0.3\nsettle_seconds = 0.02\nrepetitions = 1\nbound = false\n\
        [[vm]]\nname = \"lock\"\ncount = 2\nvcpus = 4\npattern = \"lock\"\n\
        [[vm]]\nname = \"user\"\nvcpus = 4\npattern = \"user-receiver\"\n\
        [[vm]]\nname = \"halted\"\nvcpus = 4\npattern = \"halted-receiver\"\n"
        .to_string();
    let variants = || VARIANTS.iter().filter(|(name, ..)| applies(name));
    for (name, switches, _) in variants() {
        body += &format!("[[variant]]\nname = \"{name}\"\nkernel = {{ {switches} }}\n");
    }
    let report = run(&write(&dir, "switches.toml", &body), &["--kernel", kernel]);
    let booted = &report.machine.kernel;
    assert!(booted.starts_with(release) && booted.ends_with("-overbook"), "{booted}");
    assert_eq!(summary::failed(&report), Vec::<String>::new());
    // A count of its own for every mechanism that applies.
    let nr_counts = if applies("proportional") { 12 } else { 11 };
    for (name, _, expected) in variants() {
        let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(counted(&report, name, nr_counts), expected, "{name}");
    }
}

#[test]
fn every_switch_of_the_kernel_series_does_what_it_says() {
    every_switch_does_what_it_says("patched", "6.18.", &|_| true);
}

/// One queue has all tasks of a CPU there, so no groups yield.
#[test]
fn every_switch_of_the_newest_series_does_what_it_says() {
    every_switch_does_what_it_says("patched-7.3", "7.3.", &|name| name != "proportional");
}

/// Tasks leave CPUs that are not preferred, and come back when all are.
fn tasks_keep_to(kernel: &str) {
    let dir = TempDir::new().unwrap();
    let body = "[host]\ncpus = 4\n[measure]\nseconds = 0.3\nsettle_seconds = 0.1\nrepetitions = 1\nbound = false\n\
        [guest]\nload = \"compute\"\ntasks = 6\nshare = \"vm\"\ncpus = 4.0\n\
        [[variant]]\nname = \"all\"\n[[variant]]\nname = \"two\"\npreferred = \"0-1\"\n\
        [[variant]]\nname = \"again\"\n";
    let report = run(&write(&dir, "preferred.toml", body), &["--kernel", kernel]);
    assert_eq!(summary::failed(&report), Vec::<String>::new());
    let window =
        |variant: &str| report.runs.iter().find(|run| run.variant == variant).unwrap().window_ns as f64;
    let used = |variant: &str| -> Vec<f64> {
        vm(&report, variant, "guest").vcpus.iter().map(|v| v.run_ns as f64 / window(variant)).collect()
    };
    for variant in ["all", "again"] {
        assert!(used(variant).iter().all(|cpu| *cpu > 0.5), "{variant}: {:?}", used(variant));
    }
    let two = used("two");
    assert!(two[..2].iter().all(|cpu| *cpu > 0.5) && two[2..].iter().all(|cpu| *cpu < 0.05), "{two:?}");
}

#[test]
fn tasks_keep_to_preferred_cpus() {
    tasks_keep_to("patched");
}

#[test]
fn tasks_keep_to_preferred_cpus_of_the_newest_series() {
    tasks_keep_to("patched-7.3");
}

/// The user's choice outlives hotplug, and a CPU that loses preference has a tick, which moves who runs there.
fn the_users_choice_holds(kernel: &str) {
    let output = overbook().args(["lab", "guest", "--topology", "isolated", "--kernel", kernel]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("what the user chose outlives"), "{}", text(&output));
}

#[test]
fn the_users_choice_of_preferred_cpus_holds() {
    the_users_choice_holds("patched");
}

#[test]
fn the_users_choice_of_preferred_cpus_holds_in_the_newest_series() {
    the_users_choice_holds("patched-7.3");
}

/// The governor gives up CPUs that the host has not, and none while it is off.
fn the_governor_packs_guests(kernel: &str) {
    let dir = TempDir::new().unwrap();
    let body = "[host]\ncpus = 3\n[measure]\nseconds = 1.0\nsettle_seconds = 1.0\nrepetitions = 1\nbound = false\n\
        [linux]\nguests = 2\nvcpus = 2\ncpus = 1\npackages = [\"dash\"]\n\
        command = [\"sh\", \"-c\", \"for n in 1 2; do (i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done) & done; wait\"]\n\
        [[variant]]\nname = \"off\"\n\
        [[variant]]\nname = \"on\"\ngovernor = { interval_ms = 100, low = 100, high = 200 }\n\
        [[variant]]\nname = \"off-again\"\n";
    let report = run(&write(&dir, "governor.toml", body), &["--kernel", kernel]);
    assert_eq!(summary::failed(&report), Vec::<String>::new());
    for run in &report.runs {
        let of = |what: &str| ["linux1", "linux2"].map(|vm| run.extra[&format!("{vm}: {what}")]);
        // The guests look by their own clocks, so a mean of a second is a rough one; what has changed is counted.
        let (preferred, changes) = (of("preferred CPUs, mean"), of("changes of their number"));
        let packed = preferred.map(|mean| mean < 1.5);
        assert_eq!(packed, [run.variant == "on"; 2], "{}: {preferred:?}", run.variant);
        assert!(run.variant == "on" || changes == [0.0; 2], "{}: {changes:?}", run.variant);
    }
}

#[test]
fn the_governor_packs_linux_guests() {
    the_governor_packs_guests("patched");
}

#[test]
fn the_governor_packs_linux_guests_of_the_newest_series() {
    the_governor_packs_guests("patched-7.3");
}
