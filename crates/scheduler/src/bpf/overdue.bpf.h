/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has waited for too long goes before all others; and SCHED_IDLE tasks.
 */
#ifndef OVERBOOK_OVERDUE_BPF_H
#define OVERBOOK_OVERDUE_BPF_H

#include "choose.bpf.h"
#include "prefer.bpf.h"
#include "raise.bpf.h"

/* Whoever has waited for so long, ns, comes before all who have not: the kernel's watchdog, whose
 * patience is 30 s, is about to end the scheduler. */
#define URGENT OVB_PATIENCE_MOST

/* Somebody goes who has waited for so long, ns: others may be as urgent, at either end. */
static void found_overdue(u64 waited)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	if (cpuc && waited >= URGENT)
		cpuc->urgent = 2;
}

/* Whether a queued task may run on this CPU, be it that it may run nowhere else. */
static bool may_run_here(struct task_struct *p, s32 cpu)
{
	return scx_bpf_task_cpu(p) == cpu || may_run_on(p, cpu);
}

/* Runs a SCHED_IDLE task of a queue, the first that may run here. */
static bool run_sched_idle(u64 dsq)
{
	return scx_bpf_dsq_nr_queued(idle_dsq(dsq)) > 0 &&
	       scx_bpf_dsq_move_to_local(idle_dsq(dsq), 0);
}

/* So many SCHED_IDLE tasks are looked at, as those at the head may be bound to other CPUs. */
#define IDLE_SCAN 8

/* The same if it has waited for so long that others must wait now. */
__noinline int run_overdue_sched_idle(u64 dsq, u64 patience_ns)
{
	s32 cpu = bpf_get_smp_processor_id();
	u64 now = scx_bpf_now();
	struct task_struct *p;
	u32 i = 0;

	if (scx_bpf_dsq_nr_queued(idle_dsq(dsq)) <= 0)
		return false;
	bpf_for_each (scx_dsq, p, idle_dsq(dsq), 0) {
		struct task_ctx *taskc = task_ctx(p);
		u64 waited = taskc ? wait_of(taskc, now) : 0;

		if (taskc && waited >= patience_ns && may_run_here(p, cpu)) {
			if (!move_here(BPF_FOR_EACH_ITER, p, slice_of(taskc->vm)))
				break;
			taskc->out_of_turn = taskc->overdue = true;
			found_overdue(waited);
			count(OVB_COUNT_IDLE_OVERDUE);
			return true;
		}
		if (++i >= IDLE_SCAN)
			break;
	}
	return false;
}

/* How much longer than it may a queued task has waited that may run on a CPU; 0: nothing. Whoever
 * is urgent comes before all who are not, whatever their patience. */
static u64 overdue_by(struct task_struct *p, s32 cpu, u64 now)
{
	struct task_ctx *taskc = task_ctx(p);
	u64 patience, waited;

	if (!taskc)
		return 0;
	patience =
		some_classes ? ovb_class_patience(patience_ns, class_of(taskc->vm)) : patience_ns;
	waited = wait_of(taskc, now);
	if (waited <= patience || !may_run_here(p, cpu))
		return 0;
	return waited >= URGENT ? URGENT + waited : waited - patience;
}

/* Runs the one among the first tasks of a queue, so many, that has waited for too long by most;
 * with SCX_DSQ_ITER_REV among the last. */
__noinline int run_overdue(u64 dsq, u32 scan, u64 flags, u64 now)
{
	s32 cpu = bpf_get_smp_processor_id();
	struct task_struct *p;
	u64 most = 0;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, flags) {
		u64 by = overdue_by(p, cpu, now);

		if (by > most)
			most = by;
		if (++i >= scan)
			break;
	}
	if (!most)
		return false;
	i = 0;
	bpf_for_each (scx_dsq, p, dsq, flags) {
		struct task_ctx *taskc = task_ctx(p);

		if (taskc && overdue_by(p, cpu, now) >= most) {
			u64 waited = wait_of(taskc, now);

			if (!move_here(BPF_FOR_EACH_ITER, p, slice_of(taskc->vm)))
				break;
			taskc->out_of_turn = taskc->overdue = true;
			found_overdue(waited);
			count(OVB_COUNT_OVERDUE);
			return true;
		}
		if (++i >= scan)
			break;
	}
	return false;
}

