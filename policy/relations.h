/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whom a vCPU waits for: the IPIs that it has sent and that nobody has handled yet.
 *
 * The published tracking (facts.md A4; published/ipi.h here) knows one receiver, and any EOI ends
 * the relation. Here a sender has several receivers, each with its vector; beyond that a bitmap
 * says "any of these". Completion is not written into the sender, which another CPU may be using:
 * the receiver stamps the vector that it has ended (struct ovb_inbox), and whoever asks compares.
 * So events may come late, twice or never: an unheard one costs a boost too few, or one too many
 * within the window, and nothing else.
 */
#ifndef OVERBOOK_POLICY_RELATIONS_H
#define OVERBOOK_POLICY_RELATIONS_H

#include "types.h"

#define OVB_RELATION_SLOTS 8u
/* Receivers that the summary tells apart, by vCPU id. */
#define OVB_RELATION_MANY 256u
/* Vectors whose completion a receiver remembers; a power of two. Linux's own IPIs are neighbours
 * (0xf0 to 0xff), so that their lower bits tell them apart. */
#define OVB_INBOX_SLOTS 16u

/* The published age limit. */
#define OVB_WINDOW_NS 50000000ull

struct ovb_relation {
	ovb_u64 sent_at;
	/* vCPU id. */
	ovb_u32 receiver;
	ovb_u16 vector;
	ovb_u16 used;
};

/* What one sender has outstanding. Zero at start. */
struct ovb_relations {
	struct ovb_relation slot[OVB_RELATION_SLOTS];
	/* Receivers that found no slot, and the last time that this happened. */
	ovb_u64 many[OVB_RELATION_MANY / 64];
	ovb_u64 many_at;
};

/* What one receiver has ended, by vector. Zero at start. */
struct ovb_inbox_slot {
	ovb_u64 ended_at;
	/* The vector, and whether the time means anything. */
	ovb_u32 vector;
	ovb_u32 ended;
};

struct ovb_inbox {
	struct ovb_inbox_slot slot[OVB_INBOX_SLOTS];
};

/* Nonzero if something of time `at` is no older than `window`. What another CPU has stamped a
 * moment after `now` was read is young. */
static inline int ovb_within(ovb_u64 at, ovb_u64 now, ovb_u64 window)
{
	return (ovb_s64)(now - at) <= (ovb_s64)window;
}

/* Notes an IPI. Without a free slot the oldest relation moves to the summary. */
static inline void ovb_relations_send(struct ovb_relations *sent, ovb_u32 receiver, ovb_u32 vector,
				      ovb_u64 now, ovb_u64 window)
{
	ovb_u32 i, best = 0;
	int found = 0;

	for (i = 0; i < OVB_RELATION_SLOTS; i++) {
		struct ovb_relation *slot = &sent->slot[i];

		if (slot->used && slot->receiver == receiver && slot->vector == vector) {
			slot->sent_at = now;
			return;
		}
	}
	for (i = 0; i < OVB_RELATION_SLOTS; i++) {
		struct ovb_relation *slot = &sent->slot[i];

		if (!slot->used || !ovb_within(slot->sent_at, now, window)) {
			best = i;
			found = 1;
			break;
		}
		if ((ovb_s64)(slot->sent_at - sent->slot[best].sent_at) < 0)
			best = i;
	}
	if (best >= OVB_RELATION_SLOTS)
		return;
	if (!found) {
		ovb_u32 old = sent->slot[best].receiver;

		if (!ovb_within(sent->many_at, now, window)) {
			for (i = 0; i < OVB_RELATION_MANY / 64; i++)
				sent->many[i] = 0;
		}
		if (old < OVB_RELATION_MANY)
			sent->many[old / 64] |= 1ull << (old % 64);
		sent->many_at = now;
	}
	sent->slot[best].sent_at = now;
	sent->slot[best].receiver = receiver;
	sent->slot[best].vector = (ovb_u16)vector;
	sent->slot[best].used = 1;
}

/* INIT, or the vCPU's end. */
static inline void ovb_relations_reset(struct ovb_relations *sent)
{
	ovb_u32 i;

	for (i = 0; i < OVB_RELATION_SLOTS; i++)
		sent->slot[i].used = 0;
	for (i = 0; i < OVB_RELATION_MANY / 64; i++)
		sent->many[i] = 0;
}

/* The receiver's side of an IPI: ends of its vector are remembered from now on. */
static inline void ovb_inbox_sent(struct ovb_inbox *inbox, ovb_u32 vector)
{
	struct ovb_inbox_slot *slot = &inbox->slot[vector & (OVB_INBOX_SLOTS - 1)];

	if (slot->vector == vector)
		return;
	slot->vector = vector;
	slot->ended = 0;
}

/* The receiver ends an interrupt of `vector`. */
static inline void ovb_inbox_ended(struct ovb_inbox *inbox, ovb_u32 vector, ovb_u64 now)
{
	struct ovb_inbox_slot *slot = &inbox->slot[vector & (OVB_INBOX_SLOTS - 1)];

	if (slot->vector != vector)
		return;
	slot->ended_at = now;
	slot->ended = 1;
}

/* Nonzero if the receiver has ended an interrupt of `vector` since `sent_at`. */
static inline int ovb_inbox_has_ended(const struct ovb_inbox *inbox, ovb_u32 vector,
				      ovb_u64 sent_at)
{
	const struct ovb_inbox_slot *slot = &inbox->slot[vector & (OVB_INBOX_SLOTS - 1)];

	return slot->ended && slot->vector == vector && (ovb_s64)(slot->ended_at - sent_at) > 0;
}

/* What the receiver's local APIC says of a vector. */
enum ovb_apic_state {
	/* It cannot be read, or does not show everything (posted interrupts). */
	OVB_APIC_UNKNOWN = 0,
	/* Neither requested nor in service: handled. */
	OVB_APIC_IDLE = 1,
	/* Requested, or in service. */
	OVB_APIC_PENDING = 2,
};

/* Nonzero if the sender still waits for this receiver. The APIC is right wherever it can be seen;
 * a stamp may be of an earlier interrupt of the same vector. */
static inline int ovb_relation_open(const struct ovb_relation *relation, ovb_u64 now,
				    ovb_u64 window, ovb_u32 apic, int ended)
{
	if (!relation->used || !ovb_within(relation->sent_at, now, window))
		return 0;
	if (apic != OVB_APIC_UNKNOWN)
		return apic == OVB_APIC_PENDING;
	return !ended;
}

#endif
