/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a task that becomes runnable can run at once: on an idle CPU, on one that runs a SCHED_IDLE
 * task, or instead of whoever can wait best.
 */
#ifndef OVERBOOK_WAKE_BPF_H
#define OVERBOOK_WAKE_BPF_H

#include "place.bpf.h"
#include "prefer.bpf.h"

static void mark_soft_idle(s32 cpu, bool idle)
{
	struct bpf_cpumask *mask = soft_idle;

	if (!mask)
		return;
	if (idle && is_preferred(cpu))
		bpf_cpumask_set_cpu(cpu, mask);
	else
		bpf_cpumask_clear_cpu(cpu, mask);
}

/* Takes an idle CPU, or one that runs a SCHED_IDLE task, for `p`; −1 if there is none. */
static s32 claim_soft_idle(const struct task_struct *p, s32 prev_cpu)
{
	struct bpf_cpumask *mask = soft_idle;
	s32 cpu;

	if (!mask)
		return -1;
	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) && is_preferred(prev_cpu) &&
	    bpf_cpumask_test_and_clear_cpu(prev_cpu, mask))
		return prev_cpu;
	cpu = bpf_cpumask_any_and_distribute(p->cpus_ptr, cast_mask(mask));
	if (cpu >= nr_cpus || !bpf_cpumask_test_and_clear_cpu(cpu, mask) || !is_preferred(cpu))
		return -1;
	return cpu;
}

/* Among so many CPUs, from its last one on, somebody is sought whom a woken task may preempt. */
#define VICTIMS 64

/* A search for the CPU whose task can wait best: the one with the latest deadline. In memory, as
 * the verifier would follow every value of a variable. */
struct victim {
	u64 deadline;
	s32 cpu;
	u32 found;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct victim);
} victims SEC(".maps");

/* Whether whoever runs on a CPU has only just begun, in a guest. */
static bool is_protected(const struct cpu_ctx *cpuc, u64 now)
{
	return may_prefer && now - cpuc->since < protect_ns;
}

/* CPU of whoever can wait best on an LLC, if his deadline is late enough against that of a woken
 * task; −1 if it is not. */
static s32 latest_cpu(const struct task_struct *p, const struct task_ctx *taskc, s32 prev_cpu)
{
	u32 zero = 0, llc = llc_of(prev_cpu), i, cpu;
	struct victim *victim = bpf_map_lookup_elem(&victims, &zero);
	s32 here = bpf_get_smp_processor_id();
	u64 now;

	if (!victim)
		return -1;
	victim->found = 0;
	now = may_prefer ? scx_bpf_now() : 0;
	bpf_for (i, 0, VICTIMS) {
		struct cpu_ctx *cpuc;

		if (i >= nr_cpus)
			break;
		cpu = (u32)prev_cpu + i;
		if (cpu >= nr_cpus)
			cpu -= nr_cpus;
		cpuc = cpu_ctx_of(cpu);
		if (!cpuc || llc_of(cpu) != llc || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||
		    !is_preferred(cpu))
			continue;
		if (is_protected(cpuc, now))
			continue;
		/* Not the sibling that has sent the IPI: it would come back to the end of a queue,
		 * and is about to wait; then it can hand over what is left of its turn. */
		if (taskc->vm && cpu == here && cpuc->vm == taskc->vm)
			continue;
		if (victim->found && !ovb_vtime_before(victim->deadline, cpuc->deadline))
			continue;
		victim->found = 1;
		victim->cpu = cpu;
		victim->deadline = cpuc->deadline;
	}
	if (!victim->found ||
	    !ovb_vtime_before(taskc->deadline + preempt_margin_ns, victim->deadline))
		return -1;
	return victim->cpu;
}

/* Whether a task would be the first in an LLC's queue. */
static bool goes_first(const struct task_ctx *taskc, s32 cpu)
{
	u64 first;

	return !first_deadline(llc_dsq(llc_of(cpu)), &first) ||
	       ovb_vtime_before(taskc->deadline, first);
}

/* Tells a CPU that it should look at its queues: one that has nothing better to do, or, after a
 * wake-up, one whose task may wait longer than this one. */
static void notify(struct task_struct *p, struct task_ctx *taskc, s32 cpu, bool woken, bool bound)
{
	struct cpu_ctx *cpuc;
	s32 idle;

	if (bound) {
		if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
	} else {
		idle = limited() ? idle_preferred(p, cpu, 0)
				 : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0) {
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
			return;
		}
		if (!taskc->idle_class) {
			idle = claim_soft_idle(p, cpu);
			if (idle >= 0) {
				scx_bpf_kick_cpu(idle, SCX_KICK_PREEMPT);
				return;
			}
		}
	}
	if (!woken || taskc->idle_class)
		return;
	if (!bound) {
		idle = latest_cpu(p, taskc, cpu);
		if (idle >= 0) {
			count(OVB_COUNT_PREEMPT);
			scx_bpf_kick_cpu(idle, SCX_KICK_PREEMPT);
		}
		return;
	}
	cpuc = cpu_ctx_of(cpu);
	if (cpuc && !is_protected(cpuc, scx_bpf_now()) &&
	    ovb_vtime_before(taskc->deadline + preempt_margin_ns, cpuc->deadline)) {
		count(OVB_COUNT_PREEMPT);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

#endif
