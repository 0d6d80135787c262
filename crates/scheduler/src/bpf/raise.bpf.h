/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups that weigh more than they did: their tasks that wait come forward in the queues.
 */
#ifndef OVERBOOK_RAISE_BPF_H
#define OVERBOOK_RAISE_BPF_H

#include "time.bpf.h"

/* Brings a queued task of a tenant that weighs more to where it may stand at the latest. 1 if it
 * has stood further back. */
__noinline int is_brought_forward(struct task_ctx *taskc __arg_nonnull, s32 cpu, u64 queue_offset)
{
	struct node_ctx *node = node_at(taskc->tenant);
	u64 latest;

	if (!node)
		return false;
	forgive(taskc->tenant, cpu, pool_at(frame_of(taskc, node))->offset);
	latest = latest_of(&node->time, node, taskc->weight, foremost(cpu) - queue_offset);
	if (!ovb_vtime_before(latest, taskc->key))
		return false;
	taskc->key = taskc->ceiling = latest;
	taskc->keyed_for = node->time.deadline;
	return true;
}

/* Once a group weighs more, what waits of it stands behind slices that were booked by the little
 * that it weighed. */
__noinline int bring_forward(u64 dsq, u32 pool, u32 scan)
{
	u64 offset = pool_at(pool)->offset;
	s32 cpu = bpf_get_smp_processor_id();
	struct task_struct *p;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, SCX_DSQ_ITER_REV) {
		struct task_ctx *taskc = task_ctx(p);

		if (++i > scan)
			break;
		if (!taskc || !is_brought_forward(taskc, cpu, offset))
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, taskc->key);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dsq, 0);
	}
	return 0;
}

/* So many of the last tasks of a queue are looked at for who waits too far behind. */
#define RAISED_SCAN 1024

/* Brings tasks forward in all queues that a CPU takes tasks from, once their groups weigh more. */
__noinline int look_for_raised(s32 cpu, u32 llc)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 i;

	if (!cpuc || cpuc->raised == raised)
		return 0;
	cpuc->raised = raised;
	bring_forward(cpu_dsq(cpu), cpu_pool(cpu), RAISED_SCAN);
	bring_forward(llc_dsq(llc), 0, RAISED_SCAN);
	bpf_for (i, 1, OVB_MAX_POOLS)
		if (cpuc->pools >> i & 1)
			bring_forward(pool_dsq(i, llc), i, RAISED_SCAN);
	return 0;
}

#endif
