/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How much a task asks for, that is, how far behind its virtual time its deadline lies. EEVDF lets
 * a task say it (its slice) and hardly any does; so it is learnt: who runs for a moment between
 * two sleeps asks for a moment, and goes before those that ask for whole slices. Shares do not
 * change, as virtual times do not: only who goes first.
 */
#ifndef OVERBOOK_POLICY_REQUEST_H
#define OVERBOOK_POLICY_REQUEST_H

#include "types.h"

/* The mean of a task's bursts, ns, after one more of `ran` ns has ended by sleeping. Half of it is
 * the last one. */
static inline ovb_u64 ovb_burst(ovb_u64 mean, ovb_u64 ran, ovb_u64 slice)
{
	if (mean > slice)
		mean = slice;
	if (ran > slice)
		ran = slice;
	return (mean + ran) / 2;
}

/* ns that a task asks for: its mean burst, or, if it has run for longer by now, that; at least a
 * sixteenth of a slice, at most a slice. */
static inline ovb_u64 ovb_request(ovb_u64 mean, ovb_u64 ran, ovb_u64 slice)
{
	ovb_u64 ns = mean > ran ? mean : ran;

	if (ns > slice)
		return slice;
	return ns < slice / 16 ? slice / 16 : ns;
}

#endif
