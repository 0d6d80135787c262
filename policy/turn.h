/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Turns of tenants. A tenant is a VM, a group of ordinary tasks, or a task without a group. It has
 * a virtual time, which is what it has run times its rate (weight.h), and a deadline, which is the
 * virtual time at which its turn ends. The tenant with the earliest deadline goes first. When its
 * virtual time has come to the deadline, the next turn begins there.
 *
 *   level     virtual time at which the turns of the tasks picked on one CPU, or from one pool,
 *             began
 *   lag       level − virtual time: what a tenant is owed
 *   tide      the latest level of all CPUs
 *   pool      a set of CPUs that tasks are bound to
 *   offset    what is added to the deadlines of a pool that has fallen behind the tide
 *
 * Example, lag: the level is 100 ms. A tenant of rate 1 at 97 ms is owed 3 ms of CPU time, one of
 * rate 2 at 97 ms 1.5 ms.
 *
 * Example, turns: slices of 3 ms. A VM of weight 4096 has a turn of 3 ms on one CPU, which is 3 ms
 * · 1024 ÷ 4096 = 0.75 ms of virtual time: it has four such turns, on four CPUs or one after the
 * other, while a task of weight 1024 has one.
 */
#ifndef OVERBOOK_POLICY_TURN_H
#define OVERBOOK_POLICY_TURN_H

#include "vtime.h"
#include "weight.h"

/* A tenant that was runnable all the time keeps as many slices of lag for each CPU that it can use;
 * one that slept keeps a slice. Pools fall behind the tide by as many slices at most. */
#define OVB_LAG_TURNS 8u
/* No key is later than the CPU's level by more than so many slices, and two for each of
 * ovb_between(): see ovb_latest(). */
#define OVB_AHEAD_SLICES 4u
/* Who was preempted is made to wait until it has waited for so many slices, and by whom is so many
 * slices on all its CPUs ahead of it at most. */
#define OVB_WAIT_SLICES	    6u
#define OVB_OVERSTAY_SLICES 3u
/* What is lighter than so little of its group counts as this. */
#define OVB_BETWEEN_MOST (1u << 17)

/* ns that a tenant gets by running on all the CPUs that it can use for a slice each. */
static inline ovb_u64 ovb_reach(ovb_u64 slice, ovb_u32 runnable, ovb_u32 cpus)
{
	ovb_u32 at_a_time = runnable < cpus ? runnable : cpus;

	return at_a_time ? slice * at_a_time : slice;
}

/* The earliest virtual time of a tenant that comes to be queued: a slice of lag if it slept, if not
 * OVB_LAG_TURNS (8) slices on each of its CPUs, both of them aged. */
static inline ovb_u64 ovb_earliest(ovb_u64 level, ovb_u64 slice, ovb_u64 reach, ovb_u32 slept)
{
	return level - (slept ? slice : reach * OVB_LAG_TURNS);
}

/*
 * How many slices of its tenant may go by between two of a member's: one for each member, and for a
 * light one as many as all, `total`, weigh times what it does, at most OVB_BETWEEN_MOST. A weight
 * of 0 is that of the tenant itself.
 *
 * Example: 2 members of 1024 and 16: 2 slices between those of the first, 65 between those of the
 * second.
 */
static inline ovb_u32 ovb_between(ovb_u32 members, ovb_u32 total, ovb_u32 weight)
{
	ovb_u32 slices = weight ? total / weight : 0;

	if (slices > OVB_BETWEEN_MOST)
		slices = OVB_BETWEEN_MOST;
	return slices > members ? slices : members;
}

/*
 * The latest key of a tenant's member, whatever the tenant has run elsewhere; `slice`
 * is aged, `between` is ovb_between(). Members take turns, so each waits for a slice of all others,
 * and a slice may take twice as long, as it ends with a tick of the kernel. Were the bound nearer,
 * then in a long queue all would stand at it, in the order of coming: tenants would be served by
 * the number of their tasks.
 *
 * Example: slices of 3 ms, a group of 12 tasks that ages by 1: no key beyond
 * 3 ms · (4 + 2 · 12) = 84 ms after the level.
 */
