/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a vCPU waits for, by probes on KVM's tracepoints: which IPIs were sent, and which ended.
 *
 *   kvm_apic_accept_irq       every interrupt that KVM delivers, in the sender's thread
 *   kvm_avic_incomplete_ipi   AMD's AVIC reports an IPI whose receiver is not running
 *   kvm_eoi, kvm_pv_eoi       the receiver has ended one, by register, or in its own memory, which
 *                             KVM sees at the next exit
 *
 * What is delivered or ended without an exit is not seen here (choose.bpf.h reads the APIC of a
 * vCPU at work for what was delivered). Where ends are not (APICv, AVIC), local APICs are read: a
 * receiver's at ticks and when it leaves its CPU, and those of one waiting sender's receivers when
 * a sibling spins. Whoever has nothing pending and nothing in service has answered.
 */
#ifndef OVERBOOK_RELATE_BPF_H
#define OVERBOOK_RELATE_BPF_H

#include "choose.bpf.h"
#include "discover.bpf.h"

#define APIC_DM_FIXED 0x000
#define APIC_DM_INIT  0x500
/* Shorthands of an ICR: self, all, all but self. */
#define APIC_SHORTHAND 0xc0000
/* An IPI to a vCPU that is not running (AMD's manual, AVIC). */
#define AVIC_TARGET_NOT_RUNNING 1
/* include/linux/preempt.h */
#define HARDIRQ_MASK 0xf0000

#ifndef in_hardirq
extern const int __preempt_count __ksym __weak;

/* Whether an interrupt of the host is being handled, on top of whatever ran. */
static bool in_hardirq(void)
{
	return bpf_ksym_exists(&__preempt_count) &&
	       *(int *)bpf_this_cpu_ptr(&__preempt_count) & HARDIRQ_MASK;
}
#endif

/* An IPI of the vCPU that runs here to a sibling. */
static void ipi_sent(struct task_ctx *senderc, struct vm_ctx *vmc, u32 receiver)
{
	struct vcpu_ctx *from = own_vcpu_ctx(senderc), *to;
	struct ovb_vm_stats *stats;

	if (!from || receiver >= OVB_MAX_VCPUS || receiver == senderc->vcpu - 1)
		return;
	to = vcpu_ctx(vmc, receiver);
	if (!to)
		return;
	stats = vm_stats(senderc->vm);
	if (stats)
		stats->ipis++;
	ovb_sent_to(&from->sent, receiver, scx_bpf_now(), window_ns);
	mark(&to->from[bounded((senderc->vcpu - 1) / 64, MASK_WORDS)], senderc->vcpu - 1, true);
	mark(&siblings_of(vmc, receiver)->interrupted, receiver, true);
	stir(vmc, scx_bpf_now());
}

SEC("?tp_btf/kvm_apic_accept_irq")
int BPF_PROG(irq_accepted, u32 apicid, u16 delivery_mode, u16 trigger_mode, u8 vector)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct vm_ctx *vmc;

	/* Devices' interrupts come from threads that are no vCPUs, or on top of one. */
	if (!taskc || !relations || in_hardirq())
		return 0;
	vmc = enlist(p, taskc);
	if (!vmc || !taskc->vcpu)
		return 0;
	if (delivery_mode == APIC_DM_INIT) {
		struct vcpu_ctx *to = apicid < OVB_MAX_VCPUS ? vcpu_ctx(vmc, apicid) : NULL;

		if (to)
			ovb_sent_reset(&to->sent);
	} else if (delivery_mode == APIC_DM_FIXED) {
		ipi_sent(taskc, vmc, apicid);
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
	/* Logical destinations and shorthands are not followed. */
	if (vmc && taskc->vcpu && !(icrl & (APIC_SHORTHAND | 1 << 11)))
		ipi_sent(taskc, vmc, receiver);
	return 0;
}

/* Answer at most so many senders of each 64 at the end of an interrupt; the rest at the next. */
#define SENDERS 4
/* Where ends are not seen, so many receivers of each 32 are looked at at a sibling's spin. */
#define RECEIVERS 2

