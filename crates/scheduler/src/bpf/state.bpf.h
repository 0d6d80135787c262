/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tunables, and what is remembered of tasks and CPUs, with their counters.
 */
#ifndef OVERBOOK_STATE_BPF_H
#define OVERBOOK_STATE_BPF_H

#include <scx/common.bpf.h>

#include "intf.h"
#include "spin.h"
#include "turn.h"
#include "weight.h"

/* include/uapi/linux/sched.h */
#define SCHED_IDLE 5

/* A table of `entries`, found by place. */
#define TABLE(kind, name, entry, entries)          \
	struct {                                   \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries);      \
		__type(key, u32);                  \
		__type(value, entry);              \
	} name SEC(".maps")

/* Set by the loader. */
const volatile u32 nr_cpus = 1;
const volatile u32 nr_llcs = 1;
/* LLC of every CPU, 0 to nr_llcs − 1. */
const volatile u32 cpu_llc[OVB_MAX_CPUS];
/* CPUs of every LLC, the first of them, and its NUMA node. */
const volatile u32 llc_cpus[OVB_MAX_LLCS];
const volatile u32 llc_first[OVB_MAX_LLCS];
const volatile u32 llc_node[OVB_MAX_LLCS];
/* Which CPU is looked at after each for somebody whom a woken task may preempt, in a ring: of all
 * on a host of at most OVB_VICTIMS CPUs, else of those of its LLC. */
const volatile u32 next_victim[OVB_MAX_CPUS];
/* Those that are online, 64 at a time. When some come or go the scheduler is loaded anew. */
const volatile u64 cpus_online[OVB_MAX_CPUS / 64];
/* Some CPUs may be preferred to others (prefer.bpf.h); a host never asks. */
const volatile bool may_prefer;
/* What follows may be changed while running. */

/* Length of a slice, ns, at least 100 µs. Slices end at ticks unless somebody preempts. */
volatile u64 slice_ns = 3000000;
/* A task, not of SCHED_IDLE, that has been queued for this long goes before others, ns. */
volatile u64 patience_ns = 10000000000;
/* Whether IPIs are followed to their receivers. */
volatile u32 relations = 1;

/* LLCs that are the homes of VMs (policy/home.h), plus one each; 0: none. By place in `vms`. */
volatile u32 vm_homes[OVB_MAX_VMS];
/* Classes of VMs (policy/class.h), by place in `vms`, and whether any is not normal. */
volatile u32 vm_classes[OVB_MAX_VMS];
volatile u32 some_classes;

/* These are fixed at load; the lab stretches them with its guests' times. */

/* A woken task preempts one whose key is later by this much, ns of virtual time. */
const volatile u64 preempt_margin_ns = 500000;
/* In a guest, it preempts no task that has run for less than this, ns: where tasks wake each
 * other all the time, each would end the other's slice at once. */
const volatile u64 protect_ns = 3000000;
/* A queued vCPU that had spun this long ago may have got what it waited for, ns. */
const volatile u64 stale_ns = 1000000;
/* At a sender's next IPI, ends of those that it sent so long ago are not waited for, ns. */
const volatile u64 window_ns = 50000000;
/* A SCHED_IDLE task that has been queued for this long goes before others, ns. */
const volatile u64 idle_patience_ns = 1000000000;
/* A spin that has lasted for less than this may be over in a moment, ns (policy/spin.h). */
const volatile u64 short_spin_ns = 30000;
/* Time between two PAUSE exits no further apart was spun, ns: the hardware's window, an exit, some
 * room. */
const volatile u64 spin_gap_ns = 20000;
/* A spinner for whom KVM has asked nobody leaves its CPU so much later, ns: when the program that
 * finds that out has ended. */
const volatile u64 look_again_ns = 2000;

/* The probes, while they are attached, see every IPI. */
const volatile bool sends_seen;
/* They are told of every end of an interrupt. */
const volatile bool ends_seen;
/* Interrupts are posted, so that the local APIC has them later: Intel's CPUs with APICv. */
const volatile bool posts;

/* Virtual time starts this much before the wrap, so that every run crosses it. */
#define VTIME_START (0ull - 1000000000ull)

/* What has a virtual time of its own; see policy/turn.h. */
struct tenant {
	u64 vtime;
	u64 deadline;
	/* See policy/weight.h. */
	u64 rate;
};

