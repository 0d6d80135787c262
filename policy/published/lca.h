/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lowest common ancestor of two tasks in a tree of groups: the queue on which a comparison of
 * their virtual times means something.
 *
 * A chain holds a task's entities from the task itself up to the root; a flat scheduler passes one
 * level.
 */
#ifndef OVERBOOK_PUBLISHED_LCA_H
#define OVERBOOK_PUBLISHED_LCA_H

#include "../types.h"

/* Deeper trees are refused: a loop must be bounded for the verifier, and libvirt's trees have five.
 */
#define OVB_MAX_LEVELS 8u

struct ovb_level {
	/* Identity of the queue that the entity is on, nonzero. */
	ovb_u64 queue;
	ovb_u64 vtime;
	ovb_u32 weight;
	/* Sum of the weights on that queue. */
	ovb_u32 total_weight;
	/* Tasks queued below that queue, the running one included. */
	ovb_u32 nr_queued;
	ovb_u32 pad;
};

struct ovb_chain {
	struct ovb_level level[OVB_MAX_LEVELS];
	/* 1 to OVB_MAX_LEVELS; level[depth − 1] is on the root queue. */
	ovb_u32 depth;
	ovb_u32 pad;
};

/* Levels of the two entities that share a queue. */
struct ovb_lca {
	ovb_u32 found;
	ovb_u32 yielder;
	ovb_u32 target;
	ovb_u32 pad;
};

/*
 * Finds the entities of two tasks that stand on one queue: equalise the depths, then climb together
 * (step 6 of the published debooster). `found` is zero if they meet nowhere (different CPUs) or a
 * chain is no chain. Written to an argument, as BPF functions return no structures.
 */
static inline void ovb_find_lca(const struct ovb_chain *yielder, const struct ovb_chain *target,
				struct ovb_lca *lca)
{
	ovb_u32 y = 0, t = 0, i;

	lca->found = lca->yielder = lca->target = lca->pad = 0;
	if (!yielder->depth || !target->depth || yielder->depth > OVB_MAX_LEVELS ||
	    target->depth > OVB_MAX_LEVELS)
		return;
	if (yielder->depth > target->depth)
		y = yielder->depth - target->depth;
	else
		t = target->depth - yielder->depth;
	for (i = 0; i < OVB_MAX_LEVELS; i++, y++, t++) {
		if (y >= OVB_MAX_LEVELS || t >= OVB_MAX_LEVELS || y >= yielder->depth)
			return;
		if (yielder->level[y].queue != target->level[t].queue)
			continue;
		lca->found = 1;
		lca->yielder = y;
		lca->target = t;
		return;
	}
}

#endif
