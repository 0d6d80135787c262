/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tree of groups. A node is a cgroup, or a VM that shares its cgroup with others. What a node
 * weighs among all is found upwards, from a tenant to the first group below the root: its weight
 * over the weights of all that are active beside it, times what its group weighs (as scx_flatcg
 * does). So tenants stand in one order, whatever the tree looks like.
 *
 * Example: two groups of weight 100 below a group of weight 100, beside a task in the root. Each of
 * the two ages by 2 ns per ns, the task by 1.
 */
#ifndef OVERBOOK_TREE_BPF_H
#define OVERBOOK_TREE_BPF_H

#include "pool.bpf.h"
#include "quota.h"
#include "state.bpf.h"

/* Depth below the root. Tasks of deeper groups count as those of the group at this depth. */
#define MAX_DEPTH 12

struct node_ctx {
	struct tenant time;
	/* The members' clock: the time of whoever of them was picked last. */
	u64 clock;
	/* What its rate was made of: ovb_rate_inputs(). */
	u64 inputs;
	/* Place of the group above; 0: the root. */
	u32 parent;
	/* Scheduler weight. */
	u32 weight;
	/* Which of all raises of weights was its own last one, and after which it was last asked
	 * whether it weighs more: weighs_more(). */
	u32 lifted;
	u32 asked;
	/* Where it is counted, and with which weight: counts_as(). */
	u64 counted;
	/* Runnable tasks here and active groups below, and the sum of their weights. */
	u32 nr_active;
	/* Runnable tasks whose time it pays, in groups below too; none that is SCHED_IDLE. */
	u32 nr_members;
	/* None of its tasks has been queued yet: where its time stands is not known. */
	u32 fresh;
	/* Its group is gone, and tasks that are about to end are counted here still. */
	u32 gone;
	u64 active_weight;
	/* The groups' part of that. */
	u64 below_weight;
	/* Place in `vms` plus one of the VM that this is the tenant of. */
	u32 vm;
	/* Pool plus one of the VM's vCPU that was keyed last; 0: none was. */
	u32 vcpu_pool;
	/* Its cpu.max, and whether that is used up. */
	u32 throttled;
	/* The last of nr_members had gone, and nobody has been queued since. */
	u32 slept;
	struct ovb_quota quota;
};

_Static_assert(OVB_MAX_NODES > OVB_MAX_ALL_VCPUS + 3 * OVB_MAX_VMS, "libvirt makes more groups");

/* Place 0 is nobody's: the root has no rivals, so nothing is counted there. */
TABLE(ARRAY, nodes, struct node_ctx, OVB_MAX_NODES);

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} places_of_groups SEC(".maps");

/* How often weights of groups have been raised. */
u32 raised;

/* Zeroes, too many for the stack. */
struct node_ctx blank_node;

/* Places that were ever given away, beyond the table's end too, and which are in use. */
u32 nodes_used = 1;
u64 node_in_use[OVB_MAX_NODES / 64] = {1};

/* Bumped when the tenants of tasks may have changed: a VM was found, or shares its group. */
u32 generation = 1;

#define NOWHERE (~0u)

/* Takes a free place of a table: one that was never used, or the first that is free. */
static __always_inline u32 take_place(u32 *used, u64 *in_use, u32 size)
{
	u32 place = *used < size ? __sync_fetch_and_add(used, 1) : size, i;
	u64 own = 1ull << (place & 63);

	/* Another CPU that found the table used up may have taken it meanwhile. */
	if (place < size &&
	    !(__sync_fetch_and_or(&in_use[bounded(place / 64, size / 64)], own) & own))
		return place;
	bpf_for (i, 0, size / 64) {
		u64 *word = &in_use[bounded(i, size / 64)];
		u64 bits = *word, bit = ~bits & (bits + 1);

		if (bit && !(__sync_fetch_and_or(word, bit) & bit))
			return i * 64 + (u32)__builtin_ctzll(bit);
	}
	return NOWHERE;
}

static __always_inline void give_back(u64 *in_use, u32 size, u32 place)
{
	__sync_fetch_and_and(&in_use[bounded(place / 64, size / 64)], ~(1ull << (place & 63)));
}

/* A node by its place; NULL for the root. */
static struct node_ctx *node_at(u32 place)
{
	return place ? bpf_map_lookup_elem(&nodes, &place) : NULL;
}

/* Whose time a task spends: that of its tenant's node, or its own if it has none. */
static struct tenant *tenant_of(struct task_ctx *taskc, struct node_ctx *node)
{
	return node ? &node->time : &taskc->own;
}

