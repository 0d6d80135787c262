// SPDX-License-Identifier: GPL-2.0-only
//! What the VMs of this host do and wait for, whoever schedules them.
//!
//! * [`vms`]: finds VMs and their vCPU threads in /proc.
//! * [`snapshot`]: all counters at one moment: /proc's, the probes' on KVM, and those of `overbook host` if it runs.
//! * [`ready`]: ready time, its thresholds, and how a VM's is made of its vCPUs'.
//! * [`recording`]: snapshots in a file that never grows beyond a limit.
//! * [`window`]: what happened between two snapshots; the rows of `overbook top`.
//! * [`report`]: the same for one long window, in words: `overbook report`.
//! * [`far`]: what ratio a host stands, by a recording.
//! * [`seen`], [`metrics`]: for Prometheus, what is seen of VMs, and the schedulers' own counters; [`exporter`] answers
//!   with both, and [`scrape`] over HTTP.

// These panic where nobody reads, or the disk is full: see overbook_cli::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod exporter;
pub mod far;
pub mod gone;
pub mod metrics;
pub mod ready;
pub mod recording;
pub mod report;
pub mod scrape;
pub mod seen;
pub mod snapshot;
pub mod vms;
pub mod window;

pub use snapshot::{Observer, Snapshot};
pub use window::Window;