static inline ovb_u64 ovb_latest(ovb_u64 level, ovb_u64 slice, ovb_u32 between)
{
	return level + slice * (OVB_AHEAD_SLICES + 2 * (ovb_u64)between);
}

/* Nonzero if the turn that ends at `deadline` is over, or was never one of this length. */
static inline int ovb_turn_over(ovb_u64 vtime, ovb_u64 deadline, ovb_u64 turn)
{
	return !ovb_vtime_before(vtime, deadline) || deadline - vtime > 2 * turn;
}

/*
 * Whether somebody who was preempted has waited for so long, ns, that nobody overstays any more.
 *
 * Example: slices of 3 ms, and ticks every 4. Of two VMs that compute on the same CPUs vCPUs run
 * for 20 ms at a time, as each may wait until it has waited for 18, and for 4 ms without this. Of
 * four VMs one waits for three others: they run for 4 to 12 ms, and it waits for 28; 12 without
 * this.
 */
static inline int ovb_waited_enough(ovb_u64 waited, ovb_u64 slice)
{
	return waited >= OVB_WAIT_SLICES * slice;
}

/*
 * Whether the only runnable task of a VM, which went to sleep so long ago, ns, is likely to sleep
 * soon again. Then what it is owed is forgotten, so it is not made to wait: its VM would have less
 * than it is due.
 *
 * Example: slices of 3 ms, a VM of one vCPU that works for 6 ms and sleeps for 2, beside a VM of 4
 * on 4 CPUs. Made to wait for up to 13 ms each time, it has 0.52 CPUs, and 0.69 if it is not.
 */
static inline int ovb_sleeps_often(ovb_u64 slept_ago, ovb_u64 slice)
{
	return slept_ago < 2 * OVB_WAIT_SLICES * slice;
}

/*
 * Whether a vCPU whose slice is over may stay although others are due who can wait: its key is
 * later than that of the first of them by `ahead`, whose tenant's reach is `first_reach`; virtual
 * time.
 *
 * Example: slices of 3 ms. A VM of 4 vCPUs in the root weighs 4096, and gets 0.75 ms of virtual
 * time in a slice on one CPU, 3 on four: others may be 9 ms ahead of it. In a group of weight 100
 * it weighs 1024, and gets 12 ms: they may be 36 ms ahead.
 */
static inline int ovb_may_overstay(ovb_u64 ahead, ovb_u64 first_reach)
{
	return ahead <= OVB_OVERSTAY_SLICES * first_reach;
}

/* How far a member stands from its tenant's deadline: its own lag among the members, from a slice
 * before to two after it. `behind` is its time less the members' clock. */
static inline ovb_s64 ovb_member_bias(ovb_s64 behind, ovb_u64 slice)
{
	ovb_s64 most = (ovb_s64)(2 * slice), least = -(ovb_s64)slice;

	if (behind > most)
		return most;
	return behind < least ? least : behind;
}

/* A member's time, brought near to the members' clock: see ovb_earliest(). */
static inline ovb_u64 ovb_member_time(ovb_u64 time, ovb_u64 clock, ovb_u64 slice, ovb_u32 woken)
{
	ovb_u64 floor = clock - (woken ? slice : slice * OVB_LAG_TURNS);
	ovb_u64 ceiling = clock + slice * OVB_LAG_TURNS;

	if (ovb_vtime_before(time, floor))
		return floor;
	return ovb_vtime_before(ceiling, time) ? ceiling : time;
}

/* What a pool's offset must grow by, so that its level is no further behind the tide than by
 * `most`. */
static inline ovb_u64 ovb_lift(ovb_u64 level, ovb_u64 tide, ovb_u64 most)
{
	ovb_u64 behind = ovb_vtime_gap(tide, level);

	return behind > most ? behind - most : 0;
}

#endif
