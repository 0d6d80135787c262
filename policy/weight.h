/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights: 1024 is nice 0 or cpu.weight 100. A task of weight w ages by Δ · 1024 / w in virtual
 * time while it runs for Δ.
 */
#ifndef OVERBOOK_POLICY_WEIGHT_H
#define OVERBOOK_POLICY_WEIGHT_H

#include "math.h"

#define OVB_WEIGHT_NICE_0 1024u
#define OVB_WEIGHT_MIN	  1u
/* cpu.weight 10000. */
#define OVB_WEIGHT_MAX 102400u

#define OVB_CGROUP_WEIGHT_DEFAULT 100u
#define OVB_CGROUP_WEIGHT_MAX	  10000u

/* A weight within the bounds that the functions here are made for. */
static inline ovb_u32 ovb_weight_clamp(ovb_u32 weight)
{
	if (weight < OVB_WEIGHT_MIN)
		return OVB_WEIGHT_MIN;
	return weight > OVB_WEIGHT_MAX ? OVB_WEIGHT_MAX : weight;
}

/* cpu.weight (1 to 10000, 100 by default) as a scheduler weight. */
static inline ovb_u32 ovb_weight_from_cgroup(ovb_u32 cpu_weight)
{
	if (cpu_weight < 1)
		cpu_weight = 1;
	if (cpu_weight > OVB_CGROUP_WEIGHT_MAX)
		cpu_weight = OVB_CGROUP_WEIGHT_MAX;
	/* Rounded to nearest, and never to nothing: cpu.weight 1 is weight 10. */
	return (cpu_weight * OVB_WEIGHT_NICE_0 + OVB_CGROUP_WEIGHT_DEFAULT / 2) /
	       OVB_CGROUP_WEIGHT_DEFAULT;
}

/*
 * ns · 1024 / weight: real time as virtual time, a slice as a deadline's distance. Saturates.
 *
 * The division is by the weight's 32-bit reciprocal, so the result is never more than the exact one
 * and less by at most one part in 2^32 / weight (24 in a million at the largest weight) and 1 ns.
 */
static inline ovb_u64 ovb_weighted(ovb_u64 ns, ovb_u32 weight)
{
	weight = ovb_weight_clamp(weight);
	if (weight == OVB_WEIGHT_NICE_0)
		return ns;
	return ovb_mul_shr_sat(ns, 0xffffffffu / weight, 22);
}

/*
 * Effective weights: a task's weight times the share of its group, of that group's group, and so
 * on. Four bits finer than weights, so that a VM of many vCPUs does not lose its share to rounding.
 */
#define OVB_EFFECTIVE_SHIFT  4u
#define OVB_EFFECTIVE_NICE_0 (OVB_WEIGHT_NICE_0 << OVB_EFFECTIVE_SHIFT)

/* weight ÷ total of `effective`: what a member of `weight` has of its group. 1 at least. */
static inline ovb_u32 ovb_effective(ovb_u32 effective, ovb_u32 weight, ovb_u32 total)
{
	ovb_u32 coarse, rest, part;

	if (weight >= total)
		return effective ? effective : 1;
	/* A fraction of 2^30 from two divisions of 32 bits; total is below 2^17 for 128 tasks. */
	while (total > 0x1ffff) {
		weight >>= 1;
		total >>= 1;
	}
	coarse = (weight << 15) / total;
	rest = (weight << 15) % total;
	part = (ovb_u32)(((ovb_u64)effective * (coarse << 15 | (rest << 15) / total)) >> 30);
	return part ? part : 1;
}

/* ns of real time as virtual time at an effective weight. Saturates; see ovb_weighted(). */
static inline ovb_u64 ovb_weighted_effective(ovb_u64 ns, ovb_u32 effective)
{
	if (!effective)
		effective = 1;
	if (effective == OVB_EFFECTIVE_NICE_0)
		return ns;
	return ovb_mul_shr_sat(ns, 0xffffffffu / effective, 32 - 10 - OVB_EFFECTIVE_SHIFT);
}

#endif