/* A receiver has ended an interrupt: a sender waits no more, if this was the last. */
__noinline int answer(u32 vm, u32 sender, u32 receiver)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct vcpu_ctx *vcpuc = vmc ? vcpu_ctx(vmc, sender) : NULL;
	struct ovb_siblings *known;
	struct task_ctx *taskc;
	struct task_struct *p;

	if (!vcpuc || !ovb_sent_answered(&vcpuc->sent, receiver))
		return 0;
	known = siblings_of(vmc, sender);
	if (!(known->waiting >> (sender & 63) & 1))
		return 0;
	p = bpf_task_from_pid(vmc->pids[bounded(sender, OVB_MAX_VCPUS)]);
	if (!p)
		return 0;
	taskc = task_ctx(p);
	if (taskc) {
		taskc->spun_at = 0;
		mark(&known->at_work, sender, true);
		mark(&known->waiting, sender, false);
		mark(&known->answered, sender, true);
		/* It may have been picked meanwhile. */
		if (!taskc->queued) {
			mark(&known->at_work, sender, false);
			mark(&known->answered, sender, false);
		}
	}
	bpf_task_release(p);
	return 0;
}

/* A vCPU has no interrupt to take any more: those who have sent it one are answered. */
__noinline int answer_all(struct task_ctx *taskc __arg_nonnull)
{
	struct vcpu_ctx *self = own_vcpu_ctx(taskc);
	struct vm_ctx *vmc = vm_ctx(taskc->vm);
	u32 i, j;

	if (!self || !vmc || !taskc->vcpu)
		return 0;
	mark(&siblings_of(vmc, taskc->vcpu - 1)->interrupted, taskc->vcpu - 1, false);
	for (i = 0; i < MASK_WORDS; i++) {
		u64 from = self->from[i];

		bpf_for (j, 0, SENDERS) {
			u32 sender;

			if (!from)
				break;
			sender = i * 64 + (u32)__builtin_ctzll(from);
			mark(&self->from[i], sender, false);
			answer(taskc->vm, sender, taskc->vcpu - 1);
			from &= from - 1;
		}
	}
	return 0;
}

/* The running vCPU has ended an interrupt. */
__noinline int interrupt_ended(void)
{
	struct task_ctx *taskc = task_ctx(bpf_get_current_task_btf());
	struct ovb_vm_stats *stats;

	if (!taskc || !taskc->vcpu || !relations)
		return 0;
	stats = vm_stats(taskc->vm);
	if (stats)
		stats->eois++;
	return answer_all(taskc);
}

/* Whether somebody waits for an answer of a vCPU, as far as is known. */
static bool is_awaited(const struct vcpu_ctx *vcpuc)
{
	u64 from = 0;
	u32 i;

	for (i = 0; i < MASK_WORDS; i++)
		from |= vcpuc->from[i];
	return from;
}

/* Where KVM is not told of ends: looks whether a running vCPU has answered. */
static void look_for_ends(struct task_struct *p, struct task_ctx *taskc)
{
	struct vcpu_ctx *self;

	if (ends_seen || !relations || !taskc->vcpu)
		return;
	self = own_vcpu_ctx(taskc);
	if (self && is_awaited(self) && !has_interrupt(p, true))
		answer_all(taskc);
}

/* Where KVM is not told of ends: looks whether receivers of a queued vCPU that waits have answered.
 */
__noinline int look_for_answers(u32 vm)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct vcpu_ctx *vcpuc;
	u32 sender, i, j;

	if (!vmc)
		return 0;
	sender = next_of_tier(vmc, OVB_TIER_WAITING, bounded(vmc->next, OVB_MAX_VCPUS));
	vcpuc = sender < OVB_MAX_VCPUS ? vcpu_ctx(vmc, sender) : NULL;
	if (!vcpuc)
		return 0;
	for (i = 0; i < OVB_SENT_WORDS; i++) {
		u32 to = vcpuc->sent.to[i];

		bpf_for (j, 0, RECEIVERS) {
			struct task_struct *p;
			u32 receiver;

			if (!to)
				break;
			receiver = i * 32 + (u32)__builtin_ctz(to);
			to &= to - 1;
			p = bpf_task_from_pid(vmc->pids[bounded(receiver, OVB_MAX_VCPUS)]);
			if (!p)
				continue;
			if (!has_interrupt(p, true))
				answer(vm, sender, receiver);
			bpf_task_release(p);
		}
	}
	return 0;
}

SEC("?tp_btf/kvm_eoi")
int BPF_PROG(irq_ended, struct kvm_lapic___ovb *apic, int vector)
{
	return interrupt_ended();
}

/* One that the guest had ended in its own memory; KVM sees so at the next exit. */
SEC("?tp_btf/kvm_pv_eoi")
int BPF_PROG(irq_ended_unseen, struct kvm_lapic___ovb *apic, int vector)
{
	return interrupt_ended();
}

#endif
