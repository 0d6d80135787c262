// SPDX-License-Identifier: GPL-2.0-only
//! `overbook host`: what a host needs beside the scheduler itself, which is `overbook_scheduler`.
//!
//! * [`Options`]: the command line, with the flags that sched_ext users expect.
//! * [`settings`]: what may change while it runs.
//! * [`run`]: schedule and serve until the end, load again after hotplug, do as the lab says.
//! * [`channel`], [`entitle`]: guests are told what they could have.
//! * [`homes`]: in which LLC vCPUs wait. [`classes`], [`assignments`], [`domain_class`]: which class a VM has.

// These panic where nobody reads, or the disk is full: see overbook_cli::output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod assignments;
pub mod channel;
mod chores;
pub mod classes;
pub mod domain_class;
pub mod entitle;
pub mod homes;
mod hosting;
mod namespace;
mod options;
mod run;
pub mod settings;

pub use options::Options;
pub use run::run;
