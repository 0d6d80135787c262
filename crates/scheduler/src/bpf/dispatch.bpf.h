/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU that looks for somebody may run: the first of its queues by key, who waits elsewhere,
 * and the task that runs.
 */
#ifndef OVERBOOK_DISPATCH_BPF_H
#define OVERBOOK_DISPATCH_BPF_H

#include "choose.bpf.h"
#include "prefer.bpf.h"
#include "wake.bpf.h"

/* So many looks are taken at the head of a queue. At each but the last, whoever stands there is
 * moved back if its tenant's new deadline gives it a key that is later by a slice or more. Whoever
 * still has an old key then may run too early; its tenant is charged all the same. */
#define REKEYED 16

/* Finds the new key of a queued task whose tenant's turn has ended since; false if it keeps its
 * own. */
static bool has_new_key(struct task_ctx *taskc, struct node_ctx *node)
{
	u64 later;

	if (taskc->out_of_turn || node->time.deadline == taskc->keyed_for)
		return false;
	/* Others of its tenant have run meanwhile, and it stands better among them. */
	later = node->time.deadline + pool_at(frame_of(taskc, node))->offset -
		pool_at(taskc->queue_pool)->offset + (u64)bias_of(taskc, &node->time, node, false);
	if (ovb_vtime_before(taskc->ceiling, later))
		later = taskc->ceiling;
	/* Skip a change of less than a slice: slices are booked whole. */
	if (!ovb_vtime_before(taskc->key, later) || later - taskc->key < long_slice(&node->time))
		return false;
	taskc->keyed_for = node->time.deadline;
	taskc->key = later;
	return true;
}

/* Parks the first of a queue if its group has used its cpu.max since it was queued; 1 if so. */
__noinline int park_first(u64 dsq)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct task_ctx *taskc = first ? task_ctx(first) : NULL;
	struct bpf_iter_scx_dsq it;
	int moved = 0;

	if (!taskc || !is_to_park(first, taskc))
		return 0;
	/* Before: it may come back at once. */
	vcpu_left_queue(taskc, false);
	if (!bpf_iter_scx_dsq_new(&it, dsq, 0))
		moved = scx_bpf_dsq_move(&it, first, PARKED, 0);
	bpf_iter_scx_dsq_destroy(&it);
	if (moved)
		count(OVB_COUNT_PARKED);
	else if (taskc->queued)
		vcpu_queued(taskc);
	return moved;
}

/* So many are parked at a look into a queue; whoever stands there then runs once more. */
#define PARKED_AT_ONCE 256

/* Parks whoever stands first in a queue and must not run, until somebody may. */
__noinline int park_throttled(u64 dsq)
{
	u32 i;

	bpf_for (i, 0, PARKED_AT_ONCE)
		if (!park_first(dsq))
			break;
	return 0;
}

/* Notes of whom a queue has first that it is a vCPU, and its VM. */
static void note_peeked(const struct task_ctx *taskc, const struct node_ctx *node,
			struct cpu_ctx *cpuc)
{
	struct vm_ctx *vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;

	if (!vmc)
		return;
	cpuc->peeked = VCPU;
	if (!is_calm(vmc, scx_bpf_now()) && !is_passed_over(taskc, &node->time))
		cpuc->peeked_vm = taskc->vm;
}

/* Looks who is the first of a queue. Returns 1 if it had an old key, and has gone further back. */
__noinline int look_at_first(u64 dsq, u32 may_move)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct bpf_iter_scx_dsq it;
	struct task_ctx *taskc;
	struct node_ctx *node;
	int moved = 0;

	if (!cpuc)
		return 0;
	cpuc->peeked = first ? ORDINARY : NOBODY;
	cpuc->peeked_vm = 0;
	if (!first)
		return 0;
	cpuc->peeked_key = first->scx.dsq_vtime;
	cpuc->peeked_bound = first->nr_cpus_allowed < nr_cpus;
	taskc = task_ctx(first);
	node = taskc ? node_at(taskc->tenant) : NULL;
	if (!node)
		return 0;
	if (may_move && has_new_key(taskc, node)) {
		if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
			scx_bpf_dsq_move_set_vtime(&it, taskc->key);
			moved = scx_bpf_dsq_move_vtime(&it, first, dsq, 0);
		}
		bpf_iter_scx_dsq_destroy(&it);
	}
	note_peeked(taskc, node, cpuc);
	return moved;
}

