/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * cpu.max: a group may run for `quota` ns in each `period`. What it overruns, as slices end
 * at ticks, it has less of in the next period, so that it gets what it is due in the mean, and no
 * more. What it does not use is lost, but for cpu.max.burst. Of a crowd who has waited for half of
 * OVB_QUOTA_LONGEST runs once all the same, and so it may use a tiny quota many times over: what is
 * owed after OVB_QUOTA_LONGEST is forgiven.
 *
 * Example: "50000 100000". The group runs on two CPUs; after 26 ms 52 ms are used. 2 ms are owed,
 * and the next period has 48.
 */
#ifndef OVERBOOK_POLICY_QUOTA_H
#define OVERBOOK_POLICY_QUOTA_H

#include "types.h"

struct ovb_quota {
	/* ns; a quota of 0 is none. */
	ovb_u64 quota;
	ovb_u64 period;
	ovb_u64 burst;
	/* What is left of this period, ns; owed if negative. */
	ovb_s64 left;
	/* When the next period begins, ns. */
	ovb_u64 next;
	/* Since when it is throttled, ns; 0 if it is not. */
	ovb_u64 since;
};

/* Periods that a refill makes up for; after longer ones it begins anew. */
#define OVB_QUOTA_PERIODS 64u

/* A group is throttled for no longer than this, ns, and a period: the kernel's watchdog ends a
 * scheduler under which a task waits for 30 s. */
#define OVB_QUOTA_LONGEST 10000000000ull

/* Adds what the periods bring that have begun until `now`. Nonzero if one has. */
static inline int ovb_quota_refill(struct ovb_quota *q, ovb_u64 now)
{
	ovb_s64 most = (ovb_s64)(q->quota + q->burst), left = q->left;
	ovb_u32 i;

	if (!q->quota || (ovb_s64)(now - q->next) < 0)
		return 0;
	for (i = 0; i < OVB_QUOTA_PERIODS && (ovb_s64)(now - q->next) >= 0; i++) {
		q->next += q->period;
		left += (ovb_s64)q->quota;
	}
	if ((ovb_s64)(now - q->next) >= 0)
		q->next = now + q->period;
	if (left <= 0 && q->since && (ovb_s64)(now - q->since) >= (ovb_s64)OVB_QUOTA_LONGEST)
		left = (ovb_s64)q->quota;
	q->left = left > most ? most : left;
	return 1;
}

#endif
