/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Homes of VMs. On a host of several LLCs a VM that fits into one has its home there: its vCPUs are
 * queued with each other, and find each other's data in the cache. A home is where a vCPU waits; an
 * idle CPU of any LLC takes it all the same.
 *
 * Example: two LLCs of 4 CPUs, VMs of 4 vCPUs that want 4, 3 and 1 CPUs. The first has its home in
 * one, the second in the other, and so has the third: 4 of 4 CPUs are wanted in each.
 *
 * What ordinary tasks want of an LLC is not counted: they have no home, and go where there is room.
 */
#ifndef OVERBOOK_POLICY_HOME_H
#define OVERBOOK_POLICY_HOME_H

#include "types.h"

/* A VM moves to where, with it, at most so many eighths are wanted per CPU of what is wanted per
 * CPU where it is. */
#define OVB_HOME_EIGHTHS 7u

/* A VM that has a home, or needs one. */
struct ovb_housed {
	/* LLCs that have CPUs which one of its vCPUs may use, a bit each. */
	ovb_u64 llcs;
	ovb_u32 vcpus;
	/* CPUs that it uses and waits for, in parts; at most 2^24. */
	ovb_u32 wants;
	/* Its LLC plus one; 0: none. */
	ovb_u32 home;
};

/* An LLC with its CPUs, at least one, in the same parts, at most 2^24; and what VMs want of it. */
struct ovb_house {
	ovb_u32 cpus;
	ovb_u32 parts;
	ovb_u64 wanted;
};

/* Whether a VM fits into an LLC, and may run there. */
static inline int ovb_fits(const struct ovb_housed *vm, const struct ovb_house *llcs, ovb_u32 llc)
{
	return vm->vcpus <= llcs[llc].cpus && (vm->llcs >> (llc & 63) & 1);
}

/* The LLC plus one where a VM's home would be the least crowded; 0 if it fits into none. */
static inline ovb_u32 ovb_roomiest(const struct ovb_housed *vm, const struct ovb_house *llcs,
				   ovb_u32 nr_llcs)
{
	ovb_u32 i, best = 0;

	for (i = 0; i < nr_llcs; i++) {
		if (!ovb_fits(vm, llcs, i))
			continue;
		if (!best || (llcs[i].wanted + vm->wants) * llcs[best - 1].parts <
				     (llcs[best - 1].wanted + vm->wants) * llcs[i].parts)
			best = i + 1;
	}
	return best;
}

/* Finds homes for VMs, at most 2^10, among LLCs, at most 64. A VM keeps its home, unless that
 * is crowded and another would be less so. Who may run in one LLC only is there before others look
 * for room. */
static inline void ovb_find_homes(struct ovb_housed *vms, ovb_u32 nr, struct ovb_house *llcs,
				  ovb_u32 nr_llcs)
{
	ovb_u32 i;

	for (i = 0; i < nr_llcs; i++)
		llcs[i].wanted = 0;
	for (i = 0; i < nr; i++) {
		struct ovb_housed *vm = &vms[i];

		if (vm->home > nr_llcs || (vm->home && !ovb_fits(vm, llcs, vm->home - 1)))
			vm->home = 0;
		if (!vm->home && !(vm->llcs & (vm->llcs - 1)))
			vm->home = ovb_roomiest(vm, llcs, nr_llcs);
		if (vm->home)
			llcs[vm->home - 1].wanted += vm->wants;
	}
	for (i = 0; i < nr; i++) {
		struct ovb_housed *vm = &vms[i];
		struct ovb_house *now = vm->home ? &llcs[vm->home - 1] : 0, *then;
		ovb_u32 best;

		if (now && now->wanted <= now->parts)
			continue;
		best = ovb_roomiest(vm, llcs, nr_llcs);
		if (!best)
			continue;
		then = &llcs[best - 1];
		if (now) {
			if (8 * (then->wanted + vm->wants) * now->parts >=
			    OVB_HOME_EIGHTHS * now->wanted * then->parts)
				continue;
			now->wanted -= vm->wants;
		}
		then->wanted += vm->wants;
		vm->home = best;
	}
}

#endif
