/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Overbook's host scheduler: directed yield that sticks, across runqueues.
 *
 * The problem. A vCPU that spins on a preempted sibling burns its turn for nothing. The hardware
 * notices, KVM picks a sibling and calls yield_to(), and there the hint is nearly lost: EEVDF keeps
 * it for one pick, on the sibling's own runqueue, and only if the sibling is owed time. Other
 * sched_ext schedulers drop it.
 *
 * The idea. vCPUs of an LLC wait in one queue, ordered by virtual deadline. Wherever the nominated
 * sibling was queued, the yielding CPU can take it out of the queue and run it at once, for what is
 * left of the yielder's turn and mostly on the yielder's account (policy/handoff.h). The VM as a
 * whole gains no time, and nobody else waits longer.
 *
 * The terms.
 *   turn      what a task may run before others are asked again; slice_ns unless it was granted.
 *   vtime     time that a task has run, weighted (policy/weight.h).
 *   deadline  vtime plus a slice, weighted, and one more for who gave up a turn: the order of the
 *             queues.
 *   clock     the vtime that tasks are compared with: of an LLC, or of a CPU for tasks that may not
 *             run everywhere.
 *   grant     ns that somebody else pays.
 *   LLC queue a DSQ per last-level cache; CPU queue, a DSQ per CPU for tasks that can run nowhere
 *             else. A CPU compares the heads of both. SCHED_IDLE tasks have queues of their own,
 *             which are served when these are empty, or when somebody has waited for too long.
 *
 * A chain of yields on one CPU ends with the turn that it began in, plus one least grant; then the
 * queues are asked, and waiters outside the VM have their turn.
 *
 * A yield never earns time: virtual times move backwards only by refunds of what was prepaid.
 * place() bounds lag: to one slice after a sleep, to LAG_SLICES after a wait.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

#include "state.bpf.h"

#include "published/forfeit.h"
#include "cgroup.bpf.h"
#include "place.bpf.h"
#include "taken.bpf.h"
#include "wake.bpf.h"
#include "yield.bpf.h"
#include "dispatch.bpf.h"

s32 BPF_STRUCT_OPS(overbook_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	bool idle = false;
	s32 cpu, near = preferred_cpu(p, prev_cpu);

	if (limited() && near >= 0) {
		prev_cpu = near;
		cpu = idle_preferred(p, prev_cpu, wake_flags);
		idle = cpu >= 0;
		if (!idle)
			cpu = prev_cpu;
	} else {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	if (!taskc)
		return cpu;
	if (idle) {
		place(p, taskc, cpu, true);
		taskc->turn_ns = slice_ns;
		count(OVB_COUNT_DIRECT);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
		return cpu;
	}
	if (taskc->idle_class || near < 0)
		return cpu;
	cpu = claim_soft_idle(p, prev_cpu);
	place(p, taskc, cpu < 0 ? prev_cpu : cpu, true);
	if (cpu < 0) {
		/* Past the queue, as it would be taken from there at once. */
		cpu = latest_cpu(p, taskc, prev_cpu);
		if (cpu < 0 || !goes_first(taskc, cpu))
			return prev_cpu;
		count(OVB_COUNT_PREEMPT);
	} else {
		count(OVB_COUNT_DIRECT);
	}
	taskc->turn_ns = slice_ns;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, SCX_ENQ_PREEMPT);
	return cpu;
}

void BPF_STRUCT_OPS(overbook_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p);
	bool woken = enq_flags & SCX_ENQ_WAKEUP, bound = is_bound(p, cpu);
	u64 dsq;

	if (!taskc) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		return;
	}
	if (!bound)
		cpu = preferred_cpu(p, cpu);
	else if (limited() && !is_preferred(cpu))
		count(OVB_COUNT_OUTSIDE);
	place(p, taskc, cpu, woken);
	taskc->turn_ns = slice_ns;
	taskc->queued_since = scx_bpf_now();
	dsq = bound ? cpu_dsq(cpu) : llc_dsq(llc_of(cpu));
	if (taskc->idle_class) {
		count(OVB_COUNT_QUEUED_IDLE);
		taskc->dsq = idle_dsq(dsq);
		scx_bpf_dsq_insert(p, idle_dsq(dsq), slice_ns, enq_flags);
	} else {
		count(bound ? OVB_COUNT_QUEUED_CPU : OVB_COUNT_QUEUED_LLC);
		taskc->dsq = dsq;
		vcpu_queued(taskc);
		scx_bpf_dsq_insert_vtime(p, dsq, slice_ns, taskc->deadline, enq_flags);
	}
	notify(p, taskc, cpu, woken, bound);
}