/* The queues that a CPU looks into by turns: of its pools here, the first of which stands for its
 * own queue, as no pool has that place; of its LLC; and SCHED_IDLE ones of both. */
enum {
	OVERDUE_CPU,
	OVERDUE_LLC = OVB_MAX_POOLS,
	OVERDUE_IDLE_CPU,
	OVERDUE_IDLE_LLC,
	OVERDUE_QUEUES
};

static bool run_overdue_of(u32 nth, s32 cpu, u32 llc, const struct cpu_ctx *cpuc, u32 scan, u64 now)
{
	u64 flags = cpuc->looks & 1 ? SCX_DSQ_ITER_REV : 0;

	if (nth == OVERDUE_CPU)
		return run_overdue(cpu_dsq(cpu), scan, flags, now);
	if (nth == OVERDUE_LLC)
		return run_overdue(llc_dsq(llc), scan, flags, now);
	if (nth == OVERDUE_IDLE_CPU)
		return run_overdue_sched_idle(cpu_dsq(cpu), URGENT);
	if (nth == OVERDUE_IDLE_LLC)
		return run_overdue_sched_idle(llc_dsq(llc), URGENT);
	return cpuc->pools >> nth & 1 && run_overdue(pool_dsq(nth, llc), scan, flags, now);
}

/* A CPU looks for who has waited for too long so often, ns, and not at every dispatch, unless the
 * one that it found last was urgent. */
#define LOOK_EVERY 100000000

/* So many tasks are looked at from one end of a queue, as walking it holds the CPU; at one look of
 * so many, an odd number, more: somebody may be stuck in the middle. */
#define OVERDUE_SCAN 32
#define LONG_SCAN    512
#define LONG_LOOKS   9

/* At one look of so many, an odd number, a CPU looks into another LLC's queues: tasks of a higher
 * class may have all CPUs there. */
#define FAR_LOOKS 7

/*
 * With shares by weight, one of the least weight beside very many others waits for long, maybe in a
 * section that others wait for, and the kernel's watchdog ends a scheduler under which anything
 * waits for 30 s. Who is overtaken all the time is among the last of its queue. In a crowd, who has
 * just run is: there who has waited for longest is nearer to the head. So either end has its turn.
 * Where there are very many tasks one has always waited for too long: the look begins behind the
 * queue where the last one was found, and if there is none it ends there.
 */
static bool look_for_overdue(s32 cpu, u32 llc, struct cpu_ctx *cpuc)
{
	u64 now = scx_bpf_now();
	u32 i, scan;

	if (!cpuc->urgent && now - cpuc->looked_at < LOOK_EVERY)
		return false;
	cpuc->looks++;
	scan = cpuc->urgent || !(cpuc->looks % LONG_LOOKS) ? LONG_SCAN : OVERDUE_SCAN;
	if (cpuc->urgent)
		cpuc->urgent--;
	cpuc->looked_at = now;
	look_for_raised(cpu, llc);
	/* Not all CPUs into the same at a time; twice into each, as looks begin at either end by
	 * turns. */
	if (nr_llcs > 1 && !(cpuc->looks % FAR_LOOKS))
		llc = (cpuc->looks / (2 * FAR_LOOKS) + (u32)cpu) % nr_llcs;
	bpf_for (i, 0, OVERDUE_QUEUES) {
		/* In memory, as the verifier would follow every value of a variable. */
		u32 nth = cpuc->overdue + 1;

		cpuc->overdue = nth < OVERDUE_QUEUES ? nth : 0;
		if (run_overdue_of(cpuc->overdue, cpu, llc, cpuc, scan, now))
			return true;
	}
	return run_overdue_sched_idle(cpu_dsq(cpu), idle_patience_ns) ||
	       run_overdue_sched_idle(llc_dsq(llc), idle_patience_ns);
}

#endif
