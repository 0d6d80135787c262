/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * At most once per interval. Asking and using are two steps. [debooster-v2] stamps the time as soon
 * as it has asked, so that a call which then fails its checks (its target is on another runqueue)
 * locks out the next 6 ms.
 */
#ifndef OVERBOOK_PUBLISHED_RATELIMIT_H
#define OVERBOOK_PUBLISHED_RATELIMIT_H

#include "../types.h"

struct ovb_ratelimit {
	/* Time of the last use, ns; means nothing until `used`. */
	ovb_u64 last;
	ovb_u32 used;
	ovb_u32 pad;
};

/* Nonzero if more than `interval` ns have passed since the last use. Changes nothing. */
static inline int ovb_ratelimit_open(const struct ovb_ratelimit *limit, ovb_u64 now,
				     ovb_u64 interval)
{
	return !limit->used || now - limit->last > interval;
}

/* Notes a use. */
static inline void ovb_ratelimit_use(struct ovb_ratelimit *limit, ovb_u64 now)
{
	limit->last = now;
	limit->used = 1;
}

#endif
