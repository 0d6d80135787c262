/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a VM could have now if it wanted all that it can use: for guests that are told. Tenants fill
 * up like vessels: each has its share by weight, or what it wants if that is less, and what is left
 * over is shared by the others again.
 *
 * Example: 4 CPUs; A, of 4 vCPUs, asks; B and C, of the same weight, want 2 and 0.5. C has its 0.5,
 * and A and B share 3.5: A could have 1.75.
 */
#ifndef OVERBOOK_POLICY_ENTITLE_H
#define OVERBOOK_POLICY_ENTITLE_H

#include "weight.h"

/* CPUs are in these parts: 10000 is one. */
#define OVB_ENTITLE_ONE 10000u

/* A tenant that competes. */
struct ovb_claim {
	/* In any unit that all have in common, 1 to 2^20. */
	ovb_u32 weight;
	/* CPUs that it uses and waits for, at most 2^26. */
	ovb_u32 wants;
	/* Scratch: it has what it wants. */
	ovb_u32 settled;
};

/* CPUs of `capacity` (at most 2^26) that a tenant of a weight (1 to 2^20) could have beside
 * others, at most 2^16 of them, if it wanted `most`; to 20 parts in a million. */
static inline ovb_u32 ovb_entitled(struct ovb_claim *others, ovb_u32 nr, ovb_u32 weight,
				   ovb_u32 most, ovb_u32 capacity)
{
	ovb_u64 left = capacity, total = weight, share;
	ovb_u32 i, found = 1;

	for (i = 0; i < nr; i++) {
		others[i].settled = 0;
		total += others[i].weight;
	}
	while (found) {
		found = 0;
		for (i = 0; i < nr; i++) {
			struct ovb_claim *claim = &others[i];

			if (claim->settled || claim->wants * total > left * claim->weight)
				continue;
			claim->settled = 1;
			left -= claim->wants;
			total -= claim->weight;
			found = 1;
		}
	}
	while (total >> 32) {
		total >>= 1;
		weight >>= 1;
	}
	share = ovb_age(ovb_rate_ratio(weight, (ovb_u32)total), left);
	return share < most ? (ovb_u32)share : most;
}

/* CPUs that idle for less than a fiftieth of their time are full, and they stay so up to a twelfth:
 * guests that pack leave some of it. */
#define OVB_ENTITLE_FILLS 50u
#define OVB_ENTITLE_EMPTY 12u

/* Whether so many CPUs are full of which so many were `idle`, in any unit. Where they are not,
 * a guest can have all that it wants: it waits only now and then, and one that packs could not
 * use the CPUs that idle at other moments. `full`: they were.
 *
 * Example: 4 CPUs. With 0.06 of them idle they are full, and until it is 0.34. */
static inline int ovb_entitle_full(ovb_u32 idle, ovb_u32 cpus, int full)
{
	return (ovb_u64)idle * (full ? OVB_ENTITLE_EMPTY : OVB_ENTITLE_FILLS) < cpus;
}

/* A guest grows for no less than this above what its cores do, and shrinks for no less below. */
#define OVB_ENTITLE_GROWS   (OVB_ENTITLE_ONE / 8)
#define OVB_ENTITLE_SHRINKS (OVB_ENTITLE_ONE / 16)

/* Cores of `per_core` CPUs each that a guest uses that could have `cpus`; `now` are those that it
 * uses. Rounded up, as what it does not use others get, but for a little.
 *
 * Example: cores of one CPU. With 2.05 CPUs, 2 cores stay 2, and 3 become 2; with 2.1, both stay;
 * with 2.2, 2 become 3. */
static inline ovb_u32 ovb_entitled_cores(ovb_u32 cpus, ovb_u32 per_core, ovb_u32 now)
{
	ovb_u32 one = OVB_ENTITLE_ONE * per_core, up, down;

	up = cpus > OVB_ENTITLE_GROWS ? (cpus - OVB_ENTITLE_GROWS + one - 1) / one : 0;
	down = cpus > OVB_ENTITLE_SHRINKS ? (cpus - OVB_ENTITLE_SHRINKS + one - 1) / one : 0;
	if (up > now)
		return up;
	return down < now ? down : now;
}

/* Whether a guest that `wants` so many CPUs, and could have `could`, uses no more cores than that.
 * If its vCPUs are seldom busy together, fewer CPUs make its tasks wait for each other, where the
 * host would have had one. `packed`: it does so now, and what it wants shows only up to what it
 * has.
 *
 * Example: it could have 2 CPUs. With 1.9, it uses all of its vCPUs; with 2.3, it packs, and goes
 * on so until it wants less than 1.5. */
static inline int ovb_entitle_packs(ovb_u32 wants, ovb_u32 could, int packed)
{
	return packed ? wants >= could - could / 4 : wants > could + could / 8;
}

#endif
