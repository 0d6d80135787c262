// SPDX-License-Identifier: GPL-2.0-only
//! The KVM machine of a micro-guest: one memory slot, an in-kernel LAPIC per vCPU, long mode from the start.

use crate::abi;
use crate::memory::{GuestMemory, area};
use anyhow::{Context, Result, anyhow};
use kvm_bindings::{
    CpuId, KVM_CAP_SPLIT_IRQCHIP, KVM_CAP_X2APIC_API, KVM_CAP_X86_DISABLE_EXITS, KVM_MAX_CPUID_ENTRIES,
    KVM_MP_STATE_RUNNABLE, KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK, KVM_X2APIC_API_USE_32BIT_IDS,
    KVM_X86_DISABLE_EXITS_PAUSE, kvm_enable_cap, kvm_mp_state, kvm_regs, kvm_segment,
    kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

const CR0_PE_MP_NE_PG: u64 = 1 | 1 << 1 | 1 << 5 | 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;
const RFLAGS_RESERVED: u64 = 2;
const RING0_SP_IN_TSS: u64 = 4;

/// Why a vCPU stopped for good.
#[derive(Debug)]
pub enum Stop {
    /// The guest asked for it, having written down why.
    Fault,
    /// KVM gave up: triple fault, invalid state, or an exit that this machine has no device for.
    Broken(String),
}

/// A VM with its vCPUs, not yet running.
pub struct Machine {
    /// Kept alive for its vCPUs.
    _vm: VmFd,
    /// In the order of their APIC ids.
    pub vcpus: Vec<VcpuFd>,
    /// Frequency of the guest's TSC; 0 if KVM does not tell.
    pub tsc_khz: u32,
}

/// Checks that KVM can be used at all.
///
/// # Errors
/// It cannot; the message says what to do.
pub fn check_kvm() -> Result<()> {
    open().map(drop)
}

fn open() -> Result<Kvm> {
    Kvm::new().with_context(|| match crate::kvm::Kvm::detect().is_there() {
        true => "cannot open /dev/kvm: run as root or in group kvm",
        false => "cannot open /dev/kvm: this kernel has no KVM, or it is not loaded (kvm_amd or kvm_intel)",
    })
}

/// Builds the machine.
///
/// # Errors
/// /dev/kvm cannot be used, or lacks what the guests need; the message says which.
pub fn build(memory: &GuestMemory, count: u32, ple: bool) -> Result<Machine> {
    let kvm = open()?;
    let vm = kvm.create_vm().context("KVM cannot create a VM")?;
    let enable = |cap: u32, arg: u64| {
        let mut request = kvm_enable_cap { cap, ..Default::default() };
        request.args[0] = arg;
        vm.enable_cap(&request)
    };
    if !ple {
        enable(KVM_CAP_X86_DISABLE_EXITS, KVM_X86_DISABLE_EXITS_PAUSE.into())
            .context("this KVM cannot switch PAUSE exits off for one VM")?;
    }
    // Without this, APIC ids of 255 and above are out of reach and id 255 means everybody.
    enable(
        KVM_CAP_X2APIC_API,
        (KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK).into(),
    )
    .context("this KVM has no x2APIC")?;
    // LAPICs in the kernel, but no PIC, PIT and IOAPIC: nothing here uses them, and they would tick.
    enable(KVM_CAP_SPLIT_IRQCHIP, 0).context("this KVM has no in-kernel LAPIC")?;

    let region = memory.map_ref().get_host_address(GuestAddress(0))? as u64;
    let slot = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: 0,
        memory_size: memory.size(),
        userspace_addr: region,
    };
    // SAFETY: the mapping outlives the VM: `memory` is borrowed by the caller for the life of the process.
    unsafe { vm.set_user_memory_region(slot) }.context("KVM refuses the guest's memory")?;

    let cpuid = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).context("KVM does not tell its CPUID")?;
    let mut vcpus = Vec::new();
    for index in 0..count {
        let vcpu = vm.create_vcpu(index.into()).with_context(|| format!("KVM cannot create vCPU {index}"))?;
        vcpu.set_cpuid2(&with_apic_id(&cpuid, index)?).context("KVM refuses its own CPUID")?;
        start_in_long_mode(memory, &vcpu, index).with_context(|| format!("cannot set up vCPU {index}"))?;
        vcpus.push(vcpu);
    }
    let tsc_khz = vcpus[0].get_tsc_khz().context("KVM does not tell the frequency of the guest's TSC")?;
    let at = u64::from(abi::OB_PARAMS) + std::mem::offset_of!(abi::ob_params, tsc_khz) as u64;
    memory.map_ref().write_obj(tsc_khz, GuestAddress(at))?;
    Ok(Machine { _vm: vm, vcpus, tsc_khz })
}

