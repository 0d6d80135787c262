/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which tenant a VM is, and what it weighs.
 *
 * The tenant is the group that holds the VM and no other, with all that is in it; where VMs share a
 * group, the VM is a node of its own below that group, with the weights of all its vCPUs, whether
 * they want to run or not.
 */
#ifndef OVERBOOK_TENANT_BPF_H
#define OVERBOOK_TENANT_BPF_H

#include "vm.bpf.h"

/* The least group that holds two; 0: the root. */
static u32 common_group(u32 a, u32 b)
{
	u32 depth;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node;

		if (is_within(b, a))
			return a;
		node = node_at(a);
		if (!node)
			break;
		a = node->parent;
	}
	return 0;
}

/* Tenants of VMs are found on one CPU at a time; who comes meanwhile comes again. */
u32 settling;

/* Gives a VM that shares its group a node of its own. */
__noinline int stand_alone(u32 vm)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct node_ctx *node;
	u32 place;

	if (!vmc || vmc->own_node || !vmc->at.alive)
		return 0;
	node = node_at(vmc->node);
	if (node && node->vm == vm)
		node->vm = 0;
	place = vmc->spare ? vmc->spare : new_node(vmc->group, OVB_WEIGHT_NICE_0);
	vmc->spare = place;
	vmc->node = place;
	vmc->own_node = 1;
	node = node_at(place);
	if (node) {
		node->vm = vm;
		node->parent = vmc->group;
		/* After own_node: a vCPU that is weighed meanwhile sees that. */
		if (vmc->weight)
			node->weight = vmc->weight;
	}
	/* Where it was before it may be counted still. */
	recount_above(place);
	__sync_fetch_and_add(&generation, 1);
	return 0;
}

/* Whether a VM shares a group with others, whose groups are this one or below. VMs that have this
 * one, or one above it, to themselves have so no more. */
__noinline u32 is_shared(u32 vm, u32 group)
{
	u32 place, shared = 0;

	bpf_for (place, 0, vms_used) {
		struct vm_ctx *other = place + 1 == vm ? NULL : vm_ctx(place + 1);

		if (!other || !other->at.alive || !other->settled)
			continue;
		if (!other->own_node && is_within(group, other->group))
			stand_alone(place + 1);
		if (!shared && is_within(other->group, group))
			shared = 1;
	}
	return shared;
}

/* Finds the tenant of a VM, one of whose threads is in a group. */
__noinline int settle_group(u32 vm, u32 group)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct node_ctx *node, *before;
	bool alone;

	if (!vmc)
		return 0;
	if (vmc->settled && is_within(group, vmc->group))
		return 0;
	if (vmc->settled)
		group = common_group(vmc->group, group);
	vmc->group = group;
	vmc->settled = 1;
	node = node_at(group);
	/* In the root each stands alone. */
	alone = !node || is_shared(vm, group);
	if (alone && vmc->own_node) {
		move_node(vmc->node, group);
		__sync_fetch_and_add(&generation, 1);
		return 0;
	}
	before = vmc->own_node ? NULL : node_at(vmc->node);
	if (before && before->vm == vm)
		before->vm = 0;
	if (alone)
		return stand_alone(vm);
	node->vm = vm;
	vmc->node = group;
	vmc->own_node = 0;
	/* What its parts have run as tenants is settled with them. Until bring_near() gives it the
	 * level of a CPU: */
	node->time.vtime = tide;
	node->time.deadline = tide;
	node->fresh = true;
	__sync_fetch_and_add(&generation, 1);
	return 0;
}

/* The tenant of a VM is to be found anew, as part of it is in another group. */
static void forget_tenant(struct vm_ctx *vmc)
{
	vmc->settled = 0;
	__sync_fetch_and_add(&vmc->moves, 1);
	__sync_fetch_and_add(&generation, 1);
}

/* The tenants of a process's VMs are to be found anew. */
__noinline int forget_tenants(u32 pid)
{
	u32 place;

	bpf_for (place, 0, vms_used) {
		struct vm_ctx *vmc = vm_ctx(place + 1);

		if (vmc && vmc->at.alive && vmc->at.pid == pid)
			forget_tenant(vmc);
	}
	return 0;
}

/* Place of the group of a process: its leader's, which may have come there in its sleep;
 * `otherwise` if that group has none. */
__noinline u32 group_of_process(u32 pid, u32 otherwise)
{
	struct task_struct *leader = bpf_task_from_pid(pid);
	struct cgroup *group;
	u32 place;

	if (!leader)
		return otherwise;
	/* scx_bpf_task_cgroup() is for the task that a callback is about. Without a group it is an
	 * autogroup, of the root. */
	group = leader->sched_task_group->css.cgroup;
	place = place_of(group);
	if (place || !group || !group->level)
		otherwise = place;
	bpf_task_release(leader);
	return otherwise;
}

/* Finds the tenant of a VM, by the group of one of its vCPUs; false if another CPU is at it. */
static bool find_group(u32 vm, struct vm_ctx *vmc, u32 group)
{
	if (__sync_lock_test_and_set(&settling, 1))
		return false;
	if (!vmc->settled)
		settle_group(vm, group_of_process(vmc->at.pid, group));
	settle_group(vm, group);
	__sync_lock_test_and_set(&settling, 0);
	return true;
}

/* What a vCPU adds to the weight of its VM: that of its group below the VM's, or its own. */
static u32 weight_in_vm(const struct task_ctx *taskc, const struct vm_ctx *vmc)
{
	u32 depth, place = taskc->node;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = place == vmc->group ? NULL : node_at(place);

		if (!node)
			break;
		if (node->parent == vmc->group)
			return node->weight;
		place = node->parent;
	}
	return taskc->weight;
}

/* Another weight of a vCPU, 0 if it is gone. */
static void weigh_vcpu(struct vm_ctx *vmc, struct vcpu_ctx *vcpuc, u32 weight)
{
	struct node_ctx *node;
	u32 tries;

	__sync_fetch_and_add(&vmc->weight, weight - vcpuc->weight);
	vcpuc->weight = weight;
	node = vmc->own_node ? node_at(vmc->node) : NULL;
	if (!node || !vmc->weight)
		return;
	/* Another vCPU may be weighed at the same time: whoever stores last stores the sum. */
	bpf_for (tries, 0, 8) {
		u32 sum = __sync_fetch_and_add(&vmc->weight, 0);

		set_weight(vmc->node, sum);
		if (__sync_fetch_and_add(&vmc->weight, 0) == sum)
			break;
	}
	reweigh(vmc->node);
}

/* Finds out which tenant pays for a task, if that may have changed. */
__noinline int find_tenant(struct task_ctx *taskc __arg_nonnull)
{
	u32 tenant, place = taskc->node;
	struct vm_ctx *vmc;

	if (taskc->generation == generation)
		return 0;
	taskc->generation = generation;
	vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	if (vmc) {
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);
		u32 weight;

		if (taskc->moves != vmc->moves) {
			u32 moves = vmc->moves;

			if (find_group(taskc->vm, vmc, place))
				taskc->moves = moves;
			else
				taskc->generation = 0;
		}
		weight = weight_in_vm(taskc, vmc);
		if (vcpuc && vcpuc->weight != weight)
			weigh_vcpu(vmc, vcpuc, weight);
		tenant = vmc->node;
		if (vmc->own_node)
			place = tenant;
	} else {
		tenant = tenant_of_group(place);
	}
	if (tenant != taskc->tenant) {
		taskc->tenant = tenant;
		taskc->fresh = true;
	}
	if (taskc->counted)
		count_in(taskc, place, taskc->weight);
	return 0;
}

#endif
