// SPDX-License-Identifier: GPL-2.0-only
//! What the VMs of this host do and wait for, whoever schedules them.
//!
//! * [`vms`]: finds VMs and their vCPU threads in /proc.
//! * [`snapshot`]: all counters at one moment: /proc's, the probes' on KVM, and those of `overbook host` if it runs.
//! * [`recording`]: snapshots in a file that never grows beyond a limit.
//! * [`window`]: what happened between two snapshots; the rows of `overbook top`.
//! * [`report`]: the same for one long window, in words: `overbook report`.
//! * [`far`]: what ratio a host stands, by a recording.
//! * [`metrics`]: the schedulers' own counters for Prometheus, and [`scrape`] over HTTP.

// These panic where nobody reads, or the disk is full: see overbook_host::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod far;
pub mod metrics;
pub mod recording;
pub mod report;
pub mod scrape;
pub mod snapshot;
pub mod vms;
pub mod window;

pub use snapshot::{Observer, Snapshot};
pub use window::Window;
