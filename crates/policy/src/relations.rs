// SPDX-License-Identifier: GPL-2.0-only
//! `relations.h` and `published/ipi.h`: whom a vCPU waits for.

use crate::ffi;

pub use ffi::{
    OVB_RELATION_MANY, OVB_RELATION_SLOTS, OVB_WINDOW_NS, ovb_inbox as Inbox, ovb_ipi_slot as IpiSlot,
    ovb_relation as Relation, ovb_relations as Relations,
};

/// What a receiver's local APIC says of a vector (`enum ovb_apic_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apic {
    /// It cannot be read.
    Unknown,
    /// Handled.
    Idle,
    /// Requested or in service.
    Pending,
}

impl Relations {
    /// Notes an IPI.
    pub fn send(&mut self, receiver: u32, vector: u32, now: u64, window: u64) {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_relations_send(self, receiver, vector, now, window) }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        // SAFETY: as above.
        unsafe { ffi::ovb_relations_reset(self) }
    }
}

/// Whether something of time `at` is no older than `window`.
pub fn within(at: u64, now: u64, window: u64) -> bool {
    // SAFETY: a pure function.
    unsafe { ffi::ovb_within(at, now, window) != 0 }
}

impl Relation {
    /// Whether the sender still waits for this receiver.
    pub fn open(&self, now: u64, window: u64, apic: Apic, ended: bool) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_relation_open(self, now, window, apic as u32, ended.into()) != 0 }
    }
}

impl Inbox {
    /// The receiver's side of an IPI.
    pub fn sent(&mut self, vector: u32) {
        // SAFETY: as above.
        unsafe { ffi::ovb_inbox_sent(self, vector) }
    }

    /// The receiver ends an interrupt.
    pub fn end(&mut self, vector: u32, now: u64) {
        // SAFETY: as above.
        unsafe { ffi::ovb_inbox_ended(self, vector, now) }
    }

    /// Whether an interrupt of this vector has ended since.
    pub fn has_ended(&self, vector: u32, sent_at: u64) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_inbox_has_ended(self, vector, sent_at) != 0 }
    }
}

/// `published/ipi.h`: records an IPI.
pub fn published_send(
    sender: &mut IpiSlot,
    sender_id: u32,
    receiver: &mut IpiSlot,
    receiver_id: u32,
    now: u64,
) {
    // SAFETY: as above.
    unsafe { ffi::ovb_ipi_slot_send(sender, sender_id, receiver, receiver_id, now) }
}

/// `published/ipi.h`: whether `target` is the sender's recent receiver.
pub fn published_waits_for(sender: &IpiSlot, target: u32, now: u64, window: u64) -> bool {
    // SAFETY: as above.
    unsafe { ffi::ovb_ipi_slot_waits_for(sender, target, now, window) != 0 }
}

/// `published/ipi.h`: the receiver's part of an EOI; the sender.
pub fn published_eoi(receiver: &mut IpiSlot) -> Option<u32> {
    // SAFETY: as above.
    let sender = unsafe { ffi::ovb_ipi_slot_eoi(receiver) };
    sender.checked_sub(1)
}

/// `published/ipi.h`: the sender's part of it.
pub fn published_answered(sender: &mut IpiSlot, receiver: u32, now: u64, window: u64) {
    // SAFETY: as above.
    unsafe { ffi::ovb_ipi_slot_answered(sender, receiver, now, window) }
}

/// `published/ipi.h`: a sender's bit in ple-kvm's bitmap.
pub fn ple_kvm_bit(sender: u32) -> u64 {
    // SAFETY: a pure function.
    unsafe { ffi::ovb_ple_kvm_bit(sender) }
}
