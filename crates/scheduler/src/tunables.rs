// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler is tuned by.

use scx_utils::libbpf_clap_opts::LibbpfOpts;

/// What may change while it schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Length of a slice, µs.
    pub slice_us: u64,
    /// A task that has been queued for so long, in ms, goes before others.
    pub patience_ms: u64,
    /// Whether the receivers of vCPUs' IPIs are known, by probes on KVM.
    pub relations: bool,
}

impl Tunables {
    /// As it is without options.
    pub const DEFAULT: Tunables = Tunables { slice_us: 3000, patience_ms: 10_000, relations: true };
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables::DEFAULT
    }
}

/// What is settled when it is loaded.
#[derive(Clone, Debug)]
pub struct Loading {
    /// Factor of all times, as the lab stretches its guests; 1 elsewhere.
    pub stretch: f64,
    /// Length of the kernel's debug dump after an error, in bytes; 0 for the kernel's choice.
    pub exit_dump_len: u32,
    /// Options of libbpf.
    pub libbpf: LibbpfOpts,
}
