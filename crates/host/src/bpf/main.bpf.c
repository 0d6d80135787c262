/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Overbook's host scheduler: fair between VMs, clever inside one.
 *
 * The problem. A host has more vCPUs than CPUs. A vCPU that holds a lock, or must answer an IPI, is
 * preempted; its siblings spin or halt, and the guest stands still. The hardware notices spins, KVM
 * guesses whom the spinner waits for and calls yield_to(), and there the hint is nearly lost: EEVDF
 * keeps it for one pick, on the sibling's own runqueue.
 *
 * The idea. What is fair is settled between tenants, and not between vCPUs. A tenant is a VM with
 * all that belongs to it, a group of ordinary tasks, or a task of the root group. It has one
 * virtual time for the whole host, ages by its rate down the tree of cpu.weight (tree), and has
 * turns (policy/turn.h). While a CPU serves a VM, it runs whichever of its vCPUs is worth most to
 * it now (policy/tiers.h): its answer has come, it has an interrupt to take, it was preempted at
 * work, or last, spinning. Whose vCPU runs makes no difference to who pays: a spinner's turn goes
 * on with another vCPU, and nobody outside the VM waits longer for that.
 *
 * The terms. Turns, deadlines, the level and the tide are in policy/turn.h.
 *
 * - key: by which a task is queued: its tenant's deadline, and how far the task stands from it
 *   among the members. Once its tenant's turn has ended, it is made anew at its queue's head.
 * - LLC queue: a DSQ per last-level cache, by key; CPU queue: a DSQ per CPU for tasks that can run
 *   nowhere else; and a DSQ per pool, which is a set of CPUs, of a cpuset. A CPU takes the earliest
 *   of all heads. SCHED_IDLE tasks have queues of their own, and tasks whose group has used its
 *   cpu.max are parked in another.
 * - home: the LLC in whose queue a VM's vCPUs wait, if it fits into one (policy/home.h).
 * - class: whether a VM's slices are short, usual or long, and whom its vCPUs preempt as they wake
 *   up (policy/class.h). What it is due does not depend on it.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

#include "state.bpf.h"
#include "pool.bpf.h"
#include "tree.bpf.h"
#include "quota.bpf.h"
#include "vm.bpf.h"
#include "time.bpf.h"
#include "taken.bpf.h"
#include "wake.bpf.h"
#include "choose.bpf.h"
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
		if (taskc)
			prev_cpu = homeward(p, taskc, prev_cpu);
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	/* A task that is not inserted here is enqueued. */
	if (!idle || !taskc || near < 0 || is_throttled(taskc->node))
		return cpu;
	taskc->queue_pool = taskc->pool;
	place(p, taskc, cpu, true);
	count(OVB_COUNT_DIRECT);
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(taskc->vm), SCX_ENQ_PREEMPT);
	return cpu;
}

/* Queues a task by its key. */
static void queue(struct task_struct *p, struct task_ctx *taskc, u64 dsq, u64 enq_flags)
{
	u64 slice = slice_of(taskc->vm);

	taskc->queued_since = scx_bpf_now();
	taskc->dsq = taskc->idle_class ? idle_dsq(dsq) : dsq;
	if (is_throttled(taskc->node) && !taskc->out_of_turn) {
		count(OVB_COUNT_PARKED);
		scx_bpf_dsq_insert(p, PARKED, slice, enq_flags);
	} else if (taskc->idle_class) {
		count(OVB_COUNT_QUEUED_IDLE);
		scx_bpf_dsq_insert(p, taskc->dsq, slice, enq_flags);
	} else {
		count(dsq < OVB_MAX_LLCS ? OVB_COUNT_QUEUED_LLC
		      : is_pool_dsq(dsq) ? OVB_COUNT_QUEUED_POOL
					 : OVB_COUNT_QUEUED_CPU);
		vcpu_queued(taskc);
		scx_bpf_dsq_insert_vtime(p, dsq, slice, taskc->key, enq_flags);
	}
}

void BPF_STRUCT_OPS(overbook_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);
	s32 cpu = scx_bpf_task_cpu(p), idle = -1;
	bool woken = enq_flags & SCX_ENQ_WAKEUP, bound = is_bound(p, cpu);

	if (!taskc) {
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
		return;
	}
	if (!bound)
		cpu = homeward(p, taskc, preferred_cpu(p, cpu));
	else if (!is_preferred(cpu))
		count(OVB_COUNT_OUTSIDE);
	taskc->queue_pool = bound ? cpu_pool(cpu) : taskc->pool;
	place(p, taskc, cpu, woken);
	queue(p, taskc, bound ? cpu_dsq(cpu) : queue_of(taskc, llc_of(cpu)), enq_flags);
	/* After that, for a CPU that becomes idle meanwhile: see update_idle(). */
	if (bound)
		idle = scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : -1;
	else
		idle = limited() ? idle_preferred(p, cpu, 0)
				 : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_PREEMPT);
	else if (woken && !taskc->idle_class)
		preempt_for(p, taskc, cpu, bound);
}