/* Makes a node; 0 if the table is full. */
__noinline u32 new_node(u32 parent, u32 weight)
{
	u32 place = take_place(&nodes_used, node_in_use, OVB_MAX_NODES);
	struct node_ctx *node;

	node = place == NOWHERE ? NULL : node_at(place);
	if (!node)
		return 0;
	bpf_map_update_elem(&nodes, &place, &blank_node, BPF_ANY);
	node->parent = parent;
	node->weight = weight;
	node->time.vtime = tide;
	node->time.deadline = tide;
	node->time.rate = ovb_rate_of(weight);
	node->clock = VTIME_START;
	node->fresh = true;
	node->asked = raised;
	return place;
}

static void free_node(u32 place)
{
	if (place)
		give_back(node_in_use, OVB_MAX_NODES, place);
}

/* Gives back the place of a group that is gone, once nobody is counted there; and so on upwards. */
__noinline int free_gone(u32 place)
{
	u32 depth;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = node_at(place);
		u32 above;

		/* Whoever takes its weight off above comes here after that. */
		if (!node || node->nr_active || node->counted)
			break;
		above = node->parent;
		if (!__sync_lock_test_and_set(&node->gone, 0))
			break;
		free_node(place);
		place = above;
	}
	return 0;
}

/* A group goes. The kernel removes it when its tasks have done all but leave their CPUs. */
static void group_goes(u32 place)
{
	struct node_ctx *node = node_at(place);

	if (!node)
		return;
	__sync_lock_test_and_set(&node->gone, 1);
	free_gone(place);
}

/* Whether a group has used its cpu.max. */
static bool has_used_up(const struct node_ctx *node)
{
	return node->throttled && node->quota.quota;
}

/* What a node counts as above: the place of its group, and its weight; 0 if nothing in it is
 * active, all of it is parked, or the root is above. */
static u64 counts_as(const struct node_ctx *node)
{
	if (!node->nr_active || !node->parent || has_used_up(node))
		return 0;
	return (u64)node->parent << 32 | node->weight;
}

/*
 * Counts a node above it as it is, and so on upwards as far as that changes anything. Whoever
 * changes its activity, its weight or its group calls this afterwards; what it takes away and adds
 * is what it has exchanged, so that nothing is counted twice whoever comes in between.
 */
__noinline int recount_above(u32 place)
{
	/* Groups that became active, or inactive, and are to be counted above in their turn. */
	u32 step, ahead = 0, behind = 0;
	u64 was, is;

	bpf_for (step, 0, 2 * MAX_DEPTH) {
		struct node_ctx *node = node_at(place), *up;

		if (!node)
			break;
		is = counts_as(node);
		was = __sync_lock_test_and_set(&node->counted, is);
		if (was >> 32 == is >> 32) {
			up = node_at(is >> 32);
			if (up && was != is) {
				__sync_fetch_and_add(&up->active_weight, is - was);
				__sync_fetch_and_add(&up->below_weight, is - was);
			}
		} else {
			up = node_at(was >> 32);
			if (up) {
				__sync_fetch_and_sub(&up->active_weight, (u32)was);
				__sync_fetch_and_sub(&up->below_weight, (u32)was);
				if (__sync_fetch_and_sub(&up->nr_active, 1) == 1)
					behind = was >> 32;
			}
			up = node_at(is >> 32);
			if (up) {
				__sync_fetch_and_add(&up->active_weight, (u32)is);
				__sync_fetch_and_add(&up->below_weight, (u32)is);
				if (!__sync_fetch_and_add(&up->nr_active, 1))
					ahead = is >> 32;
			}
		}
		/* It has changed again meanwhile: once more. */
		if (counts_as(node) != is)
			continue;
		place = ahead ? ahead : behind;
		if (ahead)
			ahead = 0;
		else
			behind = 0;
	}
	return 0;
}

/* Puts a node below another group. */
static void move_node(u32 place, u32 parent)
{
	struct node_ctx *node = node_at(place);

	if (!node || node->parent == parent)
		return;
	node->parent = parent;
	recount_above(place);
}

/* Counts a task in a node, and as a member of its tenant, or no more. */
__noinline int count_in(struct task_ctx *taskc __arg_nonnull, u32 place, u32 weight)
{
	u32 member_of = weight ? taskc->tenant : 0;
	struct node_ctx *node;

	if (taskc->member_of != member_of) {
		node = node_at(taskc->member_of);
		if (node && __sync_fetch_and_sub(&node->nr_members, 1) == 1)
			node->slept = 1;
		node = node_at(member_of);
		if (node)
			__sync_fetch_and_add(&node->nr_members, 1);
		taskc->member_of = member_of;
	}
	if (taskc->counted_in == place && taskc->counted == weight)
		return 0;
	node = node_at(taskc->counted_in);
	if (node) {
		__sync_fetch_and_sub(&node->active_weight, taskc->counted);
		if (__sync_fetch_and_sub(&node->nr_active, 1) == 1)
			recount_above(taskc->counted_in);
		if (node->gone)
			free_gone(taskc->counted_in);
	}
	node = node_at(place);
	taskc->counted_in = node ? place : 0;
	taskc->counted = weight;
	if (node) {
		__sync_fetch_and_add(&node->active_weight, weight);
		if (!__sync_fetch_and_add(&node->nr_active, 1))
			recount_above(place);
	}
	return 0;
}

