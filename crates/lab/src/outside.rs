// SPDX-License-Identifier: GPL-2.0-only
//! The half of the lab that runs on this computer.

mod initramfs;
mod packages;
pub mod qemu;
pub mod run;
pub mod soak;
pub mod trial;
