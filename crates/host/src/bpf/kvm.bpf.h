/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What KVM knows of a vCPU, read from its thread: KVM hangs a preempt notifier, which is part of
 * struct kvm_vcpu, on every vCPU thread. No probe is needed for it, and VMs that ran before the
 * scheduler was loaded are seen as well.
 */
#ifndef OVERBOOK_KVM_BPF_H
#define OVERBOOK_KVM_BPF_H

#include "relations.h"
#include "state.bpf.h"

/* Declared by hand, as little as is used, and relocated: vmlinux.h knows neither kvm nor preempt
 * notifiers, which are there only for kvm. */
struct preempt_notifier___ovb {
	struct hlist_node link;
} __attribute__((preserve_access_index));

struct task_struct___ovb {
	struct hlist_head preempt_notifiers;
} __attribute__((preserve_access_index));

struct kvm_vcpu___ovb;

struct kvm_lapic___ovb {
	void *regs;
} __attribute__((preserve_access_index));

struct kvm_vcpu_arch___ovb {
	struct kvm_lapic___ovb *apic;
	unsigned long apic_attention;
	bool preempted_in_kernel;
} __attribute__((preserve_access_index));

struct kvm_vcpu___ovb {
	void *kvm;
	struct preempt_notifier___ovb preempt_notifier;
	struct kvm_vcpu_arch___ovb arch;
	int vcpu_id;
	bool preempted;
} __attribute__((preserve_access_index));

/* Intel: interrupts that were posted and not yet seen by the local APIC; where 6.16 and later keep
 * them, and where earlier kernels do. */
struct pi_desc___ovb {
	unsigned long pir[4];
} __attribute__((preserve_access_index));

struct vcpu_vt___ovb {
	struct pi_desc___ovb pi_desc;
} __attribute__((preserve_access_index));

struct vcpu_vmx___ovb {
	struct vcpu_vt___ovb vt;
	struct pi_desc___ovb pi_desc;
} __attribute__((preserve_access_index));

/* In-service and interrupt request registers: eight words of 32 bits, 16 bytes apart. */
#define APIC_ISR   0x100
#define APIC_IRR   0x200
#define APIC_WORDS 8

/* The vCPU that a thread runs, NULL if it runs none (or the kvm module was not there at load). */
static struct kvm_vcpu___ovb *vcpu_of(struct task_struct *p)
{
	struct hlist_node *first;

	if (!bpf_core_field_exists(((struct kvm_vcpu___ovb *)0)->preempt_notifier))
		return NULL;
	first = BPF_CORE_READ((struct task_struct___ovb *)p, preempt_notifiers.first);
	if (!first)
		return NULL;
	return (void *)first - bpf_core_field_offset(struct kvm_vcpu___ovb, preempt_notifier) -
	       bpf_core_field_offset(struct preempt_notifier___ovb, link);
}

/* The posted interrupts of a vCPU; NULL on AMD. */
static void *posted(struct kvm_vcpu___ovb *vcpu)
{
	/* struct vcpu_vmx begins with its struct kvm_vcpu. */
	struct vcpu_vmx___ovb *vmx = (void *)vcpu;

	if (bpf_core_field_exists(vmx->vt.pi_desc))
		return (void *)vmx + bpf_core_field_offset(struct vcpu_vmx___ovb, vt) +
		       bpf_core_field_offset(struct vcpu_vt___ovb, pi_desc);
	if (bpf_core_field_exists(vmx->pi_desc))
		return (void *)vmx + bpf_core_field_offset(struct vcpu_vmx___ovb, pi_desc);
	return NULL;
}

/* Where a vCPU's interrupts can be seen. */
struct interrupts {
	/* Registers of its local APIC. */
	void *regs;
	/* Its posted interrupts; NULL on AMD. */
	void *pir;
};

