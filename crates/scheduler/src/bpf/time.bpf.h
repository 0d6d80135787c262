/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Time of tenants (policy/turn.h): what running costs them, where they stand, and by which key
 * their tasks are queued.
 */
#ifndef OVERBOOK_TIME_BPF_H
#define OVERBOOK_TIME_BPF_H

#include "pool.bpf.h"
#include "quota.bpf.h"
#include "tenant.bpf.h"
#include "vtime.h"

/* A CPU's clock, no further behind the tide than anybody may be. */
static u64 near_tide(u64 clock)
{
	return ovb_vtime_max(clock, tide - OVB_LAG_TURNS * slice_ns);
}

/* What tasks that come to a CPU are compared with. */
static u64 level_of(s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);

	return near_tide(cpuc ? cpuc->level : tide);
}

/* What those who were no rivals are compared with, as they slept or are new: who is kept waiting.
 */
static u64 base_of(s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);

	return near_tide(cpuc ? cpuc->base : tide);
}

static u64 aged_slice(const struct tenant *tenant)
{
	return ovb_age(tenant->rate, slice_ns);
}

/* The virtual time of a slice of a tenant's, or of weight 1024 if that is longer: what is less does
 * not matter to either. */
static u64 long_slice(const struct tenant *tenant)
{
	return ovb_vtime_max(slice_ns, aged_slice(tenant));
}

/* A slice of a tenant's own class. */
static u64 slice_of_node(const struct node_ctx *node)
{
	return some_classes && node ? slice_of(node->vm) : slice_ns;
}

/* How far a tenant may rightly be from the level: as it gets by running on all its CPUs at once. */
static u64 aged_reach(const struct tenant *tenant, const struct node_ctx *node, s32 cpu, u64 slice)
{
	u32 cpus = nr_cpus;

	/* A VM that has a home is at work there, but for what idle CPUs of other LLCs take. */
	if (nr_llcs > 1 && node && node->vm && vm_homes[bounded(node->vm - 1, OVB_MAX_VMS)])
		cpus = llc_cpus[bounded(llc_of(cpu), OVB_MAX_LLCS)];
	return ovb_age(tenant->rate, ovb_reach(slice, node ? node->nr_members : 1, cpus));
}

/* Books time of a node, or gives back what was booked too much; a turn that is over makes room for
 * the next. */
__noinline int book(u32 place, s64 ns)
{
	struct node_ctx *node = node_at(place);
	u64 deadline, vtime;

	if (!node)
		return 0;
	if (ns < 0) {
		__sync_fetch_and_sub(&node->time.vtime, ovb_age(node->time.rate, (u64)-ns));
		return 0;
	}
	reweigh(place);
	vtime = ovb_age(node->time.rate, (u64)ns);
	vtime += __sync_fetch_and_add(&node->time.vtime, vtime);
	deadline = node->time.deadline;
	if (!ovb_vtime_before(vtime, deadline))
		__sync_val_compare_and_swap(&node->time.deadline, deadline,
					    vtime + ovb_age(node->time.rate, slice_of_node(node)));
	return 0;
}

/* Books what is owed for time on a CPU, or gives back what was paid too much. */
__noinline int settle(s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	s64 ns;

	if (!cpuc)
		return 0;
	ns = cpuc->debt_ns;
	cpuc->debt_ns = 0;
	return ns ? book(cpuc->debtor, ns) : 0;
}

/* Somebody of a tenant begins a slice on a CPU, and has waited, or goes on while others do. CPUs
 * that pick at about the same time would all pick the same tenant, so the slice is booked at once,
 * and the next CPU picks another.
 */
__noinline int grant(u32 tenant, s32 cpu)
{
	struct node_ctx *node = node_at(tenant);
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	s64 slice;

	if (!node || !cpuc)
		return 0;
	slice = (s64)slice_of_node(node);
	if (cpuc->debtor != tenant) {
		settle(cpu);
		cpuc->debtor = tenant;
	}
	cpuc->debt_ns -= slice;
	return book(tenant, slice);
}

/* Charge what the task has run on its CPU. What a group owes is booked now and then, so that CPUs
 * that serve it do not all write to it at every switch. */
