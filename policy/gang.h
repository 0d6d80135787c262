/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Together or not (ours). vCPUs that answer each other, by IPIs or at barriers, lose least if all
 * of a VM run at the same time; vCPUs that queue for one lock lose least if they do not. What a VM
 * does shows in how much of its time it spins, so both ways are tried, and the better one is kept:
 *
 *   a period in one way gives its share of spinning; a mean of these is kept for each way;
 *   a way that was never tried is tried if there is something to gain;
 *   the way in use changes if the other's share is lower by an eighth of it;
 *   from time to time the other is tried for one period, as guests change what they do.
 *
 * A VM that hardly spins is left alone, for ever.
 */
#ifndef OVERBOOK_POLICY_GANG_H
#define OVERBOOK_POLICY_GANG_H

#include "types.h"

enum ovb_gang_mode {
	OVB_GANG_APART = 0,
	OVB_GANG_TOGETHER = 1,
};

/* Shares are parts of this. */
#define OVB_GANG_ONE 1024u
/* Less spinning than this is not worth a trial. */
#define OVB_GANG_IDLE 20u
/* Periods until the first trial of the other way. Every trial that changes nothing doubles the time
 * to the next, up to OVB_GANG_TRIAL_MAX: a guest that does the same for long is not tried often. A
 * change for the worse is noticed without a trial. */
#define OVB_GANG_TRIAL	   16u
#define OVB_GANG_TRIAL_MAX 256u

/* Zero at start. */
struct ovb_gang {
	/* Sums of the VM at the beginning of the period, ns. */
	ovb_u64 began_at;
	ovb_u64 run_ns;
	ovb_u64 spin_ns;
	/* Means of the shares of both ways, of OVB_GANG_ONE, and whether they are known. */
	ovb_u32 share[2];
	ovb_u32 known[2];
	/* enum ovb_gang_mode. */
	ovb_u32 mode;
	/* Since the last trial, and doublings of OVB_GANG_TRIAL. */
	ovb_u32 periods;
	ovb_u32 trials;
	ovb_u32 pad;
};

/* spin ÷ run of OVB_GANG_ONE, at most that. */
static inline ovb_u32 ovb_gang_share(ovb_u64 spin_ns, ovb_u64 run_ns)
{
	ovb_u32 spin, run;

	/* Some microseconds are one: 32 bits are an hour then. */
	spin_ns >>= 10;
	run_ns >>= 10;
	if (spin_ns >= run_ns)
		return run_ns ? OVB_GANG_ONE : 0;
	while (run_ns > 0x3fffff) {
		spin_ns >>= 1;
		run_ns >>= 1;
	}
	spin = (ovb_u32)spin_ns;
	run = (ovb_u32)run_ns;
	return spin * OVB_GANG_ONE / run;
}

/*
 * To be called now and then with the VM's sums; does something once per `period`. A period in which
 * the VM ran for less than a quarter of one CPU says nothing. Returns the way to go.
 */
static inline ovb_u32 ovb_gang_step(struct ovb_gang *gang, ovb_u64 now, ovb_u64 run_ns,
				    ovb_u64 spin_ns, ovb_u64 period)
{
	ovb_u32 mode = gang->mode & 1, other = mode ^ 1, share, next;
	ovb_u64 ran = run_ns - gang->run_ns;

	if (now - gang->began_at < period)
		return mode;
	next = mode;
	if (gang->began_at && ran >= period >> 2) {
		share = ovb_gang_share(spin_ns - gang->spin_ns, ran);
		gang->share[mode] = gang->known[mode] ? (gang->share[mode] + share + 1) / 2 : share;
		gang->known[mode] = 1;
		gang->periods++;
		if (gang->share[mode] < OVB_GANG_IDLE && mode == OVB_GANG_APART) {
			gang->periods = 0;
		} else if (!gang->known[other]) {
			next = other;
		} else if (gang->share[other] + gang->share[mode] / 8 < gang->share[mode]) {
			/* Unless this ends a trial, the guest has changed. */
			if (gang->periods > 1)
				gang->trials = 0;
			next = other;
		} else if (gang->periods >= OVB_GANG_TRIAL << gang->trials) {
			/* What is known of the other way is old. */
			gang->known[other] = 0;
			gang->periods = 0;
			if (OVB_GANG_TRIAL << gang->trials < OVB_GANG_TRIAL_MAX)
				gang->trials++;
			next = other;
		}
	}
	gang->began_at = now;
	gang->run_ns = run_ns;
	gang->spin_ns = spin_ns;
	gang->mode = next;
	return next;
}

#endif
