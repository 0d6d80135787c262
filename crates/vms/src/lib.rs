// SPDX-License-Identifier: GPL-2.0-only
//! VMs of this machine: which processes are VMs, and what operators call them.

pub mod names;
mod nova;
mod processes;

pub use processes::vms as processes;
