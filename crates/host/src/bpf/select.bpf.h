/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom KVM should have picked (policy/tiers.h). The cost of a choice does not depend on the size of
 * the VM: bitmaps say who is queued, and at most SCAN of each kind are looked at, for MOST in all.
 *
 * Functions that are not static are verified once each, and not once for every call: with all in
 * one piece, a load took minutes on an emulated CPU. They return 0, as such functions must return
 * something.
 */
#ifndef OVERBOOK_SELECT_BPF_H
#define OVERBOOK_SELECT_BPF_H

#include "handoff.h"
#include "place.bpf.h"
#include "relate.bpf.h"

#define SCAN 4
/* What a search may cost in all: 1 for a look at a sibling, some 500 instructions, and WAITER for
 * one at a sibling that waits, perhaps for several others. */
#define MOST   6
#define WAITER 2
/* include/linux/sched.h: TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE. */
#define TASK_ASLEEP 3

/* A search, and what it has found. */
struct search {
	/* The spinner, and when. */
	u32 pid;
	u32 vm;
	/* vCPU id plus one, 0 if unknown. */
	u32 vcpu;
	s32 cpu;
	u64 now;
	/* ns that a target could run. */
	u64 left;
	/* Thread that KVM would run, 0 for none. */
	u32 kvm_choice;
	/* Siblings that are looked at, and the interrupts of one. */
	u64 mask[MASK_WORDS];
	struct requests requests;
	u32 cost;
	/* Thread and tier of the best. */
	u32 best_pid;
	u32 best;
	/* A receiver of the spinner's has just handled its IPI, and the spinner may not know yet.
	 */
	bool answered;
	/* One is running, or about to. */
	bool answering;
	/* So the spinner shall go on. */
	bool stays;
	/* An IPI of the spinner's has not been handled. */
	bool awaits;
};

/* One search at a time on a CPU: preemption is off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct search);
} searches SEC(".maps");

static struct search *this_search(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&searches, &zero);
}

/* Whether a task may run on a CPU. */
static bool may_run_on(const struct task_struct *p, s32 cpu)
{
	return !is_migration_disabled(p) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Runs, or is on its way to a CPU that was cleared for it: woken or taken from a queue a moment
 * ago. An IPI to a halted vCPU wakes it before its sender spins, and the spin is over before the
 * other CPU has switched. */
static bool runs_soon(const struct task_struct *p, const struct task_ctx *taskc)
{
	return scx_bpf_task_running(p) || (!taskc->queued_since && !(p->__state & TASK_ASLEEP));
}

/* Queued, allowed on this CPU, and worth the way. */
static bool available(struct task_struct *p, const struct task_ctx *taskc, s32 cpu, u64 left)
{
	if (!taskc->queued_since || !may_run_on(p, cpu))
		return false;
	return taskc->dsq >= OVB_MAX_LLCS || taskc->dsq == llc_dsq(llc_of(cpu)) ||
	       ovb_handoff_pays(left, cross_llc_ns);
}

/* Moves a task of the queue that is walked to this CPU's local queue. */
static bool move_here(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 turn_ns)
{
	scx_bpf_dsq_move_set_slice(it, turn_ns);
	return scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL, 0);
}

/* The same for a task that is queued anywhere. Whether it may run here is asked when the iterator
 * is there: a task whose affinity changes after that is queued anew, and then the kernel does not
 * move it. Asked before, such a change would end the scheduler. */
static bool take_from_queue(struct task_struct *p, u64 dsq, u64 turn_ns)
{
	struct bpf_iter_scx_dsq it;
	bool taken = false;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0) && may_run_on(p, bpf_get_smp_processor_id()))
		taken = move_here(&it, p, turn_ns);
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

/* Whether all IPIs have been handled that a queued vCPU waited for, by the receivers' stamps. */
static bool wait_is_over(const struct task_ctx *taskc, u64 now)
{
	struct vcpu_ctx *vcpuc;
	struct vm_ctx *vmc;
	u32 i;

	if (!taskc->awaits_ipi)
		return false;
	vcpuc = own_vcpu_ctx(taskc);
	vmc = vm_ctx(taskc->vm);
	if (!vcpuc || !vmc)
		return false;
#pragma unroll
	for (i = 0; i < OVB_RELATION_SLOTS; i++) {
		struct ovb_relation *slot = &vcpuc->sent.slot[i];
		struct vcpu_ctx *to;

		if (!slot->used || !ovb_within(slot->sent_at, now, window_ns))
			continue;
		to = vcpu_ctx(vmc, slot->receiver);
		if (to && !ovb_inbox_has_ended(&to->inbox, slot->vector, slot->sent_at))
			return false;
	}
	return true;
}