/* False if nothing can be seen. */
static __always_inline bool see_interrupts(struct task_struct *p, struct interrupts *seen)
{
	struct kvm_vcpu___ovb *vcpu = vcpu_of(p);
	struct kvm_lapic___ovb *apic;

	/* Without the kvm module none of these exists, and the verifier must see for each that what
	 * reads it is never reached. */
	if (!bpf_core_field_exists(vcpu->arch.apic) ||
	    !bpf_core_field_exists(((struct kvm_lapic___ovb *)0)->regs))
		return false;
	if (!vcpu)
		return false;
	apic = BPF_CORE_READ(vcpu, arch.apic);
	if (!apic)
		return false;
	seen->regs = BPF_CORE_READ(apic, regs);
	seen->pir = posted(vcpu);
	return seen->regs;
}

/* Whether the vCPU of a thread has an interrupt to take as soon as it runs. */
static bool has_pending_interrupt(struct task_struct *p)
{
	struct interrupts seen = {};
	u32 irr[4 * APIC_WORDS] = {}, pending = 0, i;
	u64 pir[4] = {};

	if (!see_interrupts(p, &seen))
		return false;
	bpf_probe_read_kernel(irr, sizeof(irr), seen.regs + APIC_IRR);
	for (i = 0; i < APIC_WORDS; i++)
		pending |= irr[4 * i];
	if (seen.pir)
		bpf_probe_read_kernel(pir, sizeof(pir), seen.pir);
	return pending || pir[0] | pir[1] | pir[2] | pir[3];
}

/* arch/x86/include/asm/kvm_host.h: bits of apic_attention. */
#define KVM_APIC_PV_EOI_PENDING 1

/* Whether a vCPU may end the interrupt that it handles without telling KVM. */
static bool ends_unseen(struct task_struct *p)
{
	struct kvm_vcpu___ovb *vcpu = vcpu_of(p);

	if (!vcpu || !bpf_core_field_exists(vcpu->arch.apic_attention))
		return false;
	return BPF_CORE_READ(vcpu, arch.apic_attention) >> KVM_APIC_PV_EOI_PENDING & 1;
}

/* What the local APIC says of a vector; see enum ovb_apic_state. */
static u32 apic_state(struct task_struct *p, u32 vector)
{
	u32 index = vector / 32 & 7, bit = 1u << (vector & 31), word;
	struct interrupts seen = {};

	if (!see_interrupts(p, &seen))
		return OVB_APIC_UNKNOWN;
	if (seen.pir && !bpf_probe_read_kernel(&word, sizeof(word), seen.pir + index * 4) &&
	    word & bit)
		return OVB_APIC_PENDING;
	if (bpf_probe_read_kernel(&word, sizeof(word), seen.regs + APIC_IRR + index * 16))
		return OVB_APIC_UNKNOWN;
	if (word & bit)
		return OVB_APIC_PENDING;
	if (bpf_probe_read_kernel(&word, sizeof(word), seen.regs + APIC_ISR + index * 16))
		return OVB_APIC_UNKNOWN;
	/* A guest may end it in its own memory; KVM learns of that later. Nobody knows then, and
	 * who has taken an interrupt is mostly done with it. */
	return word & bit && !ends_unseen(p) ? OVB_APIC_PENDING : OVB_APIC_IDLE;
}

/* Whether a vCPU was preempted in the guest's kernel. */
static bool preempted_in_kernel(struct kvm_vcpu___ovb *vcpu)
{
	if (!bpf_core_field_exists(vcpu->arch.preempted_in_kernel))
		return false;
	return BPF_CORE_READ(vcpu, preempted) && BPF_CORE_READ(vcpu, arch.preempted_in_kernel);
}

/* The VM of a vCPU, as a number that no other VM has meanwhile. */
static u64 kvm_of(struct kvm_vcpu___ovb *vcpu)
{
	if (!bpf_core_field_exists(vcpu->kvm))
		return 0;
	return (u64)BPF_CORE_READ(vcpu, kvm);
}

#endif
