// SPDX-License-Identifier: GPL-2.0-only
//! Scenario files in the tunnel: all shipped ones run, and one seed gives one trace.

use overbook_lab::Scenario;
use overbook_lab::scenario::Source;
use overbook_tunnel::scene::{self, Options, Scene};
use overbook_tunnel::{picture, show};
use std::path::{Path, PathBuf};

const MS: u64 = 1_000_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn shipped() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder().join("tunnel")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

fn short(settle: f64, seconds: f64, file: &Path) -> Scenario {
    let mut scenario = scene::read(file).unwrap();
    scenario.measure.settle_seconds = settle;
    scenario.measure.seconds = seconds;
    scenario
}

fn scene(scenario: &Scenario, traced: std::ops::Range<u64>) -> Scene {
    scene::build(scenario, &Options { traced, ..Options::default() }).unwrap()
}

#[test]
fn all_shipped_scenarios_run() {
    let files = shipped();
    assert!(files.len() >= 7, "{files:?}");
    for file in files {
        let scenario = short(0.01, 0.03, &file);
        let mut scene = scene(&scenario, 0..0);
        let report = scene.run();
        for kind in ["deadlock", "misuse", "twice", "affinity", "prefer"] {
            assert!(!report.findings.has(kind), "{}: {:?}", file.display(), report.findings.lines());
        }
        let used: f64 = report.tasks.iter().map(|task| task.cpus).sum();
        assert!(
            used > 0.5 * f64::from(scene.cpus()).min(report.tasks.len() as f64 / 4.0),
            "{}",
            file.display()
        );
        assert!(show::table(&scene, &report).lines().count() > 2);
        assert_eq!(show::json(&report)["tasks"].as_array().unwrap().len(), report.tasks.len());
    }
}

#[test]
fn the_lab_refuses_what_only_the_tunnel_runs() {
    for file in shipped() {
        let why = Source { file: &file, variants_of: None, settings: &[] }.read().unwrap_err().to_string();
        assert!(why.contains("overbook tunnel run") && why.contains(".toml:"), "{why}");
    }
}

#[test]
fn the_tunnel_refuses_what_only_the_lab_runs() {
    for (name, table) in [("headline/linux-2to1", "[linux]"), ("guest/guest-quiet", "[guest]")] {
        let why = scene::read(&folder().join(format!("{name}.toml"))).unwrap_err().to_string();
        assert!(why.contains(table) && why.contains(".toml:") && why.contains("overbook lab run"), "{why}");
    }
    let hostile = scene::read(&folder().join("rules/hostile.toml")).unwrap();
    let why = scene::build(&hostile, &Options::default()).err().unwrap();
    assert!(format!("{why:#}").contains("one storm"), "{why:#}");
}

#[test]
fn mistakes_of_options_are_one_sentence() {
    let file = folder().join("headline/lock-2to1.toml");
    let scenario = scene::read(&file).unwrap();
    let refused = |options: Options| format!("{:#}", scene::build(&scenario, &options).err().unwrap());
    let set = refused(Options { set: vec![("slise_ns".into(), 1)], ..Options::default() });
    assert!(set.contains("no setting \"slise_ns\"; there are slice_ns"), "{set}");
    let variant = refused(Options { variant: Some("eevdf".into()), ..Options::default() });
    assert!(variant.contains("EEVDF"), "{variant}");
}

#[test]
fn switches_of_the_host_are_known() {
    let mut scenario = short(0.0, 0.02, &folder().join("rules/relations.toml"));
    let run = |scenario: &Scenario, variant: &str| {
        let options = Options { variant: Some(variant.into()), ..Options::default() };
        scene::build(scenario, &options).map(|mut scene| scene.run().digest)
    };
    assert_ne!(run(&scenario, "overbook").unwrap(), run(&scenario, "off").unwrap(), "it changes nothing");
    scenario.variants[2].overbook = Some(vec!["--relations".into(), "full".into()]);
    let why = run(&scenario, "off").err().unwrap().to_string();
    assert!(why.contains("does not know `overbook host --relations`"), "{why}");
}

/// A window of a large host's life, in lines, and the digest of all of it.
fn trace(interleave: u32, seed: u64) -> (String, u64) {
    let mut scenario = short(0.0, 0.012, &folder().join("tunnel/large.toml"));
    scenario.tunnel.as_mut().unwrap().interleave = Some(interleave);
    for vm in &mut scenario.vms {
        vm.count /= 5;
    }
    scenario.seed = seed;
    let mut scene = scene(&scenario, 2 * MS..10 * MS);
    let report = scene.run();
    (scene.world.trace.lines.join("\n"), report.digest)
}

#[test]
fn one_seed_gives_one_trace_at_256_cpus() {
    for interleave in [0, 16] {
        let (first, second, other) = (trace(interleave, 7), trace(interleave, 7), trace(interleave, 8));
        assert!(first.0.lines().count() > 1000, "a trace of {} lines", first.0.lines().count());
        assert!(first == second, "two runs of one seed differ (interleave {interleave})");
        assert_ne!(first.1, other.1, "another seed gives the same trace");
    }
}

#[test]
fn changes_happen_when_they_should() {
    let text = "title = \"t\"\n[tunnel]\n[host]\ncpus = 2\n[measure]\nseconds = 0.4\nsettle_seconds = 0.2\n\
                [[task]]\nname = \"a\"\ndoes = \"hog\"\ncpus = \"0\"\n\
                [[task]]\nname = \"b\"\ncount = 2\ndoes = \"hog\"\nbegin_ms = 50\n\
                [[change]]\nat_ms = 100\ntask = \"b\"\ncpus = \"1\"\n\
                [[change]]\nat_ms = 150\ntask = \"b2\"\nweight = 300\n";
    let scenario = Scenario::parse(text, Path::new("x.toml")).unwrap();
    let report = scene(&scenario, 0..0).run();
    let had: Vec<f64> = report.tasks.iter().map(|task| task.cpus).collect();
    assert!(had[0] > 0.95 && (had[2] / had[1] - 3.0).abs() < 0.3, "{had:?}");
}

#[test]
fn a_picture_shows_every_vm() {
    let scenario = short(0.0, 0.02, &folder().join("tunnel/real-time.toml"));
    let mut scene = scene(&scenario, 0..20 * MS);
    scene.run();
    let svg = picture::svg(&scene, "<who & where>", &(0..20 * MS)).unwrap();
    for name in ["lock1", "lock2", "barrier", "rt1", "&lt;who &amp; where&gt;"] {
        assert!(svg.contains(name), "no {name}");
    }
    assert!(svg.matches("<rect").count() > 100);
    assert!(picture::html(&svg, "t").contains("<svg"));
}

#[test]
fn who_has_used_its_cpu_max_may_wait_beside_idle_cpus() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("max.toml");
    let text = "title = \"x\"\n[host]\ncpus = 2\n[tunnel]\n[[group]]\nname = \"g\"\nmax = 0.5\n[[task]]\nname = \"hog\"\n\
                does = \"hog\"\ncount = 2\ngroup = \"g\"\n";
    std::fs::write(&file, text).unwrap();
    let report = scene(&short(0.1, 0.5, &file), 0..0).run();
    assert!(report.findings.is_empty(), "{:?}", report.findings.lines());
}

#[test]
fn a_turn_that_has_not_ended_is_no_fault() {
    // vCPUs that compute keep CPUs to themselves, and the scheduler books a turn when it ends.
    let scenario = short(0.3, 1.0, &folder().join("tunnel/libvirt.toml"));
    let report = scene(&scenario, 0..0).run();
    assert!(!report.findings.has("booked"), "{:?}", report.findings.lines());
}
