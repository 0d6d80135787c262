// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler's own programs cost, counted by the kernel while somebody asks for it.

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys;
use libbpf_rs::query::ProgInfoIter;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Names of programs as the kernel keeps them (its first 15 letters); our struct_ops programs begin with the first.
const OURS: [&str; 9] = [
    "overbook_",
    "irq_accepted",
    "irq_ended",
    "ipi_incomplete",
    "spin_begins",
    "spin_ends",
    "cpu_taken",
    "group_idle",
    "group_shares",
];

/// One BPF program.
#[stat_doc]
#[derive(Clone, Debug, Default, Serialize, Deserialize, Stats)]
#[stat(desc = "one BPF program of the scheduler", _om_prefix = "program_", _om_label = "program")]
pub struct ProgramStats {
    #[stat(desc = "runs while run times were counted")]
    pub runs: u64,
    #[stat(desc = "ns that these took")]
    pub run_ns: u64,
    #[stat(desc = "instructions that the verifier walked through at load")]
    pub verified: u64,
}

impl ProgramStats {
    /// What happened since `earlier`.
    pub fn since(&self, earlier: &ProgramStats) -> ProgramStats {
        ProgramStats {
            runs: self.runs.saturating_sub(earlier.runs),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            verified: self.verified,
        }
    }
}

/// While this exists, the kernel counts run times, which costs some 20 ns per run.
pub struct Counting {
    _switch: OwnedFd,
}

impl Counting {
    /// Begins to count.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start() -> Result<Counting> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            return Err(io::Error::last_os_error())
                .context("the kernel does not count run times of BPF programs");
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Counting { _switch: unsafe { OwnedFd::from_raw_fd(fd) } })
    }
}

/// The programs of the scheduler that is loaded, by name.
pub fn programs() -> BTreeMap<String, ProgramStats> {
    let mut found: BTreeMap<String, ProgramStats> = BTreeMap::new();
    for program in ProgInfoIter::default() {
        let name = program.name.to_string_lossy().into_owned();
        if OURS.iter().any(|ours| name.starts_with(ours)) {
            let stats = found.entry(name).or_default();
            stats.runs += program.run_cnt;
            stats.run_ns += program.run_time_ns;
            stats.verified += u64::from(program.verified_insns);
        }
    }
    found
}