__noinline int charge(struct task_ctx *taskc __arg_nonnull, s32 cpu, u64 now)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	struct vcpu_ctx *vcpuc;
	u64 used;

	if (!taskc->running_since || !cpuc)
		return 0;
	used = now - taskc->running_since;
	/* By another CPU's clock, which may be behind. */
	if ((s64)used < 0)
		return 0;
	taskc->running_since = now;
	taskc->time += ovb_weighted(used, taskc->weight);
	if (nr_limited)
		spend(taskc->node, used);
	if (!taskc->tenant) {
		taskc->own.vtime += ovb_age(taskc->own.rate, used);
	} else if (!taskc->sched_idle) {
		/* What SCHED_IDLE has is what nobody else wants, but for a rescue now and then, and
		 * no part of its group's share.
		 */
		if (cpuc->debtor != taskc->tenant) {
			settle(cpu);
			cpuc->debtor = taskc->tenant;
		}
		cpuc->debt_ns += (s64)used;
		if (cpuc->debt_ns >= (s64)(slice_ns / 8))
			settle(cpu);
	}
	vcpuc = taskc->vcpu ? own_vcpu_ctx(taskc) : NULL;
	if (vcpuc) {
		vcpuc->stats.run_ns += used;
		if (nr_llcs > 1 && vcpuc->stats.llcs != llcs_of(taskc->pool))
			vcpuc->stats.llcs = llcs_of(taskc->pool);
	}
	return 0;
}

/* Of a CPU's level and the tide, what is ahead. */
static u64 foremost(s32 cpu)
{
	return ovb_vtime_max(level_of(cpu), tide);
}

/* The latest that somebody of a tenant, of a weight if it is a member, may stand by a level. By a
 * normal slice at least, or all keys of a latency VM would end there. */
static u64 latest_of(const struct tenant *tenant, const struct node_ctx *node, u32 weight,
		     u64 level)
{
	u64 slice = ovb_vtime_max(slice_ns, slice_of_node(node));
	u32 between = 1;

	if (node)
		between = ovb_between(node->nr_members, weight_of_tasks(node), weight);
	return ovb_latest(level, ovb_age(tenant->rate, slice), between);
}

/* A tenant that weighs more than it did forgets what it owes for the time when it weighed less, as
 * far as it could not owe it by its new weight; `offset` is its pool's. */
__noinline int forgive(u32 place, s32 cpu, u64 offset)
{
	struct node_ctx *node = node_at(place);
	u64 latest;

	if (!node || node->asked == raised || !weighs_more(node))
		return 0;
	reweigh(place);
	latest = latest_of(&node->time, node, 0, foremost(cpu) - offset);
	if (ovb_vtime_before(latest, node->time.vtime)) {
		node->time.vtime = latest;
		node->time.deadline = latest;
	}
	return 0;
}

/* The pool whose time a tenant's is. A VM's is that of its vCPUs: its other threads may run
 * elsewhere, where time has gone another way. */
static u32 frame_of(const struct task_ctx *taskc, const struct node_ctx *node)
{
	bool follows = node && node->vm && node->vcpu_pool && !taskc->vcpu;

	return follows ? node->vcpu_pool - 1 : taskc->pool;
}

/* What a tenant is compared with that comes to a CPU of this level: the CPU's clocks, or those of
 * the pool whose time is the tenant's, if it comes elsewhere (`follows`). */
struct frame {
	u64 level;
	u64 base;
	u64 offset;
	bool follows;
};

static struct frame frame_at(u32 pool, const struct task_ctx *taskc, s32 cpu, u64 level)
{
	const struct pool_ctx *at = pool_at(pool);
	/* Where its vCPUs are levels may be lower than here. */
	bool follows = pool != taskc->pool;

	return (struct frame){
		.level = follows ? at->level : level,
		.base = follows ? at->level : base_of(cpu),
		.offset = at->offset,
		.follows = follows,
	};
}

/* Brings a tenant that stands too far behind nearer to the level, or to the base if it slept, and
 * gives it a turn if it has none. */
static void bring_near(struct task_ctx *taskc, struct node_ctx *node, s32 cpu,
		       const struct frame *frame, bool woken)
{
	struct tenant *tenant = tenant_of(taskc, node);
	/* Noted when the last went: by now others may be counted, who wake up on other CPUs. Read
	 * before the time of which the first of them takes off what is too much. */
	bool slept = (woken || taskc->fresh) && (!node || node->slept);
	u64 turn, vtime, deadline, reach, floor;

	barrier();
	turn = aged_slice(tenant);
	vtime = tenant->vtime;
	deadline = tenant->deadline;
	/* What it keeps of its lag does not depend on its class, how long its turn is does. */
	reach = aged_reach(tenant, node, cpu, slice_ns);
	floor = ovb_earliest(slept ? frame->base : frame->level, turn, reach, slept) -
		frame->offset;
	if (some_classes)
		turn = ovb_age(tenant->rate, slice_of_node(node));

	/* In its pool time may stand far behind the tide. */
	if (node ? node->fresh : taskc->fresh) {
		vtime = tenant->vtime = frame->base - frame->offset;
		if (node) {
			node->fresh = false;
			deadline = tenant->deadline = vtime;
		}
	}
	if (!node && taskc->carried)
		vtime = tenant->vtime = frame->level - frame->offset + (u64)taskc->carried;
	taskc->carried = 0;
	/* Where its vCPUs are is their matter, while any is at work. */
	if ((slept || !frame->follows) && ovb_vtime_before(vtime, floor)) {
		__sync_val_compare_and_swap(&tenant->vtime, vtime, floor);
		vtime = floor;
	}
	/* Whoever comes first, be it that it was only changed; who is SCHED_IDLE is no member. */
	if (node && node->slept && !taskc->sched_idle)
		node->slept = 0;
	if (ovb_turn_over(vtime, deadline, turn))
		__sync_val_compare_and_swap(&tenant->deadline, deadline, vtime + turn);
}