fn with_apic_id(supported: &CpuId, index: u32) -> Result<CpuId> {
    let mut entries = supported.as_slice().to_vec();
    for entry in &mut entries {
        match entry.function {
            1 => entry.ebx = (entry.ebx & 0x00ff_ffff) | (index & 0xff) << 24,
            0xb | 0x1f => entry.edx = index,
            _ => {}
        }
    }
    CpuId::from_entries(&entries).map_err(|e| anyhow!("KVM's CPUID does not fit: {e:?}"))
}

fn segment(selector: u32, kind: u8, long: u8, base: u64, limit: u32) -> kvm_segment {
    kvm_segment {
        base,
        limit,
        selector: selector as u16,
        type_: kind,
        present: 1,
        s: u8::from(selector != abi::OB_SELECTOR_TSS),
        l: long,
        db: u8::from(long == 0 && selector != abi::OB_SELECTOR_TSS),
        g: u8::from(limit == u32::MAX),
        ..Default::default()
    }
}

fn start_in_long_mode(memory: &GuestMemory, vcpu: &VcpuFd, index: u32) -> Result<()> {
    let area = area(index);
    let tss = area + u64::from(abi::OB_AREA_TSS);
    let stack = area + u64::from(abi::OB_AREA_KERNEL_STACK_TOP);
    // An interrupt in ring 3 takes its stack from here. The stack of a vCPU that went to ring 3 is unused.
    memory.map_ref().write_obj(stack - 64, GuestAddress(tss + RING0_SP_IN_TSS))?;

    let mut sregs = vcpu.get_sregs()?;
    sregs.cs = segment(abi::OB_SELECTOR_CODE, 0xb, 1, 0, u32::MAX);
    let data = segment(abi::OB_SELECTOR_DATA, 0x3, 0, 0, u32::MAX);
    (sregs.ds, sregs.es, sregs.ss, sregs.fs) = (data, data, data, data);
    sregs.gs = kvm_segment { base: area, ..data };
    sregs.tr = segment(abi::OB_SELECTOR_TSS, 0xb, 0, tss, 0x67);
    (sregs.gdt.base, sregs.gdt.limit) = (abi::OB_GDT.into(), 5 * 8 - 1);
    (sregs.idt.base, sregs.idt.limit) = (abi::OB_IDT.into(), 256 * 16 - 1);
    sregs.cr0 = CR0_PE_MP_NE_PG;
    sregs.cr3 = abi::OB_PML4.into();
    sregs.cr4 = CR4_PAE;
    sregs.efer = EFER_LME_LMA;
    vcpu.set_sregs(&sregs)?;

    let entry = GuestMemory::entry()?;
    let regs = kvm_regs {
        rip: entry.rip,
        rsp: stack,
        rdi: index.into(),
        rflags: RFLAGS_RESERVED,
        ..Default::default()
    };
    vcpu.set_regs(&regs)?;
    // All vCPUs start at once: there is no firmware here that would send a start-up IPI.
    vcpu.set_mp_state(kvm_mp_state { mp_state: KVM_MP_STATE_RUNNABLE })?;
    Ok(())
}

/// Runs a vCPU until it stops for good.
pub fn run(vcpu: &mut VcpuFd) -> Stop {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoOut(port, _)) if u32::from(port) == abi::OB_PORT_FAULT => return Stop::Fault,
            Ok(VcpuExit::Intr) => {}
            Ok(VcpuExit::Shutdown) => return Stop::Broken("triple fault".into()),
            Ok(VcpuExit::FailEntry(reason, _)) => {
                return Stop::Broken(format!("KVM cannot enter the guest (hardware reason {reason:#x})"));
            }
            Ok(VcpuExit::InternalError) => return Stop::Broken("KVM reports an internal error".into()),
            Ok(exit) => return Stop::Broken(format!("unexpected exit {exit:?}")),
            Err(e) if e.errno() == libc::EINTR || e.errno() == libc::EAGAIN => {}
            Err(e) => return Stop::Broken(format!("KVM_RUN failed: {e}")),
        }
    }
}
