/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vCPU whose slice is over stays on its CPU although others are due, while all of these can wait
 * (ovb_may_overstay() in turn.h). Its VM's vCPUs are at work together for longer so, and find each
 * other awake. Nobody overstays while somebody is due who woke up, or has an interrupt to take.
 */
#ifndef OVERBOOK_OVERSTAY_BPF_H
#define OVERBOOK_OVERSTAY_BPF_H

#include "choose.bpf.h"

/* So many who are due are looked at in a queue; behind more of them others may be in a hurry. */
#define DUE_SCAN 64

/* Whether the spins of a vCPU are long, as far as its VM still spins. */
static bool spins_for_long(const struct task_ctx *taskc, const struct vm_ctx *vmc, u64 now)
{
	return ovb_spins_are_long(&taskc->spin) && !is_calm(vmc, now);
}

/* Whether a queued task can wait for some slices more: a vCPU that was preempted, of a VM none of
 * whose queued vCPUs that were at work has an interrupt or an answer to take. Not one whose spins
 * are long, as at barriers: its siblings wait for it in the same way. */
static bool can_wait(struct task_struct *p, u64 now)
{
	struct task_ctx *taskc = task_ctx(p);
	struct vm_ctx *vmc = taskc && taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	struct node_ctx *node = taskc ? node_at(taskc->tenant) : NULL;

	if (!vmc || !node || taskc->woke || taskc->out_of_turn || in_rcu_section(p) ||
	    class_of(taskc->vm) == OVB_CLASS_LATENCY)
		return false;
	if (node->nr_members < 2 && ovb_sleeps_often(now - taskc->slept_at, slice_ns))
		return false;
	if (spins_for_long(taskc, vmc, now) || best_tier(vmc) >= OVB_TIER_INTERRUPT)
		return false;
	/* Of devices nobody is told; nor of siblings, maybe, and then a handler may have begun. */
	return !has_interrupt(p, !sends_seen && relations);
}

/* Whether all can wait who are due in a queue before a key, so many at most, and none has waited
 * for long. */
__noinline int can_all_wait(u64 dsq, u64 before, u32 scan)
{
	u64 now = scx_bpf_now();
	struct task_struct *p;
	u32 i = 0;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return true;
	bpf_for_each (scx_dsq, p, dsq, 0) {
		struct task_ctx *taskc = task_ctx(p);

		if (!ovb_vtime_before(p->scx.dsq_vtime, before))
			break;
		if (++i > scan || !taskc || ovb_waited_enough(wait_of(taskc, now), slice_ns) ||
		    !can_wait(p, now))
			return false;
	}
	return true;
}

/* The same in all queues that a CPU looks into; `before` is a key as keys of different queues are
 * compared. */
static bool can_others_wait(s32 cpu, u32 llc, const struct cpu_ctx *cpuc, u64 before)
{
	u64 pools = cpuc->pools;
	u32 i;

	if (!can_all_wait(llc_dsq(llc), before - pool_at(0)->offset, DUE_SCAN) ||
	    !can_all_wait(cpu_dsq(cpu), before - pool_at(cpu_pool(cpu))->offset, DUE_SCAN))
		return false;
	bpf_for (i, 0, OVB_MAX_POOLS) {
		u32 pool = pools ? (u32)__builtin_ctzll(pools) : 0;

		if (!pool)
			break;
		if (!can_all_wait(pool_dsq(pool, llc), before - pool_at(pool)->offset, DUE_SCAN))
			return false;
		pools &= pools - 1;
	}
	return true;
}

/* The queue of those who may use the same CPUs as a task. */
static u64 queue_of_like(const struct task_ctx *taskc, s32 cpu, u32 llc)
{
	return taskc->pool < OVB_MAX_POOLS ? queue_of(taskc, llc) : cpu_dsq(cpu);
}

/* The virtual time that the tenant of a queue's first gets in a slice on all its CPUs at once; of
 * weight 1024 on one CPU, if that is longer. 0: nobody waits any more. */
__noinline u64 first_reach(u64 dsq, s32 cpu)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct task_ctx *taskc = first ? task_ctx(first) : NULL;
	struct node_ctx *node = taskc ? node_at(taskc->tenant) : NULL;
	u64 reach;

	if (!taskc)
		return 0;
	reach = aged_reach(tenant_of(taskc, node), node, cpu, slice_ns);
	return ovb_vtime_max(slice_ns, reach);
}

/* Whether the running vCPU, whose key is now `key`, stays although others are due: if its slice is
 * over, and it was not told to look; where the first may use the same CPUs. Who is its VM's only
 * runnable task wins nothing by that. Returns the first's reach if so, and 0 if not. */
__noinline u64 overstays(struct task_ctx *prevc __arg_nonnull, s32 cpu, u32 llc, u64 key)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct vm_ctx *vmc = prevc->vcpu ? vm_ctx(prevc->vm) : NULL;
	struct node_ctx *node = node_at(prevc->tenant);
	u64 now = scx_bpf_now(), reach;

	if (!cpuc || cpuc->found != VCPU || !vmc || !node || node->nr_members < 2 ||
	    !sees_interrupts() || class_of(prevc->vm) == OVB_CLASS_LATENCY)
		return 0;
	if (cpuc->first_dsq != queue_of_like(prevc, cpu, llc) || spins_for_long(prevc, vmc, now) ||
	    (s64)(cpuc->until - now) > (s64)(slice_of(prevc->vm) / 8))
		return 0;
	reach = first_reach(cpuc->first_dsq, cpu);
	if (!ovb_may_overstay(ovb_vtime_gap(key, cpuc->first_key), reach) ||
	    !can_others_wait(cpu, llc, cpuc, key))
		return 0;
	return reach;
}

/* Somebody overstays: whoever slept is to stand where the turn of the first began. */
static void lower_base(struct cpu_ctx *cpuc, u64 first_reach)
{
	u64 began = cpuc->first_key - first_reach;

	if (ovb_vtime_before(began, cpuc->base))
		cpuc->base = began;
}

#endif