/* How far a member stands from its tenant's deadline, in the tenant's virtual time. */
static s64 bias_of(struct task_ctx *taskc, struct tenant *tenant, struct node_ctx *node, bool woken)
{
	u64 slice = ovb_weighted(slice_ns, taskc->weight), clock = node->clock;
	s64 bias;

	taskc->time = taskc->fresh ? clock : ovb_member_time(taskc->time, clock, slice, woken);
	/* Whatever else a VM has, QEMU's threads or vhost, goes before its vCPUs. */
	if (node->vm && !taskc->vm)
		return -(s64)aged_slice(tenant);
	bias = ovb_member_bias((s64)(taskc->time - clock), slice);
	return bias < 0 ? -(s64)ovb_age(tenant->rate, (u64)-bias)
			: (s64)ovb_age(tenant->rate, (u64)bias);
}

/* How far the first of a pool's queue is behind the tide; so are those behind it, at most. Of its
 * queues in all LLCs, the least. ~0: nobody waits. */
__noinline u64 first_is_behind(u32 pool)
{
	u64 offset = pool_at(pool)->offset, least = ~0ull;
	u32 i;

	bpf_for (i, 0, pool < OVB_MAX_POOLS ? nr_llcs : 1) {
		u64 dsq = pool >= OVB_MAX_CPUS ? cpu_dsq((s32)(pool - OVB_MAX_CPUS))
					       : shared_dsq(pool, i);
		struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
		u64 behind = first ? ovb_vtime_gap(tide, first->scx.dsq_vtime + offset) : ~0ull;

		if (behind < least)
			least = behind;
	}
	return least;
}

/* A pool that is further behind the tide than anybody may be owed is brought nearer, by its
 * offset: nobody in it owes more for that. But not those who wait there for their turn, after what
 * they have had: where others share its CPUs, it would never come. */
static void lift(u32 place, const struct tenant *tenant)
{
	struct pool_ctx *pool = pool_at(place);
	u64 most, level = pool->level, behind, first;

	/* Mostly not even by short slices. */
	if (!ovb_lift(level, tide, OVB_LAG_TURNS * slice_ns))
		return;
	most = OVB_LAG_TURNS * long_slice(tenant);
	behind = ovb_lift(level, tide, most);
	if (!behind)
		return;
	first = first_is_behind(place);
	/* Those of pool 0 may run where the tide is, and stay as far behind as anybody may be. */
	if (!place && first != ~0ull)
		first = first > most ? first - most : 0;
	if (__sync_val_compare_and_swap(&pool->level, level, level + behind) == level)
		__sync_fetch_and_add(&pool->offset, behind < first ? behind : first);
}

/* Finds the key of a task that is about to be queued, or to go on. */
__noinline int find_key(struct task_struct *p __arg_trusted, struct task_ctx *taskc __arg_nonnull,
			s32 cpu, u32 woken)
{
	struct tenant *tenant;
	struct node_ctx *node;
	struct frame frame;
	u64 level, queue_offset;
	u32 pool;

	find_tenant(taskc);
	node = node_at(taskc->tenant);
	if (node && taskc->vcpu && node->vcpu_pool != taskc->pool + 1) {
		if (!node->vcpu_pool)
			node->fresh = true;
		node->vcpu_pool = taskc->pool + 1;
	}
	tenant = tenant_of(taskc, node);
	/* Levels follow the tide at once, and so must offsets. */
	pool = frame_of(taskc, node);
	lift(pool, tenant);
	level = level_of(cpu);
	frame = frame_at(pool, taskc, cpu, level);
	queue_offset = pool_at(taskc->queue_pool)->offset;
	if (node && node->asked != raised)
		forgive(taskc->tenant, cpu, frame.offset);
	bring_near(taskc, node, cpu, &frame, woken);
	taskc->keyed_for = tenant->deadline;
	taskc->queued_at = tenant->vtime;
	taskc->key = taskc->keyed_for + frame.offset - queue_offset;
	if (node)
		taskc->key += (u64)bias_of(taskc, tenant, node, woken);
	/* Behind all who are at work: whatever its tenant is owed, it can do nothing with it. */
	if (taskc->gave_up)
		taskc->key = ovb_vtime_max(taskc->key, level - queue_offset) + long_slice(tenant);
	taskc->fresh = false;
	taskc->gave_up = false;
	taskc->overdue = false;
	taskc->ceiling = latest_of(tenant, node, taskc->weight, level - queue_offset);
	if (ovb_vtime_before(taskc->ceiling, taskc->key))
		taskc->key = taskc->ceiling;
	/* Of little weight it would wait there for long, and all who wait for a grace period with
	 * it: the kernel complained of stalls. It goes before others until it is out. */
	taskc->out_of_turn = ovb_vtime_before(level, key_of(taskc)) && in_rcu_section(p);
	if (taskc->out_of_turn)
		taskc->key = level - queue_offset;
	return 0;
}

