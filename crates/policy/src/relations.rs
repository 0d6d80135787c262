// SPDX-License-Identifier: GPL-2.0-only
//! `relations.h` and `published/ipi.h`: whom a vCPU waits for.

use crate::ffi;

pub use ffi::{OVB_SENT_MANY, ovb_ipi_slot as IpiSlot, ovb_sent as Sent};

impl Sent {
    /// Notes an IPI.
    pub fn send(&mut self, receiver: u32, now: u64, window: u64) {
        // SAFETY: the reference is valid for the call, and nothing is kept.
        unsafe { ffi::ovb_sent_to(self, receiver, now, window) }
    }

    /// A receiver has ended an interrupt; whether it was the last that the sender waited for.
    pub fn answered(&mut self, receiver: u32) -> bool {
        // SAFETY: as above.
        unsafe { ffi::ovb_sent_answered(self, receiver) != 0 }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        // SAFETY: as above.
        unsafe { ffi::ovb_sent_reset(self) }
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
