// SPDX-License-Identifier: GPL-2.0-only
//! Traces: what the monitor saw, to see afterwards what another governor would have done. The first line is the
//! machine, every other one a period.

use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::steal::Record;
use anyhow::{Context, Result};
use overbook_cli::cpulist::{self, Cpus};
use overbook_policy::steal::{Core, Rules, ratio};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// One core, in the first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoreLine {
    cpus: String,
    node: u32,
    keep: bool,
}

/// Starts a trace.
///
/// # Errors
/// The file cannot be written.
pub fn begin(file: &Path, machine: &Machine) -> Result<File> {
    let core = |(cpus, core): (&Cpus, &Core)| CoreLine {
        cpus: cpulist::format(cpus),
        node: core.node,
        keep: core.keep != 0,
    };
    let cores: Vec<CoreLine> = machine.cpus.iter().zip(&machine.cores).map(core).collect();
    let mut out = File::create(file).with_context(|| format!("cannot write trace {}", file.display()))?;
    writeln!(out, "{}", serde_json::to_string(&cores)?)?;
    Ok(out)
}

/// Adds a period.
///
/// # Errors
/// The disk is full.
pub fn append(out: &mut File, record: &Record) -> Result<()> {
    writeln!(out, "{}", serde_json::to_string(record)?).context("cannot write to the trace")
}

/// Bytes of a trace of months.
const LONGEST: u64 = 256 << 20;

/// Prints what a governor would have done with a trace.
///
/// # Errors
/// The file is no trace; the message names the line.
pub fn replay(file: &Path, rules: Rules, out: &mut dyn Write) -> Result<()> {
    let mut text = String::new();
    // A device never ends.
    let read = File::open(file).and_then(|trace| trace.take(LONGEST).read_to_string(&mut text));
    read.with_context(|| format!("cannot read trace {}", file.display()))?;
    let mut lines = text.lines();
    let wrong = |n: usize| format!("{}:{n}: not a trace of `overbook guest --record`", file.display());
    let cores: Vec<CoreLine> =
        lines.next().and_then(|line| serde_json::from_str(line).ok()).with_context(|| wrong(1))?;
    let mut machine = Machine::default();
    for core in cores {
        machine.cpus.push(cpulist::parse(&core.cpus).with_context(|| wrong(1))?);
        machine.cores.push(Core { node: core.node, preferred: 1, keep: core.keep.into() });
    }
    let cpus = machine.online().len() as u64;
    let mut monitor = Monitor::new(rules, machine);
    writeln!(out, "period    steal    used  preferred")?;
    for (n, line) in lines.enumerate() {
        let record: Record = serde_json::from_str(line).with_context(|| wrong(n + 2))?;
        monitor.step(&record);
        writeln!(
            out,
            "{:>6}  {:>5.2} %  {:>6.2}  {}",
            n + 1,
            f64::from(ratio(record.steal_ns, record.elapsed_ns * cpus)) / 100.0,
            record.run_ns as f64 / record.elapsed_ns.max(1) as f64,
            cpulist::format(&monitor.preferred())
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_policy::steal::PROPORTIONAL;

    #[test]
    fn a_trace_replays_as_it_was_decided() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace");
        let machine = Machine::new((0..4).map(|i| (0, Cpus::from([i]))), &Cpus::new(), &Cpus::new());
        let mut trace = begin(&file, &machine).unwrap();
        for _ in 0..3 {
            let record = Record { elapsed_ns: 1_000_000, run_ns: 2_000_000, steal_ns: 2_000_000 };
            append(&mut trace, &record).unwrap();
        }
        let rules = Rules { governor: PROPORTIONAL, low: 200, high: 500, agree: 2, quiet: 5, floor: 1 };
        let mut out = Vec::new();
        replay(&file, rules, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(last, "     3  50.00 %    2.00  0-1");
        std::fs::write(&file, "[]\n{\"elapsed_ns\":1}\n").unwrap();
        let error = replay(&file, rules, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("trace:2: not a trace"), "{error}");
    }
}
