/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hand-off (ours): the target runs next on the yielder's CPU and inherits the rest of the
 * yielder's turn, on the yielder's account or on a part of it. Nobody outside the VM waits longer
 * than he would have without the yield, but for the least grant, and the VM's virtual time grows by
 * exactly what its vCPUs run: the yielder pays for its part when it yields and gets back what was
 * not used.
 *
 *   yielder's vtime += weighted(price)          at the yield
 *   target runs u:  donor's part = min(u, price), the rest is the target's own
 *   yielder's vtime −= weighted(price − donor's part)   when the target stops
 */
#ifndef OVERBOOK_POLICY_HANDOFF_H
#define OVERBOOK_POLICY_HANDOFF_H

#include "types.h"

/* Who stops after `used` ns on a grant: how much of it is the donor's, and what he gets back. */
struct ovb_handoff_bill {
	/* ns that the donor pays. */
	ovb_u64 donor;
	/* ns that the runner pays himself. */
	ovb_u64 own;
	/* ns of the grant that go back to the donor. */
	ovb_u64 refund;
};

/*
 * ns granted: what is left of the yielder's turn, at most `slice`. A yielder at the very end of its
 * turn may grant `least` all the same, as a target that is preempted at once helps nobody, but only
 * once: in overtime already, it grants nothing, and the queues are asked. Otherwise two siblings
 * that wait for each other by turns would keep a CPU for ever.
 */
static inline ovb_u64 ovb_handoff_grant(ovb_u64 left, ovb_u64 least, ovb_u64 slice,
					ovb_u32 overtime)
{
	if (left < least)
		left = overtime ? 0 : least;
	return left > slice ? slice : left;
}

/* ns of a grant that the yielder pays: all, but at most `least` if the target is `aside`, that is,
 * shall only take an interrupt, and then go on with what it does in user mode. */
static inline ovb_u64 ovb_handoff_price(ovb_u64 grant, ovb_u64 least, ovb_u32 aside)
{
	return aside && grant > least ? least : grant;
}

/* Nonzero if who runs on such a grant is in overtime. */
static inline ovb_u32 ovb_handoff_overtime(ovb_u64 left, ovb_u64 least, ovb_u32 overtime)
{
	return overtime || left < least;
}

/* Nonzero if `left` ns of a turn are worth a move that costs the target `cost` ns of cold caches:
 * it should work for four times as long. */
static inline int ovb_handoff_pays(ovb_u64 left, ovb_u64 cost)
{
	return left >> 2 >= cost;
}

/* Splits `used` ns. donor + refund = grant and donor + own = used, always. */
static inline void ovb_handoff_settle(ovb_u64 grant, ovb_u64 used, struct ovb_handoff_bill *bill)
{
	bill->donor = used < grant ? used : grant;
	bill->own = used - bill->donor;
	bill->refund = grant - bill->donor;
}

#endif
