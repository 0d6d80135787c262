/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What KVM knows of a vCPU, read from its thread: KVM hangs a preempt notifier, which is part of
 * struct kvm_vcpu, on every vCPU thread. No probe is needed for it, and VMs that ran before the
 * scheduler was loaded are seen as well.
 */
#ifndef OVERBOOK_VCPU_BPF_H
#define OVERBOOK_VCPU_BPF_H

#include "state.bpf.h"

/* Declared by hand, as little as is used, and relocated: vmlinux.h knows neither kvm nor preempt
 * notifiers, which are there only for kvm. */
struct preempt_notifier___ovb {
	struct hlist_node link;
} __attribute__((preserve_access_index));

struct task_struct___ovb {
	struct hlist_head preempt_notifiers;
} __attribute__((preserve_access_index));

struct kvm_lapic___ovb {
	bool irr_pending;
	void *regs;
} __attribute__((preserve_access_index));

struct kvm_vcpu_arch___ovb {
	struct kvm_lapic___ovb *apic;
	bool preempted_in_kernel;
} __attribute__((preserve_access_index));

struct kvm_vcpu___ovb {
	struct preempt_notifier___ovb preempt_notifier;
	struct kvm_vcpu_arch___ovb arch;
	bool preempted;
} __attribute__((preserve_access_index));

/* Interrupt request register: eight words of 32 bits, 16 bytes apart. */
#define APIC_IRR       0x200
#define APIC_IRR_WORDS 8

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

/* Whether the vCPU of a thread has an interrupt to take as soon as it runs. */
static bool has_pending_interrupt(struct task_struct *p)
{
	struct kvm_vcpu___ovb *vcpu = vcpu_of(p);
	struct kvm_lapic___ovb *apic;
	void *regs;
	u32 word, i;

	if (!vcpu || !bpf_core_field_exists(vcpu->arch.apic))
		return false;
	apic = BPF_CORE_READ(vcpu, arch.apic);
	if (!apic || !BPF_CORE_READ(apic, irr_pending))
		return false;
	regs = BPF_CORE_READ(apic, regs);
	if (!regs)
		return false;
	bpf_for (i, 0, APIC_IRR_WORDS) {
		if (!bpf_probe_read_kernel(&word, sizeof(word), regs + APIC_IRR + i * 16) && word)
			return true;
	}
	return false;
}

/* Puts a task into the table of its VM's vCPUs. */
static struct vm_ctx *enlist(struct task_struct *p, struct task_ctx *taskc)
{
	struct vm_ctx *vm;
	u32 tgid = p->tgid, slot;

	vm = bpf_map_lookup_elem(&vm_ctxs, &tgid);
	if (!vm) {
		u32 zero = 0;
		struct vm_ctx *blank = bpf_map_lookup_elem(&blank_vm, &zero);

		if (!blank)
			return NULL;
		bpf_map_update_elem(&vm_ctxs, &tgid, blank, BPF_NOEXIST);
		vm = bpf_map_lookup_elem(&vm_ctxs, &tgid);
		if (!vm)
			return NULL;
	}
	if (taskc->vm == tgid)
		return vm;
	taskc->vm = tgid;
	slot = __sync_fetch_and_add(&vm->nr_vcpus, 1);
	if (slot < OVB_MAX_VCPUS)
		vm->pids[slot] = p->pid;
	return vm;
}

#endif
