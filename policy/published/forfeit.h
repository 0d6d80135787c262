/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Forfeit on yield: the kernel's own rule since 79104becf42b, and the baseline of all others. A
 * task that has received no more than its share gives up the rest of its turn; one that runs ahead
 * is left alone, as repeated yields would run its virtual time away.
 */
#ifndef OVERBOOK_PUBLISHED_FORFEIT_H
#define OVERBOOK_PUBLISHED_FORFEIT_H

#include "../vtime.h"

/* Place of a task in the queue's virtual time. */
struct ovb_place {
	ovb_u64 vtime;
	ovb_u64 deadline;
};

/* Nonzero if a task at `vtime` has received no more than its share at queue time `now`. */
static inline int ovb_eligible(ovb_u64 vtime, ovb_u64 now)
{
	return !ovb_vtime_before(now, vtime);
}

/*
 * Moves an eligible yielder to its deadline, and that by one weighted slice. Returns nonzero if it
 * moved. The shift is at most as far as the deadline lies ahead: a weighted slice, two for who gave
 * up a turn.
 */
static inline int ovb_forfeit(struct ovb_place *place, ovb_u64 now, ovb_u64 weighted_slice)
{
	if (!ovb_eligible(place->vtime, now))
		return 0;
	/* Time that has already run may have carried the task past its deadline. */
	place->vtime = ovb_vtime_max(place->vtime, place->deadline);
	place->deadline = place->vtime + weighted_slice;
	return 1;
}

#endif
