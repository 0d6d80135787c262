/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max (policy/quota.h). A group that has used its own, or that of a group above it, is
 * throttled: its tasks are parked in a queue from which no CPU takes any, until a timer finds that
 * a new period has begun. Who runs is parked when it leaves its CPU, at the next tick; who is
 * queued when a CPU comes to it (park_first()). Groups are not throttled for so long that the
 * kernel's watchdog would end the scheduler (OVB_QUOTA_LONGEST).
 */
#ifndef OVERBOOK_QUOTA_BPF_H
#define OVERBOOK_QUOTA_BPF_H

#include "tree.bpf.h"

/* How often the timer looks, ns: as exact as periods are kept. The least period is 1 ms. */
#define REFILL_NS 1000000
/* So many parked tasks are looked at each time. Where there are more, those that stay go behind the
 * others. */
#define UNPARK 1024
/* So often all are looked at though nobody was let go, ns: a CPU that was held up may have parked
 * somebody by what it knew before. */
#define UNPARK_EVERY 100000000
/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1

/* Which nodes have a cpu.max, how many have one, when a throttle was last lifted, and when the
 * parked were last looked at. */
u64 limited_nodes[OVB_MAX_NODES / 64];
u32 nr_limited;
u64 lifted_at;
u64 unparked_at;
/* There is a timer. Without one, who has used a cpu.max would never run again: none is kept. */
u32 has_refills;

struct refill_timer {
	struct bpf_timer timer;
};

TABLE(ARRAY, refill_timers, struct refill_timer, 1);

/* Whether a group, or one above it, has used its cpu.max. */
__noinline u32 is_throttled(u32 place)
{
	u32 depth;

	if (!nr_limited)
		return false;
	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = node_at(place);

		if (!node)
			break;
		if (has_used_up(node))
			return true;
		place = node->parent;
	}
	return false;
}

/* Whether a task is to be parked. Of a crowd whose quota is tiny, who has waited for very long runs
 * once all the same, or the kernel's watchdog would end the scheduler. */
static bool is_to_park(const struct task_struct *p, struct task_ctx *taskc)
{
	/* Whoever waits for a grace period would wait for the next period of a cpu.max. */
	return is_throttled(taskc->node) && !in_rcu_section(p) &&
	       wait_of(taskc, scx_bpf_now()) <= OVB_QUOTA_LONGEST / 2;
}

/* A group's tasks are parked from here on, or may run again. */
static void throttle(struct node_ctx *node, u32 place, u32 parked)
{
	if (node->throttled == parked)
		return;
	node->throttled = parked;
	node->quota.since = parked ? scx_bpf_now() : 0;
	if (!parked)
		lifted_at = scx_bpf_now();
	recount_above(place);
}

/* Takes what a task has run off the quotas of its group and all above it. */
__noinline int spend(u32 place, u64 ns)
{
	u32 depth;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = node_at(place);

		if (!node)
			break;
		if (node->quota.quota) {
			__sync_fetch_and_sub(&node->quota.left, ns);
			if (node->quota.left <= 0)
				throttle(node, place, 1);
		}
		place = node->parent;
	}
	return 0;
}

static void start_refills(void)
{
	u32 zero = 0;
	struct refill_timer *refill = bpf_map_lookup_elem(&refill_timers, &zero);

	if (refill)
		bpf_timer_start(&refill->timer, REFILL_NS, 0);
}

/* A group has another cpu.max; a quota of ~0 is none. */
__noinline int limit(u32 place, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct node_ctx *node = node_at(place);
	u64 *word = &limited_nodes[bounded(place / 64, OVB_MAX_NODES / 64)];
	u64 bit = 1ull << (place & 63);

	if (!node || !has_refills)
		return 0;
	if (quota_us == ~0ull) {
		node->quota.quota = 0;
		throttle(node, place, 0);
		lifted_at = scx_bpf_now();
		if (__sync_fetch_and_and(word, ~bit) & bit)
			__sync_fetch_and_sub(&nr_limited, 1);
		return 0;
	}
	node->quota.period = period_us * 1000;
	node->quota.burst = burst_us * 1000;
	node->quota.quota = quota_us * 1000;
	/* A period begins now, as CFS has it. */
	node->quota.left = (s64)node->quota.quota;
	node->quota.next = scx_bpf_now() + node->quota.period;
	throttle(node, place, 0);
	if (!(__sync_fetch_and_or(word, bit) & bit) && !__sync_fetch_and_add(&nr_limited, 1))
		start_refills();
	return 0;
}

/* Starts a due period of a group. */
__noinline int refill_one(u32 place, u64 now)
{
	struct node_ctx *node = node_at(place);
	struct ovb_quota copy;
	s64 left;

	if (!node)
		return 0;
	copy = node->quota;
	left = copy.left;
	if (ovb_quota_refill(&copy, now)) {
		node->quota.next = copy.next;
		__sync_fetch_and_add(&node->quota.left, copy.left - left);
	}
	if (node->throttled && node->quota.left > 0)
		throttle(node, place, 0);
	return 0;
}

/* Starts all due periods. */
static void refill_all(u64 now)
{
	u32 i, j;

	bpf_for (i, 0, (nodes_used + 63) / 64) {
		u64 bits = limited_nodes[bounded(i, OVB_MAX_NODES / 64)];

		bpf_for (j, 0, 64) {
			if (!bits)
				break;
			refill_one(i * 64 + (u32)__builtin_ctzll(bits), now);
			bits &= bits - 1;
		}
	}
}

#endif
