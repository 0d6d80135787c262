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

	if (!node || node->weight == weight)
		return;
	set_weight(place, weight);
	/* The weights of vCPUs' groups are those of their VMs. */
	__sync_fetch_and_add(&generation, 1);
}

/* What EEVDF has a group weigh; its shares are 1024 times that. */
static u32 eevdf_weight(struct task_group *tg)
{
	return BPF_CORE_READ(tg, idle) ? OVB_WEIGHT_IDLE
				       : ovb_weight_clamp((u32)(BPF_CORE_READ(tg, shares) >> 10));
}

/* What a group weighs. One that is being made has no task_group yet, and what sched_ext says is not
 * what counts once cpu.idle was set and has gone. */
static u32 weight_of_group(struct cgroup *cgrp, u32 cpu_weight)
{
	u32 cpu = bpf_core_enum_value(enum cgroup_subsys_id, cpu_cgrp_id);
	struct cgroup_subsys_state *css = BPF_CORE_READ(cgrp, subsys[cpu]);

	return css ? eevdf_weight(container_of(css, struct task_group, css))
		   : ovb_weight_from_cgroup(cpu_weight);
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
		above = nearest_place(parent);
		bpf_cgroup_release(parent);
	}
	place = bpf_cgrp_storage_get(&places_of_groups, cgrp, &fresh,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* An earlier load may have left something. Without memory its tasks are the root's. */
	if (!place)
		return 0;
	*place = new_node(above, ovb_weight_from_cgroup(args->weight));
	set_group_weight(*place, weight_of_group(cgrp, args->weight));
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
	group_goes(*place);
	*place = 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	set_group_weight(place_of(cgrp), ovb_weight_from_cgroup(weight));
}

/* cpu.idle or cpu.weight has changed, or been written again. sched_ext of 6.18 does not tell of the
 * former; and when cpu.idle ends the kernel gives a group cpu.weight 100, of which sched_ext knows
 * nothing, so that it does not tell either if the old weight is written then. */
SEC("?fexit/sched_group_set_idle")
int BPF_PROG(group_idle, struct task_group *tg)
{
	set_group_weight(place_of(tg->css.cgroup), eevdf_weight(tg));
	return 0;
}

SEC("?fexit/sched_group_set_shares")
int BPF_PROG(group_shares, struct task_group *tg)
{
	set_group_weight(place_of(tg->css.cgroup), eevdf_weight(tg));
	return 0;
}

void BPF_STRUCT_OPS(overbook_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us,
		    u64 burst_us)
{
	limit(place_of(cgrp), period_us, quota_us, burst_us);
}

#endif