/* A CPU that found no task is idle from here on. A task that was queued in between has not seen
 * that, and has told no CPU. */
void BPF_STRUCT_OPS(overbook_update_idle, s32 cpu, bool idle)
{
	if (idle && somebody_waits(cpu))
		scx_bpf_kick_cpu(cpu, 0);
}

/* Whether the running task may go on, others being queued: none of them goes before it. */
static bool goes_on(struct task_struct *prev, struct task_ctx *prevc, s32 cpu, u64 first)
{
	if (prevc->yielded || prevc->idle_class || is_throttled(prevc->node))
		return false;
	charge(prevc, scx_bpf_now());
	settle();
	prevc->queue_pool = prevc->pool;
	place(prev, prevc, cpu, false);
	return ovb_vtime_before(key_of(prevc), first);
}

void BPF_STRUCT_OPS(overbook_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 llc = llc_of(cpu);
	bool keep = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	struct task_ctx *prevc = keep ? task_ctx(prev) : NULL;

	if (!cpuc)
		return;
	if (!is_preferred(cpu)) {
		run_outside(cpu, prev, prevc, cpuc);
		return;
	}
	if (run_waiter(cpu, llc, cpuc))
		return;
	find_first(cpu, llc, cpuc);
	if (go_on(cpuc, prev))
		return;
	if (cpuc->found) {
		if (prevc && goes_on(prev, prevc, cpu, cpuc->first_key)) {
			count(OVB_COUNT_KEEP);
			keep_running(prev, prevc, cpuc, cpu);
			grant(prevc->tenant);
			return;
		}
		if (balance(llc, cpuc, cpuc->first_key) ||
		    (cpuc->first_vm && run_best(cpuc->first_vm, false)) ||
		    scx_bpf_dsq_move_to_local(cpuc->first_dsq, 0) ||
		    scx_bpf_dsq_move_to_local(llc_dsq(llc), 0))
			return;
	}
	if (steal(llc, false))
		return;
	if (prevc && is_throttled(prevc->node))
		prevc = NULL;
	/* Even a vCPU that spins goes before SCHED_IDLE. */
	if ((!prevc || prevc->idle_class) &&
	    (run_idle_class(cpu_dsq(cpu), 0) || run_idle_class(llc_dsq(llc), 0)))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
	else
		steal(llc, true);
}

bool BPF_STRUCT_OPS(overbook_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc;

	if (to)
		return yield_to_task(from, to);
	fromc = task_ctx(from);
	if (fromc) {
		fromc->yielded = true;
		fromc->gave_up = true;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

void BPF_STRUCT_OPS(overbook_running, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = scx_bpf_now(), since;

	if (!taskc || !cpuc)
		return;
	since = taskc->queued_since;
	taskc->queued_since = 0;
	vcpu_left_queue(taskc, true);
	if (since) {
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);

		if (vcpuc) {
			u32 vm_class = bounded(class_of(taskc->vm), OVB_CLASS_SLOTS);

			vcpuc->stats.queued_ns += now - since;
			if (now - since > vcpuc->stats.longest_ns)
				vcpuc->stats.longest_ns = now - since;
			if (now - since > cpuc->longest[vm_class])
				cpuc->longest[vm_class] = now - since;
		}
		grant(taskc->tenant);
	}
	taskc->running_since = now;
	taskc->resumed_at = now;
	taskc->yielded = false;
	cpuc->vm = taskc->vm;
	cpuc->since = taskc->idle_class ? 0 : now;
	if (!cpuc->inherits)
		cpuc->until = now + slice_of(taskc->vm);
	else if ((s64)(cpuc->until - now) > 0)
		scx_bpf_task_set_slice(p, cpuc->until - now);
	cpuc->inherits = false;
	/* Who comes out of turn says nothing of whose turn it is, and must not be sent back. */
	if (taskc->out_of_turn) {
		taskc->out_of_turn = false;
		cpuc->key = cpuc->level;
		return;
	}
	goes_by_key(taskc, cpuc, cpu);
}

void BPF_STRUCT_OPS(overbook_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cpu_ctx *cpuc = this_cpu_ctx();

	if (!taskc || !cpuc)
		return;
	cpuc->vm = 0;
	/* Nobody's victim until somebody runs here; that may be a task of a higher class. */
	cpuc->key = cpuc->level;
	charge(taskc, scx_bpf_now());
	if (cpuc->debt_ns < 0)
		settle();
	taskc->running_since = 0;
	look_at(p, taskc);
	/* A task that is preempted was at work, as far as is known. */
	if (!taskc->yielded)
		taskc->spun_at = 0;
}

void BPF_STRUCT_OPS(overbook_tick, struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct node_ctx *node;
	u64 later;

	if (!taskc || !cpuc)
		return;
	look_at(p, taskc);
	charge(taskc, scx_bpf_now());
	if (cpuc->debt_ns > 0)
		settle();
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

void BPF_STRUCT_OPS(overbook_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc) {
		taskc = make_task_ctx(p);
		if (!taskc)
			return;
		learn_task(p, taskc);
	}
	/* It may have moved to another group meanwhile. */
	taskc->node = place_of_group(p);
	taskc->generation = 0;
	taskc->counted = taskc->weight;
	find_tenant(taskc);
}

void BPF_STRUCT_OPS(overbook_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc)
		return;
	taskc->queued_since = 0;
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

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_cgroup_init, struct cgroup *cgrp,
			     struct scx_cgroup_init_args *args)
{
	u32 fresh = 0, above = 0, *place;
	struct cgroup *parent;

