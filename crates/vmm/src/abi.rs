// SPDX-License-Identifier: GPL-2.0-only
//! `guest/abi.h` as bindgen sees it, and the guest's image.

#![allow(dead_code, non_camel_case_types, missing_docs, clippy::undocumented_unsafe_blocks)]

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

/// The micro-guest's ELF file.
pub static GUEST_ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest.elf"));

/// Distance of two interrupt stubs in `boot.S`.
pub const STUB_SIZE: u64 = 16;