/* A sum of weights in 32 bits. */
static u32 weight_of(u64 sum)
{
	return sum > 0xffffffff ? 0xffffffff : (u32)sum;
}

/* What the tasks of a group weigh that want to run, without the groups below. */
static u32 weight_of_tasks(const struct node_ctx *node)
{
	u64 all = node->active_weight, below = node->below_weight;

	return all > below ? weight_of(all - below) : 0;
}

/* Finds the rate of a tenant that is a node. Of a group that has tenants below, VMs that share it
 * or groups, the tenant is the tasks that are left: they weigh there what they weigh together. */
__noinline int reweigh(u32 place)
{
	struct node_ctx *tenant = node_at(place), *node = tenant;
	/* Two CPUs that do this at once may leave the rate of one and the word of the other, but
	 * not for longer than 17 ms. */
	u64 rate = 0, inputs = scx_bpf_now() >> 24, active, below;
	u32 depth;

	if (!tenant)
		return 0;
	active = tenant->active_weight;
	below = tenant->vm ? 0 : tenant->below_weight;
	if (below)
		inputs = ovb_rate_inputs(inputs, active, weight_of(active - below));
	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *up = node_at(node->parent);

		inputs = ovb_rate_inputs(inputs, up ? up->active_weight : 0, node->weight);
		if (!up)
			break;
		node = up;
	}
	if (inputs == tenant->inputs)
		return 0;
	tenant->inputs = inputs;
	node = tenant;
	if (below && active > below)
		rate = ovb_rate_ratio(weight_of(active), weight_of(active - below));
	/* The shares first: the node just below the root has the last word. */
	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *up = node_at(node->parent);
		u32 total;

		if (!up)
			break;
		total = weight_of(up->active_weight);
		if (total > node->weight) {
			rate = rate ? ovb_rate_times(rate, total, node->weight)
				    : ovb_rate_ratio(total, node->weight);
		}
		node = up;
	}
	tenant->time.rate = rate ? ovb_rate_times(rate, OVB_WEIGHT_NICE_0, node->weight)
				 : ovb_rate_of(node->weight);
	return 0;
}

/* A group weighs something else from now on. */
__noinline int set_weight(u32 place, u32 weight)
{
	struct node_ctx *node = node_at(place);
	u32 before;

	if (!node)
		return 0;
	before = node->weight;
	node->weight = weight;
	recount_above(place);
	if (weight <= before)
		return 0;
	/* Who sees the new count looks for this. */
	node->lifted = raised + 1;
	__sync_fetch_and_add(&raised, 1);
	return 0;
}

/* Whether a tenant, or a group above it, weighs more than when this was last asked. */
static bool weighs_more(struct node_ctx *node)
{
	u32 before = node->asked, depth;

	node->asked = raised;
	bpf_for (depth, 0, MAX_DEPTH) {
		if ((s32)(node->lifted - before) > 0)
			return true;
		node = node_at(node->parent);
		if (!node)
			break;
	}
	return false;
}

/* Place of a group; 0 for the root, and for a group that has none. */
static u32 place_of(struct cgroup *group)
{
	u32 *found = bpf_cgrp_storage_get(&places_of_groups, group, 0, 0);

	return found ? *found : 0;
}

/* Place of a group, or of the nearest above it that has one: groups below MAX_DEPTH have none, nor
 * have those that came when the table was full. */
__noinline u32 nearest_place(struct cgroup *group __arg_trusted)
{
	u32 place = place_of(group), level = group->level, up;
	struct cgroup *above;

	if (level > MAX_DEPTH)
		level = MAX_DEPTH + 1;
	bpf_for (up, 1, level) {
		if (place)
			break;
		above = bpf_cgroup_ancestor(group, level - up);
		if (!above)
			break;
		place = place_of(above);
		bpf_cgroup_release(above);
	}
	return place;
}

/* nearest_place() of the group that a task is in. */
__noinline u32 place_of_group(struct task_struct *p __arg_trusted)
{
	struct cgroup *group = scx_bpf_task_cgroup(p);
	u32 place;

	if (!group)
		return 0;
	place = nearest_place(group);
	bpf_cgroup_release(group);
	return place;
}

/* Whether a node is another, or below it. */
__noinline u32 is_within(u32 place, u32 above)
{
	u32 depth;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node;

		if (place == above)
			return true;
		node = node_at(place);
		if (!node)
			break;
		place = node->parent;
	}
	return !above;
}

/* The tenant of ordinary tasks in a group: the VM's whose group this is, or the group itself. */
static u32 tenant_of_group(u32 place)
{
	u32 depth, at = place;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = node_at(at);

		if (!node)
			break;
		if (node->vm)
			return at;
		at = node->parent;
	}
	return place;
}

#endif
