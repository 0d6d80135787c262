// SPDX-License-Identifier: GPL-2.0-only
//! The second ring: boots stock kernels in QEMU and looks at what the lab measures. No test here asserts a time
//! of this machine; model time is another matter.
//!
//! Tests start in the order of their names, so the long ones have names that come first.

mod accounting;
mod deb;
mod fresh;
mod kernel;
mod verifier;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use overbook_report::schema::{Report, VmResult};
use overbook_report::{json, summary};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

fn overbook() -> Command {
    Command::new(env!("CARGO_BIN_EXE_overbook"))
}

fn scenario(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(name)
}

/// Runs a scenario file and returns its report.
fn run(file: &Path, arguments: &[&str]) -> Report {
    let (output, report) = outcome(file, arguments);
    assert!(output.status.success(), "{}", text(&output));
    report
}

/// The same, whether anything failed or not.
fn outcome(file: &Path, arguments: &[&str]) -> (Output, Report) {
    let out = TempDir::new().unwrap();
    let mut command = overbook();
    command.args(["lab", "run", "--output"]).arg(out.path()).arg(file).args(arguments);
    if !arguments.contains(&"--accel") {
        command.args(["--accel", "icount"]);
    }
    let output = command.output().expect("overbook");
    let name = file.file_stem().unwrap().to_str().unwrap();
    let page = fs::read_to_string(out.path().join("report.html"));
    assert!(page.is_ok_and(|page| page.contains("<svg")), "{}", text(&output));
    let report = json::read(&out.path().join(format!("{name}.json"))).unwrap();
    (output, report)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A scenario of this test's own.
fn write(dir: &TempDir, name: &str, body: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, format!("title = \"a test\"\n{body}")).unwrap();
    path
}

fn vm<'a>(report: &'a Report, variant: &str, name: &str) -> &'a VmResult {
    let run = report.runs.iter().find(|run| run.variant == variant).unwrap();
    run.vms.iter().find(|vm| vm.name == name).unwrap()
}

/// Every pattern works, every counter counts, on one kernel.
fn smoke(series: &str) -> Report {
    let report = run(&scenario("cost/smoke.toml"), &["--kernel", series]);
    assert_eq!(report.machine.cpus, 4);
    assert!(report.instrument.as_ref().unwrap().ok);
    assert_eq!(summary::failed(&report), Vec::<String>::new());
    let asked: f64 = report.runs.iter().filter_map(|run| run.extra.get("overbook: VMs asked")).sum();
    assert!(asked > 0.0, "KVM has asked our scheduler for nothing");
    for variant in ["eevdf", "next-buddy", "overbook"] {
        for name in ["lock", "ipi", "shootdown", "barrier", "user", "halted", "compute", "hostile"] {
            let vm = vm(&report, variant, name);
            let steal_ns: u64 = vm.vcpus.iter().map(|v| v.steal_ns).sum();
            // The kernel's own next buddy may leave a VM of two without a turn together all window long.
            assert!(vm.work > 0 || variant == "next-buddy", "{variant}: {name} did nothing");
            assert!(vm.cpus_used > 0.0 && steal_ns > 0, "{variant}: {name}");
        }
        let lock = vm(&report, variant, "lock");
        let spins: u64 = lock.vcpus.iter().map(|v| v.spins).sum();
        assert!(lock.kvm.exits["pause"] > 0 && lock.kvm.on_spin > 0 && spins > 0);
        let waits: u64 = lock.vcpus.iter().flat_map(|v| &v.wait.buckets).map(|(_, n)| n).sum();
        assert!(waits > 0);
        let compute = vm(&report, variant, "compute");
        // But for its sibling's start: who was preempted in that may be back in the window only.
        let spins = (compute.kvm.on_spin, compute.kvm.yield_tried);
        assert!(spins.0 <= 2 && spins.1 <= 2, "nobody waits in compute: {spins:?}");
        assert!(vm(&report, variant, "halted").kvm.exits.contains_key("hlt"));
    }
    assert!(report.runs.iter().all(|run| run.context_switches > 0));
    assert_eq!(report.bounds.len(), 7, "all but the hostile VM have a bound");
    verifier::compare(&report);
    report
}

