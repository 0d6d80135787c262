/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks whose groups have used up their cpu.max are parked; how they come back to the queues.
 */
#ifndef OVERBOOK_PARK_BPF_H
#define OVERBOOK_PARK_BPF_H

#include "prefer.bpf.h"
#include "raise.bpf.h"

/* A CPU to be told of a task that has come out of parking: an idle one, or negative if none is; in
 * a guest a bound task's own. */
static s32 cpu_for(const struct task_struct *p)
{
	struct bpf_cpumask *mask = preferred;
	s32 cpu = scx_bpf_task_cpu(p);

	if (!packs() || !mask)
		return scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	return is_bound(p, cpu) ? cpu : scx_bpf_pick_idle_cpu(cast_mask(mask), 0);
}

/* Whoever comes out of parking was no rival meanwhile, and is owed nothing for that: he stands as
 * one who wakes up. */
__noinline int catch_up(struct task_ctx *taskc __arg_nonnull, s32 cpu)
{
	u64 base = base_of(cpu), vtime, floor;
	u64 least = base - slice_ns - pool_at(taskc->queue_pool)->offset;
	struct node_ctx *node = node_at(taskc->tenant);
	struct tenant *tenant = tenant_of(taskc, node);

	vtime = tenant->vtime;
	floor = base - aged_slice(tenant) - pool_at(frame_of(taskc, node))->offset;

	if (ovb_vtime_before(vtime, floor))
		__sync_val_compare_and_swap(&tenant->vtime, vtime, floor);
	if (ovb_vtime_before(taskc->key, least)) {
		taskc->ceiling += least - taskc->key;
		taskc->key = least;
	}
	return 0;
}

/* Puts those who are parked, and whose groups may run again, into their queues. */
static void unpark(void)
{
	bool crowded = scx_bpf_dsq_nr_queued(PARKED) > UNPARK;
	struct bpf_iter_scx_dsq it;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, PARKED, 0)) {
		bpf_for (i, 0, UNPARK) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *taskc;
			s32 cpu;

			if (!p)
				break;
			taskc = task_ctx(p);
			if (!taskc || is_throttled(taskc->node)) {
				if (crowded)
					scx_bpf_dsq_move(&it, p, PARKED, 0);
				continue;
			}
			if (!taskc->sched_idle) {
				vcpu_queued(taskc);
				is_brought_forward(taskc, bpf_get_smp_processor_id(),
						   pool_at(taskc->queue_pool)->offset);
				catch_up(taskc, scx_bpf_task_cpu(p));
			}
			scx_bpf_dsq_move_set_vtime(&it, taskc->key);
			if (taskc->sched_idle ? !scx_bpf_dsq_move(&it, p, taskc->dsq, 0)
					      : !scx_bpf_dsq_move_vtime(&it, p, taskc->dsq, 0)) {
				/* It has gone meanwhile, or is parked anew. */
				if (!taskc->queued || is_throttled(taskc->node))
					vcpu_left_queue(taskc, false);
				continue;
			}
			cpu = cpu_for(p);
			if (cpu >= 0)
				scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

#endif
