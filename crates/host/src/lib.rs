// SPDX-License-Identifier: GPL-2.0-only
//! The host scheduler's loader: `overbook host`.
//!
//! * [`Options`]: the command line, with the flags that sched_ext users expect.
//! * [`settings`]: what may change while it runs.
//! * [`preflight`]: refuses, in one sentence, where the scheduler could not do what it promises.
//! * [`faults`]: kernels that had better load no scheduler.
//! * [`scheduler`]: the scheduler as the kernel has it, for `overbook guest` too.
//! * [`ending`], [`backoff`]: why it ended, and how soon it may be loaded again.
//! * [`run`]: serve, restart after hotplug, do as the lab says.
//! * [`stats`]: what `--stats`, `--monitor` and `--json` show.
//! * [`channel`], [`entitle`]: guests are told what they could have.
//! * [`names`], [`nova`]: what operators call a VM.
//! * [`homes`]: in which LLC vCPUs wait. [`classes`]: which class a VM has.
//! * [`times`]: what CPUs did, from `/proc/stat`; the guest's steal monitor reads it too.
//! * [`client`]: asks a scheduler that runs.
//! * [`output`], [`values`]: how all commands print, and refuse values of options.

// These panic where nobody reads, or the disk is full: see overbook_host::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod backoff;
pub mod changes;
pub mod channel;
pub mod classes;
pub mod client;
pub mod costs;
pub mod domain_class;
pub mod domains;
pub mod ending;
pub mod entitle;
pub mod faults;
pub mod homes;
pub mod kvm;
pub mod names;
pub mod nova;
mod options;
pub mod output;
pub mod preflight;
pub mod processes;
pub mod replace;
pub mod scheduler;
mod serve;
pub mod settings;
pub mod stats;
pub mod times;
pub mod urgent;
pub mod values;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/bpf_skel.rs"));
}

#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]
mod intf {
    include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
}

pub use options::{Bare, Options};
pub use serve::{lines, run};
