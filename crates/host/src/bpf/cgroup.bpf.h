/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights down the tree of cgroups, flattened: a task's effective weight is its own weight times
 * its group's share of the group above, up to the root (as scx_flatcg does). A share is a group's
 * cpu.weight over the weights of all members of the group above that have something to run.
 * So the queues know one level only.
 */
#ifndef OVERBOOK_CGROUP_BPF_H
#define OVERBOOK_CGROUP_BPF_H

#include "state.bpf.h"

#define MAX_DEPTH 8

struct group_ctx {
	/* cpu.weight as a scheduler weight. */
	u32 weight;
	/* Weight with which the group above counts this one while it is active. */
	u32 counted;
	u32 pad;
	/* Tasks here and groups below that are active. */
	u32 nr_active;
	/* Sum of the weights of what nr_active counts. */
	u64 active_weight;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_ctx);
} group_ctxs SEC(".maps");

/* Set by the loader if the kernel hands groups to schedulers. */
const volatile bool has_groups = true;

/* Weight of SCHED_IDLE, of 1024. */
#define SCHED_IDLE_WEIGHT 3

static u32 own_weight(const struct task_struct *p, bool idle_class)
{
	return idle_class ? SCHED_IDLE_WEIGHT : ovb_weight_from_cgroup(p->scx.weight);
}

/* Where the kernel keeps cpu.weight: since 6.17, and before. */
struct scx_task_group___ovb {
	u32 weight;
} __attribute__((preserve_access_index));

struct task_group___ovb {
	struct scx_task_group___ovb scx;
	u32 scx_weight;
} __attribute__((preserve_access_index));

/* cpu.weight of a group, the default if the kernel keeps it elsewhere. */
static u32 kernel_weight(struct cgroup *cgrp)
{
	/* struct task_group begins with its css. */
	struct task_group___ovb *tg = (void *)BPF_CORE_READ(cgrp, subsys[cpu_cgrp_id]);
	u32 weight = 0;

	if (tg && bpf_core_field_exists(tg->scx))
		weight = BPF_CORE_READ(tg, scx.weight);
	else if (tg && bpf_core_field_exists(tg->scx_weight))
		weight = BPF_CORE_READ(tg, scx_weight);
	return weight ? weight : OVB_CGROUP_WEIGHT_DEFAULT;
}

/*
 * State of a group; NULL only if the kernel has no memory for it just now. Storage is allocated
 * without waiting, so a moment's lack must not cost more than one decision: whoever comes next
 * tries again.
 */
static struct group_ctx *group_ctx(struct cgroup *cgrp)
{
	struct group_ctx fresh = {}, *group = bpf_cgrp_storage_get(&group_ctxs, cgrp, 0, 0);

	if (group)
		return group;
	fresh.weight = ovb_weight_from_cgroup(kernel_weight(cgrp));
	return bpf_cgrp_storage_get(&group_ctxs, cgrp, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Adds (or takes away) a member of `weight`; tells the group above when this one becomes active (or
 * has nothing left). */
static void set_active(struct cgroup *leaf, u32 weight, bool active)
{
	int depth = leaf->level, level;

	bpf_for (level, 0, MAX_DEPTH) {
		struct group_ctx *group;
		struct cgroup *cgrp;
		bool changed;

		if (level >= depth)
			break;
		cgrp = bpf_cgroup_ancestor(leaf, depth - level);
		if (!cgrp)
			break;
		group = group_ctx(cgrp);
		if (!group) {
			bpf_cgroup_release(cgrp);
			break;
		}
		if (active) {
			__sync_fetch_and_add(&group->active_weight, weight);
			changed = !__sync_fetch_and_add(&group->nr_active, 1);
			if (changed)
				group->counted = group->weight;
		} else {
			/* Counted while there was no memory for the group's state. */
			if (!group->nr_active) {
				bpf_cgroup_release(cgrp);
				break;
			}
			__sync_fetch_and_sub(&group->active_weight, weight);
			changed = __sync_fetch_and_sub(&group->nr_active, 1) == 1;
		}
		weight = group->counted;
		bpf_cgroup_release(cgrp);
		if (!changed)
			break;
	}
}

/* A step down the tree, from a group to one in it: what is left of the effective weight (0 above
 * the first group), and the weights that share it. */
static __always_inline void step_down(const struct group_ctx *group, u32 *effective, u64 *total)
{
	u32 weight = group->weight;

	*effective = *effective
			     ? ovb_effective(*effective, weight, *total > weight ? *total : weight)
			     : weight << OVB_EFFECTIVE_SHIFT;
	*total = group->active_weight;
}

/* Finds a task's effective weight, see ovb_effective(). The root has no rivals: its members'
 * weights count as they are. Not static, so that it is verified once per program. */
__noinline u32 effective_weight(struct task_struct *p __arg_trusted,
				struct task_ctx *taskc __arg_nonnull)
{
	u32 own = own_weight(p, taskc->idle_class), effective = 0;
	u64 total = 0;
	struct cgroup *leaf;
	int depth, level;

	if (!has_groups)
		return own << OVB_EFFECTIVE_SHIFT;
	leaf = scx_bpf_task_cgroup(p);
	if (!leaf)
		return own << OVB_EFFECTIVE_SHIFT;
	depth = leaf->level;
	bpf_for (level, 1, MAX_DEPTH + 1) {
		struct group_ctx *group;
		struct cgroup *cgrp;

		if (level > depth)
			break;
		cgrp = bpf_cgroup_ancestor(leaf, level);
		if (!cgrp)
			break;
		group = group_ctx(cgrp);
		if (group)
			step_down(group, &effective, &total);
		bpf_cgroup_release(cgrp);
	}
	bpf_cgroup_release(leaf);
	if (!effective)
		return own << OVB_EFFECTIVE_SHIFT;
	return ovb_effective(effective, own, total > own ? total : own);
}

#endif