/// The longest test: preferred CPUs, affinity, choices by hand, hotplug, kill -9, irqbalance, interrupts: the agent checks them all.
#[test]
fn a_guest_scheduler_does_what_it_promises() {
    let output =
        overbook().args(["lab", "guest", "--kernel", "6.18", "--topology", "cores"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("the kernel had no complaint"), "{}", text(&output));
}

/// Two of the other topologies; `overbook lab guest` has all.
#[test]
fn a_guest_packs_whatever_its_topology() {
    let shapes = ["--topology", "sockets-16", "--topology", "isolated"];
    let output = overbook().args(["lab", "guest", "--kernel", "6.18"]).args(shapes).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(text(&output).matches("the kernel had no complaint").count(), 2, "{}", text(&output));
}

#[test]
fn all_patterns_work_on_6_18() {
    let report = smoke("6.18");
    assert!(report.machine.kernel.starts_with("6.18."), "{}", report.machine.kernel);
}

#[test]
fn all_patterns_work_on_the_newest() {
    let report = smoke(overbook_kernels::NEWEST);
    assert!(!report.machine.kernel.starts_with("6.18"), "{}", report.machine.kernel);
}

/// A critical section of 300 µs, dilated to 1.2 ms, fits 833 times into a second; and the same seed gives the same
/// figures.
#[test]
fn a_known_answer_comes_twice() {
    let dir = TempDir::new().unwrap();
    let body = "[host]\ndilation = 4.0\n[measure]\nseconds = 0.15\nrepetitions = 2\nbound = false\n[[vm]]\nvcpus = 4\npattern = \"lock\"\n";
    let file = write(&dir, "alone.toml", body);
    let first = run(&file, &["--seed", "7", "--kernel", "6.18"]);
    let second = run(&file, &["--seed", "7", "--kernel", "6.18"]);
    let rate = summary::rows(&first)[0].rate;
    assert!((rate / (1e6 / 1200.0) - 1.0).abs() < 0.03, "{rate} locks per second");
    let comparison = overbook_report::compare::compare(&first, &second);
    assert!(comparison.warnings.is_empty());
    assert!(comparison.pairs.iter().all(|pair| pair.change_percent().abs() < 0.5), "{:?}", comparison.pairs);
}

/// vCPUs are picked for all that is known of them; without relations nobody is known to be answered.
#[test]
fn every_tier_is_picked() {
    let report = run(&scenario("rules/tiers.toml"), &["--kernel", "6.18", "--repetitions", "1"]);
    assert_eq!(summary::failed(&report), Vec::<String>::new());
    let picked = |variant: &str, tier: &str| {
        let run = report.runs.iter().find(|run| run.variant == variant).unwrap();
        run.extra[&format!("overbook: VMs {tier} picked")]
    };
    for tier in ["answered", "interrupt"] {
        assert!(picked("overbook", tier) > 0.0, "nobody was picked by tier {tier}");
    }
    for tier in ["answered", "interrupt"] {
        assert_eq!(picked("off", tier), 0.0, "somebody was picked by tier {tier}");
    }
}

/// A few rounds of what `overbook lab soak --rounds 600 --reloads 100` does for an afternoon.
#[test]
fn a_scheduler_may_be_changed_and_killed_and_vms_get_on() {
    let mut command = overbook();
    command.args(["lab", "soak", "--kernel", "6.18", "--rounds", "3", "--reloads", "1"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("the kernel had no complaint"), "{}", text(&output));
}

/// The least weight beside the greatest waits for its share, or for no longer than it is told to.
#[test]
fn nobody_waits_for_ever() {
    let report = run(&scenario("rules/overdue.toml"), &["--kernel", "6.18"]);
    let overdue = |variant: &str| {
        let run = report.runs.iter().find(|run| run.variant == variant).unwrap();
        run.extra["overbook: overdue"]
    };
    // A vCPU of the least weight may have to wait once or twice until its guest is up.
    assert!(overdue("patient") > overdue("shares"), "{} {}", overdue("patient"), overdue("shares"));
    assert!(vm(&report, "patient", "least").work > 0, "it went first and did nothing");
}

/// A recording on a real kernel says what ratio stands at a ready time, and twice as many VMs confirm it.
#[test]
fn a_recording_says_how_far_and_the_lab_confirms_it() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("recording.jsonl");
    let mut command = overbook();
    command.args(["lab", "observe", "--what", "twice", "--kernel", "6.18", "--output"]).arg(&file);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    let line = said.lines().find(|line| line.contains("that ratio is")).unwrap_or_else(|| panic!("{said}"));
    let number = |what: &str| -> f64 {
        let rest = line.split(what).nth(1).unwrap().trim_start();
        rest.split([' ', ')']).next().unwrap().parse().unwrap()
    };
    let (had, told) = (number("at "), number("that ratio is "));
    assert_eq!(had, 3.0, "{line}");
    // EEVDF leaves CPUs idle beside vCPUs that wait, most of all near where all are busy (docs/how-far.md).
    assert!((told / had - 1.0).abs() < 0.25, "{line}");
}

/// Oversubscribed and contended: spins, exits and yields.
#[test]
fn contention_is_seen_by_the_counters() {
    let dir = TempDir::new().unwrap();
    let body =
        "[measure]\nseconds = 0.3\nrepetitions = 1\n[[vm]]\ncount = 2\nvcpus = 4\npattern = \"lock\"\n";
    let report = run(&write(&dir, "contended.toml", body), &["--kernel", "6.18"]);
    for vm in &report.runs[0].vms {
        assert!(vm.kvm.exits["pause"] > 100 && vm.kvm.on_spin > 100, "{:?}", vm.kvm);
        assert!(vm.kvm.yield_tried > 0 && vm.kvm.yield_ok > 0, "{:?}", vm.kvm);
        assert_eq!(vm.kvm.yield_tried, vm.kvm.yield_same_rq + vm.kvm.yield_other_rq);
        assert!((1.0..3.0).contains(&vm.cpus_used));
    }
    let share = summary::rows(&report)[0].of_bound.unwrap();
    assert!((0.3..1.05).contains(&share), "{share} of the bound");
}

/// The emulator's patches `pause-filter` and `pause-turn`: a spin of a guest exits after 2,000 PAUSEs, and KVM doubles
/// that from exit to exit of a turn. Some spins end before.
#[test]
fn a_spin_exits_by_the_window() {
    let dir = TempDir::new().unwrap();
    let body = "[measure]\nseconds = 0.3\nrepetitions = 1\n[[vm]]\nvcpus = 4\npattern = \"lock\"\n[host]\ncpus = 2\n";
    let report = run(&write(&dir, "window.toml", body), &["--kernel", "6.18"]);
    let vm = &report.runs[0].vms[0];
    let (pauses, exits) = (vm.vcpus.iter().map(|v| v.spins).sum::<u64>(), vm.kvm.exits["pause"]);
    let pauses_per_exit = pauses as f64 / exits as f64;
    assert!((1_950.0..10_000.0).contains(&pauses_per_exit), "{pauses} PAUSEs and {exits} exits");
}

/// The emulator's patches `injected-once` and `virq-lock`: who is asked by an interrupt takes one for each
/// time that it was asked; in parallel mode none is lost, after which its sender would wait for ever.
#[test]
fn an_interrupt_comes_once() {
    let dir = TempDir::new().unwrap();
    let body = "[host]\ncpus = 2\n[measure]\nseconds = 0.3\nrepetitions = 1\nbound = false\n\
        [[vm]]\nname = \"user\"\nvcpus = 4\npattern = \"user-receiver\"\n\
        [[vm]]\nname = \"halted\"\nvcpus = 4\npattern = \"halted-receiver\"\n";
    let file = write(&dir, "once.toml", body);
    for accel in ["icount", "parallel"] {
        let report = run(&file, &["--kernel", "6.18", "--lenient", "--accel", accel]);
        for name in ["user", "halted"] {
            let vcpus = &vm(&report, "eevdf", name).vcpus;
            for pair in vcpus.chunks(2) {
                let (asked, handled) = (pair[0].work, pair[1].interrupts);
                let what = format!("{accel}, {name}: {asked}, {handled}");
                assert!(asked > 10 && (asked / 2..=asked * 2).contains(&handled), "{what}");
                // The window may open or close between the two. In parallel the counters are read at other moments.
                assert!(accel != "icount" || handled.abs_diff(asked) <= 1, "{what}");
            }
        }
    }
}

/// Linux guests without paravirtual help: they come up, spin, exit by the window, are
/// served by the scheduler's yields, and finish. Without the emulator's patches none of this happens.
#[test]
fn a_linux_guest_spins_and_is_served() {
    let dir = TempDir::new().unwrap();
    let body = "[host]\ncpus = 3\nmemory_mb = 2560\n[measure]\nseconds = 0.6\nsettle_seconds = 0.3\nrepetitions = 1\n\
        [linux]\nguests = 2\nvcpus = 4\ncpus = 2\nparavirtual = \"none\"\n\
        packages = [\"rt-tests\"]\ncommand = [\"hackbench\", \"-g\", \"1\", \"-f\", \"2\", \"-l\", \"100\"]\n\
        [[variant]]\nname = \"host\"\nabout = \"ours\"\noverbook = []\n";
    let file = write(&dir, "linux.toml", body);
    for kernel in ["6.18", overbook_kernels::NEWEST] {
        let report = run(&file, &["--kernel", kernel]);
        assert_eq!(summary::failed(&report), Vec::<String>::new());
        for name in ["linux1", "linux2"] {
            assert!(vm(&report, "host", name).work > 0, "{name} did nothing on {kernel}");
            assert!(report.bounds.iter().any(|bound| bound.vm == name && bound.rate > 0.0), "{name}");
        }
        let counted = |what: &str| report.runs[0].extra[&format!("overbook: VMs {what}")];
        for what in ["asked", "delivered"] {
            assert!(counted(what) > 0.0, "no yield was {what} on {kernel}");
        }
    }
}

/// A load that fails once spoils the run that it is in, and nothing else.
#[test]
fn a_load_that_fails_costs_its_run() {
    let dir = TempDir::new().unwrap();
    // Its 20th run fails: in the first variant's window, or while that settles.
    let body = "[host]\ncpus = 2\nmemory_mb = 1536\n[measure]\nseconds = 0.5\nsettle_seconds = 0.5\nrepetitions = 1\n\
        bound = false\n[linux]\nguests = 1\nvcpus = 1\ncpus = 1\npackages = [\"dash\"]\n\
        command = [\"sh\", \"-c\", \"n=0; [ -e /tmp/n ] && read n < /tmp/n; echo $((n+1)) > /tmp/n; [ $n -ne 20 ]\"]\n\
        [[variant]]\nname = \"first\"\n[[variant]]\nname = \"second\"\nbase_slice_us = 4000.0\n";
    let file = write(&dir, "fails.toml", body);
    let (output, report) = outcome(&file, &["--kernel", "6.18"]);
    assert!(!output.status.success() && text(&output).contains("RUN NOT COUNTED"), "{}", text(&output));
    assert_eq!(summary::failed(&report), ["first, repetition 1: linux1: sh failed (exit status: 1): "]);
    assert!(report.failure.is_none() && vm(&report, "second", "linux1").work > 0);
}

/// The emulator's patch `guest-weight`: a guest each of whose instructions takes the time of eight does as much per second of
/// its own, which is eight times as long; and what the host takes of it shrinks.
#[test]
fn a_stretched_guest_does_not_notice() {
    let dir = TempDir::new().unwrap();
    let body = "[measure]\nseconds = 0.4\nsettle_seconds = 0.1\nrepetitions = 1\n\
        bound = false\n[linux]\nguests = 1\nvcpus = 1\ncpus = 1\npackages = [\"dash\"]\n\
        command = [\"sh\", \"-c\", \"i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done\"]\n";
    let rate = |name: &str, dilation: u32| {
        let host = format!("[host]\ncpus = 2\nmemory_mb = 1536\nturn_us = 20\ndilation = {dilation}.0\n");
        let report = run(&write(&dir, name, &(host + body)), &["--kernel", "6.18"]);
        report.runs[0].vms[0].rate
    };
    let (plain, stretched) = (rate("plain.toml", 1), rate("stretched.toml", 8));
    let ratio = stretched / plain;
    assert!((0.8..1.25).contains(&ratio), "{plain} runs per second, stretched {stretched}");
}

/// A scenario that computes for so many seconds.
fn computing(dir: &TempDir, name: &str, seconds: f64) -> PathBuf {
    let measure = format!("[measure]\nseconds = {seconds}\nrepetitions = 1\nbound = false\n");
    write(dir, name, &(measure + "[[vm]]\nvcpus = 2\npattern = \"compute\"\n"))
}

/// A run of these scenarios, and of one behind them that takes for ever.
fn started(dir: &TempDir, tmp: &TempDir, scenarios: &[PathBuf]) -> Child {
    let mut command = overbook();
    command.args(["lab", "run", "--accel", "icount", "--kernel", "6.18", "--jobs", "2", "--output"]);
    command.arg(dir.path().join("out")).args(scenarios).arg(computing(dir, "long.toml", 1000.0));
    command.env("TMPDIR", tmp.path());
    command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn wait_for_machine(parent: &mut Child) -> Pid {
    let mut lines = BufReader::new(parent.stderr.as_mut().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("booting")), "the machine was not booted");
    loop {
        let mut ps = Command::new("ps");
        let output = ps.args(["-o", "pid=", "--ppid", &parent.id().to_string()]).output();
        let output = output.expect("ps runs: `make setup` installs it");
        if let Some(pid) = text(&output).split_whitespace().next() {
            return Pid::from_raw(pid.parse().unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Of what was measured, all is kept; of what it took, nothing.
#[test]
fn interruption_keeps_what_has_ended_and_leaves_nothing_else_behind() {
    let (dir, tmp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut child = started(&dir, &tmp, &[computing(&dir, "short.toml", 0.05)]);
    let machine = wait_for_machine(&mut child);
    let (short, page) = (dir.path().join("out/short.json"), dir.path().join("out/report.html"));
    while !(short.exists() && page.exists()) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output).contains("the result of one scenario of 2 is in"), "{}", text(&output));
    assert_eq!(json::read(&short).unwrap().runs.len(), 1);
    assert!(!Path::new(&format!("/proc/{machine}")).exists(), "the machine is still there");
    assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0, "temporary files are still there");
}

#[test]
fn a_machine_that_dies_is_reported() {
    let (dir, tmp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut child = started(&dir, &tmp, &[]);
    kill(wait_for_machine(&mut child), Signal::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(text(&output).contains("FAILED: the machine stopped"), "{}", text(&output));
    let report = json::read(&dir.path().join("out/long.json")).unwrap();
    assert!(report.failure.is_some());
}

#[test]
fn a_killed_lab_takes_its_machine_along() {
    let (dir, tmp) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut child = started(&dir, &tmp, &[]);
    let machine = wait_for_machine(&mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    // The death signal is sent when the parent exits; whoever inherits the machine may reap it late.
    let gone = || fs::read_to_string(format!("/proc/{machine}/stat")).map_or(true, |s| s.contains(") Z"));
    while !gone() {
        std::thread::yield_now();
    }
}
