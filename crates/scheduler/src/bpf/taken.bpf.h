/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CPUs that a higher class takes (real-time, deadline): what had been moved to such a CPU, and has
 * not run yet, goes back to the queues, where other CPUs find it. Kernels from 7.1 on do so
 * themselves (SCX_OPS_ALWAYS_ENQ_IMMED). Those before 6.19 allow it only in a callback, which later
 * ones deprecate in favour of looking at the switch.
 */
#ifndef OVERBOOK_TAKEN_BPF_H
#define OVERBOOK_TAKEN_BPF_H

#include <scx/common.bpf.h>

/* Priorities below are those of higher classes (include/linux/sched/prio.h). */
#define MAX_RT_PRIO 100

void BPF_STRUCT_OPS(overbook_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	scx_bpf_reenqueue_local();
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(cpu_taken, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	if (next->prio < MAX_RT_PRIO)
		scx_bpf_reenqueue_local_from_anywhere();
	return 0;
}

#endif
