/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pools: sets of CPUs, of cpusets or of taskset, that tasks are bound to. A pool has queues of its
 * own, so that the first of every queue that a CPU looks at may run there: one in each LLC where it
 * has some CPUs, so that caches stay warm. And it has an offset: where its tasks have had less than
 * others for long, others that may run there too would have to wait until they have come as far; so
 * what a pool falls behind is bounded, for all of it alike (ovb_lift()).
 *
 * Pool 0 is all CPUs. Beyond the pools there is an entry for each CPU, for tasks that may run
 * nowhere else. Sets for which there is no pool left share the queues of pool 0.
 */
#ifndef OVERBOOK_POOL_BPF_H
#define OVERBOOK_POOL_BPF_H

#include "state.bpf.h"

struct pool_ctx {
	/* Of its CPUs, and tasks that are bound to them. */
	u64 hash;
	/* With OPENING while somebody makes it that of another set. */
	u32 users;
	/* LLCs that its CPUs are of, a bit each, and those in which it has a queue. */
	u64 llcs;
	u64 queues;
	u64 level;
	u64 offset;
};

struct pool_ctx pools[2 * OVB_MAX_CPUS];

/* A pool has a queue in an LLC where it has so many CPUs; its CPUs in others use the first of these
 * queues. Of fewer, shares would be a matter of who is queued where, and caches are no larger. */
#define CPUS_OF_QUEUE 3

/* A pool in one of its LLCs. */
struct pool_part {
	u32 cpus;
	u32 first;
};

struct pool_part pool_parts[OVB_MAX_POOLS * OVB_MAX_LLCS];

static struct pool_part *part_of(u32 pool, u32 llc)
{
	return &pool_parts[bounded(pool * OVB_MAX_LLCS + llc, OVB_MAX_POOLS * OVB_MAX_LLCS)];
}

/* The latest level of all CPUs, some half slice behind. */
u64 tide = VTIME_START;

static struct pool_ctx *pool_at(u32 pool)
{
	return &pools[bounded(pool, 2 * OVB_MAX_CPUS)];
}

#define OPENING (1u << 31)