/* Learns a task's weight and class. */
static void learn_weight(struct task_struct *p, struct task_ctx *taskc)
{
	bool sched_idle = p->policy == SCHED_IDLE;

	/* What it has run as the least of all is not held against it later. */
	if (taskc->sched_idle && !sched_idle)
		taskc->fresh = true;
	taskc->sched_idle = sched_idle;
	taskc->weight = sched_idle ? OVB_WEIGHT_IDLE : ovb_weight_from_cgroup(p->scx.weight);
	taskc->own.rate = ovb_rate_of(taskc->weight);
	if (taskc->counted)
		count_in(taskc, taskc->counted_in, taskc->weight);
	/* It may be a vCPU's, and so a VM's. */
	taskc->generation = 0;
}

/* Learns what is not remembered of a task. */
static void learn_task(struct task_struct *p, struct task_ctx *taskc)
{
	taskc->waits_since = 0;
	learn_weight(p, taskc);
	leave_pool(taskc->pool);
	taskc->pool = join_pool(p);
	taskc->node = place_of_group(p);
	taskc->fresh = true;
}

/* A task is bound to other CPUs, whose levels count from then on. What it is owed or owes stays. */
static void change_pool(struct task_struct *p, struct task_ctx *taskc)
{
	u64 before = taskc->own.vtime + pool_at(taskc->pool)->offset;
	s64 most = (s64)(OVB_LAG_TURNS * aged_slice(&taskc->own));
	u32 pool = join_pool(p);

	/* Its owner has not changed anything. */
	if (pool == taskc->pool) {
		leave_pool(pool);
		return;
	}
	if (!taskc->tenant && !taskc->carried) {
		taskc->carried = (s64)(before - level_of(scx_bpf_task_cpu(p)));
		if (taskc->carried > most)
			taskc->carried = most;
	}
	leave_pool(taskc->pool);
	taskc->pool = pool;
}

/* A task that runs by its key carries the clocks along. */
__noinline int advance(struct task_ctx *taskc __arg_nonnull, s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	struct node_ctx *node = node_at(taskc->tenant);
	struct tenant *tenant = tenant_of(taskc, node);
	struct pool_ctx *pool = pool_at(taskc->pool);
	/* Where its turns began: slices are booked when they begin, on all its CPUs, and what is
	 * not used comes back. Were the level ahead of all who run, nobody who wakes up would go
	 * before them. No later than where it was picked. */
	u64 at = taskc->keyed_for + pool_at(frame_of(taskc, node))->offset;

	if (ovb_vtime_before(key_of(taskc), at))
		at = key_of(taskc);
	at -= aged_reach(tenant, node, cpu, slice_of_node(node));
	if (!cpuc)
		return 0;
	cpuc->level = ovb_vtime_max(cpuc->level, at);
	cpuc->base = ovb_vtime_max(cpuc->base, at);
	/* Lines that CPUs share are written now and then. */
	if (ovb_vtime_before(pool->level + slice_ns / 4, at))
		pool->level = at;
	if (ovb_vtime_before(tide + slice_ns / 2, at))
		tide = at;
	lift(taskc->pool, tenant);
	if (node &&
	    ovb_vtime_before(node->clock + ovb_weighted(slice_ns / 4, taskc->weight), taskc->time))
		node->clock = taskc->time;
	return 0;
}

/* A task runs here by its key: others are compared with that. SCHED_IDLE gives way to all. */
static void goes_by_key(struct task_ctx *taskc, struct cpu_ctx *cpuc, s32 cpu)
{
	if (taskc->sched_idle) {
		cpuc->key = cpuc->level + (1ull << 61);
		return;
	}
	cpuc->key = key_of(taskc);
	advance(taskc, cpu);
}

#endif
