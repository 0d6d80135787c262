/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest's CPU that is not preferred runs who can run nowhere else.
 */
#ifndef OVERBOOK_OUTSIDE_BPF_H
#define OVERBOOK_OUTSIDE_BPF_H

#include "choose.bpf.h"
#include "dispatch.bpf.h"
#include "overdue.bpf.h"
#include "prefer.bpf.h"

/* So many tasks are looked at for one that must not stay in an LLC's queue. */
#define RESCUES 64

/* Brings those who may run on a preferred CPU from a queue of an LLC that has none to one that has,
 * and runs one who may not: of the queue for all, or that for SCHED_IDLE tasks. */
__noinline int evacuate(u32 cpu, u32 llc, u32 sched_idle)
{
	bool all = !llc_preferred[bounded(llc, OVB_MAX_LLCS)];
	u64 dsq = sched_idle ? idle_dsq(llc_dsq(llc)) : llc_dsq(llc);
	struct task_struct *p;
	u32 i = 0, to;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return 0;
	bpf_for_each (scx_dsq, p, dsq, 0) {
		struct task_ctx *taskc = task_ctx(p);
		s32 other = preferred_cpu(p, cpu);

		if (++i > RESCUES)
			break;
		if (!taskc)
			continue;
		if (other < 0 && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return move_here(BPF_FOR_EACH_ITER, p, slice_of(taskc->vm));
		if (other < 0 || !all)
			continue;
		to = llc_of(other);
		if (to == llc)
			continue;
		taskc->dsq = sched_idle ? idle_dsq(llc_dsq(to)) : llc_dsq(to);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, taskc->key);
		if (sched_idle)
			scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, taskc->dsq, 0);
		else
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, taskc->dsq, 0);
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
	}
	return 0;
}

/* Patience is as on other CPUs; and who must wait in an LLC's queue, as it may use several CPUs
 * none of which is preferred, has its turn. */
static bool look_for_overdue_outside(s32 cpu, struct cpu_ctx *cpuc)
{
	u64 now = scx_bpf_now();

	if (!cpuc->urgent && now - cpuc->looked_at < LOOK_EVERY)
		return false;
	cpuc->looked_at = now;
	cpuc->looks++;
	if (cpuc->urgent)
		cpuc->urgent--;
	/* By turns with SCHED_IDLE ones, as of very many one has always waited for too long. */
	if (cpuc->looks & 2 && evacuate(cpu, llc_of(cpu), true))
		return true;
	return run_overdue(cpu_dsq(cpu), LONG_SCAN, cpuc->looks & 1 ? SCX_DSQ_ITER_REV : 0, now) ||
	       evacuate(cpu, llc_of(cpu), false);
}

/* A CPU that is not preferred runs what can run nowhere else. */
static void run_outside(s32 cpu, struct task_struct *prev, struct task_ctx *prevc,
			struct cpu_ctx *cpuc)
{
	if (prevc && is_throttled(prevc->node))
		prevc = NULL;
	if (nr_limited)
		park_throttled(cpu_dsq(cpu));
	if (look_for_overdue_outside(cpu, cpuc) ||
	    run_overdue_sched_idle(cpu_dsq(cpu), idle_patience_ns) ||
	    scx_bpf_dsq_move_to_local(cpu_dsq(cpu), 0) || evacuate(cpu, llc_of(cpu), false))
		return;
	if (prevc && !is_bound(prev, cpu)) {
		/* Nothing else here: it is queued, and so goes to others. */
		count(OVB_COUNT_PUSHED);
		prevc = NULL;
	}
	if ((!prevc || prevc->sched_idle) &&
	    (run_sched_idle(cpu_dsq(cpu)) || evacuate(cpu, llc_of(cpu), true)))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
}

#endif
