/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tree of cgroups.
 */
#include "kvm.h"
#include "libc.h"

struct tun_group *root_group;

/* cpu.weight as the kernel's shares. */
static unsigned long shares(u32 weight)
{
	return ((unsigned long)weight * 1024 + 50) / 100 << 10;
}

/* Makes a group; without a parent, the root. Weight as in cpu.weight. */
struct tun_group *tun_new_group(u32 cpu, struct tun_group *parent, u32 weight, u64 id)
{
	struct tun_group *group = heap_new(sizeof(*group));
	struct scx_cgroup_init_args args = {
		.weight = weight, .bw_period_us = 100000, .bw_quota_us = ~0ull};

	group->parent = parent;
	group->weight = weight;
	group->tg.shares = shares(weight);
	group->cg.level = parent ? parent->cg.level + 1 : 0;
	group->cg.kn = &group->kn;
	group->kn.id = id;
	group->tg.css.cgroup = &group->cg;
	group->cg.subsys[cpu_cgrp_id] = &group->tg.css;
	if (!parent)
		root_group = group;
	begin_outside();
	OP(cgroup_init, MAY_UNLOCKED | MAY_SLEEP, -1, &group->cg, &args, 0);
	return group;
}

/* A group without tasks is removed. */
void tun_end_group(u32 cpu, struct tun_group *group)
{
	tun_set_cpu(cpu);
	OP(cgroup_exit, MAY_UNLOCKED | MAY_SLEEP, -1, &group->cg, 0, 0);
}

void tun_set_group_weight(u32 cpu, struct tun_group *group, u32 weight)
{
	tun_set_cpu(cpu);
	group->tg.shares = shares(weight);
	trace("group_shares", (u64)&group->tg, group->tg.shares, 0, 0);
	if (group->weight != weight)
		OP(cgroup_set_weight, MAY_UNLOCKED, -1, &group->cg, weight, 0);
	group->weight = weight;
}

/* cpu.idle. */
void tun_set_group_idle(u32 cpu, struct tun_group *group, bool idle)
{
	tun_set_cpu(cpu);
	if (group->tg.idle != idle)
		group->tg.shares = idle ? 3 << 10 : shares(100);
	group->tg.idle = idle;
	trace("group_idle", (u64)&group->tg, idle, 0, 0);
}

/* cpu.max. `quota_us` ~0: none. False if the scheduler does not want to know. */
bool tun_set_bandwidth(u32 cpu, struct tun_group *group, u64 period_us, u64 quota_us)
{
	tun_set_cpu(cpu);
	OP(cgroup_set_bandwidth, MAY_UNLOCKED, -1, &group->cg, period_us, quota_us);
	return tun_ops()->cgroup_set_bandwidth;
}

struct cgroup *scx_bpf_task_cgroup___new(struct task_struct *p)
{
	if (!allowed(MAY_SELECT_CPU | MAY_ENQUEUE | MAY_DISPATCH | MAY_RELEASE | MAY_REST,
		     "scx_bpf_task_cgroup"))
		return NULL;
	if ((u64)p != cx->subjects[0] && (u64)p != cx->subjects[1])
		fault("sched_ext: called on a task not being operated on: %s[%d]", p->comm, p->pid);
	cx->refs++;
	return &tt(p)->group->cg;
}

struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgroup, int level)
{
	struct tun_group *group = container_of(cgroup, struct tun_group, cg);

	tun_count_kfunc("bpf_cgroup_ancestor");
	point();
	while (group && group->cg.level > level)
		group = group->parent;
	if (!group || group->cg.level != level)
		return NULL;
	cx->refs++;
	return &group->cg;
}

struct cgroup *bpf_cgroup_acquire(struct cgroup *cgroup)
{
	cx->refs++;
	return cgroup;
}

void bpf_cgroup_release(struct cgroup *cgroup)
{
	cx->refs--;
	point();
}
