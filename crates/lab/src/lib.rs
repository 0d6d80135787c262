// SPDX-License-Identifier: GPL-2.0-only
//! The lab: boots an emulated KVM host with a stock kernel, runs scenarios in it, and reports.
//!
//! Two halves talk over a serial line in lines of JSON ([`protocol`]):
//! * [`outside`] resolves the kernel, packs an initramfs whose init is the current program, boots QEMU and collects what
//!   comes back;
//! * [`inside`] is that init: it measures the instrument, then runs the variants interleaved.
//!
//! Both read [`scenario`]s. [`experiment`] measures, inside or on a real host ([`bench`]); [`machine`] is what the machine
//! that measures is and does.

pub mod bench;
pub mod experiment;
pub mod inside;
pub mod machine;
pub mod outside;
pub mod protocol;
pub mod scenario;

pub use scenario::Scenario;
