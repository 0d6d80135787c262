/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which of a VM's queued vCPUs is worth most to it now. What is known of each is four bits, one in
 * each of four bitmaps, set where it becomes known, so a choice is a few words, whatever the VM's
 * size.
 *
 * Example: vCPU 0 was preempted at work; 1 spun; 2 spun, and was sent an IPI; 3 was at work when it
 * was sent one. at_work = 0b1001, waiting = 0b0110, interrupted = 0b1100, answered = 0. The order
 * is 3 (INTERRUPT), 0 (ANY), 2 (CHAINED), 1 (WAITING).
 */
#ifndef OVERBOOK_POLICY_TIERS_H
#define OVERBOOK_POLICY_TIERS_H

#include "types.h"

/* From the least useful to the most. */
enum ovb_tier {
	/* Not queued. */
	OVB_TIER_NONE = 0,
	/* It spun when it left its CPU. */
	OVB_TIER_WAITING = 1,
	/* So did this one, and it has an interrupt to take, or all its answers. */
	OVB_TIER_CHAINED = 2,
	/* Preempted at work, or woken. */
	OVB_TIER_ANY = 3,
	/* At work, with an interrupt to take. */
	OVB_TIER_INTERRUPT = 4,
	/* It spun for answers to its IPIs, and has them all. */
	OVB_TIER_ANSWERED = 5,
	OVB_TIERS = 6,
};

/* 64 vCPUs. */
struct ovb_siblings {
	/* Queued at work; queued since they spun. None is in both. */
	ovb_u64 at_work;
	ovb_u64 waiting;
	/* These may be set for vCPUs that are not queued. */
	ovb_u64 interrupted;
	ovb_u64 answered;
};

/* Those of 64 vCPUs that are of a tier, or a higher one that fits. */
static inline ovb_u64 ovb_tier_members(const struct ovb_siblings *s, ovb_u32 tier)
{
	switch (tier) {
	case OVB_TIER_ANSWERED:
		return s->at_work & s->answered;
	case OVB_TIER_INTERRUPT:
		return s->at_work & s->interrupted;
	case OVB_TIER_ANY:
		return s->at_work;
	case OVB_TIER_CHAINED:
		return s->waiting & (s->answered | s->interrupted);
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
		if (s->at_work & s->answered)
			return OVB_TIER_ANSWERED;
		if (s->at_work & s->interrupted)
			return OVB_TIER_INTERRUPT;
		return OVB_TIER_ANY;
	}
	if (!s->waiting)
		return OVB_TIER_NONE;
	return s->waiting & (s->answered | s->interrupted) ? OVB_TIER_CHAINED : OVB_TIER_WAITING;
}

#endif
