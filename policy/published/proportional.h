/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Proportional hierarchical yield (K Prateek Nayak): after an ordinary yield, every group above the
 * yielder is pushed back too, by a weighted slice times the yielder's share of that group.
 *
 * Mended: the share is carried as a fraction of 2^15, so that nothing overflows on 32 bits and no
 * 64-by-32 division truncates a total weight; every level is told to be brought up to date by the
 * caller, current or not.
 */
#ifndef OVERBOOK_PUBLISHED_PROPORTIONAL_H
#define OVERBOOK_PUBLISHED_PROPORTIONAL_H

#include "forfeit.h"
#include "lca.h"
#include "../math.h"
#include "../weight.h"

#define OVB_SHARE_ONE (1u << 15)

/* weight ÷ total as a fraction of OVB_SHARE_ONE, at most that. */
static inline ovb_u32 ovb_share(ovb_u32 weight, ovb_u32 total)
{
	if (weight >= total)
		return OVB_SHARE_ONE;
	if (weight > 0x1ffff) {
		weight >>= 15;
		total >>= 15;
	}
	return total ? (weight << 15) / total : OVB_SHARE_ONE;
}

/*
 * Penalties of the levels above the task: penalty[i] for chain->level[i], i from 1. Stops at the
 * first level whose entity is not eligible (`now[i]` is that queue's virtual time) or where the
 * share has become nothing. Returns the number of levels written, level 0 included.
 */
static inline ovb_u32 ovb_proportional(const struct ovb_chain *chain, const ovb_u64 *now,
				       ovb_u64 slice, ovb_u64 *penalty)
{
	ovb_u32 share = OVB_SHARE_ONE, i;

	penalty[0] = 0;
	for (i = 1; i < OVB_MAX_LEVELS; i++) {
		if (i >= chain->depth || !ovb_eligible(chain->level[i].vtime, now[i]))
			return i;
		/* The queue that this entity owns is the one on which the level below stands. */
		share = (share *
			 ovb_share(chain->level[i - 1].weight, chain->level[i - 1].total_weight)) >>
			15;
		if (!share)
			return i;
		penalty[i] =
			ovb_mul_shr_sat(ovb_weighted(slice, chain->level[i].weight), share, 15);
	}
	return i;
}

#endif