struct task_ctx {
	/* A task of the root group is a tenant by itself. */
	struct tenant own;
	/* Its time among the members of its tenant: ns that it ran, by its own weight. */
	u64 time;
	/* What it is queued by: its tenant's deadline and how far it stands from that. The deadline
	 * that this was made of, and what the key never exceeds. */
	u64 key;
	u64 keyed_for;
	u64 ceiling;
	/* The tenant's virtual time when it was queued. */
	u64 queued_at;
	/* Up to when its running has been charged, 0 if it does not run. */
	u64 running_since;
	/* Since when it has waited for a CPU, 0 if it does not: whoever is changed while it is
	 * queued is queued anew, and waits on. */
	u64 waits_since;
	/* Queue that it was put into last. */
	u64 dsq;
	/* Places of its group, and of the tenant whose time it spends; 0: the root group, and
	 * itself. */
	u32 node;
	u32 tenant;
	/* When these were found out; see tree.bpf.h. */
	u32 generation;
	/* Where it is counted while it is runnable, and with which weight; 0 if it is not, and for
	 * SCHED_IDLE. */
	u32 counted_in;
	u32 counted;
	/* Of which tenant it counts as a member while it is runnable. */
	u32 member_of;
	/* Its own weight. */
	u32 weight;
	/* Place of the set of its CPUs, and of that whose queue its key is for; see pool.bpf.h. */
	u32 pool;
	u32 queue_pool;
	/* `moves` of its VM when its group was last looked up; see tenant.bpf.h. */
	u32 moves;
	/* Place of its VM in `vms` plus one; 0 if this is no vCPU, as far as is known. */
	u32 vm;
	/* vCPU id plus one, 0 if unknown or beyond OVB_MAX_VCPUS, and its place in `vcpus`. */
	u32 vcpu;
	u32 vcpu_place;
	/* How often it has been looked at; it is looked whether it is a vCPU less and less often.
	 */
	u32 looks;
	/* When it last came to a CPU, and its spins since. */
	u64 resumed_at;
	struct ovb_spin spin;
	/* When it left its CPU waiting for a sibling; 0 if it did not. */
	u64 spun_at;
	/* Lag that it takes along to its new CPUs; 0 if it has come to them. */
	s64 carried;
	/* It is in a queue, or parked. */
	bool queued;
	/* Has no virtual time yet. */
	bool fresh;
	/* CPU that it is to be queued for next, plus one; 0: see homeward(). */
	u16 sent_to;
	/* It is being found out whose vCPU it is. */
	u32 discovered;
	/* KVM is looking for somebody to yield to, and has not called us. */
	bool spin_open;
	/* Has just yielded: must not be kept on its CPU. */
	bool yielded;
	/* Has left its CPU as nobody could help it: it is queued a slice later than it would be,
	 * once. */
	bool gave_up;
	/* Its next slice is not its tenant's by virtual time: it waited for too long, or is in an
	 * RCU section. */
	bool out_of_turn;
	/* It waited for too long, and is about to run. */
	bool overdue;
	/* SCHED_IDLE: whoever else wants the CPU has it. */
	bool sched_idle;
	/* When it last went to sleep. */
	u64 slept_at;
	/* It woke up, is new or has lost its CPU to a higher class, and has not had half a slice
	 * at a time since. */
	bool woke;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

struct cpu_ctx {
	/* Virtual time at which the turns of the tasks that were picked here began; never back. */
	u64 level;
	/* Where turns began of those whom somebody who overstays keeps waiting; else the level. */
	u64 base;
	/* Key of the running task, with its queue's offset, or of who preempts it; the base if it
	 * is in an RCU section, and well before that if it was overdue, so that nobody does. */
	u64 key;
	/* When it began to run, 0 if it is of SCHED_IDLE, and its VM. */
	u64 since;
	u32 vm;
	/* What a tenant owes for time on this CPU that is not booked yet; negative: it has paid for
	 * time that it has not used yet. */
	u32 debtor;
	s64 debt_ns;
	/* The VM that goes on here although the running vCPU has just left, and who that was; and
	 * with which vCPU, by its id plus one, 0 for the best. */
	u32 goes_on;
	u32 leaver;
	u32 goes_on_with;
	/* The thread that goes on with the slice of the one before, if it runs next. */
	u32 heir;
	/* When the slice ends that the queues have given to the task that runs here, or to the one
	 * that it came after. */
	u64 until;
	/* How often groups' weights had been raised when this CPU last looked after its queues. */
	u32 raised;
	/* When this CPU last looked for whoever has waited for too long, and in which of its queues
	 * it last found one; how often it has looked, and how many looks are urgent. */
	u32 overdue;
	u64 looked_at;
	u32 looks;
	u32 urgent;
	/* When it last looked at another LLC's queue for who is owed more, and at which; see
	 * balance(). */
	u64 balanced_at;
	u32 balanced_with;
	/* The LLC where it last looked for a CPU for a task that is due here, and when; see
	 * goes_elsewhere(). */
	u32 spread_to;
	u64 spread_at;
	/* The CPU whose task can wait best, of those that were looked at, and that task's key. In
	 * memory, as the verifier would follow every value of a variable. */
	s32 victim;
	u64 victim_key;
	/* The first of a queue that was looked at: what it is, its key, and its VM; 0 if no sibling
	 * can be worth more, or it has been passed over for long. */
	enum { NOBODY, ORDINARY, VCPU } peeked;
	u32 peeked_vm;
	/* It may not use all CPUs. */
	u32 peeked_bound;
	u64 peeked_key;
	/* The same of the queue whose first goes before all others here. */
	u32 found;
	u32 first_vm;
	u64 first_key;
	u64 first_dsq;
	/* Pools that this CPU belongs to. */
	u64 pools;
	/* The longest time that a vCPU of each class had been queued when it came to run here, ns,
	 * and how often one had been for longer than is promised. These and the counters come last:
	 * the loader finds them from the end. */
	u64 longest[OVB_CLASS_SLOTS];
	u64 broken[OVB_CLASS_SLOTS];
	u64 counts[OVB_COUNTS];
};

_Static_assert(__builtin_offsetof(struct cpu_ctx, longest) +
			       8 * (2 * OVB_CLASS_SLOTS + OVB_COUNTS) ==
		       sizeof(struct cpu_ctx),
	       "the loader finds these from the end");

TABLE(PERCPU_ARRAY, cpu_ctxs, struct cpu_ctx, 1);

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

/* Makes a task's state if it has none. Allocation does not wait, so it may fail for a moment; a
 * fork need not fail for that: the task is tried again whenever it becomes runnable, and runs
 * meanwhile by the kernel's own queue. */
static struct task_ctx *make_task_ctx(struct task_struct *p)
{
	struct task_ctx fresh = {.fresh = true, .sched_idle = p->policy == SCHED_IDLE};

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

static u32 llc_of(s32 cpu)
{
	return cpu_llc[bounded((u32)cpu, OVB_MAX_CPUS)];
}

/* The LLC after one, wrapping. */
static u32 llc_after(u32 llc)
{
	return llc + 1 < nr_llcs ? llc + 1 : 0;
}

/* Class of a VM by its place plus one; what is no VM is normal. */
static u32 class_of(u32 vm)
{
	return some_classes && vm ? vm_classes[bounded(vm - 1, OVB_MAX_VMS)] : OVB_CLASS_NORMAL;
}

/* Length of a slice of a VM's, by its place plus one, or of what is no VM. */
static u64 slice_of(u32 vm)
{
	return some_classes ? ovb_class_slice(slice_ns, class_of(vm)) : slice_ns;
}

/* Queue of an LLC. */
static u64 llc_dsq(u32 llc)
{
	return llc;
}

/* Queue of tasks that may run on one CPU only. */
static u64 cpu_dsq(s32 cpu)
{
	return OVB_MAX_LLCS + (u32)cpu;
}

/* Queues of SCHED_IDLE tasks, first come, first served: one per LLC, one per CPU. */
#define IDLE_QUEUES (OVB_MAX_LLCS + OVB_MAX_CPUS)

static u64 idle_dsq(u64 dsq)
{
	return IDLE_QUEUES + dsq;
}

/* Queue of tasks whose group has used its cpu.max. */
#define PARKED (2 * IDLE_QUEUES)

/* Queues of pools, OVB_MAX_LLCS for each: see pool_dsq(). */
static bool is_pool_dsq(u64 dsq)
{
	return dsq > PARKED;
}

/* How long a task that waits for a CPU has done so, ns. Another CPU, whose clock is another, may
 * have queued it after `now`, or may just have begun to run it. */
static u64 wait_of(const struct task_ctx *taskc, u64 now)
{
	u64 since = taskc->waits_since;
	s64 ns = (s64)(now - since);

	return since && ns > 0 ? (u64)ns : 0;
}

/* Preempted inside an RCU read section: the kernel notes it when it switches. (The depth itself
 * would mislead, as this program runs inside such a section of the task that it is asked about.) */
static bool in_rcu_section(const struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_unlock_special) &&
	       p->rcu_read_unlock_special.b.blocked;
}

/* Whether a task may run on a CPU. */
static bool may_run_on(const struct task_struct *p, s32 cpu)
{
	return !is_migration_disabled(p) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* Moves a task of the queue that is walked to this CPU's local queue. */
static bool move_here(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 slice)
{
	scx_bpf_dsq_move_set_slice(it, slice);
	return scx_bpf_dsq_move(it, p, SCX_DSQ_LOCAL, 0);
}

#endif
