// SPDX-License-Identifier: GPL-2.0-only
//! The half of the lab that runs on this computer.
//!
//!   run        one boot: a scenario in, events and a report out
//!   soak       the same for the soak
//!   trial      whether a kernel boots here, and with KVM or TCG
//!   qemu       the emulated host's QEMU
//!   initramfs  what that boots
//!   packages   programs of Debian's packages, for Linux guests

mod initramfs;
mod packages;
pub mod qemu;
pub mod run;
pub mod soak;
pub mod trial;