/* What is known of a queued task that waited when it left its CPU. */
static void look_at_wait(struct ovb_candidate *c, const struct task_ctx *taskc,
			 const struct search *s)
{
	c->waiting = taskc->spun_at != 0;
	if (!c->waiting)
		return;
	c->wait_over = wait_is_over(taskc, s->now);
	c->stale = !taskc->awaits_ipi && s->now - taskc->spun_at > stale_ns;
}

/* Whether the probes see who is sent an IPI. */
static bool interrupts_known(void)
{
	return sends_seen && relations;
}

/* Whether a queued sibling has an interrupt to take. Where IPIs are seen, only those are asked that
 * were sent one: a read of an APIC is dear. */
static bool has_interrupt(struct task_struct *p, const struct task_ctx *taskc, struct search *s)
{
	struct vm_ctx *vmc = vm_ctx(taskc->vm);

	if (interrupts_known() && vmc && taskc->vcpu &&
	    !mask_test(vmc->interrupted, taskc->vcpu - 1))
		return false;
	return has_pending_interrupt(p, &s->requests);
}

/* Whoever is being answered will not wait for long, and leaves its CPU for nobody who is only worth
 * a try. */
#define UNHELPFUL (1 << OVB_TIER_ANY | 1 << OVB_TIER_STALE)

/* Compares a sibling with the best so far. */
__noinline int consider(u32 pid)
{
	struct search *s = this_search();
	struct ovb_candidate c = {};
	struct task_struct *p;
	struct task_ctx *taskc;
	u32 tier;

	if (!s || !pid || pid == s->pid)
		return 0;
	p = bpf_task_from_pid(pid);
	if (!p)
		return 0;
	taskc = task_ctx(p);
	if (taskc && available(p, taskc, s->cpu, s->left)) {
		c.available = 1;
		c.interrupt = has_interrupt(p, taskc, s);
		look_at_wait(&c, taskc, s);
		c.in_kernel = (!c.waiting || c.wait_over) && preempted_in_kernel(p);
		tier = ovb_tier_of(&c, s->answering ? OVB_TIERS_ALL & ~UNHELPFUL : OVB_TIERS_ALL);
		if (tier > s->best) {
			s->best = tier;
			s->best_pid = pid;
		}
	}
	bpf_task_release(p);
	return 0;
}

/* Whether a sender still waits for this receiver. */
static bool is_open(const struct ovb_relation *slot, struct vm_ctx *vmc, struct task_struct *p,
		    const struct task_ctx *taskc, const struct search *s)
{
	u32 apic = OVB_APIC_PENDING;
	struct vcpu_ctx *to;
	int ended = 0;

	/* Who has been queued since before cannot have handled it. */
	if (!taskc->queued_since || (s64)(taskc->queued_since - slot->sent_at) > 0) {
		to = vcpu_ctx(vmc, slot->receiver);
		ended = to && ovb_inbox_has_ended(&to->inbox, slot->vector, slot->sent_at);
		apic = apic_state(p, slot->vector);
	}
	return ovb_relation_open(slot, s->now, window_ns, apic, ended);
}

/* One of the spinner's relations. */
__noinline int consider_relation(u32 index)
{
	struct search *s = this_search();
	struct ovb_relation *slot;
	struct task_struct *p;
	struct task_ctx *taskc;
	struct vcpu_ctx *self;
	struct vm_ctx *vmc;
	u32 pid;

	if (!s || !s->vcpu)
		return 0;
	vmc = vm_ctx(s->vm);
	if (!vmc)
		return 0;
	self = vcpu_ctx(vmc, s->vcpu - 1);
	if (!self)
		return 0;
	slot = &self->sent.slot[bounded(index, OVB_RELATION_SLOTS)];
	if (!slot->used)
		return 0;
	pid = vmc->pids[bounded(slot->receiver, OVB_MAX_VCPUS)];
	p = pid ? bpf_task_from_pid(pid) : NULL;
	if (!p) {
		slot->used = 0;
		return 0;
	}
	taskc = task_ctx(p);
	if (!taskc || !is_open(slot, vmc, p, taskc, s)) {
		/* Only at the first spin since: the next one waits for something else. */
		if (ovb_within(slot->sent_at, s->now, window_ns))
			s->answered = true;
		slot->used = 0;
	} else {
		s->awaits = true;
		if (runs_soon(p, taskc)) {
			s->answering = true;
		} else if (available(p, taskc, s->cpu, s->left)) {
			struct ovb_candidate c = {.available = 1, .receiver = 1};
			u32 tier;

			look_at_wait(&c, taskc, s);
			tier = ovb_tier_of(&c, 1 << OVB_TIER_RECEIVER | 1 << OVB_TIER_CHAINED);
			if (tier > s->best) {
				s->best = tier;
				s->best_pid = pid;
			}
		}
	}
	bpf_task_release(p);
	return 0;
}

