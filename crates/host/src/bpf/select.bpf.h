/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom KVM should have picked (policy/tiers.h). The cost of a choice does not depend on the size of
 * the VM: bitmaps say who is queued, and at most SCAN of each kind are looked at.
 */
#ifndef OVERBOOK_SELECT_BPF_H
#define OVERBOOK_SELECT_BPF_H

#include "handoff.h"
#include "place.bpf.h"
#include "relate.bpf.h"

#define SCAN 4

/* A search, and what it has found. */
struct search {
	struct task_struct *from;
	struct task_ctx *fromc;
	struct vm_ctx *vmc;
	struct vcpu_ctx *self;
	s32 cpu;
	u64 now;
	/* ns that a target could run. */
	u64 left;
	/* Thread and tier of the best. */
	u32 best_pid;
	u32 best;
	/* A receiver of the spinner's is running: it is being answered. */
	bool answered;
	/* An IPI of the spinner's has not been handled. */
	bool awaits;
};

/* Whether a task may run on a CPU. */
static bool may_run_on(const struct task_struct *p, s32 cpu)
{
	return !is_migration_disabled(p) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Queued, allowed on this CPU, and worth the way. */
static bool available(struct task_struct *p, const struct task_ctx *taskc, s32 cpu, u64 left)
{
	if (!taskc->queued_since || !may_run_on(p, cpu))
		return false;
	return taskc->dsq >= OVB_MAX_LLCS || taskc->dsq == llc_dsq(llc_of(cpu)) ||
	       ovb_handoff_pays(left, cross_llc_ns);
}

/* Whether all IPIs have been handled that a queued vCPU waited for, by the receivers' stamps. */
static bool wait_is_over(const struct task_ctx *taskc, u64 now, u64 window)
{
	struct vcpu_ctx *vcpuc;
	u32 i;

	if (!taskc->awaits_ipi)
		return false;
	vcpuc = own_vcpu_ctx(taskc);
	if (!vcpuc)
		return false;
	bpf_for (i, 0, OVB_RELATION_SLOTS) {
		struct ovb_relation *slot = &vcpuc->sent.slot[bounded(i, OVB_RELATION_SLOTS)];
		struct vcpu_ctx *to;

		if (!slot->used || !ovb_within(slot->sent_at, now, window))
			continue;
		to = vcpu_ctx(taskc->vm, slot->receiver);
		if (to && !ovb_inbox_has_ended(&to->inbox, slot->vector, slot->sent_at))
			return false;
	}
	return true;
}

/* Compares a sibling with the best so far. */
static void consider(struct search *s, u32 pid, bool receiver)
{
	struct ovb_candidate c = {.receiver = receiver};
	struct task_struct *p;
	struct task_ctx *taskc;
	u32 tier;

	if (!pid || pid == s->from->pid)
		return;
	p = bpf_task_from_pid(pid);
	if (!p)
		return;
	taskc = task_ctx(p);
	if (taskc && available(p, taskc, s->cpu, s->left)) {
		c.available = 1;
		c.waiting = taskc->spun_at != 0;
		if (!receiver) {
			c.interrupt = has_pending_interrupt(p);
			c.in_kernel = !c.waiting && preempted_in_kernel(p);
		}
		if (c.waiting && !c.interrupt) {
			c.wait_over = wait_is_over(taskc, s->now, window_of(s->vmc));
			c.stale = !taskc->awaits_ipi && s->now - taskc->spun_at > stale_ns;
		}
		tier = ovb_tier_of(&c, tiers);
		if (tier > s->best) {
			s->best = tier;
			s->best_pid = pid;
		}
	}
	bpf_task_release(p);
}

/* A receiver that the spinner is known to have sent an IPI to. */
static void consider_receiver(struct search *s, struct ovb_relation *slot, u64 window)
{
	u32 pid = s->vmc->pids[bounded(slot->receiver, OVB_MAX_VCPUS)];
	struct task_struct *p;
	struct task_ctx *taskc;
	struct vcpu_ctx *to;
	int ended;

	p = pid ? bpf_task_from_pid(pid) : NULL;
	if (!p) {
		slot->used = 0;
		return;
	}
	to = vcpu_ctx(s->fromc->vm, slot->receiver);
	taskc = task_ctx(p);
	ended = to && ovb_inbox_has_ended(&to->inbox, slot->vector, slot->sent_at);
	if (!taskc ||
	    !ovb_relation_open(slot, s->now, window, apic_state(p, slot->vector), ended)) {
		slot->used = 0;
	} else {
		s->awaits = true;
		if (taskc->running_since)
			s->answered = true;
		else if (available(p, taskc, s->cpu, s->left) && s->best < OVB_TIER_RECEIVER &&
			 tiers & 1 << OVB_TIER_RECEIVER) {
			s->best = OVB_TIER_RECEIVER;
			s->best_pid = pid;
		}
	}
	bpf_task_release(p);
}

/* The receivers of the spinner's IPIs, as far as they are known. */
static void consider_receivers(struct search *s)
{
	u64 window = window_of(s->vmc);
	u32 i, id;

	if (!s->self)
		return;
	if (relations_mode == OVB_RELATIONS_PUBLISHED) {
		id = s->self->published.last_receiver - 1;
		if (id < OVB_MAX_VCPUS &&
		    ovb_ipi_slot_waits_for(&s->self->published, id, s->now, window_ns))
			consider(s, s->vmc->pids[bounded(id, OVB_MAX_VCPUS)], true);
		return;
	}
	if (relations_mode != OVB_RELATIONS_FULL)
		return;
	bpf_for (i, 0, OVB_RELATION_SLOTS) {
		struct ovb_relation *slot = &s->self->sent.slot[bounded(i, OVB_RELATION_SLOTS)];

		if (slot->used)
			consider_receiver(s, slot, window);
		if (s->best == OVB_TIER_RECEIVER)
			return;
	}
	/* The summary names vCPUs that may have handled it: their APICs decide. */
	if (!ovb_within(s->self->sent.many_at, s->now, window))
		return;
	id = s->vmc->next;
	bpf_for (i, 0, SCAN) {
		id = mask_next(s->self->sent.many, id & (OVB_MAX_VCPUS - 1));
		if (id >= OVB_MAX_VCPUS)
			return;
		consider(s, s->vmc->pids[bounded(id, OVB_MAX_VCPUS)], false);
		id++;
	}
}

/* Some of the siblings in a mask. ple-kvm's bitmap is the sibling's own. */
static void consider_mask(struct search *s, const u64 *mask)
{
	u32 i, id = s->vmc->next;

	bpf_for (i, 0, SCAN) {
		bool receiver = false;

		id = mask_next(mask, id & (OVB_MAX_VCPUS - 1));
		if (id >= OVB_MAX_VCPUS)
			return;
		if (relations_mode == OVB_RELATIONS_PLE_KVM && s->fromc->vcpu) {
			struct vcpu_ctx *vcpuc = vcpu_ctx(s->fromc->vm, id);

			receiver = vcpuc && vcpuc->senders & ovb_ple_kvm_bit(s->fromc->vcpu - 1);
		}
		consider(s, s->vmc->pids[bounded(id, OVB_MAX_VCPUS)], receiver);
		id++;
	}
}

/* Looks for the best target: KVM's own choice (0 if it has none) if nobody can help more. */
static void choose(struct search *s, u32 kvm_choice)
{
	if (!tiers) {
		struct task_struct *p = kvm_choice ? bpf_task_from_pid(kvm_choice) : NULL;
		struct task_ctx *taskc;

		if (!p)
			return;
		taskc = task_ctx(p);
		if (taskc && available(p, taskc, s->cpu, s->left)) {
			s->best = OVB_TIER_ANY;
			s->best_pid = kvm_choice;
		}
		bpf_task_release(p);
		return;
	}
	consider_receivers(s);
	if (s->best == OVB_TIER_RECEIVER || s->answered)
		return;
	consider(s, kvm_choice, false);
	if (s->best < OVB_TIER_INTERRUPT)
		consider_mask(s, s->vmc->interrupted);
	if (s->best < OVB_TIER_KERNEL)
		consider_mask(s, s->vmc->at_work);
	if (s->best < OVB_TIER_ANY)
		consider_mask(s, s->vmc->waiting);
	s->vmc->next = (s->vmc->next + 1) & (OVB_MAX_VCPUS - 1);
}

#endif
