/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether a VM's turns end on all CPUs together (ours). vCPUs that answer each other, by IPIs or at
 * barriers, lose least if all of a VM run at the same time; vCPUs that queue for one lock lose
 * least if they do not. What a VM does shows in how much of its time it spins, so both ways are
 * tried, and the better one is kept:
 *
 *   a period in one way gives its share of spinning; a mean of these is kept for each way;
 *   a way that was never tried is tried if there is something to gain;
 *   the way in use changes if the other's share is lower by an eighth of it;
 *   from time to time the other is tried for one period, as guests change what they do.
 *
 * A VM that hardly spins is left alone.
 */
#ifndef OVERBOOK_POLICY_TOGETHER_H
#define OVERBOOK_POLICY_TOGETHER_H

#include "types.h"

enum ovb_turns {
	/* Each CPU goes to the next tenant when its own task's slice ends. */
	OVB_TURNS_APART = 0,
	/* All CPUs that run the VM go to the next tenant when its turn ends. */
	OVB_TURNS_TOGETHER = 1,
	/* Whatever lets the VM spin less. */
	OVB_TURNS_AUTO = 2,
};

/* Shares are parts of this. */
#define OVB_TOGETHER_ONE 1024u
/* Less spinning than this is not worth a trial. */
#define OVB_TOGETHER_IDLE 20u
/* Periods until the first trial of the other way. Every trial that changes nothing doubles the time
 * to the next, up to OVB_TOGETHER_TRIAL_MAX: a guest that does the same for long is not tried
 * often. A change for the worse is noticed without a trial. */
#define OVB_TOGETHER_TRIAL     16u
#define OVB_TOGETHER_TRIAL_MAX 256u

/* Zero at start. */
struct ovb_together {
	/* Sums of the VM at the beginning of the period, ns. */
	ovb_u64 began_at;
	ovb_u64 run_ns;
	ovb_u64 spin_ns;
	/* Means of the shares of both ways, of OVB_TOGETHER_ONE, and whether they are known. */
	ovb_u32 share[2];
	ovb_u32 known[2];
	/* enum ovb_turns. */
	ovb_u32 mode;
	/* Since the last trial, and doublings of OVB_TOGETHER_TRIAL. */
	ovb_u32 periods;
	ovb_u32 trials;
	/* The way in use is on trial. */
	ovb_u32 trial;
};

/* spin ÷ run of OVB_TOGETHER_ONE, at most that. */
static inline ovb_u32 ovb_together_share(ovb_u64 spin_ns, ovb_u64 run_ns)
{
	ovb_u32 spin, run;

	/* Some microseconds are one: 32 bits are an hour then. */
	spin_ns >>= 10;
	run_ns >>= 10;
	if (spin_ns >= run_ns)
		return run_ns ? OVB_TOGETHER_ONE : 0;
	while (run_ns > 0x3fffff) {
		spin_ns >>= 1;
		run_ns >>= 1;
	}
	spin = (ovb_u32)spin_ns;
	run = (ovb_u32)run_ns;
	return spin * OVB_TOGETHER_ONE / run;
}

/*
 * To be called now and then with the VM's sums; does something once per `period`. A period in which
 * the VM ran for less than a quarter of one CPU says nothing. Returns the way to go.
 */
static inline ovb_u32 ovb_together_step(struct ovb_together *way, ovb_u64 now, ovb_u64 run_ns,
					ovb_u64 spin_ns, ovb_u64 period)
{
	ovb_u32 mode = way->mode & 1, other = mode ^ 1, share, next;
	ovb_u64 ran = run_ns - way->run_ns;

	if (now - way->began_at < period)
		return mode;
	next = mode;
	if (way->began_at && ran >= period >> 2) {
		share = ovb_together_share(spin_ns - way->spin_ns, ran);
		way->share[mode] = way->known[mode] ? (way->share[mode] + share + 1) / 2 : share;
		way->known[mode] = 1;
		way->periods++;
		if (way->share[mode] < OVB_TOGETHER_IDLE) {
			way->periods = 0;
			way->trial = 0;
		} else if (!way->known[other]) {
			next = other;
			way->trial = 1;
		} else if (way->trial) {
			/* It stays if it gains an eighth. */
			way->trial = 0;
			if (way->share[mode] + way->share[other] / 8 >= way->share[other])
				next = other;
		} else if (way->share[other] + way->share[mode] / 8 < way->share[mode]) {
			/* The guest has changed. */
			way->trials = 0;
			next = other;
		} else if (way->periods >= OVB_TOGETHER_TRIAL << way->trials) {
			/* What is known of the other way is old. */
			way->known[other] = 0;
			way->periods = 0;
			if (OVB_TOGETHER_TRIAL << way->trials < OVB_TOGETHER_TRIAL_MAX)
				way->trials++;
			next = other;
			way->trial = 1;
		}
	}
	way->began_at = now;
	way->run_ns = run_ns;
	way->spin_ns = spin_ns;
	way->mode = next;
	return next;
}

#endif
