/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The vruntime debooster: on a directed yield the yielder is pushed back by a bounded penalty, to
 * where it competes with its target. The rule and the constants of [debooster-v2], in two forms:
 *
 * ovb_deboost_published() does what the published code does, its dead steps included.
 *
 * ovb_deboost() does what its description says. What it mends:
 *   floor      the penalty starts from the zero-gap baseline, not from a full granularity: so the
 *              baselines count, and the gap counts in deep queues, where floor and cap were equal
 *   reversals  are found, since only what changes virtual time is rate-limited
 *   limit      a call that fails its checks uses nothing up
 *
 * And its caller does not count who sleeps and is only not dequeued yet.
 *
 * The gap survives a wrap of virtual time in both, as the caller subtracts and does not compare.
 *
 * The caller brings the virtual times of the common queue up to date first. The published code
 * skips that exactly when the yielder's entity is current, which it always is: its virtual time is
 * then stale, too low, and the gap too large.
 *
 * Example: a granularity of 2.8 ms, 3 tasks queued, a target 5 ms behind (the gap). Baseline 15/16
 * * 2.8 = 2.625 ms, plus 11/10 * 5 = 5.5 ms: 8.125 ms, below the cap of 4 * 2.8 = 11.2 ms. As
 * published: 2.8 + 5.5 = 8.3 ms.
 */
#ifndef OVERBOOK_PUBLISHED_DEBOOST_H
#define OVERBOOK_PUBLISHED_DEBOOST_H

#include "../math.h"
#include "ratelimit.h"
#include "../vtime.h"

/* The times of [debooster-v2], ns, for struct ovb_deboost_call. */
#define OVB_DEBOOST_INTERVAL_NS 6000000ull
#define OVB_DEBOOST_REVERSAL_NS 600000ull

/* What one call is about. */
struct ovb_deboost_call {
	ovb_u64 now;
	ovb_s32 source;
	ovb_s32 target;
	/* Base slice at the yielder's weight (weight.h), ns of virtual time. */
	ovb_u64 gran;
	/* ovb_vtime_gap() at the common queue. */
	ovb_u64 gap;
	/* At most one penalty per runqueue in this time. */
	ovb_u64 interval;
	/* A yield back to whom one was yielded from is a reversal if it comes this soon. */
	ovb_u64 reversal;
	/* Tasks queued at the common queue. */
	ovb_u32 nr_queued;
	/* Both queued on one queue, and the yielder is not its own target. */
	ovb_u32 valid;
};

/* State of one runqueue; zero at start. */
struct ovb_deboost_state {
	struct ovb_ratelimit limit;
	ovb_u64 pair_at;
	ovb_s32 pair_source;
	ovb_s32 pair_target;
	ovb_u32 pair_known;
	ovb_u32 pad;
};

/*
 * The more tasks compete, the smaller a penalty. In granularities:
 *
 *   queued   cap   baseline
 *        2   6     1
 *        3   4     15/16
 *   4 to 6   2.5   5/8
 *   7 to 8   2     1/2
 *  9 to 12   1.5   3/8
 *     more   1     1/4
 */

/* Upper limit of a penalty. */
static inline ovb_u64 ovb_deboost_cap(ovb_u64 gran, ovb_u32 nr_queued)
{
	/* clang-format off */
	ovb_u64 halves = nr_queued <=  2 ? 12 :
			 nr_queued <=  3 ?  8 :
			 nr_queued <=  6 ?  5 :
			 nr_queued <=  8 ?  4 :
			 nr_queued <= 12 ?  3 :
					    2;
	/* clang-format on */

	return ovb_mul_shr_sat(gran, halves, 1);
}

