// SPDX-License-Identifier: GPL-2.0-only
//! `class.h`: what a VM's class changes.

use crate::ffi;

/// Longest patience, ns.
pub const PATIENCE_MOST_NS: u64 = ffi::OVB_PATIENCE_MOST;

/// What it may take until one that has waited for too long runs, ns.
pub const PROMISE_ROOM_NS: u64 = ffi::OVB_PROMISE_ROOM as u64;

/// A class of VMs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Class {
    /// As ever.
    #[default]
    Normal = ffi::ovb_class_OVB_CLASS_NORMAL,
    /// Short slices, soon.
    Latency = ffi::ovb_class_OVB_CLASS_LATENCY,
    /// Long slices, late.
    Batch = ffi::ovb_class_OVB_CLASS_BATCH,
}

impl Class {
    /// All of them, by number.
    pub const ALL: [Class; 3] = [Class::Normal, Class::Latency, Class::Batch];

    /// Its name, as operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Normal => "normal",
            Class::Latency => "latency",
            Class::Batch => "batch",
        }
    }

    /// The class of this name.
    pub fn named(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }

    /// The class of this number; a number of none is normal.
    pub fn numbered(number: u32) -> Class {
        Class::ALL.into_iter().find(|class| *class as u32 == number).unwrap_or_default()
    }

    /// Length of a slice; `slice` is a normal one's, at most 2^62.
    pub fn slice(self, slice: u64) -> u64 {
        raw_slice(slice, self as u32)
    }

    /// By how much earlier a woken vCPU's key must be for it to preempt, ns.
    pub fn margin(self, margin: u64) -> u64 {
        raw_margin(margin, self as u32)
    }

    /// Whether a woken vCPU may preempt.
    pub fn preempts(self) -> bool {
        // SAFETY: as in `pure!`.
        unsafe { ffi::ovb_class_preempts(self as u32) != 0 }
    }

    /// How long a vCPU may be queued until it goes before others, ns; `patience` is a normal one's.
    pub fn patience(self, patience: u64) -> u64 {
        raw_patience(patience, self as u32)
    }

    /// What is promised: the longest time that a vCPU which can run is off its CPU, ns.
    pub fn promise(self, patience: u64) -> u64 {
        raw_promise(patience, self as u32)
    }
}

pure! {
    /// See [`Class::slice`].
    raw_slice = ovb_class_slice(slice: u64, vm_class: u32) -> u64;
    /// See [`Class::margin`].
    raw_margin = ovb_class_margin(margin: u64, vm_class: u32) -> u64;
    /// See [`Class::patience`].
    raw_patience = ovb_class_patience(patience: u64, vm_class: u32) -> u64;
    /// See [`Class::promise`].
    raw_promise = ovb_class_promise(patience: u64, vm_class: u32) -> u64;
}
