/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Virtual times and clocks wrap (queues start just below the wrap on purpose), so they are compared
 * by the sign of their difference, which is right while they lie within 2^63 ns of each other. For
 * a clock that is 292 years. Virtual time goes faster: beside 50 VMs of weight 1024 that of one of
 * weight 3 goes by 17,000 ns each ns, and on 14 CPUs that it has for itself it is there in 10
 * hours; who has slept for longer may be taken for ahead.
 */
#ifndef OVERBOOK_POLICY_VTIME_H
#define OVERBOOK_POLICY_VTIME_H

#include "types.h"

/* a − b, signed. */
static inline ovb_s64 ovb_vtime_diff(ovb_u64 a, ovb_u64 b)
{
	return (ovb_s64)(a - b);
}

/* Nonzero if a lies before b. */
static inline int ovb_vtime_before(ovb_u64 a, ovb_u64 b)
{
	return ovb_vtime_diff(a, b) < 0;
}

/* The later of two. */
static inline ovb_u64 ovb_vtime_max(ovb_u64 a, ovb_u64 b)
{
	return ovb_vtime_before(a, b) ? b : a;
}

/* How far `target` lies behind (later than) `yielder` in virtual time; 0 if it does not. */
static inline ovb_u64 ovb_vtime_gap(ovb_u64 target, ovb_u64 yielder)
{
	return ovb_vtime_before(yielder, target) ? target - yielder : 0;
}

#endif
