/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preferred CPUs: a guest whose host cannot serve all its CPUs uses fewer. Tasks are
 * woken, queued and picked on preferred CPUs only, and what runs on a CPU that loses preference is
 * moved. Affinity is never changed: a task that may run on no preferred CPU, and one that may run
 * on a single CPU, such as per-CPU kernel threads, is queued on its own CPU, and runs there.
 */
#ifndef OVERBOOK_PREFER_BPF_H
#define OVERBOOK_PREFER_BPF_H

#include "state.bpf.h"

/* The preferred CPUs; all until the loader says otherwise. */
private(OVERBOOK) struct bpf_cpumask __kptr *preferred;
/* Preferred CPUs of every LLC, and whether any CPU is not preferred. */
u32 llc_preferred[OVB_MAX_LLCS];
volatile u32 some_not_preferred;
/* What the loader asks for: bits of CPUs. */
u64 wanted_cpus[OVB_MAX_CPUS / 64];

static bool packs(void)
{
	return may_prefer && some_not_preferred;
}

static bool is_preferred(s32 cpu)
{
	struct bpf_cpumask *mask = preferred;

	return !packs() || !mask || bpf_cpumask_test_cpu((u32)cpu, cast_mask(mask));
}

/* A preferred CPU for a task on `cpu`: this one if it is, else one of its affinity, near if there
 * is one; −1 if its affinity has none. */
static s32 preferred_cpu(const struct task_struct *p, s32 cpu)
{
	struct bpf_cpumask *mask = preferred;
	s32 other;

	if (!packs() || !mask || is_preferred(cpu))
		return cpu;
	other = bpf_cpumask_any_and_distribute(p->cpus_ptr, cast_mask(mask));
	return other < nr_cpus ? other : -1;
}

/* Whether a task must be queued on its own CPU; `near` is its preferred_cpu(). */
static bool must_stay(const struct task_struct *p, s32 near)
{
	return p->nr_cpus_allowed == 1 || is_migration_disabled(p) || near < 0;
}

/* The same of a task on `cpu`. */
static bool is_bound(const struct task_struct *p, s32 cpu)
{
	return must_stay(p, preferred_cpu(p, cpu));
}

/* An idle CPU for a task that may run on preferred ones, claimed; negative if there is none. */
static s32 idle_preferred(struct task_struct *p, s32 cpu, u64 wake_flags)
{
	struct bpf_cpumask *mask = preferred;

	return mask ? scx_bpf_select_cpu_and(p, cpu, wake_flags, cast_mask(mask), 0) : -1;
}

static bool is_wanted(u32 cpu)
{
	return wanted_cpus[bounded(cpu / 64, OVB_MAX_CPUS / 64)] >> (cpu & 63) & 1;
}

/* Set the preferred CPUs. Kick those that lose preference, so that they give up what they run, and
 * those that regain it and idle: tasks may wait that nobody has told them of. */
SEC("syscall")
int overbook_prefer(void *ctx)
{
	struct bpf_cpumask *mask;
	u32 i;

	bpf_rcu_read_lock();
	mask = preferred;
	if (mask) {
		/* The new ones first: there is always one. */
		bpf_for (i, 0, nr_cpus)
			if (is_wanted(i) && !bpf_cpumask_test_and_set_cpu(i, mask))
				scx_bpf_kick_cpu(i, SCX_KICK_IDLE);
		bpf_for (i, 0, nr_cpus)
			if (!is_wanted(i) && bpf_cpumask_test_and_clear_cpu(i, mask))
				scx_bpf_kick_cpu(i, SCX_KICK_PREEMPT);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* All CPUs at first. */
static s32 init_preferred(void)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -ENOMEM;
	bpf_cpumask_setall(mask);
	mask = bpf_kptr_xchg(&preferred, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

#endif