void BPF_STRUCT_OPS(overbook_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 llc = llc_of(cpu);
	u64 shared, own;
	bool has_shared, has_own, keep = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	struct task_ctx *prevc = keep ? task_ctx(prev) : NULL;

	if (!cpuc)
		return;
	if (leaves_queue(cpu, llc)) {
		run_outside(cpu, prev, prevc, cpuc);
		return;
	}
	if (run_waiter(cpu, llc, cpuc))
		return;
	if (run_nominee(cpu, cpuc, prev))
		return;
	has_shared = first_deadline(llc_dsq(llc), &shared);
	/* Empty, mostly, and that is cheaper to ask. */
	has_own = scx_bpf_dsq_nr_queued(cpu_dsq(cpu)) > 0 && first_deadline(cpu_dsq(cpu), &own);
	if (prevc && !prevc->yielded && !prevc->idle_class && (has_shared || has_own)) {
		u64 first = !has_own			    ? shared
			    : !has_shared		    ? own
			    : ovb_vtime_before(shared, own) ? shared
							    : own;

		charge(prev, prevc, scx_bpf_now());
		if (ovb_vtime_before(prevc->vtime + weighted(prevc, slice_ns), first)) {
			count(OVB_COUNT_KEEP);
			keep_running(prev, prevc, cpuc, cpu);
			return;
		}
	}
	if (has_shared && (!has_own || ovb_vtime_before(shared, own)) &&
	    scx_bpf_dsq_move_to_local(llc_dsq(llc), 0))
		return;
	if (has_own && scx_bpf_dsq_move_to_local(cpu_dsq(cpu), 0))
		return;
	if (has_shared && scx_bpf_dsq_move_to_local(llc_dsq(llc), 0))
		return;
	if (steal(llc))
		return;
	/* Even a vCPU that spins goes before SCHED_IDLE. */
	if (prevc && !prevc->idle_class) {
		keep_running(prev, prevc, cpuc, cpu);
		return;
	}
	if (run_idle_class(cpu_dsq(cpu), 0) || run_idle_class(llc_dsq(llc), 0))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
}

bool BPF_STRUCT_OPS(overbook_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc;
	struct ovb_place at;

	if (to)
		return yield_to_task(from, to);
	count(OVB_COUNT_PLAIN_YIELD);
	fromc = task_ctx(from);
	if (fromc) {
		s32 cpu = scx_bpf_task_cpu(from);

		charge(from, fromc, scx_bpf_now());
		at.vtime = fromc->vtime;
		at.deadline = fromc->deadline;
		ovb_forfeit(&at, clock_of(from, cpu), weighted(fromc, slice_ns));
		fromc->vtime = at.vtime;
		fromc->yielded = true;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(overbook_running, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = scx_bpf_now();
	bool out_of_turn;

	if (!taskc || !cpuc)
		return;
	if (taskc->vm && taskc->queued_since) {
		struct ovb_vm_stats *stats = vm_stats(taskc->vm);
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);

		if (stats)
			stats->queued_ns += now - taskc->queued_since;
		if (vcpuc)
			vcpuc->stats.queued_ns += now - taskc->queued_since;
	}
	vcpu_left_queue(taskc, true);
	taskc->queued_since = 0;
	taskc->running_since = now;
	taskc->resumed_at = now;
	taskc->yielded = false;
	cpuc->vm = taskc->vm;
	cpuc->since = taskc->idle_class ? 0 : now;
	out_of_turn = taskc->out_of_turn;
	taskc->out_of_turn = false;
	/* Who runs on a sibling's account can wait no better than that one; who came out of
	 * turn must not be sent back at once. */
	if (out_of_turn)
		cpuc->deadline = cpuc->vtime;
	else if (!taskc->grant_ns)
		cpuc->deadline = taskc->deadline;
	mark_soft_idle(cpu, taskc->idle_class);
	if (taskc->idle_class)
		return;
	/* Who runs on somebody else's account, or out of turn, says nothing about whose turn it is.
	 */
	if (taskc->grant_ns || out_of_turn)
		return;
	taskc->overtime = false;
	advance_clocks(p, taskc, cpuc, cpu);
}

void BPF_STRUCT_OPS(overbook_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u64 now = scx_bpf_now();

	if (!taskc)
		return;
	if (cpuc)
		cpuc->vm = 0;
	charge(p, taskc, now);
	taskc->running_since = 0;
	look_at(p, taskc);
	/* Who loses the CPU against his will was at work, as far as anybody knows. */
	if (!taskc->yielded)
		taskc->spun_at = 0;
	if (taskc->idle_class)
		mark_soft_idle(scx_bpf_task_cpu(p), false);
}

/* Runnable tasks count for the shares of their groups. */
static void group_member(struct task_struct *p, bool active)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cgroup *leaf;

	if (!has_groups || !taskc)
		return;
	if (active)
		taskc->counted = own_weight(p, taskc->idle_class);
	else if (!taskc->counted)
		return;
	leaf = scx_bpf_task_cgroup(p);
	if (!leaf)
		return;
	set_active(leaf, taskc->counted, active);
	if (!active)
		taskc->counted = 0;
	bpf_cgroup_release(leaf);
}