/* So many tasks of a queue that sets of CPUs share are looked at for one that may run here. */
#define SHARED_SCAN 32

/* Where sets of CPUs share an LLC's queue its first may not run here: who may is compared. */
__noinline int look_behind(u64 dsq)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct task_ctx *taskc = NULL;
	struct task_struct *p;
	struct node_ctx *node;
	bool found = false;
	u32 i = 0;

	if (!cpuc)
		return 0;
	bpf_for_each (scx_dsq, p, dsq, 0) {
		if (may_run_on(p, bpf_get_smp_processor_id())) {
			found = true;
			if (i) {
				taskc = task_ctx(p);
				cpuc->peeked = ORDINARY;
				cpuc->peeked_key = p->scx.dsq_vtime;
				cpuc->peeked_vm = 0;
			}
			break;
		}
		if (++i >= SHARED_SCAN)
			break;
	}
	if (!found && i < SHARED_SCAN)
		cpuc->peeked = NOBODY;
	node = taskc ? node_at(taskc->tenant) : NULL;
	if (node)
		note_peeked(taskc, node, cpuc);
	return 0;
}

/* Looks who is the first of a queue, once it stands right; false if there is nobody. */
static bool peek_at(u64 dsq, const struct cpu_ctx *cpuc)
{
	u32 i;

	bpf_for (i, 0, REKEYED) {
		if (nr_limited)
			park_throttled(dsq);
		if (!look_at_first(dsq, i + 1 < REKEYED))
			break;
	}
	if (cpuc->peeked && cpuc->peeked_bound && dsq < OVB_MAX_LLCS)
		look_behind(dsq);
	return cpuc->peeked;
}

/* Compares the first of a queue with the earliest that a CPU has found so far; `pool` gives the
 * queue's offset. */
__noinline int look_into(u64 dsq, u32 pool)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	/* Those of CPUs and pools are empty, mostly, and that is cheaper to ask. */
	if (!cpuc || (dsq >= OVB_MAX_LLCS && scx_bpf_dsq_nr_queued(dsq) <= 0) ||
	    !peek_at(dsq, cpuc))
		return 0;
	cpuc->peeked_key += pool_at(pool)->offset;
	if (cpuc->found && !ovb_vtime_before(cpuc->peeked_key, cpuc->first_key))
		return 0;
	cpuc->found = cpuc->peeked;
	cpuc->first_key = cpuc->peeked_key;
	cpuc->first_vm = cpuc->peeked_vm;
	cpuc->first_dsq = dsq;
	return 0;
}

/* Finds the queue whose first goes before those of all others that a CPU looks at. */
static void find_first(s32 cpu, u32 llc, struct cpu_ctx *cpuc)
{
	u64 pools = cpuc->pools;
	u32 i;

	cpuc->found = NOBODY;
	look_into(cpu_dsq(cpu), cpu_pool(cpu));
	bpf_for (i, 0, OVB_MAX_POOLS) {
		u32 pool = pools ? (u32)__builtin_ctzll(pools) : 0;

		if (!pool)
			break;
		look_into(pool_dsq(pool, llc), pool);
		pools &= pools - 1;
	}
	look_into(llc_dsq(llc), 0);
}

/* Another CPU has taken the first meanwhile, or nobody in its queue may run here: takes whoever may
 * of all queues. */
