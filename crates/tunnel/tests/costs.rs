// SPDX-License-Identifier: GPL-2.0-only
//! What decisions cost, compared with `costs.txt` beside this file.

use overbook_tunnel::compile::Sources;
use overbook_tunnel::costs::{FLAGS, SIZES, measure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Figures may differ by a tenth from the checked-in ones, or by so much.
const SHARE: f64 = 0.1;
/// See [`SHARE`].
const LEAST: f64 = 0.15;
/// A callback that is called less often is left out, and so is a line that is written in fewer calls.
const FEWEST_CALLS: u64 = 50;
/// See [`FEWEST_CALLS`].
const FEWEST_WRITES: f64 = 0.05;

const UPDATE: &str = "OVERBOOK_UPDATE_COSTS=1 cargo test -p overbook-tunnel --release --test costs";

const HEAD: &str = "\
# Per call of each operation and program, on hosts of several sizes (src/costs.rs): helpers and kfuncs called, atomics,
# locks of queues, tasks passed over in queues, writes to lines that another CPU had written last. `line` names such
# lines, with writes per call: a variable or a map, plus bytes from where it, or a value of it, begins.
";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The table of the present sources.
fn table() -> String {
    let folder = tempfile::tempdir().unwrap();
    let headers: Vec<PathBuf> = env!("TUNNEL_HEADERS").split(':').map(PathBuf::from).collect();
    let (native, bpf, policy) = (here("native"), here("../scheduler/src/bpf"), here("../../policy"));
    let sources = Sources { native: &native, bpf: &bpf, policy: &policy, headers: &headers };
    let object = folder.path().join("model.so");
    sources.compile_with(&object, FLAGS, Some(&Path::new(env!("OUT_DIR")).join("model.so"))).unwrap();
    let object = fs::read(object).unwrap();
    let mut text = HEAD.to_string();
    for size in SIZES {
        let (costs, lines) = measure(size, object.clone()).unwrap();
        writeln!(
            text,
            "\n{:<12} {:<14} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "# host", "callback", "calls", "atomics", "locks", "steps", "shared"
        )
        .unwrap();
        for cost in costs.iter().filter(|cost| cost.calls >= FEWEST_CALLS) {
            let per_call = |n: u64| n as f64 / cost.calls as f64;
            write!(text, "{:<12} {:<14}", size.name, cost.name).unwrap();
            for n in [cost.kfuncs, cost.atomics, cost.locks, cost.steps, cost.shared_lines] {
                write!(text, " {:>8.2}", per_call(n)).unwrap();
            }
            text.push('\n');
            for line in lines.iter().filter(|line| line.callback == cost.name) {
                if per_call(line.writes) >= FEWEST_WRITES {
                    let name = line.name.as_str();
                    writeln!(
                        text,
                        "  line {:<12} {:<14} {name:<24} {:>6.2}",
                        size.name,
                        cost.name,
                        per_call(line.writes)
                    )
                    .unwrap();
                }
            }
        }
    }
    text
}

/// Figures of a table by what they are of.
fn figures(text: &str) -> BTreeMap<String, Vec<f64>> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, numbers): (Vec<&str>, Vec<&str>) =
                words.iter().partition(|word| word.parse::<f64>().is_err());
            (name.join(" "), numbers.iter().map(|number| number.parse().unwrap()).collect())
        })
        .collect()
}

#[test]
fn decisions_cost_what_they_did() {
    let path = here("tests/costs.txt");
    let now = table();
    println!("{now}");
    if std::env::var_os("OVERBOOK_UPDATE_COSTS").is_some() {
        fs::write(&path, now).unwrap();
        return;
    }
    let (before, now) = (figures(&fs::read_to_string(&path).unwrap_or_default()), figures(&now));
    let mut wrong = Vec::new();
    for name in before.keys().chain(now.keys().filter(|name| !before.contains_key(*name))) {
        let nothing = vec![0.0; 5];
        let (was, is) = (before.get(name).unwrap_or(&nothing), now.get(name).unwrap_or(&nothing));
        if was.iter().zip(is).any(|(was, is)| (was - is).abs() > f64::max(LEAST, SHARE * was)) {
            wrong.push(format!("{name}: {was:?} -> {is:?}"));
        }
    }
    assert!(wrong.is_empty(), "costs have changed; if that is meant: {UPDATE}\n{}", wrong.join("\n"));
}

#[test]
fn figures_are_told_from_names() {
    let read = figures("# x 1\n\nsmall yield 1.00 2.50\n  line small yield vms+64 0.40\n");
    assert_eq!(read["small yield"], [1.0, 2.5]);
    assert_eq!(read["line small yield vms+64"], [0.4]);
}
