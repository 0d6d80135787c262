/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Proportional hierarchical yield [proportional-yield]: after an ordinary yield, every group above
 * the yielder is pushed back too, by a weighted slice times the yielder's share of that group. The
 * caller climbs from the task to the root, and stops where an entity is not eligible.
 *
 * Example: a slice of 3 ms; two vCPUs of equal weight in a VM's group, which weighs a quarter of
 * the root queue. One vCPU yields. Its share of the group is 1/2, so the group moves back by half
 * of its weighted slice; a group above the root queue would move by 1/2 * 1/4 = 1/8 of its own.
 *
 * The share is carried as a fraction of 2^15, so that nothing overflows on 32 bits and no 64-by-32
 * division truncates a total weight.
 */
#ifndef OVERBOOK_PUBLISHED_PROPORTIONAL_H
#define OVERBOOK_PUBLISHED_PROPORTIONAL_H

#include "../math.h"

#define OVB_SHARE_ONE (1u << 15)

/* weight ÷ total as a fraction of OVB_SHARE_ONE, at most that. */
static inline ovb_u32 ovb_share(ovb_u32 weight, ovb_u32 total)
{
	if (weight >= total)
		return OVB_SHARE_ONE;
	while (weight > 0x1ffff) {
		weight >>= 1;
		total >>= 1;
	}
	return total ? (weight << 15) / total : OVB_SHARE_ONE;
}

/*
 * One level up: the yielder had `share` of an entity (OVB_SHARE_ONE of itself), which weighs
 * `weight` of `total` on its queue. Returns its share of the entity that owns that queue; nothing
 * is left to push with at 0.
 */
static inline ovb_u32 ovb_proportional_share(ovb_u32 share, ovb_u32 weight, ovb_u32 total)
{
	return (share * ovb_share(weight, total)) >> 15;
}

/* How far that entity is pushed back, ns of virtual time: its weighted slice times the share. */
static inline ovb_u64 ovb_proportional(ovb_u64 weighted_slice, ovb_u32 share)
{
	return ovb_mul_shr_sat(weighted_slice, share, 15);
}

#endif