void BPF_STRUCT_OPS(overbook_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc) {
		taskc = make_task_ctx(p);
		if (taskc)
			taskc->vtime = clock_of(p, scx_bpf_task_cpu(p));
	}
	if (taskc)
		vcpu_wants(taskc, true);
	group_member(p, true);
}

void BPF_STRUCT_OPS(overbook_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *taskc = task_ctx(p);

	if (taskc) {
		taskc->queued_since = 0;
		take_back(taskc);
		vcpu_left_queue(taskc, false);
		vcpu_wants(taskc, false);
	}
	group_member(p, false);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_ctx *taskc = make_task_ctx(p);

	/* An earlier load may have left something. */
	if (taskc)
		*taskc = fresh_task_ctx();
	return 0;
}

void BPF_STRUCT_OPS(overbook_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_ctx *taskc = task_ctx(p);

	if (taskc)
		vcpu_gone(p, taskc);
}

void BPF_STRUCT_OPS(overbook_enable, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc)
		return;
	taskc->idle_class = p->policy == SCHED_IDLE;
	taskc->vtime = clock_of(p, scx_bpf_task_cpu(p));
}

void BPF_STRUCT_OPS(overbook_set_weight, struct task_struct *p, u32 weight)
{
	struct task_ctx *taskc = task_ctx(p);
	bool idle_class = p->policy == SCHED_IDLE;

	if (!taskc)
		return;
	/* What it has run as the least of all is not held against it later. */
	if (taskc->idle_class && !idle_class)
		taskc->vtime = clock_of(p, scx_bpf_task_cpu(p));
	taskc->idle_class = idle_class;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	struct group_ctx fresh = {}, *group;

	fresh.weight = ovb_weight_from_cgroup(args->weight);
	group = bpf_cgrp_storage_get(&group_ctxs, cgrp, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* An earlier load may have left something. Without memory: see group_ctx(). */
	if (group)
		*group = fresh;
	return 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	struct group_ctx *group = group_ctx(cgrp);

	/* What the group above has counted of it changes when it next becomes active. */
	if (group)
		group->weight = ovb_weight_from_cgroup(weight);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_init)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	u32 i;
	s32 err;

	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(&soft_idle, mask);
	if (mask)
		bpf_cpumask_release(mask);
	err = init_preferred();
	if (err)
		return err;
	bpf_for (i, 0, nr_llcs) {
		if (i >= OVB_MAX_LLCS)
			break;
		llc_vtime[i] = VTIME_START;
		err = scx_bpf_create_dsq(llc_dsq(i), -1)
			      ?: scx_bpf_create_dsq(idle_dsq(llc_dsq(i)), -1);
		if (err)
			return err;
	}
	bpf_for (i, 0, nr_cpus) {
		struct cpu_ctx *cpuc = cpu_ctx_of(i);

		if (cpuc) {
			cpuc->vtime = VTIME_START;
			cpuc->nominee = 0;
		}
		err = scx_bpf_create_dsq(cpu_dsq(i), -1)
			      ?: scx_bpf_create_dsq(idle_dsq(cpu_dsq(i)), -1);
		if (err)
			return err;
	}
	return 0;
}

void BPF_STRUCT_OPS(overbook_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(overbook_ops, .select_cpu = (void *)overbook_select_cpu,
	       .enqueue = (void *)overbook_enqueue, .dispatch = (void *)overbook_dispatch,
	       .yield = (void *)overbook_yield, .running = (void *)overbook_running,
	       .stopping = (void *)overbook_stopping, .runnable = (void *)overbook_runnable,
	       .quiescent = (void *)overbook_quiescent, .init_task = (void *)overbook_init_task,
	       .exit_task = (void *)overbook_exit_task, .enable = (void *)overbook_enable,
	       .set_weight = (void *)overbook_set_weight,
	       .cgroup_init = (void *)overbook_cgroup_init,
	       .cgroup_set_weight = (void *)overbook_cgroup_set_weight,
	       .init = (void *)overbook_init, .exit = (void *)overbook_exit, .timeout_ms = 30000,
	       .name = "overbook");
