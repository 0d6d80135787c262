// SPDX-License-Identifier: GPL-2.0-only
//! A test of the tests: faults are put into the scheduler's sources one at a time, and the gauntlet must find them.
//!
//! Each mutant is compiled and runs in a process of its own, as some end with one. A mutant that the gauntlet does not
//! find stays in the list, with the reason.

#[path = "mutants/list.rs"]
mod list;

use list::{MUTANTS, Mutant};
use overbook_tunnel::compile::Sources;
use overbook_tunnel::fuzz::{Bound, unfair};
use overbook_tunnel::gauntlet::TRIALS;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Names the object that a process of a mutant runs.
const OBJECT: &str = "OVERBOOK_MUTANT";
/// Random hosts, of each kind, on which a mutant was found: of 300 that were looked at.
const SHARES: [u64; 9] = [17, 24, 25, 27, 76, 78, 88, 215, 282];
/// Begins the line that a process of a mutant prints.
const VERDICT: &str = "verdict: ";

/// All that the gauntlet does to one object, and shares on random hosts: the process of a mutant. Without one there is nothing to do.
#[test]
fn child() {
    let Ok(path) = std::env::var(OBJECT) else { return };
    let object = fs::read(path).unwrap();
    for trial in TRIALS {
        // Should it end the process, this is who.
        println!("trial: {}", trial.name);
        let lines = match trial.run(Some(&object)) {
            Ok(report) => report.findings.lines(),
            Err(error) => vec![format!("start: {error}")],
        };
        // What the kernel forbids says most.
        let forbidden = lines.iter().find(|line| line.starts_with("misuse"));
        if let Some(line) = forbidden.or(lines.first()) {
            println!("{VERDICT}{}: {line}", trial.name);
            return;
        }
    }
    // Who has another share than is due on random hosts is found by few.
    println!("trial: shares");
    for (bound, llcs) in [(Bound::Apart, 1), (Bound::ApartOrAny, 1), (Bound::Apart, 2)] {
        for seed in SHARES {
            let said = match unfair(seed, bound, llcs, Some(&object)) {
                Ok(all) => {
                    all.first().map(|(name, had, due)| format!("{name} has {had:.3} CPUs of {due:.3}"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(said) = said {
                println!("{VERDICT}shares, seed {seed}: {said}");
                return;
            }
        }
    }
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), place).unwrap();
        } else {
            copy(&entry.path(), &place);
        }
    }
}

/// The file that a mutant is made from, as a path below `bpf` or `policy`, and its text with the fault.
fn mutated(mutant: &Mutant, bpf: &Path, policy: &Path) -> (PathBuf, String) {
    let file = [bpf, policy].map(|dir| dir.join(mutant.file)).into_iter().find(|file| file.exists());
    let file = file.unwrap_or_else(|| panic!("{}: there is no {}", mutant.name, mutant.file));
    let text = fs::read_to_string(&file).unwrap();
    let times = text.matches(mutant.find).count();
    assert_eq!(times, 1, "{}: the text to replace is {times} times in {}", mutant.name, mutant.file);
    (file, text.replacen(mutant.find, mutant.put, 1))
}

/// Each fault has its place in the sources: found in no time, before all that takes minutes.
#[test]
fn all_mutants_have_a_place() {
    let (bpf, policy) = (here("../scheduler/src/bpf"), here("../../policy"));
    for mutant in MUTANTS {
        mutated(mutant, &bpf, &policy);
    }
}

/// Compiles the sources with a fault, and runs the gauntlet on them. What was found; `None` if nothing.
fn try_mutant(mutant: &Mutant, folder: &Path) -> Option<String> {
    let (bpf, policy) = (folder.join("bpf"), folder.join("policy"));
    copy(&here("../scheduler/src/bpf"), &bpf);
    copy(&here("../../policy"), &policy);
    let (file, text) = mutated(mutant, &bpf, &policy);
    fs::write(&file, text).unwrap();
    let headers: Vec<PathBuf> = env!("TUNNEL_HEADERS").split(':').map(PathBuf::from).collect();
    let native = here("native");
    let sources = Sources { native: &native, bpf: &bpf, policy: &policy, headers: &headers };
    let object = folder.join("model.so");
    let built = Path::new(env!("OUT_DIR")).join("model.so");
    sources
        .compile_with(&object, &[], Some(&built))
        .unwrap_or_else(|error| panic!("{}: {error}", mutant.name));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads", "1"])
        .env(OBJECT, &object)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find_map(|line| line.strip_prefix(VERDICT)) {
        return Some(line.to_string());
    }
    let last = text.lines().filter_map(|line| line.split("trial: ").nth(1)).next_back().unwrap_or("start");
    (!output.status.success()).then(|| format!("{last}: the process ends with {}", output.status))
}

#[test]
fn the_gauntlet_finds_mutants() {
    let folder = tempfile::tempdir().unwrap();
    let only = std::env::var("OVERBOOK_ONLY_MUTANT").ok();
    let mutants: Vec<&Mutant> = MUTANTS
        .iter()
        .filter(|mutant| only.as_ref().is_none_or(|only| mutant.name.contains(only.as_str())))
        .collect();
    let next = AtomicUsize::new(0);
    let (tell, told) = mpsc::channel();
    let workers = thread::available_parallelism().map_or(2, |n| n.get().min(8));
    thread::scope(|scope| {
        for _ in 0..workers {
            let tell = tell.clone();
            scope.spawn(|| {
                let tell = tell;
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let place = folder.path().join(mutant.name.replace(' ', "-"));
                    tell.send((mutant.name, try_mutant(mutant, &place))).unwrap();
                    fs::remove_dir_all(place).unwrap();
                }
            });
        }
        drop(tell);
    });
    let found: Vec<(&str, Option<String>)> = told.iter().collect();
    let mut wrong = Vec::new();
    for mutant in &mutants {
        let by = found.iter().find(|(name, _)| *name == mutant.name).and_then(|(_, by)| by.clone());
        match (&by, mutant.missed) {
            (Some(by), None) => println!("{:<44} {by}", mutant.name),
            (None, Some(why)) => println!("{:<44} not found: {why}", mutant.name),
            (None, None) => wrong.push(format!("{} is not found", mutant.name)),
            (Some(by), Some(_)) => wrong.push(format!("{} is found, and should not be: {by}", mutant.name)),
        }
    }
    let number = mutants.iter().filter(|mutant| mutant.missed.is_none()).count();
    println!("{number} of {} mutants are found", mutants.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
