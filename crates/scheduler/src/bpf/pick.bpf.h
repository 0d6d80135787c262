/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU looks for its next task: whoever is first in its queues, another vCPU of that VM, or the
 * one that runs.
 */
#ifndef OVERBOOK_PICK_BPF_H
#define OVERBOOK_PICK_BPF_H

#include "choose.bpf.h"
#include "dispatch.bpf.h"
#include "outside.bpf.h"
#include "overdue.bpf.h"
#include "overstay.bpf.h"
#include "prefer.bpf.h"
#include "quota.bpf.h"
#include "spread.bpf.h"
#include "time.bpf.h"
#include "yield.bpf.h"

/* Whether the running task may stay if nobody goes before it. */
static bool may_stay(const struct task_ctx *prevc)
{
	return !prevc->yielded && !prevc->sched_idle && !is_throttled(prevc->node);
}

/* The key of the running task, as if it were queued now. */
static u64 key_now(struct task_struct *prev, struct task_ctx *prevc, s32 cpu)
{
	charge(prevc, cpu, scx_bpf_now());
	settle(cpu);
	prevc->queue_pool = prevc->pool;
	find_key(prev, prevc, cpu, false);
	return key_of(prevc);
}

/* Lets the running task go on although others wait, if it may. */
static bool stay(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc, s32 cpu,
		 u32 llc)
{
	u64 key = key_now(prev, prevc, cpu);
	bool is_due = ovb_vtime_before(key, cpuc->first_key);
	u64 reach = is_due ? 0 : overstays(prevc, cpu, llc, key);

	if (is_due ? goes_elsewhere(prev, prevc, cpuc, llc) : !reach)
		return false;
	count(is_due ? OVB_COUNT_KEEP : OVB_COUNT_OVERSTAY);
	extend(prev, prevc, cpuc, cpu);
	if (!is_due)
		lower_base(cpuc, reach);
	grant(prevc->tenant, cpu);
	return true;
}

/*
 * In this order: who has waited for too long; the VM whose vCPU has just left waiting for a
 * sibling; unless the task that runs goes before the first of this CPU's queues, or may overstay:
 * one of another LLC who is owed much more, then another vCPU of that first one's VM, the first
 * itself, or any of these queues; any of another LLC if this CPU had nothing else; the task that
 * runs, even if it has yielded, unless it is SCHED_IDLE; and SCHED_IDLE tasks.
 */
void BPF_STRUCT_OPS(overbook_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 llc = llc_of(cpu);
	bool keep = prev && (prev->scx.flags & SCX_TASK_QUEUED), stays;
	struct task_ctx *prevc = keep ? task_ctx(prev) : NULL;

	if (!cpuc)
		return;
	if (!is_preferred(cpu)) {
		run_outside(cpu, prev, prevc, cpuc);
		return;
	}
	if (look_for_overdue(cpu, llc, cpuc)) {
		/* Whoever left waiting for a sibling is not the one who leaves next. */
		cpuc->goes_on = 0;
		return;
	}
	/* Before the others' keys are looked at: key_now() would do it after that, for one alone.
	 */
	if (prevc) {
		struct node_ctx *node = node_at(prevc->tenant);

		lift(frame_of(prevc, node), node ? &node->time : &prevc->own);
	}
	find_first(cpu, llc, cpuc);
	if (go_on(cpuc, prev))
		return;
	stays = prevc && may_stay(prevc);
	if (cpuc->found) {
		if (stays && stay(prev, prevc, cpuc, cpu, llc))
			return;
		if (balance(llc, cpuc, cpuc->first_key) ||
		    (cpuc->first_vm && run_best(cpuc->first_vm, false)) ||
		    scx_bpf_dsq_move_to_local(cpuc->first_dsq, 0) || take_any(llc))
			return;
	} else if (stays && nr_llcs > 1 && balance(llc, cpuc, key_now(prev, prevc, cpu))) {
		return;
	}
	if (!stays && pull(llc, false))
		return;
	if (prevc && is_throttled(prevc->node))
		prevc = NULL;
	/* Even a vCPU that spins goes before SCHED_IDLE. */
	if ((!prevc || prevc->sched_idle) &&
	    (run_sched_idle(cpu_dsq(cpu)) || run_sched_idle(llc_dsq(llc))))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
	else
		pull(llc, true);
}

#endif
