/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Short spins. A vCPU that spins for somebody who runs has what it waits for in a moment, and a
 * PAUSE exit may come before that: when the holder of a lock is at an exit of its own, sending an
 * IPI maybe. Taken off its CPU, such a spinner waits for its next turn, with all that it holds, and
 * its siblings spin for that. So who is taken off has spun for a while, unless nearly all its spins
 * are long, as at barriers: then that while is lost.
 *
 * How long a spin has lasted is not known. PAUSE exits of one spin follow each other after twice
 * the time of the one before: KVM's window doubles at each, until the vCPU leaves its CPU
 * (grow_ple_window() of kvm_intel and kvm_amd).
 *
 * Example: a window of 1.5 us, as Intel's of 4,096 cycles at 2.7 GHz. A spin exits after 1.5, 4.5,
 * 10.5, 22.5 and 46.5 us. From the first exit on it has lasted 0, 3, 9, 21 and 45 us: with a limit
 * of 30 us it is no longer short at the fifth. With AMD's window of 3,000 PAUSEs, some 40 us, it is
 * not at the second. A vCPU at barriers is spared eight times, then at one spin in eight.
 */
#ifndef OVERBOOK_POLICY_SPIN_H
#define OVERBOOK_POLICY_SPIN_H

#include "types.h"
#include "vtime.h"

/* Exits this many limits apart count as of two spins. They are of two if they are twice as far
 * apart for each exit but the first that was before: the window may have grown as long. */
#define OVB_SPIN_APART 8u
/* From so many exits on the window itself says that a spin was long: it has doubled as often. */
#define OVB_SPIN_EXITS 6u

/* A long spin counts one against its vCPU, a short one four for it. From so many against it on its
 * spins are not spared; at most twice as many count. */
#define OVB_SPIN_TRUST 8u
#define OVB_SPIN_SHORT 4u
/* Of such a vCPU's spins one in so many is tried. */
#define OVB_SPIN_TRIAL 8u

/* The spins of a vCPU since it came to its CPU, and what is known of earlier ones. */
struct ovb_spin {
	/* Its last PAUSE exit, and the first of the spin that this was of, ns. */
	ovb_u64 last;
	ovb_u64 since;
	/* PAUSE exits. */
	ovb_u32 exits;
	/* What counts against it, and how many spins were not spared for that. */
	ovb_u16 distrust;
	ovb_u8 trials;
	/* It has been spared, and it is not known yet how long the spin is. */
	ovb_u8 spared;
};

/* The spin for which a vCPU was spared has ended by itself. Whoever changes a running vCPU may ask
 * beside its own CPU. */
static inline void ovb_spin_was_short(struct ovb_spin *spin)
{
	ovb_u16 against = spin->distrust;

	if (spin->spared)
		spin->distrust = against > OVB_SPIN_SHORT ? against - OVB_SPIN_SHORT : 0;
	spin->spared = 0;
}

/* Books a PAUSE exit at `now` of a vCPU that came to its CPU at `resumed`; `limit`: what spins last
 * that are short, ns, at most 2^55. */
static inline void ovb_spin_exit(struct ovb_spin *spin, ovb_u64 resumed, ovb_u64 now, ovb_u64 limit)
{
	ovb_u64 gap = ovb_vtime_gap(now, spin->last), apart = OVB_SPIN_APART * limit;

	if (ovb_vtime_before(spin->last, resumed))
		spin->exits = 0;
	if (!spin->exits || gap > apart) {
		if (!spin->exits || gap > apart << (spin->exits - 1))
			ovb_spin_was_short(spin);
		spin->spared = 0;
		spin->since = now;
	}
	spin->last = now;
	if (spin->exits < OVB_SPIN_EXITS)
		spin->exits++;
}

/* A vCPU leaves its CPU. Whoever still spins would have come to the next exit by now, or is about
 * to: nothing is known then. */
static inline void ovb_spin_leave(struct ovb_spin *spin, ovb_u64 now, ovb_u64 limit)
{
	if (ovb_vtime_gap(now, spin->last) > OVB_SPIN_APART * limit)
		ovb_spin_was_short(spin);
	spin->spared = 0;
}

/* Whether the last exit itself says that a vCPU has spun for long; counts it then. */
static inline int ovb_spin_was_long(struct ovb_spin *spin)
{
	if (spin->exits < OVB_SPIN_EXITS)
		return 0;
	if (spin->distrust < 2 * OVB_SPIN_TRUST)
		spin->distrust++;
	spin->spared = 0;
	return 1;
}

/* Whether nearly all spins of a vCPU are long. */
static inline int ovb_spins_are_long(const struct ovb_spin *spin)
{
	return spin->distrust >= OVB_SPIN_TRUST;
}

/* Whether a vCPU spins on after its last exit. */
static inline int ovb_spin_is_spared(struct ovb_spin *spin, ovb_u64 limit)
{
	if (spin->exits >= OVB_SPIN_EXITS || spin->last - spin->since >= limit) {
		if (spin->spared && spin->distrust < 2 * OVB_SPIN_TRUST)
			spin->distrust++;
		spin->spared = 0;
		return 0;
	}
	if (!spin->spared && ovb_spins_are_long(spin) && ++spin->trials % OVB_SPIN_TRIAL)
		return 0;
	spin->spared = 1;
	return 1;
}

#endif
