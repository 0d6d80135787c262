/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU that has nothing to do may run, other than the first of its queues.
 */
#ifndef OVERBOOK_DISPATCH_BPF_H
#define OVERBOOK_DISPATCH_BPF_H

#include "place.bpf.h"
#include "prefer.bpf.h"
#include "state.bpf.h"

/* Moves the first of the queues of other LLCs that has a task for this CPU. */
static bool steal(u32 llc)
{
	u32 i;

	bpf_for (i, 1, nr_llcs) {
		u32 other = llc + i;

		if (other >= nr_llcs)
			other -= nr_llcs;
		if (scx_bpf_dsq_move_to_local(llc_dsq(other), 0)) {
			count(OVB_COUNT_STEAL_LLC);
			return true;
		}
	}
	return false;
}

/* Whether a queued task has waited for so long. It may have been queued after `now`, by another
 * CPU. */
static bool has_waited(const struct task_ctx *taskc, u64 now, u64 ns)
{
	return (s64)(now - taskc->queued_since) >= (s64)ns;
}

/* Runs the first SCHED_IDLE task of a queue if it has waited for so long that others must wait now;
 * or at once. */
static bool run_idle_class(u64 dsq, u64 patience_ns)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(idle_dsq(dsq));
	struct task_ctx *taskc;

	if (!first)
		return false;
	taskc = task_ctx(first);
	if (patience_ns) {
		if (!taskc || !has_waited(taskc, scx_bpf_now(), patience_ns))
			return false;
		count(OVB_COUNT_IDLE_OVERDUE);
	}
	return scx_bpf_dsq_move_to_local(idle_dsq(dsq), 0);
}

/* So many of the last tasks of a queue are looked at for one that has waited for too long. */
#define OVERDUE_SCAN 64

/*
 * Runs a task that has waited for patience_ns. With shares by weight, one of the least weight
 * beside very many others waits for long, maybe in a section that others wait for, and the kernel's
 * watchdog ends a scheduler under which anything waits for 30 s. Who is overtaken all the time is
 * among the last of its queue.
 */
static bool run_overdue(s32 cpu, u64 dsq, u64 now)
{
	struct bpf_iter_scx_dsq it;
	bool moved = false;
	u32 i;

	if (!patience_ns)
		return false;
	if (!bpf_iter_scx_dsq_new(&it, dsq, SCX_DSQ_ITER_REV)) {
		bpf_for (i, 0, OVERDUE_SCAN) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *taskc;

			if (!p)
				break;
			taskc = task_ctx(p);
			if (!taskc || !has_waited(taskc, now, patience_ns) ||
			    (scx_bpf_task_cpu(p) != cpu && !may_run_on(p, cpu)))
				continue;
			moved = move_here(&it, p, slice_ns);
			if (moved)
				taskc->out_of_turn = true;
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (moved)
		count(OVB_COUNT_OVERDUE);
	return moved;
}

/* A CPU looks for who has waited for too long so often, ns: not at every dispatch, as it finds
 * nobody nearly always. A hundred of a queue have had a turn within 10 s, before the watchdog ends
 * us. */
#define LOOK_EVERY 100000000

static bool run_waiter(s32 cpu, u32 llc, struct cpu_ctx *cpuc)
{
	u64 now = scx_bpf_now();

	if (now - cpuc->looked_at < LOOK_EVERY)
		return false;
	cpuc->looked_at = now;
	return run_idle_class(cpu_dsq(cpu), idle_patience_ns) ||
	       run_idle_class(llc_dsq(llc), idle_patience_ns) ||
	       run_overdue(cpu, cpu_dsq(cpu), now) || run_overdue(cpu, llc_dsq(llc), now);
}

/* Whoever runs by his deadline carries the clocks along. */
static void advance_clocks(struct task_struct *p, const struct task_ctx *taskc,
			   struct cpu_ctx *cpuc, s32 cpu)
{
	cpuc->vtime = ovb_vtime_max(cpuc->vtime, taskc->vtime);
	if (p->nr_cpus_allowed >= nr_cpus) {
		u64 *clock = &llc_vtime[bounded(llc_of(cpu), OVB_MAX_LLCS)];

		*clock = ovb_vtime_max(*clock, taskc->vtime);
	}
}

/* Lets `prev` go on with a new turn. Clocks and deadline move as if it had been queued and picked:
 * who wakes up meanwhile is compared with what it has run, and not with what it had when it began.
 */
static void keep_running(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc,
			 s32 cpu)
{
	charge(prev, prevc, scx_bpf_now());
	prevc->deadline = prevc->vtime + weighted(prevc, slice_ns);
	prevc->turn_ns = slice_ns;
	prevc->overtime = false;
	cpuc->deadline = prevc->deadline;
	/* Somebody may have claimed this CPU and then run elsewhere; there is no switch that would
	 * tell. */
	if (prevc->idle_class)
		mark_soft_idle(cpu, true);
	else
		advance_clocks(prev, prevc, cpuc, cpu);
	scx_bpf_task_set_slice(prev, slice_ns);
}

/* So many tasks are looked at for one that must not stay in an LLC's queue. */
#define RESCUES 64

/* Takes a task out of an LLC's queue that was put there while this CPU was preferred, and may run
 * on no CPU that still is: nobody who serves that queue could. */
static bool rescue(s32 cpu, u64 dsq)
{
	struct bpf_iter_scx_dsq it;
	bool moved = false;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		bpf_for (i, 0, RESCUES) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);

			if (!p)
				break;
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || preferred_cpu(p, cpu) >= 0)
				continue;
			moved = move_here(&it, p, slice_ns);
			break;
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
	return moved;
}

/* A CPU that is not preferred runs what can run nowhere else. */
static void run_outside(s32 cpu, struct task_struct *prev, struct task_ctx *prevc,
			struct cpu_ctx *cpuc)
{
	if (run_idle_class(cpu_dsq(cpu), idle_patience_ns) ||
	    scx_bpf_dsq_move_to_local(cpu_dsq(cpu), 0) || rescue(cpu, llc_dsq(llc_of(cpu))))
		return;
	if (prevc && !is_bound(prev, cpu)) {
		/* Nothing else here: it is queued, and so goes to others. */
		count(OVB_COUNT_PUSHED);
		run_idle_class(cpu_dsq(cpu), 0);
		return;
	}
	if (prevc && !prevc->idle_class) {
		keep_running(prev, prevc, cpuc, cpu);
		return;
	}
	if (!run_idle_class(cpu_dsq(cpu), 0) && prevc)
		keep_running(prev, prevc, cpuc, cpu);
}

#endif
