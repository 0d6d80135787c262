/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Groups that come, go, and change.
 */
#ifndef OVERBOOK_GROUPS_BPF_H
#define OVERBOOK_GROUPS_BPF_H

#include "quota.bpf.h"
#include "tree.bpf.h"

static void set_group_weight(u32 place, u32 weight)
{
	struct node_ctx *node = node_at(place);

	if (!node)
		return;
	if (weight > node->weight)
		__sync_fetch_and_add(&raised, 1);
	node->weight = weight;
	recount_above(place);
	/* The weights of vCPUs' groups are those of their VMs. */
	__sync_fetch_and_add(&generation, 1);
}

/* Whether a group has cpu.idle. */
static bool is_idle_group(struct cgroup *cgrp)
{
	u32 cpu = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct cgroup_subsys_state *css = BPF_CORE_READ(cgrp, subsys[cpu]);

	return css && BPF_CORE_READ(container_of(css, struct task_group, css), idle);
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
	*place = new_node(above, is_idle_group(cgrp) ? OVB_WEIGHT_IDLE
						     : ovb_weight_from_cgroup(args->weight));
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
	set_group_weight(place_of(cgrp), ovb_weight_from_cgroup(weight));
}

/* cpu.idle has changed, or been written again. sched_ext tells of it from Linux 7.0 on only. When
 * it ends the kernel gives a group cpu.weight 100, whatever it was. */
SEC("?fexit/sched_group_set_idle")
int BPF_PROG(group_idle, struct task_group *tg, long idle, int error)
{
	u32 place = place_of(tg->css.cgroup);
	struct node_ctx *node = node_at(place);

	if (!error && node && !!idle != (node->weight == OVB_WEIGHT_IDLE))
		set_group_weight(place, idle ? OVB_WEIGHT_IDLE : OVB_WEIGHT_NICE_0);
	return 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	limit(place_of(cgrp), period_us, quota_us, burst_us);
}

#endif
