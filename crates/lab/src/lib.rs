// SPDX-License-Identifier: GPL-2.0-only
//! The lab: boots an emulated KVM host with a stock kernel, runs scenarios in it, and reports.
//!
//! Two halves talk over a serial line in lines of JSON ([`protocol`]):
//! * outside, [`run`] resolves the kernel, packs an [`initramfs`] whose init is the current program, boots
//!   [`qemu`] and collects what comes back;
//! * inside, [`agent`] is that init: it measures the instrument, then runs the variants interleaved.

pub mod agent;
pub mod bench;
pub mod describe;
pub mod experiment;
pub mod initramfs;
pub mod instrument;
mod packages;
mod perf;
pub mod protocol;
pub mod qemu;
pub mod run;
pub mod scenario;
pub mod shape;
pub mod soak;
pub mod switches;
pub mod task;
pub mod trial;

pub use scenario::Scenario;
