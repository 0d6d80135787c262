/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a task that becomes runnable preempts if no CPU idles (enqueue.bpf.h looks for one that
 * does): a SCHED_IDLE task, or whoever can wait best.
 */
#ifndef OVERBOOK_WAKE_BPF_H
#define OVERBOOK_WAKE_BPF_H

#include "prefer.bpf.h"
#include "time.bpf.h"

/* Whether a task may take a CPU from whoever runs there, and goes before that one. */
static bool may_preempt(const struct task_struct *p, const struct task_ctx *taskc, s32 cpu,
			u32 vm_class)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);

	if (!cpuc || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) || !is_preferred(cpu))
		return false;
	/* Not the sibling that has sent the IPI: it would come back to the end of a queue, and is
	 * about to wait; then its CPU goes on with this one. */
	if (taskc->vm && cpuc->vm == taskc->vm && cpu == bpf_get_smp_processor_id())
		return false;
	/* Its clock may be ahead of this one's. */
	if (may_prefer && cpuc->since && (s64)(scx_bpf_now() - cpuc->since) < (s64)protect_ns)
		return false;
	if (!ovb_class_preempts(vm_class) && cpuc->since)
		return false;
	return ovb_vtime_before(key_of(taskc) + ovb_class_margin(preempt_margin_ns, vm_class),
				cpuc->key);
}

/* Find the CPU with the latest key in this LLC, or one that runs SCHED_IDLE tasks, on a host of at
 * most OVB_VICTIMS CPUs in any. −1 if there is none. */
__noinline s32 victim_for(struct task_struct *p __arg_trusted, struct task_ctx *taskc __arg_nonnull,
			  s32 prev_cpu)
{
	struct cpu_ctx *self = this_cpu_ctx(), *cpuc;
	u32 llc = llc_of(prev_cpu), vm_class = class_of(taskc->vm), next = (u32)prev_cpu, i;

	if (!self)
		return -1;
	self->victim = -1;
	bpf_for (i, 0, OVB_VICTIMS) {
		u32 cpu = next;

		if (i && cpu == (u32)prev_cpu)
			break;
		next = next_victim[bounded(cpu, OVB_MAX_CPUS)];
		cpuc = cpu_ctx_of(cpu);
		if (!cpuc || (llc_of(cpu) != llc && cpuc->since) ||
		    !may_preempt(p, taskc, cpu, vm_class) ||
		    (self->victim >= 0 && !ovb_vtime_before(self->victim_key, cpuc->key)))
			continue;
		self->victim = (s32)cpu;
		self->victim_key = cpuc->key;
	}
	cpuc = self->victim < 0 ? NULL : cpu_ctx_of(self->victim);
	if (!cpuc)
		return -1;
	cpuc->key = key_of(taskc);
	return self->victim;
}

/* After a wake-up: tells a CPU whose task may wait longer than this one to look at its queues. */
static void preempt_for(struct task_struct *p, struct task_ctx *taskc, s32 cpu, bool bound)
{
	struct cpu_ctx *cpuc = bound ? cpu_ctx_of(cpu) : NULL;

	if (!bound)
		cpu = victim_for(p, taskc, cpu);
	else if (cpuc && may_preempt(p, taskc, cpu, class_of(taskc->vm)))
		cpuc->key = key_of(taskc);
	else
		cpu = -1;
	if (cpu < 0)
		return;
	count(OVB_COUNT_PREEMPT);
	scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
}

#endif
