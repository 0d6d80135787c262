// SPDX-License-Identifier: GPL-2.0-only
//! Names of VM exit reasons, as the vendors' manuals number them.

const VMX: u32 = 1;
const SVM: u32 = 2;

/// Bit 31 of a VMX reason says that the entry failed, bit 27 that the exit came from an enclave.
const VMX_REASON: u32 = 0xffff;

/// A reason's name, the same for both vendors where the event is the same; its number if it is a rare one.
pub fn exit_name(isa: u32, reason: u32) -> String {
    let name = match (isa, reason) {
        (SVM, 0x77) => "pause",
        (SVM, 0x78) => "hlt",
        (SVM, 0x60) => "interrupt",
        (SVM, 0x61) => "nmi",
        (SVM, 0x64) => "interrupt-window",
        (SVM, 0x72) => "cpuid",
        (SVM, 0x7b) => "io",
        (SVM, 0x7c) => "msr",
        (SVM, 0x7f) => "shutdown",
        (SVM, 0x81) => "hypercall",
        (SVM, 0x400) => "page-fault",
        (SVM, 0x401) => "avic-incomplete-ipi",
        (SVM, 0x402) => "avic-unaccelerated",
        (VMX, _) => match reason & VMX_REASON {
            1 => "interrupt",
            2 => "shutdown",
            7 => "interrupt-window",
            10 => "cpuid",
            12 => "hlt",
            18 => "hypercall",
            30 => "io",
            31 | 32 => "msr",
            40 => "pause",
            44 => "apic-access",
            45 => "eoi-induced",
            48 | 49 => "page-fault",
            52 => "preemption-timer",
            56 => "apic-write",
            other => return format!("vmx-{other}"),
        },
        (SVM, other) => return format!("svm-{other:#x}"),
        (_, other) => return format!("{other:#x}"),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_pause_on_both_vendors() {
        assert_eq!(exit_name(SVM, 0x77), "pause");
        assert_eq!(exit_name(VMX, 40), "pause");
        assert_eq!(exit_name(VMX, 40 | 1 << 27), "pause");
        assert_eq!(exit_name(SVM, 0x99), "svm-0x99");
    }
}
