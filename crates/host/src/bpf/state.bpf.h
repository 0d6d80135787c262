/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tunables, state of tasks, CPUs and VMs, and their counters.
 */
#ifndef OVERBOOK_STATE_BPF_H
#define OVERBOOK_STATE_BPF_H

#include "intf.h"
#include "relations.h"
#include "weight.h"

/* include/uapi/linux/sched.h */
#define SCHED_IDLE 5

/* Set by the loader. */
const volatile u32 nr_cpus = 1;
const volatile u32 nr_llcs = 1;
/* LLC of every CPU, 0 to nr_llcs − 1. */
const volatile u32 cpu_llc[OVB_MAX_CPUS];
/* CPUs of every LLC. */
const volatile u32 llc_cpus[OVB_MAX_LLCS];
/* Some CPUs may be preferred to others (prefer.bpf.h); a host never asks. */
const volatile bool may_prefer;
/*
 * What follows may be changed while running.
 */

/* Length of a turn, ns, at least 100 µs. Turns end at ticks unless somebody preempts. */
volatile u64 slice_ns = 3000000;
/* A task, other than SCHED_IDLE ones, that has been queued for this long goes before others, ns; 0:
 * none. */
volatile u64 patience_ns = 10000000000;
/* Whether IPIs' receivers are known, and for how long, ns. */
volatile u32 relations = 1;
volatile u64 window_ns = OVB_WINDOW_NS;

/*
 * These may not; the lab's loader stretches them with its guests' times.
 */

/* Least turn of a target that was handed a CPU, ns. */
const volatile u64 least_grant_ns = 500000;
/* A woken task preempts one whose deadline is later by this much, ns of virtual time. */
const volatile u64 preempt_margin_ns = 500000;
/* In a guest, it preempts nobody who has run for less than this, ns: where tasks wake each other
 * all the time, each would end the other's turn at once. */
const volatile u64 protect_ns = 3000000;
/* A queued vCPU that had yielded this long ago may have got what it waited for, ns. */
const volatile u64 stale_ns = 1000000;
/* A SCHED_IDLE task that has been queued for this long goes before others, ns. */
const volatile u64 idle_patience_ns = 1000000000;
/* What a move to another LLC costs a target, ns. */
const volatile u64 cross_llc_ns = 50000;
/* Two PAUSE exits no further apart than this are one spin: the hardware's window, an exit and some
 * room, ns. */
const volatile u64 spin_gap_ns = 20000;

/* The probes, while they are attached, see every IPI, and every end of one. */
const volatile bool sends_seen;
const volatile bool ends_seen;

/* Virtual time starts this much before the wrap, so that every run crosses it. */
#define VTIME_START (0ull - 10000000000ull)

