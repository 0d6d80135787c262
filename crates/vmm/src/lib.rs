// SPDX-License-Identifier: GPL-2.0-only
//! Micro-guests: bare-metal x86-64 KVM guests that run one synchronization pattern each.
//!
//! A VM is a process of its own (as QEMU is), started by re-executing the current program with
//! [`VM_SUBCOMMAND`]. Guest memory is a memfd that the parent owns, so the parent reads the guest's counters
//! while the guest runs, without a word to the VM process and without waiting for it to be scheduled.
//!
//! * [`load`]: what a guest does, and the parameters of each pattern.
//! * [`memory`]: guest memory and the counters in it.
//! * [`machine`]: the KVM machine: memory map, long mode, x2APIC.
//! * [`kvm`]: what KVM this machine has.
//! * [`process`]: the VM process and its parent's handle on it.

mod abi;
pub mod kvm;
pub mod load;
pub mod machine;
pub mod memory;
pub mod process;

pub use load::{Load, LockKind, Pattern, Storm};
pub use memory::{Counters, GuestMemory};
pub use process::{VM_SUBCOMMAND, VmConfig, VmProcess, serve};