	if (!cgrp->level || cgrp->level > MAX_DEPTH)
		return 0;
	parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (parent) {
		above = place_of(parent);
		bpf_cgroup_release(parent);
	}
	place = bpf_cgrp_storage_get(&places_of_groups, cgrp, &fresh,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* An earlier load may have left something. Without memory its tasks are the root's. */
	if (!place)
		return 0;
	*place = new_node(above, ovb_weight_from_cgroup(args->weight));
	if (bpf_core_field_exists(args->bw_quota_us))
		limit(*place, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	return 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_exit, struct cgroup *cgrp)
{
	u32 *place = bpf_cgrp_storage_get(&places_of_groups, cgrp, 0, 0);

	if (!place)
		return;
	limit(*place, 0, ~0ull, 0);
	free_node(*place);
	*place = 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u32 place = place_of(cgrp);
	struct node_ctx *node = node_at(place);

	if (!node)
		return;
	node->weight = ovb_weight_from_cgroup(weight);
	recount_above(place);
	/* The weights of vCPUs' groups are those of their VMs. */
	__sync_fetch_and_add(&generation, 1);
}

void BPF_STRUCT_OPS(overbook_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	limit(place_of(cgrp), period_us, quota_us, burst_us);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(overbook_init)
{
	s32 err = init_preferred() ?: scx_bpf_create_dsq(PARKED, -1);
	u32 i;

	if (err)
		return err;
	bpf_for (i, 0, OVB_MAX_NODES / 64)
		limited_nodes[bounded(i, OVB_MAX_NODES / 64)] = 0;
	bpf_for (i, 0, 2 * OVB_MAX_CPUS) {
		pool_at(i)->users = 0;
		pool_at(i)->level = tide;
		pool_at(i)->offset = 0;
	}
	bpf_for (i, 1, OVB_MAX_POOLS) {
		err = scx_bpf_create_dsq(pool_dsq(i), -1);
		if (err)
			return err;
	}
	bpf_for (i, 0, nr_llcs) {
		err = scx_bpf_create_dsq(llc_dsq(i), -1)
			      ?: scx_bpf_create_dsq(idle_dsq(llc_dsq(i)), -1);
		if (err)
			return err;
	}
	bpf_for (i, 0, nr_cpus) {
		struct cpu_ctx *cpuc = cpu_ctx_of(i);

		if (cpuc) {
			cpuc->level = tide;
			cpuc->goes_on = 0;
			cpuc->debt_ns = 0;
			cpuc->pools = 0;
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
	nr_limited = 0;
	UEI_RECORD(uei, ei);
}

/* clang-format off */
SCX_OPS_DEFINE(overbook_ops,
	.select_cpu           = (void *)overbook_select_cpu,
	.enqueue              = (void *)overbook_enqueue,
	.dispatch             = (void *)overbook_dispatch,
	.update_idle          = (void *)overbook_update_idle,
	.yield                = (void *)overbook_yield,
	.running              = (void *)overbook_running,
	.stopping             = (void *)overbook_stopping,
	.tick                 = (void *)overbook_tick,
	.runnable             = (void *)overbook_runnable,
	.quiescent            = (void *)overbook_quiescent,
	.init_task            = (void *)overbook_init_task,
	.exit_task            = (void *)overbook_exit_task,
	.enable               = (void *)overbook_enable,
	.set_weight           = (void *)overbook_set_weight,
	.set_cpumask          = (void *)overbook_set_cpumask,
	.cgroup_init          = (void *)overbook_cgroup_init,
	.cgroup_exit          = (void *)overbook_cgroup_exit,
	.cgroup_set_weight    = (void *)overbook_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)overbook_cgroup_set_bandwidth,
	.init                 = (void *)overbook_init,
	.exit                 = (void *)overbook_exit,
	.flags                = SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE,
	.timeout_ms           = 30000,
	.name                 = "overbook");
/* clang-format on */
