/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task that becomes runnable, or has run its slice: it goes to an idle CPU, or into a queue by
 * its key, and a CPU is told that it waits.
 */
#ifndef OVERBOOK_ENQUEUE_BPF_H
#define OVERBOOK_ENQUEUE_BPF_H

#include "dispatch.bpf.h"
#include "prefer.bpf.h"
#include "time.bpf.h"
#include "wake.bpf.h"

s32 BPF_STRUCT_OPS(overbook_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	bool idle = false;
	s32 cpu, near = preferred_cpu(p, prev_cpu);

	/* Who wakes it is said to sleep soon. Until then Linux 7 would give it that busy CPU as if
	 * it idled, and whoever runs there, a vCPU that was interrupted maybe, would be preempted.
	 */
	wake_flags &= ~SCX_WAKE_SYNC;
	if (packs() && near >= 0) {
		prev_cpu = near;
		cpu = idle_preferred(p, prev_cpu, wake_flags);
		idle = cpu >= 0;
		if (!idle)
			cpu = prev_cpu;
	} else {
		if (taskc)
			prev_cpu = homeward(p, taskc, prev_cpu);
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	/* A task that is not inserted here is enqueued. */
	if (!idle || !taskc || near < 0 || is_throttled(taskc->node))
		return cpu;
	taskc->queue_pool = taskc->pool;
	find_key(p, taskc, cpu, true);
	count(OVB_COUNT_DIRECT);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(taskc->vm), SCX_ENQ_PREEMPT);
	return cpu;
}

/* When a CPU was last chosen for a task that was queued in an LLC, a line for each. */
u64 announced[OVB_MAX_LLCS][8];

/* Queues a task by its key; false if it is parked instead. */
static bool queue(struct task_struct *p, struct task_ctx *taskc, u64 dsq, u64 enq_flags)
{
	u64 slice = slice_of(taskc->vm);

	taskc->queued = true;
	if (!taskc->waits_since)
		taskc->waits_since = scx_bpf_now();
	taskc->dsq = taskc->sched_idle ? idle_dsq(dsq) : dsq;
	if (taskc->out_of_turn)
		count(OVB_COUNT_IN_RCU);
	if (is_to_park(p, taskc)) {
		count(OVB_COUNT_PARKED);
		scx_bpf_dsq_insert(p, PARKED, slice, enq_flags);
		return false;
	} else if (taskc->sched_idle) {
		count(OVB_COUNT_QUEUED_IDLE);
		scx_bpf_dsq_insert(p, taskc->dsq, slice, enq_flags);
	} else {
		count(dsq < OVB_MAX_LLCS ? OVB_COUNT_QUEUED_LLC
		      : is_pool_dsq(dsq) ? OVB_COUNT_QUEUED_POOL
					 : OVB_COUNT_QUEUED_CPU);
		vcpu_queued(taskc);
		scx_bpf_dsq_insert_vtime(p, dsq, slice, taskc->key, enq_flags);
	}
	return true;
}

void BPF_STRUCT_OPS(overbook_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p), idle = -1;
	/* Once: the preferred CPUs may change meanwhile. */
	s32 near = preferred_cpu(p, cpu);
	bool woken = enq_flags & SCX_ENQ_WAKEUP, bound = must_stay(p, near), begins;
	u64 dsq;

	if (!taskc) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		/* Its CPU is about to idle, and does not look into that queue again by itself. */
		if (enq_flags & SCX_ENQ_LAST)
			scx_bpf_kick_cpu(cpu, 0);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
		return;
	}
	if (!bound)
		cpu = taskc->sent_to ? (s32)taskc->sent_to - 1 : homeward(p, taskc, near);
	else if (!is_preferred(cpu))
		count(OVB_COUNT_OUTSIDE);
	taskc->queue_pool = bound ? cpu_pool(cpu) : taskc->pool;
	/* The kernel does not say that it wakes a new task; and one is like new that was
	 * SCHED_IDLE, or whose CPU a higher class has taken. */
	begins = woken || taskc->fresh || (enq_flags & SCX_ENQ_REENQ);
	if (begins || taskc->sent_to)
		taskc->woke = true;
	find_key(p, taskc, cpu, woken);
	dsq = bound ? cpu_dsq(cpu) : queue_of(taskc, llc_of(cpu));
	if (!queue(p, taskc, dsq, enq_flags))
		return;
	if (bound) {
		idle = scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : -1;
	} else {
		/* Before a CPU is chosen, for one that becomes idle meanwhile: see update_idle().
		 * Where others wait already it finds them. */
		if (!is_queued_in(dsq))
			__sync_lock_test_and_set(&announced[bounded(llc_of(cpu), OVB_MAX_LLCS)][0],
						 scx_bpf_now());
		idle = packs() ? idle_preferred(p, cpu, 0) : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	}
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_PREEMPT);
	else if (taskc->sent_to)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else if (begins && !taskc->sched_idle)
		preempt_for(p, taskc, cpu, bound);
	taskc->sent_to = 0;
}

/* Longest time, ns, from the choice of a CPU for a task until the kernel puts it into its queue. */
#define INSERTED_AFTER 20000

/* A CPU that found no task is idle from here on. A task that was queued in between has not seen
 * that, and has told no CPU; nor has one that is about to be: the kernel puts it into its queue
 * only when overbook_enqueue() has returned. */
void BPF_STRUCT_OPS(overbook_update_idle, s32 cpu, bool idle)
{
	u64 now = scx_bpf_now();
	bool look;
	u32 i;

	if (!idle)
		return;
	look = somebody_waits(cpu);
	bpf_for (i, 0, nr_llcs) {
		if (look)
			break;
		look = (s64)(now - announced[bounded(i, OVB_MAX_LLCS)][0]) < INSERTED_AFTER;
	}
	if (look)
		scx_bpf_kick_cpu(cpu, 0);
}

#endif
