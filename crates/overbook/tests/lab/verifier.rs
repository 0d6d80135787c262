// SPDX-License-Identifier: GPL-2.0-only
//! How far the verifier has to walk: a program that comes near its limit loads on one kernel and not on the next.

use overbook_report::schema::Report;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The verifier gives up behind so many instructions of a program (BPF_COMPLEXITY_LIMIT_INSNS).
const LIMIT: u64 = 1_000_000;

/// A figure is in the name of a counter that ends so.
const VERIFIED: &str = ": instructions verified";

/// Compares what the verifier walked through, program by program, with the baseline of the kernel's series in
/// `tests/data/verifier`: no more than a tenth above. A series without a baseline has the limit alone. Prints the figures
/// as a baseline has them.
pub fn compare(report: &Report) {
    let counters = report.runs.iter().flat_map(|run| &run.extra);
    let found: BTreeMap<&str, u64> = counters
        .filter_map(|(name, value)| {
            Some((name.strip_prefix("cost of ")?.strip_suffix(VERIFIED)?, *value as u64))
        })
        .collect();
    assert!(found.len() > 10, "the programs did not say what was verified: {found:?}");
    let series: Vec<&str> = report.machine.kernel.split('.').take(2).collect();
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/verifier/{}.txt", series.join(".")));
    println!("{}:", file.display());
    for (name, verified) in &found {
        println!("{name} {verified}");
        assert!(*verified > 0 && *verified < LIMIT / 2, "{name}: {verified} of {LIMIT} that may be");
    }
    let Ok(baseline) = fs::read_to_string(&file) else { return };
    for line in baseline.lines().filter(|line| !line.starts_with('#')) {
        let (name, was) = line.split_once(' ').unwrap();
        let was: u64 = was.parse().unwrap();
        let now = found.get(name).unwrap_or_else(|| panic!("{name} is not loaded any more"));
        assert!(
            *now <= was + was / 10,
            "the verifier walks through {now} instructions of {name}, and did through {was}: mend it, or write down why in {}",
            file.display()
        );
    }
}
