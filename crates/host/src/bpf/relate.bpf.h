/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a vCPU waits for, by probes on KVM's tracepoints: which IPIs were sent, and which were
 * ended.
 *
 *   kvm_apic_accept_irq       every interrupt that KVM itself delivers, receiver by receiver:
 * unicast, shorthand, logical, the paravirtual hypercalls. In the sender's thread.
 *   kvm_avic_incomplete_ipi   AMD's AVIC reports an IPI whose receiver is not running.
 *   kvm_eoi                   the receiver has ended an interrupt, by register or accelerated.
 *
 * What is delivered without an exit is not seen; then the receivers' APICs are, which select.bpf.h
 * reads.
 */
#ifndef OVERBOOK_RELATE_BPF_H
#define OVERBOOK_RELATE_BPF_H

#include "vm.bpf.h"

#define APIC_DM_FIXED 0x000
#define APIC_DM_INIT  0x500
/* Shorthands of an ICR: self, all, all but self. */
#define APIC_SHORTHAND 0xc0000
/* An IPI to a vCPU that is not running (AMD's manual, AVIC). */
#define AVIC_TARGET_NOT_RUNNING 1

/* An IPI of the vCPU that runs here to a sibling. */
static void ipi_sent(struct task_ctx *senderc, struct vm_ctx *vmc, u32 receiver, u32 vector)
{
	struct vcpu_ctx *from = own_vcpu_ctx(senderc), *to;
	u32 sender = senderc->vcpu - 1;
	u64 now = scx_bpf_now();
	struct ovb_vm_stats *stats;

	if (!from || receiver >= OVB_MAX_VCPUS || receiver == sender)
		return;
	to = vcpu_ctx(vmc, receiver);
	if (!to)
		return;
	stats = vm_stats(senderc->vm);
	if (stats)
		stats->ipis++;
	mask_set(vmc->interrupted, receiver);
	ovb_relations_send(&from->sent, receiver, vector, now, window_ns);
	ovb_inbox_sent(&to->inbox, vector, now);
}

SEC("?tp_btf/kvm_apic_accept_irq")
int BPF_PROG(irq_accepted, u32 apicid, u16 delivery_mode, u16 trigger_mode, u8 vector)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct vm_ctx *vmc;

	if (!taskc || !relations)
		return 0;
	/* Devices' interrupts come from threads that are no vCPUs. */
	vmc = enlist(p, taskc);
	if (!vmc || !taskc->vcpu)
		return 0;
	if (delivery_mode == APIC_DM_INIT) {
		struct vcpu_ctx *to = vcpu_ctx(vmc, apicid);

		if (to)
			ovb_relations_reset(&to->sent);
	} else if (delivery_mode == APIC_DM_FIXED) {
		ipi_sent(taskc, vmc, apicid, vector);
	}
	return 0;
}

SEC("?tp_btf/kvm_avic_incomplete_ipi")
int BPF_PROG(ipi_incomplete, u32 vcpu, u32 icrh, u32 icrl, u32 id, u32 index)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	/* xAPIC has the destination in the upper byte, x2APIC in the whole word. */
	u32 receiver = icrh & 0xff000000 ? icrh >> 24 : icrh;
	struct vm_ctx *vmc;

	if (!taskc || !relations || id != AVIC_TARGET_NOT_RUNNING)
		return 0;
	vmc = enlist(p, taskc);
	/* Logical destinations and shorthands: the receivers' APICs tell. */
	if (vmc && taskc->vcpu && !(icrl & (APIC_SHORTHAND | 1 << 11)))
		ipi_sent(taskc, vmc, receiver, icrl & 0xff);
	return 0;
}

SEC("?tp_btf/kvm_eoi")
int BPF_PROG(irq_ended, struct kvm_lapic___ovb *apic, int vector)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct ovb_vm_stats *stats;
	struct vcpu_ctx *self;
	struct vm_ctx *vmc;

	if (!taskc || !taskc->vcpu || !relations)
		return 0;
	self = own_vcpu_ctx(taskc);
	vmc = vm_ctx(taskc->vm);
	if (!self || !vmc)
		return 0;
	mask_clear(vmc->interrupted, taskc->vcpu - 1);
	stats = vm_stats(taskc->vm);
	if (stats)
		stats->eois++;
	ovb_inbox_ended(&self->inbox, vector, scx_bpf_now());
	return 0;
}

#endif
