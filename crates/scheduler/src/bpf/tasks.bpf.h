/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that come, go, and change: what is remembered of each.
 */
#ifndef OVERBOOK_TASKS_BPF_H
#define OVERBOOK_TASKS_BPF_H

#include "discover.bpf.h"
#include "pool.bpf.h"
#include "time.bpf.h"
#include "tree.bpf.h"

/* A task is in another group than when it last woke up. (ops.cgroup_move() would say so at once;
 * but with it, kernels before 02e545c4297a warn when systemd turns controllers on.) */
static void come_to_group(const struct task_struct *p, struct task_ctx *taskc, u32 node)
{
	struct vm_ctx *vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;

	taskc->node = node;
	if (vmc)
		forget_tenant(vmc);
	else if (p->pid == p->tgid)
		forget_tenants(p->tgid);
}

void BPF_STRUCT_OPS(overbook_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	u32 node;

	if (!taskc) {
		taskc = make_task_ctx(p);
		if (!taskc)
			return;
		learn_task(p, taskc);
	}
	node = place_of_group(p);
	if (node != taskc->node)
		come_to_group(p, taskc, node);
	taskc->generation = 0;
	/* Who is SCHED_IDLE has what nobody wants, and is nobody's rival: what its group weighs
	 * would be taken from those beside it, and given to strangers. */
	taskc->counted = taskc->sched_idle ? 0 : taskc->weight;
	find_tenant(taskc);
}

void BPF_STRUCT_OPS(overbook_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc)
		return;
	taskc->queued = false;
	vcpu_left_queue(taskc, false);
	count_in(taskc, 0, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_ctx *taskc = make_task_ctx(p);

	/* An earlier load may have left something. */
	if (taskc)
		*taskc = (struct task_ctx){.fresh = true};
	return 0;
}

void BPF_STRUCT_OPS(overbook_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc)
		return;
	vcpu_gone(p, taskc);
	leave_pool(taskc->pool);
	taskc->pool = 0;
}

void BPF_STRUCT_OPS(overbook_enable, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);

	if (taskc)
		learn_task(p, taskc);
}

void BPF_STRUCT_OPS(overbook_set_weight, struct task_struct *p, u32 weight)
{
	struct task_ctx *taskc = task_ctx(p);

	if (taskc)
		learn_weight(p, taskc);
}

void BPF_STRUCT_OPS(overbook_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	struct task_ctx *taskc = task_ctx(p);

	if (taskc)
		change_pool(p, taskc);
}

#endif
