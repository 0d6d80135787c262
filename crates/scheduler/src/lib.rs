// SPDX-License-Identifier: GPL-2.0-only
//! The sched_ext scheduler, and all that a program needs to have it: `overbook host`, and `overbook guest` where sched_ext
//! keeps tasks on preferred CPUs.
//!
//! * `bpf/`: the scheduler itself; `main.bpf.c` begins with the idea.
//! * [`Scheduler`]: as the kernel has it: load, attach, tune, read, unload. [`tunables`]: by what.
//! * [`preflight`]: refuses, in one sentence, where it could not do what it promises. [`faults`]: kernels that had better
//!   load none. [`kvm`]: what KVM lets it see.
//! * [`ending`], [`backoff`]: why it ended, and how soon it may be loaded again. [`replace`]: takes over from another.
//! * [`session`]: a program that works and can be asked. [`client`]: asks it.
//! * [`stats`], [`costs`], [`usage`]: what it counts.
//! * [`domains`]: which CPUs share a queue. [`urgent`]: work that must not wait for a CPU.
//! * [`times`]: what CPUs did, from `/proc/stat`. [`told`]: what a host tells a guest.

// These panic where nobody reads, or the disk is full: see overbook_cli::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod anew;
pub mod backoff;
pub mod client;
pub mod cores;
pub mod costs;
pub mod domains;
pub mod ending;
pub mod faults;
mod functions;
pub mod kvm;
pub mod preflight;
pub mod replace;
mod scheduler;
pub mod session;
pub mod stats;
pub mod times;
pub mod told;
pub mod topology;
pub mod tunables;
pub mod urgent;
pub mod usage;

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

pub use libbpf_rs::OpenObject;
pub use scheduler::{Mode, Scheduler, enforces_limits, has_deadline_server};
pub use tunables::{Loading, Tunables};