enum candidates {
	/* Receivers that the summary names. */
	SUMMARY,
	INTERRUPTED,
	AT_WORK,
	WAITING,
};

/* No sibling of a kind is better than this; where IPIs are not seen, any may have one to take. */
static u32 best_of_kind(u32 kind)
{
	if (kind == SUMMARY || kind == INTERRUPTED || !interrupts_known())
		return OVB_TIER_INTERRUPT;
	return OVB_TIER_KERNEL;
}

/* Some of the siblings of a kind, those only that are queued. AT_WORK and WAITING leave out those
 * of INTERRUPTED. */
__noinline int consider_some(u32 kind)
{
	struct search *s = this_search();
	u32 i, id, first = OVB_MAX_VCPUS;
	struct vcpu_ctx *self;
	struct vm_ctx *vmc;

	if (!s)
		return 0;
	vmc = vm_ctx(s->vm);
	if (!vmc)
		return 0;
	self = s->vcpu ? vcpu_ctx(vmc, s->vcpu - 1) : NULL;
	if (kind == SUMMARY && (!self || !ovb_within(self->sent.many_at, s->now, window_ns)))
		return 0;
	for (i = 0; i < MASK_WORDS; i++) {
		u64 queued = vmc->at_work[i] | vmc->waiting[i];

		if (kind == SUMMARY && self)
			s->mask[i] = self->sent.many[i] & queued;
		else if (kind == INTERRUPTED)
			/* But for those of the summary that have been looked at. */
			s->mask[i] = vmc->interrupted[i] & queued &
				     (s->cost && self ? ~self->sent.many[i] : ~0ull);
		else
			s->mask[i] = (kind == AT_WORK ? vmc->at_work[i] : vmc->waiting[i]) &
				     ~vmc->interrupted[i];
	}
	id = vmc->next;
	bpf_for (i, 0, SCAN) {
		u32 pid;

		id = mask_next(s->mask, bounded(id, OVB_MAX_VCPUS));
		if (id >= OVB_MAX_VCPUS || id == first)
			return 0;
		if (!i)
			first = id;
		pid = vmc->pids[bounded(id, OVB_MAX_VCPUS)];
		if (pid != s->kvm_choice) {
			s->cost += kind == WAITING ? WAITER : 1;
			if (s->cost > MOST)
				return 0;
			consider(pid);
		}
		if (s->best >= best_of_kind(kind))
			return 0;
		id++;
	}
	return 0;
}

/* The receivers of the spinner's IPIs, as far as they are known. */
static void consider_receivers(struct search *s, struct vm_ctx *vmc)
{
	struct vcpu_ctx *self = s->vcpu ? vcpu_ctx(vmc, s->vcpu - 1) : NULL;
	u32 i;

	if (!self || !relations)
		return;
	for (i = 0; i < OVB_RELATION_SLOTS; i++) {
		if (!self->sent.slot[i].used)
			continue;
		consider_relation(i);
		if (s->best == OVB_TIER_RECEIVER)
			return;
	}
	consider_some(SUMMARY);
}

/* Looks for the best target: KVM's own choice (0 if it has none) if nobody can help more. */
__noinline int choose(void)
{
	struct search *s = this_search();
	struct vm_ctx *vmc;

	if (!s)
		return 0;
	vmc = vm_ctx(s->vm);
	if (!vmc)
		return 0;
	consider_receivers(s, vmc);
	if (s->best == OVB_TIER_RECEIVER)
		return 0;
	if (s->answered && !s->awaits) {
		s->best = OVB_TIER_NONE;
		s->stays = true;
		return 0;
	}
	consider(s->kvm_choice);
	if (s->best < OVB_TIER_INTERRUPT)
		consider_some(INTERRUPTED);
	if (s->best < best_of_kind(AT_WORK))
		consider_some(AT_WORK);
	if (s->best < best_of_kind(WAITING))
		consider_some(WAITING);
	vmc->next = bounded(vmc->next + 1, OVB_MAX_VCPUS);
	return 0;
}

#endif
