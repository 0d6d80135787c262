/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a vCPU waits for: the siblings that it has sent an IPI, and that have not ended an interrupt
 * since.
 *
 * The published tracking (published/ipi.h) knows one receiver. Here a sender knows all, and it has
 * been answered when the last of them has ended an interrupt, of whatever vector: Linux's own IPIs
 * go before its timer's, and a vCPU that has ended one is about to handle the others.
 *
 * Events may come late, twice or never. One too many costs a vain slice of a vCPU that spins, one
 * too few a later slice.
 */
#ifndef OVERBOOK_POLICY_RELATIONS_H
#define OVERBOOK_POLICY_RELATIONS_H

#include "types.h"
#include "vtime.h"

/* vCPU ids that are told apart. */
#define OVB_SENT_MANY  256u
#define OVB_SENT_WORDS (OVB_SENT_MANY / 32)

/* What one sender has outstanding. Zero at start. */
struct ovb_sent {
	ovb_u32 to[OVB_SENT_WORDS];
	/* When it last sent one. */
	ovb_u64 at;
};

static inline void ovb_sent_reset(struct ovb_sent *sent)
{
	ovb_u32 i;

	for (i = 0; i < OVB_SENT_WORDS; i++)
		sent->to[i] = 0;
}

/* Notes an IPI. A sender that has sent none for a `window` stops waiting for the old ones: their
 * ends have not been seen. */
static inline void ovb_sent_to(struct ovb_sent *sent, ovb_u32 receiver, ovb_u64 now, ovb_u64 window)
{
	/* Another CPU's clock may be behind. */
	if (ovb_vtime_gap(now, sent->at) > window)
		ovb_sent_reset(sent);
	sent->at = now;
	__sync_fetch_and_or(&sent->to[receiver / 32 & (OVB_SENT_WORDS - 1)], 1u << (receiver & 31));
}

/* A receiver has ended an interrupt. Nonzero if it was the last that the sender waited for; two on
 * different CPUs may both be told so. */
static inline int ovb_sent_answered(struct ovb_sent *sent, ovb_u32 receiver)
{
	ovb_u32 bit = 1u << (receiver & 31), left = 0;
	ovb_u32 *word = &sent->to[receiver / 32 & (OVB_SENT_WORDS - 1)];
	ovb_u32 i;

	if (!(__sync_fetch_and_and(word, ~bit) & bit))
		return 0;
	for (i = 0; i < OVB_SENT_WORDS; i++)
		left |= sent->to[i];
	return !left;
}

#endif