struct task_ctx {
	/* ns of virtual time; see weight.h. */
	u64 vtime;
	u64 deadline;
	/* When the present turn began, 0 if not running. */
	u64 running_since;
	/* When the task was queued, 0 if it is not. */
	u64 queued_since;
	/* Queue that it was put into last. */
	u64 dsq;
	/* What the present turn may last, ns. */
	u64 turn_ns;
	/* ns of this turn that `donor` pays; 0 without a grant. */
	u64 grant_ns;
	u32 donor;
	/* Effective weight when last queued. */
	u32 effective;
	/* Weight with which the task's group counts it while it is runnable, 0 if it does not. */
	u32 counted;
	/* Place of its VM in `vms` plus one; 0 if this is no vCPU, as far as is known. */
	u32 vm;
	/* vCPU id plus one, 0 if unknown or beyond OVB_MAX_VCPUS, and its place in `vcpus`. */
	u32 vcpu;
	u32 vcpu_place;
	/* Turns that have ended, to look less and less often whether this is a vCPU. */
	u32 turns;
	/* When it began to run, and when it last spun. */
	u64 resumed_at;
	u64 last_spin;
	/* KVM is looking for somebody to yield to, and has not called us. */
	bool spin_open;
	/* When it yielded last, an IPI of its own had not been handled. */
	bool awaits_ipi;
	/* Has just yielded: must not be kept on its CPU. */
	bool yielded;
	/* When it left its CPU by a directed yield, that is, waiting for a sibling; 0 if it did
	 * not. */
	u64 spun_at;
	/* Has left its CPU as nobody could help it: it is queued a slice later than it would be,
	 * once. */
	bool gave_up;
	/* Runs on a grant that nobody's turn covers. */
	bool overtime;
	/* Its next turn is not its own by virtual time: it waited for too long, or is in an RCU
	 * section. */
	bool out_of_turn;
	/* Its VM counts it as one that wants to run. */
	bool wants;
	/* SCHED_IDLE: whoever else wants the CPU has it. */
	bool idle_class;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

struct cpu_ctx {
	/* Virtual time of this CPU: that of whoever was picked by deadline last. */
	u64 vtime;
	/* Deadline of the running task, this CPU's clock if it came out of turn, so that nobody
	 * preempts it; when it began to run, and its VM. */
	u64 deadline;
	u64 since;
	u32 vm;
	/* Whom the running task has nominated, and when. */
	u32 nominee;
	u32 nominator;
	u32 nominee_tier;
	u64 nominated_at;
	/* When this CPU last looked for whoever has waited for too long. */
	u64 looked_at;
	u64 counts[OVB_COUNTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_ctx);
} cpu_ctxs SEC(".maps");

/* Virtual time of each LLC's queue: the latest of those picked that may run anywhere. */
u64 llc_vtime[OVB_MAX_LLCS];

/*
 * VMs and vCPUs live in tables and not in hash maps: they are looked up several times per switch
 * and per IPI, and a table's entry costs next to nothing. An entry whose VM has ended stays as it
 * is, for the statistics, until somebody needs the place.
 */
#define MASK_WORDS (OVB_MAX_VCPUS / 64)

/* A VM. */
struct vm_ctx {
	struct ovb_place_of_vm at;
	/* Where the next search begins. */
	u32 next;
	/* vCPUs that want to run. */
	u32 nr_wanting;
	/* vCPUs that are queued: preempted at work (or woken), or since they wait. */
	u64 at_work[MASK_WORDS];
	u64 waiting[MASK_WORDS];
	/* vCPUs that were sent an IPI since they last began to run, or ended an interrupt. */
	u64 interrupted[MASK_WORDS];
	/* Threads, and places in `vcpus` plus one, by vCPU id. */
	u32 pids[OVB_MAX_VCPUS];
	u32 places[OVB_MAX_VCPUS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OVB_MAX_VMS);
	__type(key, u32);
	__type(value, struct vm_ctx);
} vms SEC(".maps");

/* By place in `vms`. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OVB_MAX_VMS);
	__type(key, u32);
	__type(value, struct ovb_vm_stats);
} vm_counts SEC(".maps");

/* Places of VMs by process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 2 * OVB_MAX_VMS);
	__type(key, u32);
	__type(value, u32);
} vm_places SEC(".maps");

/* A vCPU. */
struct vcpu_ctx {
	struct ovb_vcpu_stats stats;
	struct ovb_relations sent;
	struct ovb_inbox inbox;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OVB_MAX_ALL_VCPUS);
	__type(key, u32);
	__type(value, struct vcpu_ctx);
} vcpus SEC(".maps");

/* Zeroes, too many for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vm_ctx);
} blank_vm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu_ctx);
} blank_vcpu SEC(".maps");

/* Entries that were ever given away, those beyond the tables' ends included. */
u32 vms_used;
u32 vcpus_used;
/* When a table was last found full. */
u64 full_at;

/* CPUs that run SCHED_IDLE tasks: as good as idle. */
private(OVERBOOK) struct bpf_cpumask __kptr *soft_idle;

/* `i` as an index of an array of n, a power of two. The compiler must not know what is known of `i`
 * already: it would leave the mask out, and the verifier needs it. */
static __always_inline u32 bounded(u32 i, u32 n)
{
	barrier_var(i);
	return i & (n - 1);
}

static struct task_ctx *task_ctx(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

/* Nothing is known yet. */
static struct task_ctx fresh_task_ctx(void)
{
	return (struct task_ctx){.effective = OVB_EFFECTIVE_NICE_0};
}

/* Makes a task's state if it has none. Allocation does not wait, so it may fail for a moment; a
 * fork need not fail for that: the task is tried again whenever it becomes runnable, and runs
 * meanwhile by the kernel's own queue. */
static struct task_ctx *make_task_ctx(struct task_struct *p)
{
	struct task_ctx fresh = fresh_task_ctx();

	fresh.idle_class = p->policy == SCHED_IDLE;
	return bpf_task_storage_get(&task_ctxs, p, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static struct cpu_ctx *cpu_ctx_of(s32 cpu)
{
	u32 zero = 0;

	return bpf_map_lookup_percpu_elem(&cpu_ctxs, &zero, cpu);
}

static struct cpu_ctx *this_cpu_ctx(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpu_ctxs, &zero);
}

static void count(u32 what)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	if (cpuc && what < OVB_COUNTS)
		cpuc->counts[what]++;
}

/* Counters of a VM by its place plus one; NULL for none. */
static struct ovb_vm_stats *vm_stats(u32 vm)
{
	u32 place = vm - 1;

	return bpf_map_lookup_elem(&vm_counts, &place);
}

#endif