__noinline int take_any(u32 llc)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u64 pools = cpuc ? cpuc->pools : 0;
	u32 i;

	if (scx_bpf_dsq_move_to_local(cpu_dsq((s32)bpf_get_smp_processor_id()), 0))
		return true;
	bpf_for (i, 0, OVB_MAX_POOLS) {
		u32 pool = pools ? (u32)__builtin_ctzll(pools) : 0;

		if (!pool)
			break;
		if (scx_bpf_dsq_nr_queued(pool_dsq(pool, llc)) > 0 &&
		    scx_bpf_dsq_move_to_local(pool_dsq(pool, llc), 0))
			return true;
		pools &= pools - 1;
	}
	return scx_bpf_dsq_move_to_local(llc_dsq(llc), 0);
}

/* Whether a task waits in a queue, or one of SCHED_IDLE beside it; pools have none such. */
static bool is_queued_in(u64 dsq)
{
	return scx_bpf_dsq_nr_queued(dsq) > 0 ||
	       (!is_pool_dsq(dsq) && scx_bpf_dsq_nr_queued(idle_dsq(dsq)) > 0);
}

/* Whether a task waits in a pool, in whatever LLC. */
__noinline int is_queued_in_pool(u32 pool)
{
	u32 i;

	bpf_for (i, 0, nr_llcs)
		if (has_queue_in(pool, i) && scx_bpf_dsq_nr_queued(pool_dsq(pool, i)) > 0)
			return true;
	return false;
}

/* Whether a task is queued where a CPU that has nothing to do takes it from. */
static bool somebody_waits(s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	u64 pools = cpuc ? cpuc->pools : 0;
	u32 i;

	if (is_queued_in(cpu_dsq(cpu)))
		return true;
	if (!is_preferred(cpu))
		return false;
	bpf_for (i, 0, nr_llcs)
		if (is_queued_in(llc_dsq(i)))
			return true;
	bpf_for (i, 0, pools ? OVB_MAX_POOLS : 0)
		if (pools >> i & 1 && is_queued_in_pool(i))
			return true;
	return false;
}

/* Whether a queued task is to be parked as soon as a CPU of its own looks. */
static bool is_held_back(struct task_struct *p)
{
	struct task_ctx *taskc = nr_limited ? task_ctx(p) : NULL;

	return taskc && is_to_park(p, taskc);
}

/* So many tasks of another LLC's queue are looked at for one that may run here. */
#define PULL_SCAN 8

/* Takes the first of those at the head of a queue that may run here, and whose key is before
 * `before`; 0: whatever it is. */
__noinline int pull_from(u64 dsq, u64 before)
{
	struct task_struct *p;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, 0) {
		if (before && !ovb_vtime_before(p->scx.dsq_vtime, before))
			break;
		if (may_run_on(p, bpf_get_smp_processor_id()) && !is_held_back(p) &&
		    move_here(BPF_FOR_EACH_ITER, p, p->scx.slice))
			return 1;
		if (++i >= PULL_SCAN)
			break;
	}
	return 0;
}

/* Takes who waits in another LLC, be it in one of this CPU's pools there. */
__noinline int pull_over(u32 other)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u64 pools = cpuc ? cpuc->pools | 1 : 0;
	u32 i;

	bpf_for (i, 0, OVB_MAX_POOLS) {
		u32 pool = pools ? (u32)__builtin_ctzll(pools) : 0;
		u64 dsq = shared_dsq(pool, other);

		if (!pools)
			break;
		if (has_queue_in(pool, other) && scx_bpf_dsq_nr_queued(dsq) > 0 &&
		    pull_from(dsq, 0))
			return true;
		pools &= pools - 1;
	}
	return false;
}

/* For a CPU without work: takes who waits in another LLC, this NUMA node's first; or a SCHED_IDLE
 * task. */