/* Penalty when the target is not behind. */
static inline ovb_u64 ovb_deboost_baseline(ovb_u64 gran, ovb_u32 nr_queued)
{
	/* clang-format off */
	ovb_u64 sixteenths = nr_queued <=  2 ? 16 :
			     nr_queued <=  3 ? 15 :
			     nr_queued <=  6 ? 10 :
			     nr_queued <=  8 ?  8 :
			     nr_queued <= 12 ?  6 :
						4;
	/* clang-format on */

	return ovb_mul_shr_sat(gran, sixteenths, 4);
}

static inline ovb_u64 ovb_deboost_clamp(ovb_u64 value, ovb_u64 low, ovb_u64 high)
{
	if (value > high)
		value = high;
	return value < low ? low : value;
}

/* Nonzero if the call yields back along the last recorded pair, and soon. */
static inline int ovb_deboost_is_reversal(const struct ovb_deboost_state *state,
					  const struct ovb_deboost_call *call)
{
	return state->pair_known && state->pair_source == call->target &&
	       state->pair_target == call->source && call->now - state->pair_at <= call->reversal;
}

static inline void ovb_deboost_record(struct ovb_deboost_state *state,
				      const struct ovb_deboost_call *call)
{
	state->pair_source = call->source;
	state->pair_target = call->target;
	state->pair_at = call->now;
	state->pair_known = 1;
}

/* The published penalty, ns of virtual time. */
static inline ovb_u64 ovb_deboost_penalty_published(ovb_u64 gran, ovb_u64 gap, ovb_u32 nr_queued,
						    int reversal)
{
	ovb_u64 baseline = ovb_deboost_baseline(gran, nr_queued), penalty = gran;

	if (gap)
		penalty = ovb_add_sat(penalty, ovb_add_sat(gap, ovb_div10(gap)));
	if (reversal && penalty > gap && penalty > gran)
		penalty = gap > gran ? gap : gran;
	penalty = ovb_deboost_clamp(penalty, gran, ovb_deboost_cap(gran, nr_queued));
	if (!gap && penalty < baseline)
		penalty = baseline;
	return penalty;
}

/*
 * The mended penalty: from the baseline up by 11/10 of the gap, at most the cap. A reversal pays
 * for the gap alone: it undoes a penalty, and adding to it would push the two back by turns.
 */
static inline ovb_u64 ovb_deboost_penalty(ovb_u64 gran, ovb_u64 gap, ovb_u32 nr_queued,
					  int reversal)
{
	ovb_u64 baseline = ovb_deboost_baseline(gran, nr_queued), penalty = gap;

	if (!reversal)
		penalty = ovb_add_sat(baseline, ovb_add_sat(gap, ovb_div10(gap)));
	return ovb_deboost_clamp(penalty, baseline, ovb_deboost_cap(gran, nr_queued));
}

/* The published order of steps. Returns the penalty, 0 for none. */
static inline ovb_u64 ovb_deboost_published(struct ovb_deboost_state *state,
					    const struct ovb_deboost_call *call)
{
	int reversal;

	if (!ovb_ratelimit_open(&state->limit, call->now, call->interval))
		return 0;
	ovb_ratelimit_use(&state->limit, call->now);
	if (!call->valid || call->nr_queued <= 1)
		return 0;
	reversal = ovb_deboost_is_reversal(state, call);
	ovb_deboost_record(state, call);
	return ovb_deboost_penalty_published(call->gran, call->gap, call->nr_queued, reversal);
}

/* The mended order of steps. Returns the penalty, 0 for none. */
static inline ovb_u64 ovb_deboost(struct ovb_deboost_state *state,
				  const struct ovb_deboost_call *call)
{
	int reversal;

	if (!call->valid || call->nr_queued <= 1)
		return 0;
	reversal = ovb_deboost_is_reversal(state, call);
	ovb_deboost_record(state, call);
	if (!ovb_ratelimit_open(&state->limit, call->now, call->interval))
		return 0;
	ovb_ratelimit_use(&state->limit, call->now);
	return ovb_deboost_penalty(call->gran, call->gap, call->nr_queued, reversal);
}

#endif
