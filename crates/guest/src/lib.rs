// SPDX-License-Identifier: GPL-2.0-only
//! `overbook guest`: ask for fewer CPUs when the host cannot give more.
//!
//! * [`Options`]: the command line.
//! * [`steal`]: what the guest got and what was stolen from it, from `/proc/stat` or from a recorded trace.
//! * [`told`]: what the host says that it can give.
//! * [`monitor`]: which CPUs to prefer; decides by `policy/steal.h`, `policy/entitle.h` and `policy/cores.h`.
//! * [`run`]: the command; `watch.rs` is its session, period by period, and `guest.rs` tells everybody what is preferred.
//! * [`enforce`]: who keeps tasks there: [`cpusets`], or a sched_ext scheduler that stands by until it is needed.
//! * [`kthreads`]: kernel threads, which are in no cpuset.
//! * [`settings`]: what changes while it runs.
//! * [`native`]: the kernel's own governor, beside which ours does not run.
//! * `interrupts.rs`: interrupts follow, by [`irqbalance`], or by [`steer`]; `bans.rs` knows what irqbalance had before.
//! * [`realtime`]: tasks that cannot be moved.
//! * [`keeper`]: puts back what was changed outside the scheduler, however the program ends.

// These panic where nobody reads, or the disk is full: see overbook_cli::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod bans;
mod berth;
pub mod cpusets;
pub mod enforce;
mod guest;
mod interrupts;
pub mod irqbalance;
pub mod keeper;
pub mod kthreads;
mod lock;
pub mod machine;
pub mod monitor;
pub mod native;
mod options;
pub mod publish;
pub mod realtime;
mod run;
pub mod settings;
mod standby;
pub mod stats;
pub mod steal;
pub mod steer;
pub mod told;
pub mod trace;
mod watch;

pub use options::Options;
pub use run::run;
pub use settings::Governor;
