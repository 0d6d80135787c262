/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a waiter that nobody can help may spin on (ours). Spinning on, it takes a lock as soon as
 * it is free; and it burns time. Beyond the VM's share of CPUs that is at the expense of the
 * sibling that does the work; within it, of what the VM could do later, as waiting is not
 * forgotten.
 */
#ifndef OVERBOOK_POLICY_STAY_H
#define OVERBOOK_POLICY_STAY_H

#include "types.h"

/* Members of a set. */
static inline ovb_u32 ovb_popcount(ovb_u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ull;
	bits = (bits & 0x3333333333333333ull) + (bits >> 2 & 0x3333333333333333ull);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (ovb_u32)(bits * 0x0101010101010101ull >> 56);
}

/*
 * Nonzero if a VM that runs `running` of its `vcpus` vCPUs, the waiter included, is within its
 * share of `cpus` CPUs in whose queue `queued` tasks wait. All tasks are taken for equally heavy,
 * so the share is cpus · vcpus ÷ (cpus + queued). All arguments are below 2^16.
 */
static inline int ovb_stay_within_share(ovb_u32 running, ovb_u32 vcpus, ovb_u32 cpus,
					ovb_u32 queued)
{
	return (ovb_u64)running * (cpus + queued) <= (ovb_u64)cpus * vcpus;
}

#endif
