/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which core a guest stops to prefer, and which it prefers again. Ours: [preferred-v2] leaves NUMA
 * for later. NUMA nodes keep their proportions, as memory is spread over them: the core goes on the
 * node that has most of its cores left, and comes on the one that has fewest. A core that
 * housekeeping runs on never goes.
 */
#ifndef OVERBOOK_POLICY_CORES_H
#define OVERBOOK_POLICY_CORES_H

#include "types.h"

/* NUMA nodes that are told apart; higher ones count as one of these. A power of two. */
#define OVB_CORE_NODES 64u

struct ovb_core {
	ovb_u32 node;
	ovb_u32 preferred;
	/* Housekeeping: always preferred. */
	ovb_u32 keep;
};

struct ovb_node_cores {
	ovb_u16 all[OVB_CORE_NODES];
	ovb_u16 preferred[OVB_CORE_NODES];
};

static inline void ovb_count_cores(const struct ovb_core *cores, ovb_u32 nr,
				   struct ovb_node_cores *nodes)
{
	ovb_u32 i;

	for (i = 0; i < OVB_CORE_NODES; i++)
		nodes->all[i] = nodes->preferred[i] = 0;
	for (i = 0; i < nr; i++) {
		ovb_u32 node = cores[i].node & (OVB_CORE_NODES - 1);

		nodes->all[node]++;
		if (cores[i].preferred)
			nodes->preferred[node]++;
	}
}

/* Nonzero if node a has a larger part of its cores preferred than node b; of equal parts, if it is
 * the larger node. Both have cores, fewer than 2^16. */
static inline int ovb_node_fuller(const struct ovb_node_cores *nodes, ovb_u32 a, ovb_u32 b)
{
	ovb_u32 of_a = (ovb_u32)nodes->preferred[a] * nodes->all[b],
		of_b = (ovb_u32)nodes->preferred[b] * nodes->all[a];

	return of_a != of_b ? of_a > of_b : nodes->all[a] > nodes->all[b];
}

/* The core that ceases to be preferred, its place in `cores`; −1 if none may go. The last one of
 * its node. */
static inline ovb_s32 ovb_core_to_drop(const struct ovb_core *cores, ovb_u32 nr)
{
	struct ovb_node_cores nodes;
	ovb_s32 best = -1;
	ovb_u32 i;

	ovb_count_cores(cores, nr, &nodes);
	for (i = 0; i < nr; i++) {
		ovb_u32 node = cores[i].node & (OVB_CORE_NODES - 1);

		if (!cores[i].preferred || cores[i].keep)
			continue;
		if (best < 0 ||
		    !ovb_node_fuller(&nodes, cores[best].node & (OVB_CORE_NODES - 1), node))
			best = (ovb_s32)i;
	}
	return best;
}

/* The core to prefer again; −1 if all are. The first one of its node. */
static inline ovb_s32 ovb_core_to_add(const struct ovb_core *cores, ovb_u32 nr)
{
	struct ovb_node_cores nodes;
	ovb_s32 best = -1;
	ovb_u32 i;

	ovb_count_cores(cores, nr, &nodes);
	for (i = 0; i < nr; i++) {
		ovb_u32 node = cores[i].node & (OVB_CORE_NODES - 1);

		if (cores[i].preferred)
			continue;
		if (best < 0 ||
		    ovb_node_fuller(&nodes, cores[best].node & (OVB_CORE_NODES - 1), node))
			best = (ovb_s32)i;
	}
	return best;
}

#endif
