/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What KVM knows of a vCPU, read from its thread: KVM hangs a preempt notifier, which is part of
 * struct kvm_vcpu, on every vCPU thread. No probe is needed for it, and VMs that ran before the
 * scheduler was loaded are seen as well.
 */
#ifndef OVERBOOK_KVM_BPF_H
#define OVERBOOK_KVM_BPF_H

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
} __attribute__((preserve_access_index));

struct kvm___ovb {
	atomic_t online_vcpus;
} __attribute__((preserve_access_index));

struct kvm_vcpu___ovb {
	struct kvm___ovb *kvm;
	struct preempt_notifier___ovb preempt_notifier;
	struct kvm_vcpu_arch___ovb arch;
	int vcpu_id;
	bool wants_to_run;
} __attribute__((preserve_access_index));

/* Intel: interrupts that were posted and not yet seen by the local APIC, from 6.16 on. */
struct pi_desc___ovb {
	unsigned long pir[4];
} __attribute__((preserve_access_index));

struct vcpu_vt___ovb {
	struct pi_desc___ovb pi_desc;
} __attribute__((preserve_access_index));

struct vcpu_vmx___ovb {
	struct kvm_vcpu___ovb vcpu;
	struct vcpu_vt___ovb vt;
} __attribute__((preserve_access_index));

/* The interrupt request register and the one of interrupts in service: eight words of 32 bits, 16
 * bytes apart. */
#define APIC_IRR   0x200
#define APIC_ISR   0x100
#define APIC_WORDS 8

/* The vCPU that a thread runs, NULL if it runs none (or the kvm module was not there at load).
 * Other threads have a notifier hung on them too, while they set a vCPU's registers; from
 * Linux 6.11 on KVM knows which of them runs it. */
static struct kvm_vcpu___ovb *vcpu_of(struct task_struct *p)
{
	struct kvm_vcpu___ovb *vcpu = NULL;
	struct hlist_node *first;

	if (!bpf_core_field_exists(vcpu->preempt_notifier))
		return NULL;
	first = BPF_CORE_READ((struct task_struct___ovb *)p, preempt_notifiers.first);
	if (!first)
		return NULL;
	vcpu = (void *)first - bpf_core_field_offset(struct kvm_vcpu___ovb, preempt_notifier) -
	       bpf_core_field_offset(struct preempt_notifier___ovb, link);
	if (bpf_core_field_exists(vcpu->wants_to_run) && !BPF_CORE_READ(vcpu, wants_to_run))
		return NULL;
	return vcpu;
}

/* The posted interrupts of a vCPU; NULL where there are none. */
static void *posted(struct kvm_vcpu___ovb *vcpu)
{
	/* That is what a struct vcpu_vmx begins with; AMD's vCPUs are something else, though a
	 * kernel with all of kvm built in has the type. */
	struct vcpu_vmx___ovb *vmx = (void *)vcpu;

	if (posts && bpf_core_field_exists(vmx->vt.pi_desc))
		return (void *)vmx + bpf_core_field_offset(struct vcpu_vmx___ovb, vt) +
		       bpf_core_field_offset(struct vcpu_vt___ovb, pi_desc);
	return NULL;
}

/* Whether interrupts are seen that a vCPU has to take: before 6.16 not those that Intel's hardware
 * has posted. */
static bool sees_interrupts(void)
{
	struct vcpu_vmx___ovb *vmx = NULL;

	return !posts || bpf_core_field_exists(vmx->vt.pi_desc);
}

/* Whether any bit of a register of 256 is set. */
static bool has_bits(void *regs, u32 at)
{
	u32 words[4 * APIC_WORDS] = {}, any = 0, i;

	bpf_probe_read_kernel(words, sizeof(words), regs + at);
	for (i = 0; i < APIC_WORDS; i++)
		any |= words[4 * i];
	return any;
}

/* Whether the vCPU of a thread has an interrupt to take as soon as it runs; or is handling one, if
 * that counts too. */
static bool has_interrupt(struct task_struct *p, bool in_service)
{
	struct kvm_vcpu___ovb *vcpu = vcpu_of(p);
	struct kvm_lapic___ovb *apic;
	u64 pir[4] = {};
	void *regs;

	/* Without the kvm module none of these exists, and the verifier must see for each that what
	 * reads it is never reached. */
	if (!bpf_core_field_exists(vcpu->arch.apic) ||
	    !bpf_core_field_exists(((struct kvm_lapic___ovb *)0)->regs))
		return false;
	apic = vcpu ? BPF_CORE_READ(vcpu, arch.apic) : NULL;
	regs = apic ? BPF_CORE_READ(apic, regs) : NULL;
	if (!regs)
		return false;
	if (has_bits(regs, APIC_IRR) || (in_service && has_bits(regs, APIC_ISR)))
		return true;
	if (posted(vcpu))
		bpf_probe_read_kernel(pir, sizeof(pir), posted(vcpu));
	return pir[0] | pir[1] | pir[2] | pir[3];
}

/* The VM of a vCPU, as a number that no other VM has meanwhile. */
static u64 kvm_of(struct kvm_vcpu___ovb *vcpu)
{
	if (!bpf_core_field_exists(vcpu->kvm))
		return 0;
	return (u64)BPF_CORE_READ(vcpu, kvm);
}

#endif
