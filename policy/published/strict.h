/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Strict boost (ple-kvm, VEE'21, patch 1): the least shift of the yielder that makes the scheduler
 * accept the target before it.
 *
 * The original compares with the yielder's wake-up granularity and shifts by the target's, so that
 * the two contradict each other at unequal weights, and a third task further left still wins. Here
 * one granularity, the target's, serves both, and what must be beaten is the queue's earliest
 * deadline, whoever has it: that part is the caller's, who passes it as `rival`.
 */
#ifndef OVERBOOK_PUBLISHED_STRICT_H
#define OVERBOOK_PUBLISHED_STRICT_H

#include "../vtime.h"

/*
 * The yielder's new virtual time: `gran` before the target's, if it was further ahead of it than
 * that; never earlier than it was.
 */
static inline ovb_u64 ovb_strict(ovb_u64 yielder, ovb_u64 target, ovb_u64 gran)
{
	if (ovb_vtime_gap(target, yielder) <= gran)
		return yielder;
	return target - gran;
}

/* Nonzero if the target is accepted: no rival is ahead of it by more than `gran`. */
static inline int ovb_strict_accepts(ovb_u64 target, ovb_u64 rival, ovb_u64 gran)
{
	return ovb_vtime_gap(target, rival) <= gran;
}

#endif
