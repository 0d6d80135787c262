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
/* SCHED_IDLE in the kernel, and a group with cpu.idle: less than cpu.weight 1, which is 10. */
#define OVB_WEIGHT_IDLE 3u
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
 * Rates: ns of virtual time that a tenant ages per ns that it runs, the inverse of what it weighs
 * among all. A rate is a mantissa, whose top bit is set, in the upper 32 bits, and a shift in the
 * lower ones: mantissa >> shift. So one of 8,000 vCPUs is as exact as one of two: to some 20 parts
 * in a million.
 */
#define OVB_RATE_SHIFT_MIN 8u
#define OVB_RATE_SHIFT_MAX 62u

/* mantissa · 2^−shift as a rate; a shift out of bounds saturates. */
static inline ovb_u64 ovb_rate_pack(ovb_u32 mantissa, ovb_s32 shift)
{
	if (shift < (ovb_s32)OVB_RATE_SHIFT_MIN)
		return 0xffffffffull << 32 | OVB_RATE_SHIFT_MIN;
	if (shift > (ovb_s32)OVB_RATE_SHIFT_MAX)
		return 0x80000000ull << 32 | OVB_RATE_SHIFT_MAX;
	return (ovb_u64)mantissa << 32 | (ovb_u32)shift;
}

/* How far `x` must be shifted to the left until its top bit is set; x is not 0. Without branches,
 * as the verifier follows every one. */
static inline ovb_u32 ovb_leading(ovb_u32 x)
{
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	return 32 - ovb_popcount(x);
}

/* a ÷ b as a rate; a 0 counts as 1. By two divisions of 32 bits, with b rounded to 16. */
static inline ovb_u64 ovb_rate_ratio(ovb_u32 a, ovb_u32 b)
{
	ovb_u32 up_a, up_b, divisor;
	ovb_u64 quotient;
	ovb_s32 shift;

	a = a ? a : 1;
	b = b ? b : 1;
	up_a = ovb_leading(a);
	up_b = ovb_leading(b);
	a <<= up_a;
	divisor = (ovb_u32)(((ovb_u64)(b << up_b) + 0x8000) >> 16);
	quotient = ((ovb_u64)(a / divisor) << 16) + ((a % divisor) << 16) / divisor;
	shift = 32 + (ovb_s32)up_a - (ovb_s32)up_b;
	if (quotient >> 32) {
		quotient >>= 1;
		shift--;
	} else if (!(quotient >> 31)) {
		quotient <<= 1;
		shift++;
	}
	return ovb_rate_pack((ovb_u32)quotient, shift);
}

/* The rate of a tenant that weighs so much among all: 1 for nice 0. */
static inline ovb_u64 ovb_rate_of(ovb_u32 weight)
{
	return ovb_rate_ratio(OVB_WEIGHT_NICE_0, weight);
}

/*
 * rate · a ÷ b. A member's rate is its group's, times the sum of the members' weights ÷ its own.
 *
 * Example: a group of cpu.weight 100 below the root, rate 1, has members of weights 100 and 300.
 * Their rates are 1 · 400 ÷ 100 = 4 and 1 · 400 ÷ 300 = 1.33: they have a quarter and three
 * quarters of what the group has.
 */
static inline ovb_u64 ovb_rate_times(ovb_u64 rate, ovb_u32 a, ovb_u32 b)
{
	ovb_u64 part = ovb_rate_ratio(a, b), product;
	ovb_s32 shift;

	product = (rate >> 32) * (part >> 32);
	shift = (ovb_s32)(ovb_u32)rate + (ovb_s32)(ovb_u32)part - 32;
	if (product >> 63)
		return ovb_rate_pack((ovb_u32)(product >> 32), shift);
	return ovb_rate_pack((ovb_u32)(product >> 31), shift + 1);
}

/* What a rate was made of, in one word: that of the depths below, and of one. Rates are asked
 * for all the time, and change seldom. Two ways to weigh a tenant have one word by chance only,
 * once in 2^64 changes. */
static inline ovb_u64 ovb_rate_inputs(ovb_u64 below, ovb_u64 total, ovb_u32 weight)
{
	below = (below ^ total) * 0x9e3779b97f4a7c15ull;
	below ^= below >> 29;
	return (below ^ weight) * 0xbf58476d1ce4e5b9ull;
}

/* ns of real time as virtual time at a rate. Saturates. */
static inline ovb_u64 ovb_age(ovb_u64 rate, ovb_u64 ns)
{
	ovb_u32 shift = (ovb_u32)rate & 63;

	return shift ? ovb_mul_shr_sat(ns, rate >> 32, shift) : ns;
}

#endif
