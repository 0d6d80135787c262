// SPDX-License-Identifier: GPL-2.0-only
//! The half of the lab that runs on this computer.
//!
//!   run        one boot: a scenario in, events and a report out
//!   task       the same for a soak, a check of a guest, and what is observed
//!   trial      whether a kernel boots here, and with KVM or TCG
//!   machine    a job from its initramfs to what its machine says
//!   qemu       the emulated host's QEMU
//!   initramfs  what that boots
//!   packages   programs of Debian's packages, for Linux guests

mod initramfs;
pub mod machine;
mod packages;
pub mod qemu;
pub mod run;
pub mod task;
pub mod trial;
