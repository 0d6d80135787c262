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

/* Bound to CPUs of several LLCs. */
#define OVB_BOUND_WIDELY 0xffffffffu

/* Where a VM is bound to, of whose vCPUs `nr` are bound to `all`, and one more to `one`: nowhere,
 * 0; an LLC, plus one; several, or only some of its vCPUs. */
static inline ovb_u32 ovb_bound_together(ovb_u32 all, ovb_u32 nr, ovb_u32 one)
{
	return !nr || all == one ? one : OVB_BOUND_WIDELY;
}

/* A VM that has a home, or needs one. */
struct ovb_housed {
	ovb_u32 vcpus;
	/* Where it is bound to: an LLC plus one, which is its home then; 0: nowhere. */
	ovb_u32 bound;
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

/* The LLC plus one where a VM's home would be the least crowded; 0 if it fits into none. */
static inline ovb_u32 ovb_roomiest(const struct ovb_housed *vm, const struct ovb_house *llcs,
				   ovb_u32 nr_llcs)
{
	ovb_u32 i, best = 0;

	for (i = 0; i < nr_llcs; i++) {
		if (vm->vcpus > llcs[i].cpus)
			continue;
		if (!best || (llcs[i].wanted + vm->wants) * llcs[best - 1].parts <
				     (llcs[best - 1].wanted + vm->wants) * llcs[i].parts)
			best = i + 1;
	}
	return best;
}

/* Finds homes for VMs, at most 2^10, among LLCs, at most 64. A VM keeps its home, unless that
 * is crowded and another would be less so. One that is bound has its home where it is bound to, or
 * none if that is several LLCs; what it wants is not counted then. */
static inline void ovb_find_homes(struct ovb_housed *vms, ovb_u32 nr, struct ovb_house *llcs,
				  ovb_u32 nr_llcs)
{
	ovb_u32 i;

	for (i = 0; i < nr_llcs; i++)
		llcs[i].wanted = 0;
	for (i = 0; i < nr; i++) {
		ovb_u32 home = vms[i].home;

		if (vms[i].bound)
			home = vms[i].bound <= nr_llcs ? vms[i].bound : 0;
		else if (home > nr_llcs || (home && vms[i].vcpus > llcs[home - 1].cpus))
			home = 0;
		vms[i].home = home;
		if (home)
			llcs[home - 1].wanted += vms[i].wants;
	}
	for (i = 0; i < nr; i++) {
		struct ovb_housed *vm = &vms[i];
		struct ovb_house *now = vm->home ? &llcs[vm->home - 1] : 0, *then;
		ovb_u32 best;

		if (vm->bound || (now && now->wanted <= now->parts))
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