/* A hash of a set of CPUs; 0 if all that are online are part of it. */
static u64 hash_of(const struct cpumask *mask)
{
	u64 hash = 0, missing = 0;
	u32 i;

	bpf_for (i, 0, OVB_MAX_CPUS / 64) {
		u64 bits = 0;

		if (i * 64 >= nr_cpus)
			break;
		bpf_probe_read_kernel(&bits, sizeof(bits), (void *)mask + i * 8);
		missing |= cpus_online[i] & ~bits;
		/* Knuth's multiplication by the golden ratio. */
		hash = (hash ^ bits) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	return missing ? hash | 1 : 0;
}

/* Makes a pool of a free entry. */
static void open_pool(u32 pool, u64 hash, const struct cpumask *mask)
{
	struct pool_ctx *entry = pool_at(pool);
	u64 bit = 1ull << (pool & 63);
	struct pool_part *part;
	u32 cpu, llc;

	entry->hash = hash;
	entry->level = tide;
	entry->offset = 0;
	entry->llcs = entry->queues = 0;
	bpf_for (llc, 0, nr_llcs)
		part_of(pool, llc)->cpus = 0;
	bpf_for (cpu, 0, nr_cpus) {
		struct cpu_ctx *cpuc = cpu_ctx_of(cpu);

		if (!cpuc)
			continue;
		if (!bpf_cpumask_test_cpu(cpu, mask)) {
			__sync_fetch_and_and(&cpuc->pools, ~bit);
			continue;
		}
		__sync_fetch_and_or(&cpuc->pools, bit);
		if (!(cpus_online[bounded(cpu, OVB_MAX_CPUS) / 64] >> (cpu & 63) & 1))
			continue;
		llc = llc_of((s32)cpu) & 63;
		part = part_of(pool, llc);
		entry->llcs |= 1ull << llc;
		if (!part->cpus++)
			part->first = cpu;
		if (part->cpus >= CPUS_OF_QUEUE)
			entry->queues |= 1ull << llc;
	}
	if (!entry->queues)
		entry->queues = 1;
}

/* LLCs that have CPUs which tasks of a pool may use, a bit each. */
static u64 llcs_of(u32 pool)
{
	if (pool >= OVB_MAX_CPUS)
		return 1ull << (llc_of((s32)(pool - OVB_MAX_CPUS)) & 63);
	return pool ? pool_at(pool)->llcs : ~0ull;
}

/* Finds the pool of the set of CPUs that a task is bound to, with one task more. A task that is
 * preempted while migration is disabled may run on one CPU alone until it goes on, and is in its
 * pool all the same: cpus_mask is what its owner has chosen. */
__noinline u32 join_pool(struct task_struct *p __arg_trusted)
{
	const struct cpumask *mask = &p->cpus_mask;
	u32 allowed = p->nr_cpus_allowed;
	u64 hash;
	u32 i;

	/* Which CPUs of a pool are preferred changes; a guest does without. */
	if (allowed >= nr_cpus || may_prefer)
		return 0;
	if (allowed == 1)
		return OVB_MAX_CPUS + bpf_cpumask_first(mask);
	hash = hash_of(mask);
	if (!hash)
		return 0;
	bpf_for (i, 1, OVB_MAX_POOLS) {
		struct pool_ctx *entry = pool_at(i);

		if (entry->hash != hash || !entry->users)
			continue;
		/* It may be becoming another set's. */
		if (!(__sync_fetch_and_add(&entry->users, 1) & OPENING) && entry->hash == hash)
			return i;
		__sync_fetch_and_sub(&entry->users, 1);
	}
	bpf_for (i, 1, OVB_MAX_POOLS) {
		if (__sync_val_compare_and_swap(&pool_at(i)->users, 0, OPENING))
			continue;
		open_pool(i, hash, mask);
		__sync_fetch_and_sub(&pool_at(i)->users, OPENING - 1);
		return i;
	}
	return 0;
}

static void leave_pool(u32 pool)
{
	if (pool && pool < OVB_MAX_POOLS)
		__sync_fetch_and_sub(&pool_at(pool)->users, 1);
}

/* The pool that the queue of a single CPU stands for. */
static u32 cpu_pool(s32 cpu)
{
	return OVB_MAX_CPUS + (u32)cpu;
}

/* The key of a task, as keys of different queues are compared. */
static u64 key_of(const struct task_ctx *taskc)
{
	return taskc->key + pool_at(taskc->queue_pool)->offset;
}

/* Queue of a pool, 1 to OVB_MAX_POOLS − 1, for its CPUs of an LLC; and for who is on another CPU as
 * others have become allowed. */
static u64 pool_dsq(u32 pool, u32 llc)
{
	u64 queues = pool_at(pool)->queues;

	if (!(queues >> (llc & 63) & 1))
		llc = queues ? (u32)__builtin_ctzll(queues) : 0;
	return PARKED + pool * OVB_MAX_LLCS + llc;
}

/* Queue in an LLC of tasks that may run on all CPUs of a pool. */
static u64 shared_dsq(u32 pool, u32 llc)
{
	return pool ? pool_dsq(pool, llc) : llc_dsq(llc);
}

/* Whether a pool has a queue in an LLC; pool 0 has one in each. */
static bool has_queue_in(u32 pool, u32 llc)
{
	return !pool || pool_at(pool)->queues >> (llc & 63) & 1;
}

/* Whether CPUs of an LLC look into a queue of an LLC, or of a pool. */
static bool is_shared_in(u64 dsq, u32 llc)
{
	u32 pool = is_pool_dsq(dsq) ? (u32)(dsq - PARKED) / OVB_MAX_LLCS : 0;

	return dsq == shared_dsq(pool, llc);
}

/* Queue of a task that is not bound to a CPU, on an LLC. SCHED_IDLE tasks are the LLC's. */
static u64 queue_of(const struct task_ctx *taskc, u32 llc)
{
	return shared_dsq(taskc->pool < OVB_MAX_POOLS && !taskc->sched_idle ? taskc->pool : 0, llc);
}

/* Where a task on `cpu` is to be queued, or to look for an idle CPU: at its VM's home. */
static s32 homeward(const struct task_struct *p, const struct task_ctx *taskc, s32 cpu)
{
	u32 home = taskc->vm ? vm_homes[bounded(taskc->vm - 1, OVB_MAX_VMS)] : 0, first;

	if (!home || llc_of(cpu) == home - 1)
		return cpu;
	if (taskc->pool && taskc->pool < OVB_MAX_POOLS) {
		/* Else it would be queued in another LLC than it looks for a CPU in. */
		if (part_of(taskc->pool, home - 1)->cpus < CPUS_OF_QUEUE)
			return cpu;
		first = part_of(taskc->pool, home - 1)->first;
	} else {
		first = llc_first[bounded(home - 1, OVB_MAX_LLCS)];
	}
	return bpf_cpumask_test_cpu(first, p->cpus_ptr) ? (s32)first : cpu;
}

#endif
