/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Classes of VMs. A class says when a VM gets what it is owed, and never how much: virtual times
 * and lag know nothing of it.
 *
 *   latency   slices of a quarter: turns end early, and come early; who wakes up needs no margin to
 *             preempt
 *   normal    as turn.h has it
 *   batch     slices of twice the length: turns end late, and come late; who wakes up preempts
 *             SCHED_IDLE tasks only
 *
 * Who has the earliest deadline goes first, and a deadline is a slice after the virtual time at
 * which a turn begins. Where all compete for long, their deadlines become alike: a latency VM is
 * three quarters of a slice ahead of a normal one then, once and for ever, and a batch VM a slice
 * behind. From there on they all age as fast.
 *
 * Example: slices of 3 ms, three VMs of a vCPU and the same weight on one CPU. Of 27 ms each has 9:
 * the latency VM in twelve slices of 0.75 ms, the normal one in three of 3, the batch VM in one of
 * 6 and half of another. Ends of slices are ticks of the kernel, unless somebody preempts: with 250
 * of them per second the first two have slices of 4 ms.
 */
#ifndef OVERBOOK_POLICY_CLASS_H
#define OVERBOOK_POLICY_CLASS_H

#include "math.h"

enum ovb_class {
	OVB_CLASS_NORMAL = 0,
	OVB_CLASS_LATENCY = 1,
	OVB_CLASS_BATCH = 2,
	OVB_CLASSES = 3,
};

/* Longest patience, ns: the kernel's watchdog ends a scheduler under which a task waits for 30 s.
 */
#define OVB_PATIENCE_MOST 20000000000ull
/* What it may take until one that has waited for too long is found and runs, ns: a CPU looks for
 * one ten times a second and takes one each time, so nine others may be before it. Fewer with a
 * patience of less than a second, as those that had a slice have waited for too long again by then.
 */
#define OVB_PROMISE_ROOM 1000000000ull

/* Length of a slice of a VM of a class; `slice` is a normal one's, in any unit, at most 2^62. */
static inline ovb_u64 ovb_class_slice(ovb_u64 slice, ovb_u32 vm_class)
{
	if (vm_class == OVB_CLASS_LATENCY)
		return slice > 4 ? slice / 4 : 1;
	return vm_class == OVB_CLASS_BATCH ? 2 * slice : slice;
}

/* By how much earlier than a running task's the key of one that wakes up must be for it to preempt,
 * ns of virtual time; `margin` is what a normal one needs. */
static inline ovb_u64 ovb_class_margin(ovb_u64 margin, ovb_u32 vm_class)
{
	return vm_class == OVB_CLASS_LATENCY ? 0 : margin;
}

/* Nonzero if who wakes up may preempt others at all; SCHED_IDLE tasks give way to everybody. */
static inline int ovb_class_preempts(ovb_u32 vm_class)
{
	return vm_class != OVB_CLASS_BATCH;
}

/* How long a vCPU may be queued until it goes before others, ns; `patience` is a normal one's, at
 * most OVB_PATIENCE_MOST. A latency VM's is a tenth, a batch VM's twice the patience.
 *
 * Example: 10 s are 1 s for a latency VM, and 20 s for a batch VM. */
static inline ovb_u64 ovb_class_patience(ovb_u64 patience, ovb_u32 vm_class)
{
	if (vm_class == OVB_CLASS_LATENCY)
		return ovb_div10(patience);
	if (vm_class != OVB_CLASS_BATCH)
		return patience;
	return 2 * patience < OVB_PATIENCE_MOST ? 2 * patience : OVB_PATIENCE_MOST;
}

/* What is promised: no vCPU that can run is off its CPU for longer, ns. */
static inline ovb_u64 ovb_class_promise(ovb_u64 patience, ovb_u32 vm_class)
{
	return ovb_class_patience(patience, vm_class) + OVB_PROMISE_ROOM;
}

#endif
