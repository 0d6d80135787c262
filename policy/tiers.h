/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom KVM should have picked: how much a sibling can help a vCPU that spins. A true order, where
 * the published filter (facts.md A5) accepts whoever comes first.
 */
#ifndef OVERBOOK_POLICY_TIERS_H
#define OVERBOOK_POLICY_TIERS_H

#include "types.h"

/* The order; each can be switched off by its bit (1 << tier). */
enum ovb_tier {
	/* Not queued, not allowed here, or it waits itself. */
	OVB_TIER_NONE = 0,
	/* It waited, but so long ago that it may have got what it waited for. */
	OVB_TIER_STALE = 1,
	/* A receiver, or one with an interrupt to take, that waits itself: it would take the
	 * interrupt and spin on, where one at work works on. */
	OVB_TIER_CHAINED = 2,
	/* Relaxed: preempted at work in user mode, or its own wait is over. */
	OVB_TIER_ANY = 3,
	/* Preempted at work in the kernel, where locks are held, or its own wait there is over. */
	OVB_TIER_KERNEL = 4,
	/* It has an interrupt to take. */
	OVB_TIER_INTERRUPT = 5,
	/* The spinner has sent it an IPI that it has not handled. */
	OVB_TIER_RECEIVER = 6,
	OVB_TIERS = 7,
};

#define OVB_TIERS_ALL 0x7eu

/* What is known of a candidate. */
struct ovb_candidate {
	/* Queued (a halted vCPU is not, until it is woken), and allowed on the spinner's CPU. */
	ovb_u32 available;
	/* An open relation leads from the spinner to it. */
	ovb_u32 receiver;
	ovb_u32 interrupt;
	/* It left its CPU in the guest's kernel. */
	ovb_u32 in_kernel;
	/* It left its CPU since it waited itself. */
	ovb_u32 waiting;
	/* What it is known to have waited for has happened. */
	ovb_u32 wait_over;
	/* It has waited for longer than a wait's usual length. */
	ovb_u32 stale;
};

/* The highest tier of `enabled` that holds. */
static inline ovb_u32 ovb_tier_of(const struct ovb_candidate *c, ovb_u32 enabled)
{
	if (!c->available)
		return OVB_TIER_NONE;
	if (c->waiting && !c->wait_over) {
		if ((c->receiver || c->interrupt) && enabled & 1u << OVB_TIER_CHAINED)
			return OVB_TIER_CHAINED;
		return c->stale && enabled & 1u << OVB_TIER_STALE ? OVB_TIER_STALE : OVB_TIER_NONE;
	}
	if (c->receiver && enabled & 1u << OVB_TIER_RECEIVER)
		return OVB_TIER_RECEIVER;
	if (c->interrupt && enabled & 1u << OVB_TIER_INTERRUPT)
		return OVB_TIER_INTERRUPT;
	if (c->in_kernel && enabled & 1u << OVB_TIER_KERNEL)
		return OVB_TIER_KERNEL;
	return enabled & 1u << OVB_TIER_ANY ? OVB_TIER_ANY : OVB_TIER_NONE;
}

#endif
