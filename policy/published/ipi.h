/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The two published ways to know an IPI's receiver, for comparison with relations.h.
 *
 * IPI tracking [debooster-v2], patches 6 to 9: one slot each way. Its defects are kept: any EOI
 * ends the relation, whatever its vector; an EOI wipes the receiver's own outgoing record; the last
 * of several receivers is the only one known.
 *
 * The gates [ple-kvm], patch 2: a receiver that is scheduled out when the IPI is sent notes the
 * sender in a bitmap of 64, which is cleared when the receiver runs.
 */
#ifndef OVERBOOK_PUBLISHED_IPI_H
#define OVERBOOK_PUBLISHED_IPI_H

#include "../types.h"
#include "../vtime.h"

/* Zero at start; ids are stored plus one, so that zero is nobody. */
struct ovb_ipi_slot {
	ovb_u64 sent_at;
	ovb_u32 last_sender;
	ovb_u32 last_receiver;
	ovb_u32 pending;
	ovb_u32 pad;
};

static inline void ovb_ipi_slot_send(struct ovb_ipi_slot *sender, ovb_u32 sender_id,
				     struct ovb_ipi_slot *receiver, ovb_u32 receiver_id,
				     ovb_u64 now)
{
	OVB_ONCE(sender->last_receiver) = receiver_id + 1;
	OVB_ONCE(sender->pending) = 1;
	OVB_ONCE(sender->sent_at) = now;
	OVB_ONCE(receiver->last_sender) = sender_id + 1;
}

/* Nonzero if `target` is the recent receiver of this sender's IPI. */
static inline int ovb_ipi_slot_waits_for(const struct ovb_ipi_slot *sender, ovb_u32 target_id,
					 ovb_u64 now, ovb_u64 window)
{
	return OVB_ONCE(sender->pending) && OVB_ONCE(sender->last_receiver) == target_id + 1 &&
	       ovb_vtime_gap(now, OVB_ONCE(sender->sent_at)) <= window;
}

/* The receiver's part of an EOI. Returns the sender's id plus one, 0 if there is none. */
static inline ovb_u32 ovb_ipi_slot_eoi(struct ovb_ipi_slot *receiver)
{
	ovb_u32 sender = OVB_ONCE(receiver->last_sender);

	OVB_ONCE(receiver->pending) = 0;
	OVB_ONCE(receiver->last_sender) = 0;
	OVB_ONCE(receiver->last_receiver) = 0;
	return sender;
}

/* The sender's part of it. */
static inline void ovb_ipi_slot_answered(struct ovb_ipi_slot *sender, ovb_u32 receiver_id,
					 ovb_u64 now, ovb_u64 window)
{
	if (OVB_ONCE(sender->last_receiver) == receiver_id + 1 &&
	    ovb_vtime_gap(now, OVB_ONCE(sender->sent_at)) <= window)
		OVB_ONCE(sender->pending) = 0;
}

/* The bit of a sender in ple-kvm's bitmap; none beyond 64 vCPUs. */
static inline ovb_u64 ovb_ple_kvm_bit(ovb_u32 sender_id)
{
	return sender_id < 64 ? 1ull << sender_id : 0;
}

#endif
