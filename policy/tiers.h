/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who of a VM's queued vCPUs is worth most to it now. What is known of each is a bit in one of a
 * few bitmaps, set where it becomes known, so a choice is a few words, whatever the VM's size.
 */
#ifndef OVERBOOK_POLICY_TIERS_H
#define OVERBOOK_POLICY_TIERS_H

#include "types.h"

/* The order. */
enum ovb_tier {
	/* Not queued. */
	OVB_TIER_NONE = 0,
	/* It spun when it left its CPU. */
	OVB_TIER_WAITING = 1,
	/* So did this one; but a sibling waits for it, or it has an interrupt to take. */
	OVB_TIER_CHAINED = 2,
	/* Preempted at work, or woken. */
	OVB_TIER_ANY = 3,
	/* Preempted at work in the kernel, where locks are held. */
	OVB_TIER_KERNEL = 4,
	/* At work, with an interrupt to take. */
	OVB_TIER_INTERRUPT = 5,
	/* At work, and a sibling spins for its answer. */
	OVB_TIER_RECEIVER = 6,
	OVB_TIERS = 7,
};

/* 64 vCPUs. */
struct ovb_siblings {
	/* Queued at work; queued since they spun. Nobody is in both. */
	ovb_u64 at_work;
	ovb_u64 waiting;
	/* The rest may be set for who is not queued. */
	ovb_u64 in_kernel;
	ovb_u64 interrupted;
	ovb_u64 awaited;
};

/* Who of 64 vCPUs is of a tier, or a higher one that fits. */
static inline ovb_u64 ovb_tier_members(const struct ovb_siblings *s, ovb_u32 tier)
{
	switch (tier) {
	case OVB_TIER_RECEIVER:
		return s->at_work & s->awaited;
	case OVB_TIER_INTERRUPT:
		return s->at_work & s->interrupted;
	case OVB_TIER_KERNEL:
		return s->at_work & s->in_kernel;
	case OVB_TIER_ANY:
		return s->at_work;
	case OVB_TIER_CHAINED:
		return s->waiting & (s->awaited | s->interrupted);
	case OVB_TIER_WAITING:
		return s->waiting;
	default:
		return 0;
	}
}

/* The highest tier that any of 64 vCPUs is of. */
static inline ovb_u32 ovb_tier_best(const struct ovb_siblings *s)
{
	if (s->at_work) {
		if (s->at_work & s->awaited)
			return OVB_TIER_RECEIVER;
		if (s->at_work & s->interrupted)
			return OVB_TIER_INTERRUPT;
		return s->at_work & s->in_kernel ? OVB_TIER_KERNEL : OVB_TIER_ANY;
	}
	if (!s->waiting)
		return OVB_TIER_NONE;
	return s->waiting & (s->awaited | s->interrupted) ? OVB_TIER_CHAINED : OVB_TIER_WAITING;
}

#endif
