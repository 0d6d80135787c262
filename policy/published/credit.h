/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lag credit: instead of pushing the yielder back, lift the target just above the line below which
 * it may not be picked. The redesign (v3) of the vruntime debooster.
 *
 * The sources say "a small positive lag margin, scaled by queue depth and clamped to the legal
 * positive-lag bound" and give no numbers. Ours: 1/8 of a weighted slice for each queued
 * competitor, so that the target survives one pick of each, and at most one weighted slice, the lag
 * that EEVDF itself allows.
 */
#ifndef OVERBOOK_PUBLISHED_CREDIT_H
#define OVERBOOK_PUBLISHED_CREDIT_H

#include "../math.h"
#include "../vtime.h"

/* Lag that a credited target ends with, ns of virtual time: at least 1, at most one slice. */
static inline ovb_u64 ovb_credit_margin(ovb_u64 weighted_slice, ovb_u32 nr_queued)
{
	ovb_u64 margin = ovb_mul_shr_sat(weighted_slice, nr_queued, 3);

	if (margin > weighted_slice)
		margin = weighted_slice;
	return margin ? margin : 1;
}

/* The target's new virtual time at queue time `now`. Never later than it was. */
static inline ovb_u64 ovb_credit(ovb_u64 vtime, ovb_u64 now, ovb_u64 weighted_slice,
				 ovb_u32 nr_queued)
{
	/* Who is eligible already gets nothing. */
	if (!ovb_vtime_before(now, vtime))
		return vtime;
	return now - ovb_credit_margin(weighted_slice, nr_queued);
}

#endif
