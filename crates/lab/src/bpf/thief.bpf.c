// SPDX-License-Identifier: GPL-2.0-only
/*
 * A host that is a model: takes CPUs away from this machine, as if they were vCPUs that lose
 * theirs.
 *
 * A timer interrupt per CPU and turn. If it interrupts work, it keeps the CPU for as long as the
 * host would have given it to others; the machine cannot tell that from being preempted by a host:
 * whatever held a lock there holds it on, and whatever was sent there waits. A CPU that idles (or
 * burns at SCHED_IDLE, as the lab's burners do) is halted, and nothing is taken from it.
 */
#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "GPL";

#define MAX_CPUS   64
#define SCHED_IDLE 5
/* Activity and CPUs are in parts of this. */
#define ONE 1024

typedef __u32 u32;
typedef __u64 u64;

struct task_struct {
	int pid;
	unsigned int policy;
} __attribute__((preserve_access_index));

/* Set by the lab. Length of a turn, ns; 0 takes nothing. */
volatile u64 turn_ns;
/* The host's CPUs, in parts of ONE: for this machine or, with `by_vcpu`, for it and others. */
volatile u64 host_cpus;
volatile u64 others;
volatile u32 by_vcpu;
u32 nr_cpus = 1;

/* Read by the lab. */
struct taken {
	/* Turns that found work, and ns taken in these. */
	u64 busy_turns;
	u64 stolen_ns;
	/* How often work was found lately. */
	u64 activity;
};

struct taken taken[MAX_CPUS];

struct burn {
	u64 until;
};

static long burn(u64 i, void *data)
{
	return bpf_ktime_get_ns() >= ((struct burn *)data)->until;
}

/* Part of a turn, in parts of ONE, for which the host lets somebody else run. */
static u64 share_taken(void)
{
	u64 wanted = 0, all;
	u32 i;

	for (i = 0; i < MAX_CPUS && i < nr_cpus; i++)
		wanted += taken[i].activity;
	all = wanted + (by_vcpu ? others : 0);
	if (all <= host_cpus || !all)
		return 0;
	return (all - host_cpus) * ONE / all;
}

SEC("perf_event")
int take(void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id() & (MAX_CPUS - 1);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct taken *mine = &taken[cpu];
	struct burn turn;
	u64 now = bpf_ktime_get_ns(), part;
	int idle = !BPF_CORE_READ(task, pid) || BPF_CORE_READ(task, policy) == SCHED_IDLE;

	mine->activity = (mine->activity * 7 + (idle ? 0 : ONE)) / 8;
	if (idle || !turn_ns)
		return 0;
	mine->busy_turns++;
	part = share_taken();
	if (!part)
		return 0;
	turn.until = now + turn_ns * part / ONE;
	bpf_loop(1 << 23, burn, &turn, 0);
	mine->stolen_ns += bpf_ktime_get_ns() - now;
	return 0;
}
