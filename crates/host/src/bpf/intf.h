/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF scheduler and its loader share: tunables, counters, layouts.
 */
#ifndef OVERBOOK_HOST_INTF_H
#define OVERBOOK_HOST_INTF_H

/* Powers of two, as they serve as masks. */
#define OVB_MAX_CPUS 1024
#define OVB_MAX_LLCS 64
#define OVB_MAX_VMS  1024
/* vCPUs of one VM among which a better target is looked for. */
#define OVB_MAX_VCPUS 256

/* Who runs after a directed yield (design.md, "Who runs next"). */
enum ovb_yield_policy {
	OVB_YIELD_FORFEIT = 0,
	OVB_YIELD_DEBOOST = 1,
	OVB_YIELD_CREDIT = 2,
	OVB_YIELD_PROPORTIONAL = 3,
	OVB_YIELD_STRICT = 4,
	OVB_YIELD_HANDOFF = 5,
	OVB_YIELD_POLICIES = 6,
};

/* Counters of the whole host, per CPU. */
enum ovb_count {
	/* Tasks sent straight to an idle CPU, or to one that runs SCHED_IDLE tasks. */
	OVB_COUNT_DIRECT,
	/* Tasks queued, by queue. */
	OVB_COUNT_QUEUED_LLC,
	OVB_COUNT_QUEUED_CPU,
	OVB_COUNT_QUEUED_IDLE,
	/* Running tasks preempted by one that woke up. */
	OVB_COUNT_PREEMPT,
	/* Turns extended since nobody with an earlier deadline waited. */
	OVB_COUNT_KEEP,
	/* Tasks taken from another LLC's queue by a CPU that had nothing else. */
	OVB_COUNT_STEAL_LLC,
	/* SCHED_IDLE tasks that had waited for so long that they went before others. */
	OVB_COUNT_IDLE_OVERDUE,
	/* sched_yield() without a target. */
	OVB_COUNT_PLAIN_YIELD,
	OVB_COUNTS,
};

/* Counters of one VM, per CPU. A VM is the process of its vCPU threads. */
struct ovb_vm_stats {
	/* Directed yields that KVM asked for. */
	unsigned long long asked;
	/* Targets that ran next on the yielder's CPU. */
	unsigned long long delivered;
	/* Asked ones whose target was in the queue that the yielder's CPU serves. */
	unsigned long long same_queue;
	/* Asked ones whose target was elsewhere: another LLC's queue, or one CPU's own. */
	unsigned long long other_queue;
	/* Asked ones whose target could not be moved: not queued (any more), or not allowed here.
	 */
	unsigned long long refused;
	/* Delivered to another sibling than KVM's choice: one with an interrupt pending, or one
	 * that was preempted at work. */
	unsigned long long redirected_irq;
	unsigned long long redirected_preempted;
	/* Nobody who could help was queued: the yielder went on spinning, or gave up its turn. */
	unsigned long long stayed;
	unsigned long long gave_up;
	/* Nominated, but somebody else ran next. */
	unsigned long long passed_over;
	/* ns from a yield until its target ran, over those delivered. */
	unsigned long long wait_ns;
	/* ns of CPU time that yielders granted to their targets, and that these used. */
	unsigned long long granted_ns;
	/* ns that vCPUs ran, and waited in queues while runnable. */
	unsigned long long run_ns;
	unsigned long long queued_ns;
};

#endif