static bool pull(u32 llc, bool sched_idle)
{
	u32 i, node = llc_node[bounded(llc, OVB_MAX_LLCS)];

	bpf_for (i, 0, 2 * nr_llcs) {
		bool remote = i >= nr_llcs;
		u32 other = llc + (remote ? i - nr_llcs : i);
		u64 idle;

		if (other >= nr_llcs)
			other -= nr_llcs;
		if (other == llc || (llc_node[bounded(other, OVB_MAX_LLCS)] != node) != remote)
			continue;
		idle = idle_dsq(llc_dsq(other));
		if (sched_idle ? scx_bpf_dsq_nr_queued(idle) > 0 && pull_from(idle, 0)
			       : pull_over(other)) {
			count(OVB_COUNT_PULLED);
			return true;
		}
	}
	return false;
}

/* So often a CPU looks at one other LLC, slices; and it takes a task whose key is so many slices
 * earlier. */
#define BALANCE_EVERY  2
#define BALANCE_SLICES 2
/* By so many slices of weight 1024 more if it is a vCPU: it is to stay with its siblings, and
 * others overstay there. Not of the class latency. */
#define HOME_SLICES 4

/* By how much earlier the key of a queue's first must be than anybody's here for it to be taken
 * over. */
static u64 far_behind(u64 dsq)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct task_ctx *taskc = first ? task_ctx(first) : NULL;
	u64 least;

	if (!taskc)
		return BALANCE_SLICES * slice_ns;
	least = BALANCE_SLICES * long_slice(tenant_of(taskc, node_at(taskc->tenant)));
	return taskc->vcpu && class_of(taskc->vm) != OVB_CLASS_LATENCY
		       ? least + HOME_SLICES * slice_ns
		       : least;
}

/* Takes who waits in an LLC for all CPUs of a pool, if that one is owed much more than `first`. */
__noinline int balance_with(u32 other, u32 pool, u64 first)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u64 dsq = shared_dsq(pool, other), before;

	if (!cpuc || !has_queue_in(pool, other) || (pool && scx_bpf_dsq_nr_queued(dsq) <= 0) ||
	    !peek_at(dsq, cpuc))
		return false;
	before = first - pool_at(pool)->offset - far_behind(dsq);
	return ovb_vtime_before(cpuc->peeked_key, before) && pull_from(dsq, before);
}

/* LLCs have an order of their own each, and one time. Whoever is owed much more elsewhere than the
 * first here, or than the task that runs here if nobody waits, is taken over: so LLCs with unequal
 * loads become alike, and a task does not change its LLC at every slice. One other LLC at a time.
 */
static bool balance(u32 llc, struct cpu_ctx *cpuc, u64 first)
{
	u64 now, pools = cpuc->pools | 1;
	u32 other, i;

	if (nr_llcs < 2)
		return false;
	now = scx_bpf_now();
	if (now - cpuc->balanced_at < BALANCE_EVERY * slice_ns)
		return false;
	cpuc->balanced_at = now;
	other = cpuc->balanced_with = llc_after(cpuc->balanced_with);
	if (other == llc)
		return false;
	bpf_for (i, 0, OVB_MAX_POOLS) {
		if (!pools)
			break;
		if (balance_with(other, (u32)__builtin_ctzll(pools), first)) {
			count(OVB_COUNT_BALANCE);
			return true;
		}
		pools &= pools - 1;
	}
	return false;
}

/* Lets `prev`, whose key was just found, go on with a new slice. */
static void extend(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc, s32 cpu)
{
	u64 slice = slice_of(prevc->vm);

	/* That it has yielded counts for one look, and that it was to go elsewhere for this one. */
	prevc->yielded = false;
	prevc->sent_to = 0;
	goes_by_key(prevc, cpuc, cpu);
	cpuc->until = scx_bpf_now() + slice;
	scx_bpf_task_set_slice(prev, slice);
}

/* The same as if it had been queued and picked: who wakes up meanwhile is compared with what it has
 * run, and not with what it had when it began. */
static void keep_running(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc,
			 s32 cpu)
{
	charge(prevc, cpu, scx_bpf_now());
	prevc->queue_pool = prevc->pool;
	find_key(prev, prevc, cpu, false);
	extend(prev, prevc, cpuc, cpu);
}

#endif
