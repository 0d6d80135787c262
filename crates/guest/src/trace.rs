// SPDX-License-Identifier: GPL-2.0-only
//! Traces: what the monitor saw, to see afterwards what another governor would have done. The first line is the
//! machine, every other one a period, or the machine after CPUs have come or gone.

use crate::machine::Machine;
use crate::monitor::Monitor;
use crate::steal::Record;
use anyhow::{Context, Error, Result, ensure};
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

/// A trace that is being written; nothing, if none is wanted. A full disk ends it, and nothing else.
#[derive(Default)]
pub struct Trace(Option<File>);

impl Trace {
    /// Starts a trace, or goes on with it if the program has begun anew.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn begin(file: &Path, machine: &Machine, goes_on: bool) -> Result<Trace> {
        let mut options = File::options();
        let opened = options.write(true).create(true).append(goes_on).truncate(!goes_on).open(file);
        let mut trace =
            Trace(Some(opened.with_context(|| format!("cannot write trace {}", file.display()))?));
        trace.machine(machine);
        Ok(trace)
    }

    /// Adds the machine as it is from now on.
    pub fn machine(&mut self, machine: &Machine) {
        let core = |(cpus, core): (&Cpus, &Core)| CoreLine {
            cpus: cpulist::format(cpus),
            node: core.node,
            keep: core.keep != 0,
        };
        self.line(&machine.cpus.iter().zip(&machine.cores).map(core).collect::<Vec<_>>());
    }

    /// Adds a period.
    pub fn period(&mut self, record: &Record) {
        self.line(record);
    }

    fn line(&mut self, what: &impl Serialize) {
        let Some(file) = &mut self.0 else { return };
        let text = serde_json::to_string(what).map_err(Error::from);
        if let Err(why) = text.and_then(|text| Ok(writeln!(file, "{text}")?)) {
            log::warn!("the trace ends here: {why:#}");
            self.0 = None;
        }
    }
}

/// Bytes of a trace of months.
const LONGEST: u64 = 256 << 20;

/// No period is longer, ns: a day. What is longer is no time, and times all CPUs no number.
const LONGEST_PERIOD_NS: u64 = 86_400_000_000_000;

/// Prints what a governor would have done with a trace.
///
/// # Errors
/// The file is no trace; the message names the line.
pub fn replay(file: &Path, rules: Rules, out: &mut dyn Write) -> Result<()> {
    let mut text = String::new();
    // A device never ends.
    let read = File::open(file).and_then(|trace| trace.take(LONGEST).read_to_string(&mut text));
    read.with_context(|| format!("cannot read trace {}", file.display()))?;
    ensure!(
        (text.len() as u64) < LONGEST,
        "trace {} is longer than 256 MiB: replay a part of it",
        file.display()
    );
    let wrong = |n: usize| format!("{}:{n}: not a trace of `overbook guest --record`", file.display());
    let mut monitor = None;
    let mut period = 0;
    for (n, line) in text.lines().enumerate() {
        if n == 0 || line.starts_with('[') {
            let machine = read_machine(line).with_context(|| wrong(n + 1))?;
            monitor = Some((machine.online().len() as u64, Monitor::new(rules, machine)));
            if n == 0 {
                writeln!(out, "period    steal    used  preferred")?;
            }
            continue;
        }
        let Some((cpus, monitor)) = &mut monitor else { continue };
        let record: Record = serde_json::from_str(line).with_context(|| wrong(n + 1))?;
        ensure!(record.elapsed_ns <= LONGEST_PERIOD_NS, wrong(n + 1));
        monitor.step(&record);
        period += 1;
        writeln!(
            out,
            "{period:>6}  {:>5.2} %  {:>6.2}  {}",
            f64::from(ratio(record.steal_ns, record.elapsed_ns * *cpus)) / 100.0,
            record.run_ns as f64 / record.elapsed_ns.max(1) as f64,
            cpulist::format(&monitor.preferred())
        )?;
    }
    ensure!(period > 0, "trace {} has no period: record for longer", file.display());
    Ok(())
}

/// Of a line that is a machine.
fn read_machine(line: &str) -> Result<Machine> {
    let mut machine = Machine::default();
    for core in serde_json::from_str::<Vec<CoreLine>>(line)? {
        machine.cpus.push(cpulist::parse(&core.cpus)?);
        machine.cores.push(Core { node: core.node, preferred: 1, keep: core.keep.into() });
    }
    ensure!(!machine.cores.is_empty(), "a machine has a core");
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use overbook_policy::steal::PROPORTIONAL;

    #[test]
    fn a_full_disk_ends_a_trace_and_nothing_else() {
        let mut trace = Trace::begin(Path::new("/dev/full"), &Machine::default(), false).unwrap();
        assert!(trace.0.is_none());
        trace.period(&Record { elapsed_ns: 1_000_000, run_ns: 1_000_000, steal_ns: 0 });
    }

    #[test]
    fn a_trace_replays_as_it_was_decided() {
        let of = |cpus| Machine::new((0..cpus).map(|i| (0, Cpus::from([i]))), &Cpus::new(), &Cpus::new());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("trace");
        let mut trace = Trace::begin(&file, &of(4), false).unwrap();
        for _ in 0..3 {
            let record = Record { elapsed_ns: 1_000_000, run_ns: 2_000_000, steal_ns: 2_000_000 };
            trace.period(&record);
        }
        let rules = Rules { governor: PROPORTIONAL, low: 200, high: 500, agree: 2, quiet: 5, floor: 1 };
        let mut out = Vec::new();
        replay(&file, rules, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(last, "     3  50.00 %    2.00  0-1");
        // Two of the CPUs go offline.
        trace.machine(&of(2));
        trace.period(&Record { elapsed_ns: 1_000_000, run_ns: 1_000_000, steal_ns: 1_000_000 });
        let mut out = Vec::new();
        replay(&file, rules, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().last(), Some("     4  50.00 %    1.00  0-1"));
        // A CPU has come that makes the program begin anew.
        let mut trace = Trace::begin(&file, &of(5), true).unwrap();
        trace.period(&Record { elapsed_ns: 1_000_000, run_ns: 1_000_000, steal_ns: 0 });
        let mut out = Vec::new();
        replay(&file, rules, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap().lines().last(), Some("     5   0.00 %    1.00  0-4"));
        let core = r#"[{"cpus":"0","node":0,"keep":true}]"#;
        for (text, says) in [
            (format!("{core}\n{{\"elapsed_ns\":1}}\n"), "trace:2: not a trace"),
            (
                format!("{core}\n{{\"elapsed_ns\":9223372036854775808,\"run_ns\":0,\"steal_ns\":1}}\n"),
                "trace:2: not a trace",
            ),
            (format!("{core}\n"), "no period"),
            ("[]\n".into(), "trace:1: not a trace"),
            (String::new(), "no period"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = replay(&file, rules, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
