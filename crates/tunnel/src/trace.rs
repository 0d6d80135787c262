// SPDX-License-Identifier: GPL-2.0-only
//! What happened, in lines: who ran where, and why. A digest of all lines is kept in any case, so that two runs of one
//! seed can be compared.

use std::fmt::Write;
use std::ops::Range;

/// A trace of a host.
#[derive(Debug, Default)]
pub struct Trace {
    window: Range<u64>,
    /// The lines of the window.
    pub lines: Vec<String>,
    /// Who ran where: CPU, task, from, to.
    pub runs: Vec<(u32, u32, u64, u64)>,
    digest: u64,
    scratch: String,
}

impl Trace {
    /// Keeps lines of a window of time, ns.
    pub fn new(window: Range<u64>) -> Trace {
        Trace { window, digest: 0xcbf2_9ce4_8422_2325, ..Trace::default() }
    }

    /// Adds an event.
    pub fn event(&mut self, now: u64, cpu: u32, what: &str, a: u32, b: u32, name: impl FnOnce(&mut String)) {
        for word in [now, u64::from(cpu), u64::from(a), u64::from(b), what.len() as u64] {
            self.digest = (self.digest ^ word).wrapping_mul(0x100_0000_01b3);
        }
        if !self.window.contains(&now) {
            return;
        }
        self.scratch.clear();
        let _ = write!(self.scratch, "{:>14.6} ms  cpu {cpu:<4} {what:<10} ", now as f64 / 1e6);
        name(&mut self.scratch);
        self.lines.push(self.scratch.trim_end().to_string());
    }

    /// Notes that a task ran on a CPU.
    pub fn ran(&mut self, cpu: u32, task: u32, from: u64, to: u64) {
        if to > self.window.start && from < self.window.end && to > from {
            self.runs.push((cpu, task, from.max(self.window.start), to.min(self.window.end)));
        }
    }

    /// A number that differs where two runs differ.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// Writes where a task is queued, after its name.
pub(crate) fn queue(text: &mut String, dsq: u64) {
    // SCX_DSQ_*; the rest are the scheduler's own numbers.
    let _ = match (dsq >> 62, dsq as u32) {
        (3, cpu) => write!(text, " in the local queue of CPU {cpu}"),
        (2, 1) => write!(text, " in the global queue"),
        (2, _) => write!(text, " in this CPU's local queue"),
        (_, number) => write!(text, " in queue {number:#x}"),
    };
}
