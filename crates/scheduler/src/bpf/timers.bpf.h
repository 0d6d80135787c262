/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Timers: the one that fills groups' cpu.max up again, and those by which a CPU looks again at a
 * vCPU that spins (yield).
 */
#ifndef OVERBOOK_TIMERS_BPF_H
#define OVERBOOK_TIMERS_BPF_H

#include "park.bpf.h"
#include "quota.bpf.h"
#include "yield.bpf.h"

/* So many looks follow when a group may run again: who is parked just then is not missed. */
#define LOOKS 10

/* So many looks are left for the last group that may run again, and when that was. */
u32 looks_left;
u64 looks_for;

/* Whether somebody who is parked may run again. Where there are more than are looked at at once, it
 * takes several looks to see all. */
static bool is_to_unpark(u64 now)
{
	s32 parked = scx_bpf_dsq_nr_queued(PARKED);

	if (looks_for != lifted_at) {
		looks_for = lifted_at;
		looks_left = LOOKS + (u32)parked / UNPARK;
	}
	if (parked <= 0)
		return false;
	if (looks_left) {
		looks_left--;
		return true;
	}
	return (s64)(now - unparked_at) >= UNPARK_EVERY;
}

/* So long the timer goes on once nobody has a cpu.max, ns. */
#define LINGER_NS 5000000000ull

static int refill(void *map, int *key, struct refill_timer *timer)
{
	u64 now = scx_bpf_now();

	bpf_rcu_read_lock();
	refill_all(now);
	if (is_to_unpark(now)) {
		unparked_at = now;
		unpark();
	}
	bpf_rcu_read_unlock();
	/* When the last limit goes, somebody may be parked, or just about to be: in a guest, by a
	 * vCPU that the host does not run. */
	if (nr_limited || (s64)(now - lifted_at) < (s64)LINGER_NS ||
	    scx_bpf_dsq_nr_queued(PARKED) > 0)
		bpf_timer_start(&timer->timer, REFILL_NS, 0);
	return 0;
}

/* Makes a timer, if there is none of an earlier attachment (-16 is EBUSY). */
#define HAS_TIMER(of, map, callback)                                                     \
	({                                                                               \
		long err = bpf_timer_init(&(of)->timer, &(map), CLOCK_MONOTONIC);        \
		(!err || err == -16) && !bpf_timer_set_callback(&(of)->timer, callback); \
	})

/* Makes all timers. Returns which cannot be had: 1 for one to look again, 2 for that of limits. The
 * kernel does not wait for memory for them (kmalloc_nolock, in 6.18), and never has it on CPUs
 * without cmpxchg16b. */
SEC("syscall")
int overbook_timers(void *ctx)
{
	u32 zero = 0, i;
	struct refill_timer *refills = bpf_map_lookup_elem(&refill_timers, &zero);

	has_refills = refills && HAS_TIMER(refills, refill_timers, refill);
	bpf_for (i, 0, nr_cpus) {
		struct look_timer *look = bpf_map_lookup_elem(&look_timers, &i);

		if (!look || !HAS_TIMER(look, look_timers, look_again))
			return has_refills ? 1 : 3;
	}
	return has_refills ? 0 : 2;
}

#endif
