/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * 64-bit arithmetic without a 64-bit division: a 32-bit kernel has no __udivdi3 to link with (the
 * gap/10 of [debooster-v2] did not link), and BPF has no 128-bit product.
 */
#ifndef OVERBOOK_POLICY_MATH_H
#define OVERBOOK_POLICY_MATH_H

#include "types.h"

/* a + b, or the largest value if that does not fit. */
static inline ovb_u64 ovb_add_sat(ovb_u64 a, ovb_u64 b)
{
	return a + b < a ? OVB_U64_MAX : a + b;
}

/* The upper 64 bits of a · b. */
static inline ovb_u64 ovb_mul_hi(ovb_u64 a, ovb_u64 b)
{
	ovb_u64 a_lo = (ovb_u32)a, a_hi = a >> 32, b_lo = (ovb_u32)b, b_hi = b >> 32;
	ovb_u64 lo = a_lo * b_lo, mid = a_hi * b_lo + (lo >> 32);
	ovb_u64 mid2 = a_lo * b_hi + (ovb_u32)mid;

	return a_hi * b_hi + (mid >> 32) + (mid2 >> 32);
}

/* (a · b) >> shift, or the largest value if that does not fit. shift is 0 to 63. */
static inline ovb_u64 ovb_mul_shr_sat(ovb_u64 a, ovb_u64 b, ovb_u32 shift)
{
	ovb_u64 hi = ovb_mul_hi(a, b), lo = a * b;

	if (hi >> shift)
		return OVB_U64_MAX;
	return shift ? (hi << (64 - shift)) | (lo >> shift) : lo;
}

/* floor(a / 10), exact for every a: 0xcc…cd is ⌈2^67 / 10⌉, and the excess never reaches the next
 * integer. */
static inline ovb_u64 ovb_div10(ovb_u64 a)
{
	return ovb_mul_hi(a, 0xcccccccccccccccdull) >> 3;
}

/* Members of a set. */
static inline ovb_u32 ovb_popcount(ovb_u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (ovb_u32)(bits * 0x0101010101010101ull >> 56);
}

#endif
