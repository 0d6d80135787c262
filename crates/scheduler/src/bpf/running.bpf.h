/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task's time on a CPU: where it begins, at ticks, and where it ends. A change of a running task
 * ends its time and begins it anew, from whatever CPU makes the change: what is meant is the task's
 * CPU, and not the one that this runs on.
 */
#ifndef OVERBOOK_RUNNING_BPF_H
#define OVERBOOK_RUNNING_BPF_H

#include "discover.bpf.h"
#include "prefer.bpf.h"
#include "quota.bpf.h"
#include "relate.bpf.h"
#include "time.bpf.h"

void BPF_STRUCT_OPS(overbook_running, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	u64 now = scx_bpf_now(), waited;
	bool waits;

	if (!taskc || !cpuc)
		return;
	waits = taskc->waits_since;
	waited = wait_of(taskc, now);
	taskc->waits_since = 0;
	taskc->queued = false;
	vcpu_left_queue(taskc, true);
	if (waits) {
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);

		if (vcpuc) {
			u32 vm_class = bounded(class_of(taskc->vm), OVB_CLASS_SLOTS);

			vcpuc->stats.queued_ns += waited;
			if (waited > vcpuc->stats.longest_ns)
				vcpuc->stats.longest_ns = waited;
			if (waited > cpuc->longest[vm_class])
				cpuc->longest[vm_class] = waited;
			/* Nothing less is promised to anybody. */
			if (waited > OVB_PROMISE_ROOM &&
			    waited > ovb_class_promise(patience_ns, vm_class))
				cpuc->broken[vm_class]++;
		}
		if (!taskc->sched_idle)
			grant(taskc->tenant, cpu);
	}
	taskc->running_since = now;
	taskc->resumed_at = now;
	taskc->yielded = false;
	taskc->sent_to = 0;
	cpuc->vm = taskc->vm;
	cpuc->since = taskc->sched_idle && !taskc->out_of_turn ? 0 : now;
	if (cpuc->heir != (u32)p->pid)
		/* After a task of a higher class it has the rest of its slice. */
		cpuc->until = now + (p->scx.slice < slice_of(taskc->vm) ? p->scx.slice
									: slice_of(taskc->vm));
	else if ((s64)(cpuc->until - now) > 0)
		scx_bpf_task_set_slice(p, cpuc->until - now);
	cpuc->heir = 0;
	/* Who comes out of turn says nothing of whose turn it is, and must not be sent back: of its
	 * tenant's turns only those count that begin from here on. */
	if (taskc->out_of_turn) {
		struct node_ctx *node = node_at(taskc->tenant);

		cpuc->key = cpuc->base;
		/* If it is preempted it waits anew, and for as long: not even for who is owed. */
		if (taskc->overdue)
			cpuc->key -= OVB_LAG_TURNS * slice_ns;
		taskc->out_of_turn = taskc->overdue = false;
		taskc->keyed_for = node ? node->time.deadline : taskc->own.deadline;
		return;
	}
	goes_by_key(taskc, cpuc, cpu);
}

void BPF_STRUCT_OPS(overbook_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	u64 now = scx_bpf_now();

	if (!taskc || !cpuc)
		return;
	if (taskc->vm)
		ovb_spin_leave(&taskc->spin, now, short_spin_ns);
	cpuc->vm = 0;
	/* Nobody's victim until somebody runs here; that may be a task of a higher class. */
	cpuc->key = cpuc->base;
	charge(taskc, cpu, now);
	if (cpuc->debt_ns < 0)
		settle(cpu);
	taskc->running_since = 0;
	if (!runnable || now - taskc->resumed_at > slice_of(taskc->vm) / 2)
		taskc->woke = false;
	if (!runnable)
		taskc->slept_at = now;
	look_at(p, taskc);
	look_for_ends(p, taskc);
	/* A task that is preempted was at work, as far as is known; one that sleeps will be woken
	 * for what it waits for. */
	if (!taskc->yielded || !runnable)
		taskc->spun_at = 0;
}

void BPF_STRUCT_OPS(overbook_tick, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	struct node_ctx *node;
	u64 later;

	if (!taskc || !cpuc)
		return;
	look_at(p, taskc);
	look_for_ends(p, taskc);
	charge(taskc, cpu, scx_bpf_now());
	if (cpuc->debt_ns > 0)
		settle(cpu);
	if (is_throttled(taskc->node)) {
		scx_bpf_task_set_slice(p, 0);
		return;
	}
	node = node_at(taskc->tenant);
	if (!node || node->time.deadline == taskc->keyed_for)
		return;
	/* The tenant's next turn has begun meanwhile. */
	later = node->time.deadline - taskc->keyed_for;
	cpuc->key += later;
	taskc->key += later;
	taskc->keyed_for += later;
}

#endif
