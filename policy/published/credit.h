/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lag credit [lag-credit-v3]: instead of pushing the yielder back, give the target just enough lag
 * to be eligible.
 *
 * The source gives its margin in words: small, positive, growing with the length of the queue, and
 * within the lag that EEVDF allows. The numbers are ours: 1/8 of a weighted slice for each task
 * queued there or below, its own included, so that the target survives one pick of each, and at
 * most one weighted slice.
 *
 * Example: a weighted slice of 2.8 ms, 3 tasks queued, the queue at virtual time 100 ms. A target
 * at 104 ms is not eligible; it is put at 100 - 3/8 * 2.8 = 98.95 ms. One at 99 ms stays there.
 *
 * As posted nobody pays for it: tasks that yield to each other are eligible for ever, and another
 * one on their queue does not run. Mended, the yielder pays, out of lag that it has: the queue's
 * virtual time stays, and so the lag of all others; nobody gets into debt by it, and whoever is
 * owed time is served. And the caller does not count who sleeps and is only not dequeued yet.
 *
 * Example: the same, the yielder at 98.8 ms, both of weight 1024. The target wants 5.05 ms and gets
 * the 1.2 that there are: it goes to 102.8 ms, the yielder to 100.
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

/* The same, where `paid` is all that it gets, ns of the target's virtual time. */
static inline ovb_u64 ovb_credit_paid(ovb_u64 vtime, ovb_u64 now, ovb_u64 weighted_slice,
				      ovb_u32 nr_queued, ovb_u64 paid)
{
	ovb_u64 credited = ovb_credit(vtime, now, weighted_slice, nr_queued);

	return vtime - credited > paid ? vtime - paid : credited;
}

#endif
