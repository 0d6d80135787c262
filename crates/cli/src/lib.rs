// SPDX-License-Identifier: GPL-2.0-only
//! What all commands have in common.
//!
//! * [`values`]: values of options, refused in words that people use.
//! * [`Bare`]: options without a program.
//! * [`affinity`]: where tasks may run.
//! * [`cpulist`]: lists of CPUs.
//! * [`changes`]: what may change while a program runs, `--set KEY=VALUE`.
//! * [`files`]: how they write what others read.
//! * [`output`]: how they print.

// These panic where nobody reads, or the disk is full: see output.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod affinity;
mod bare;
pub mod changes;
pub mod cpulist;
pub mod files;
pub mod output;
pub mod values;

pub use bare::Bare;
pub use values::Switch;
