/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A task goes on as it is due before all who wait for its CPU. If the first of those may run on few
 * CPUs, and the task on others too, it may take its turn on one of these: where a CPU idles, or
 * runs somebody who can wait much longer.
 */
#ifndef OVERBOOK_SPREAD_BPF_H
#define OVERBOOK_SPREAD_BPF_H

#include "dispatch.bpf.h"
#include "prefer.bpf.h"
#include "time.bpf.h"

/* Whether any CPU idles that a task may run on. */
static bool any_idle_for(const struct task_struct *p)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool any = bpf_cpumask_intersects(idle, p->cpus_ptr);

	scx_bpf_put_idle_cpumask(idle);
	return any;
}

/* Finds the CPU with the latest key among those of an LLC, or of a small host, that a task may run
 * on, if that is later than `than`; −1 if there is none. */
__noinline s32 latest_elsewhere(struct task_struct *p __arg_trusted, s32 from, u64 than)
{
	struct cpu_ctx *self = this_cpu_ctx(), *cpuc;
	u32 next = (u32)from, i;

	if (!self)
		return -1;
	self->victim = -1;
	self->victim_key = than;
	bpf_for (i, 0, OVB_VICTIMS) {
		u32 cpu = next;

		if (i && cpu == (u32)from)
			break;
		next = next_victim[bounded(cpu, OVB_MAX_CPUS)];
		cpuc = cpu_ctx_of(cpu);
		if (!cpuc || cpuc == self || !cpuc->since ||
		    !bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ||
		    !ovb_vtime_before(self->victim_key, cpuc->key))
			continue;
		self->victim = (s32)cpu;
		self->victim_key = cpuc->key;
	}
	return self->victim;
}

/* Whether a task that is due leaves its CPU to the first who waits there, and goes elsewhere. */
static bool goes_elsewhere(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc,
			   u32 llc)
{
	u64 now = scx_bpf_now(), later;
	s32 cpu;

	/* Who waits for all CPUs of an LLC, or for those that the task may use, is found by the
	 * others, too; a guest knows no sets. */
	if (cpuc->first_dsq < OVB_MAX_LLCS || cpuc->first_dsq == queue_of(prevc, llc) || packs())
		return false;
	if (any_idle_for(prev))
		return true;
	if (now - cpuc->spread_at < BALANCE_EVERY * slice_ns)
		return false;
	cpuc->spread_at = now;
	cpuc->spread_to = llc_after(cpuc->spread_to);
	later = BALANCE_SLICES * long_slice(tenant_of(prevc, node_at(prevc->tenant)));
	cpu = latest_elsewhere(prev, llc_first[bounded(cpuc->spread_to, OVB_MAX_LLCS)],
			       cpuc->first_key + later);
	if (cpu < 0)
		return false;
	count(OVB_COUNT_SPREAD);
	prevc->sent_to = (u16)(cpu + 1);
	return true;
}

#endif
