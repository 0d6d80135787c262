/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU looks for its next task: whoever is first in its queues, another vCPU of that VM, or the
 * one that runs.
 */
#ifndef OVERBOOK_PICK_BPF_H
#define OVERBOOK_PICK_BPF_H

#include "choose.bpf.h"
#include "dispatch.bpf.h"
#include "prefer.bpf.h"
#include "quota.bpf.h"
#include "time.bpf.h"
#include "yield.bpf.h"

/* Whether the running task may go on, others being queued: none of them goes before it. */
static bool goes_on(struct task_struct *prev, struct task_ctx *prevc, s32 cpu, u64 first)
{
	if (prevc->yielded || prevc->idle_class || is_throttled(prevc->node))
		return false;
	charge(prevc, scx_bpf_now());
	settle();
	prevc->queue_pool = prevc->pool;
	find_key(prev, prevc, cpu, false);
	return ovb_vtime_before(key_of(prevc), first);
}

void BPF_STRUCT_OPS(overbook_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 llc = llc_of(cpu);
	bool keep = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	struct task_ctx *prevc = keep ? task_ctx(prev) : NULL;

	if (!cpuc)
		return;
	if (!is_preferred(cpu)) {
		run_outside(cpu, prev, prevc, cpuc);
		return;
	}
	if (run_waiter(cpu, llc, cpuc))
		return;
	find_first(cpu, llc, cpuc);
	if (go_on(cpuc, prev))
		return;
	if (cpuc->found) {
		if (prevc && goes_on(prev, prevc, cpu, cpuc->first_key)) {
			count(OVB_COUNT_KEEP);
			keep_running(prev, prevc, cpuc, cpu);
			grant(prevc->tenant);
			return;
		}
		if (balance(llc, cpuc, cpuc->first_key) ||
		    (cpuc->first_vm && run_best(cpuc->first_vm, false)) ||
		    scx_bpf_dsq_move_to_local(cpuc->first_dsq, 0) ||
		    scx_bpf_dsq_move_to_local(llc_dsq(llc), 0))
			return;
	}
	if (steal(llc, false))
		return;
	if (prevc && is_throttled(prevc->node))
		prevc = NULL;
	/* Even a vCPU that spins goes before SCHED_IDLE. */
	if ((!prevc || prevc->idle_class) &&
	    (run_idle_class(cpu_dsq(cpu), 0) || run_idle_class(llc_dsq(llc), 0)))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
	else
		steal(llc, true);
}

#endif
