/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual time: where a task stands, and what running costs it.
 */
#ifndef OVERBOOK_PLACE_BPF_H
#define OVERBOOK_PLACE_BPF_H

#include "cgroup.bpf.h"
#include "state.bpf.h"
#include "handoff.h"
#include "vm.bpf.h"
#include "vtime.h"

/*
 * Lag that a task may have gathered while it was runnable, in slices. Waiting is not forgotten
 * within this; a task that was starved for longer (its queue's clock ran away, as other CPUs of
 * its affinity were idle) does not get everything back at once. And a task that ran far ahead while
 * it was alone need not wait until everybody has come as far.
 */
#define LAG_SLICES 64

static u32 llc_of(s32 cpu)
{
	/* A mask and not a test: the compiler tests one copy and indexes with another. */
	return cpu_llc[(u32)cpu & (OVB_MAX_CPUS - 1)];
}

/* Queue of an LLC. */
static u64 llc_dsq(u32 llc)
{
	return llc;
}

/* Queue of tasks that may run on one CPU only. */
static u64 cpu_dsq(s32 cpu)
{
	return OVB_MAX_LLCS + (u32)cpu;
}

/* Queues of SCHED_IDLE tasks, first come, first served: one per LLC, one per CPU. */
#define IDLE_QUEUES (OVB_MAX_LLCS + OVB_MAX_CPUS)

static u64 idle_dsq(u64 dsq)
{
	return IDLE_QUEUES + dsq;
}

static bool is_pinned(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || is_migration_disabled(p);
}

static u64 weighted(const struct task_ctx *taskc, u64 ns)
{
	return ovb_weighted_effective(ns, taskc->effective);
}

/* The virtual time that a task on `cpu` is compared with. */
static u64 clock_of(const struct task_struct *p, s32 cpu)
{
	struct cpu_ctx *cpuc;
	u32 llc = llc_of(cpu);

	/* Tasks that may run anywhere share the LLC's clock; a pool of CPUs may run at its own. */
	if (p->nr_cpus_allowed >= nr_cpus)
		return llc_vtime[llc & (OVB_MAX_LLCS - 1)];
	cpuc = cpu_ctx_of(cpu);
	return cpuc ? cpuc->vtime : 0;
}

/* Preempted inside an RCU read section: the kernel notes it when it switches. (The depth itself
 * would mislead, as this program runs inside such a section of the task that it is asked about.) */
static bool in_rcu_section(const struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_unlock_special) &&
	       p->rcu_read_unlock_special.b.blocked;
}

/* Deadline of the first task in a queue; false if there is none. Not inlined: the compiler would
 * fold the tests of two such pointers into one bitwise operation, which the verifier forbids. */
static __noinline bool first_deadline(u64 dsq, u64 *deadline)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);

	if (!first)
		return false;
	*deadline = first->scx.dsq_vtime;
	return true;
}

/* Brings a task that is about to be queued to its place. Sleeping earns one slice of lag, at most,
 * against who waits; waiting earns what it earned. */
static void place(struct task_struct *p, struct task_ctx *taskc, s32 cpu, bool woken)
{
	u64 now = clock_of(p, cpu), since = now, first, lag, floor, ceiling;

	taskc->effective = effective_weight(p, taskc);
	lag = weighted(taskc, slice_ns);
	/* Who ran while nobody waited may have carried the clock ahead of those who wait now, and a
	 * task that wakes up would wait until they have come as far. */
	if (woken && first_deadline(llc_dsq(llc_of(cpu)), &first) && ovb_vtime_before(first, now))
		since = first;
	floor = now - lag * LAG_SLICES;
	if (woken && ovb_vtime_before(floor, since - lag))
		floor = since - lag;
	if (ovb_vtime_before(taskc->vtime, floor))
		taskc->vtime = floor;
	ceiling = now + lag * LAG_SLICES;
	if (ovb_vtime_before(ceiling, taskc->vtime))
		taskc->vtime = ceiling;
	taskc->deadline = taskc->vtime + lag;
	if (taskc->gave_up)
		taskc->deadline += lag;
	taskc->gave_up = false;
	/* Of little weight it would wait there for long, and all who wait for a grace period with
	 * it: the kernel complained of stalls. It goes before others until it is out. */
	taskc->out_of_turn = ovb_vtime_before(now, taskc->deadline) && in_rcu_section(p);
	if (taskc->out_of_turn) {
		taskc->deadline = now;
		count(OVB_COUNT_IN_RCU);
	}
}

/* Gives a donor back what was not used of its grant. Queued or running meanwhile: the deadline by
 * which it is queued stays as it was. */
static void refund(u32 pid, u64 ns)
{
	struct task_struct *donor;
	struct task_ctx *donorc;

	if (!ns)
		return;
	donor = bpf_task_from_pid(pid);
	if (!donor)
		return;
	donorc = task_ctx(donor);
	if (donorc)
		__sync_fetch_and_sub(&donorc->vtime, weighted(donorc, ns));
	bpf_task_release(donor);
}

/* Undoes a grant that was not used: the nomination came to nothing, or somebody else nominates. */
static void take_back(struct task_ctx *toc)
{
	u64 grant = toc->grant_ns;

	toc->grant_ns = 0;
	refund(toc->donor, grant);
}

/* Charges what the present turn has used, and settles its grant. */
static void charge(struct task_struct *p, struct task_ctx *taskc, u64 now)
{
	struct ovb_handoff_bill bill;
	u64 used;

	if (!taskc->running_since)
		return;
	used = now - taskc->running_since;
	taskc->running_since = now;
	ovb_handoff_settle(taskc->grant_ns, used, &bill);
	__sync_fetch_and_add(&taskc->vtime, weighted(taskc, bill.own));
	if (taskc->vm) {
		struct ovb_vm_stats *stats = vm_stats(taskc->vm);
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);

		if (stats) {
			stats->run_ns += used;
			stats->granted_ns += bill.donor;
		}
		if (vcpuc)
			vcpuc->stats.run_ns += used;
	}
	taskc->grant_ns = 0;
	refund(taskc->donor, bill.refund);
}

#endif
