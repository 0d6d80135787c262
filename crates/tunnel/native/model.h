/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The model of a kernel with sched_ext that the scheduler's BPF sources run on. Written from
 * kernel/sched/ext.c of 6.18 and 7.2, function by function and under the kernel's names where there
 * is one.
 *
 *   core.c    runqueues, their locks, the switch, wake-ups, ticks
 *   change.c  changes of a task
 *   task.c    tasks that begin and end
 *   ext.c     sched_ext: the calls of the scheduler's operations, kicks
 *   dsq.c     sched_ext: dispatch queues
 *   idle.c    which CPUs idle, and the built-in choice among them
 *   maps.c    BPF's maps, and storage of tasks and groups
 *   bpf.c     BPF's timers, references to tasks, locks, loops
 *   cpumask.c BPF's cpumasks
 *   group.c   the tree of cgroups
 *   kvm.c     directed yields, and what the scheduler sees of vCPUs
 *
 * Time, events, and what tasks do are the outside's (crates/tunnel/src): it calls tun_*()
 * functions, each on a CPU, and is called back through struct tun_calls.
 */
#ifndef TUNNEL_MODEL_H
#define TUNNEL_MODEL_H

#include "vmlinux.h"
#include "maps.h"

#define MAX_CPUS    1024
#define MAX_STORAGE 8
#define MAX_DSQS    8192
#define MAX_REFS    64

#define ESRCH  3
#define ENOENT 2
#define ENOMEM 12
#define EFAULT 14
#define EBUSY  16
#define EEXIST 17
#define EINVAL 22
#define E2BIG  7

#define NULL ((void *)0)

/* Ends of the world that the model can reach. */
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - __builtin_offsetof(type, member)))

/* What the outside provides. */
struct tun_calls {
	u64 (*now)(void);
	u32 (*random)(void);
	/* CPU `cpu` should look whom to run. */
	void (*resched)(u32 cpu);
	/* CPU `from` has asked to kick `cpu`, with SCX_KICK_*. */
	void (*kick)(u32 from, u32 cpu, u64 flags);
	/* A CPU goes from one task to another; ~0 is none. `on_rq`: the former wants to run on. */
	void (*switched)(u32 cpu, u32 prev, u32 next, bool on_rq);
	/* A task was put into a queue, or taken out of one. */
	void (*queued)(u32 task, u64 dsq);
	/* The stopper of `cpu` is to move a task away. */
	void (*stopper)(u32 cpu, u32 task);
	void (*timer)(void *node, u32 cpu, u64 ns);
	/* The program may be interrupted here by what other CPUs do. */
	void (*point)(void);
	/* It is, and for long. */
	void (*dwell)(void);
	/* A lock is held by somebody else. */
	void (*wait)(void);
	/* Something that the kernel forbids. */
	void (*fault)(const char *text);
};

extern struct tun_calls calls;
/* Whether programs may be interrupted between two calls; whether calls are counted. */
extern bool interleave, counting;
/* Kernel: LINUX_KERNEL_VERSION. */
extern int LINUX_KERNEL_VERSION;

void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether the callback that runs may call a kfunc; says so as the kernel does, if not. */
bool allowed(u32 may, const char *kfunc);

struct tun_dsq {
	u64 id;
	struct tun_task *first, *last;
	u32 nr, seq;
	/* Ordered by virtual time; FIFO otherwise. Known while it holds anything. */
	bool priq;
	/* A CPU's local queue, and whose. */
	s32 local;
};

enum tun_class {
	CLASS_EXT,
	CLASS_RT,
};

struct tun_task {
	/* First, so that both are the same pointer. */
	struct task_struct t;
	u32 id;
	u32 cpu;
	enum tun_class class;
	bool alive, on_rq, on_cpu;
	/* It has been woken once. */
	bool begun;
	/* Between two runqueues. */
	bool migrating;
	/* In the kernel's words: SCX_TASK_QUEUED. */
	bool queued;
	/* The scheduler has it, in no queue. */
	bool in_custody;
	/* Inserted by the scheduler while it was asked, and not put there yet. */
	u64 ddsp_dsq, ddsp_flags;
	struct tun_dsq *dsq;
	struct tun_task *next, *prev;
	/* The CPU that it was preempted on while migration was disabled. */
	struct cpumask one;
	u32 dsq_seq;
	u64 exec_start;
	s32 holding_cpu;
	/* CPU plus one of whoever has its pi_lock. */
	u32 pi_owner;
	struct tun_group *group;
	struct tun_vcpu *vcpu;
	void *storage[MAX_STORAGE];
	/* A spin's end is still to be told of, by the task itself (kvm.c). */
	bool in_spin;
	/* Its affinity no longer has its CPU, and it runs there: to be moved by the stopper. */
	bool must_move;
};

struct tun_rq {
	u32 id;
	bool need_resched, cpu_released, in_balance;
	struct tun_task *curr;
	/* Of a higher class, wants this CPU. */
	struct tun_task *higher;
	struct tun_dsq local;
	u32 nr_running;
	/* CPU plus one of whoever has its lock. */
	u32 owner;
	u64 extra_enq_flags;
};

/* What a CPU is doing: at most one program at a time. */
struct tun_op {
	u32 cpu;
	/* Which callback, and which kfuncs it may call. */
	const char *name;
	u32 may;
	/* Runqueue that the callback was called with, −1: none. */
	s32 rq;
	/* Tasks that the callback is about: the only ones whose group it may ask for. */
	u64 subjects[2];
	/* Task that may be dispatched directly. */
	struct tun_task *direct;
	/* What ops.dispatch() has inserted. */
	struct {
		struct tun_task *p;
		u64 dsq, flags;
	} buffer[32];
	u32 buffered;
	s32 refs, preempt, rcu;
	/* What the callback has done so far, for costs. */
	u64 done;
	void *spin;
};

enum tun_may {
	MAY_SELECT_CPU = 1,
	MAY_ENQUEUE = 2,
	MAY_DISPATCH = 4,
	MAY_RELEASE = 8,
	/* No runqueue is locked. */
	MAY_UNLOCKED = 16,
	MAY_SLEEP = 32,
	MAY_REST = 64,
};

struct tun_group {
	struct cgroup cg;
	struct kernfs_node kn;
	struct task_group tg;
	struct tun_group *parent;
	u32 weight;
	void *storage[MAX_STORAGE];
};

extern u32 nr_model_cpus;
extern struct tun_rq rqs[MAX_CPUS];
extern struct tun_op ops_of[MAX_CPUS];
/* The CPU that is at work. */
extern struct tun_op *cx;
extern struct tun_task **tasks;
extern u32 nr_tasks;

static inline u64 now(void)
{
	return calls.now();
}

static inline void point(void)
{
	if (interleave)
		calls.point();
}

static inline struct tun_task *tt(const struct task_struct *p)
{
	return (struct tun_task *)p;
}

static inline bool mask_has(const struct cpumask *mask, u32 cpu)
{
	return cpu < nr_model_cpus && mask->bits[cpu / 64] >> (cpu & 63) & 1;
}

/* core.c */
void begin_outside(void);
void begin(u32 cpu);
void rq_lock(u32 cpu);
void rq_unlock(u32 cpu);
/* Two at a time, in the order of CPUs; they may be one. */
void double_rq_lock(u32 a, u32 b);
void double_rq_unlock(u32 a, u32 b);
/* Swaps one runqueue's lock for another's. */
void switch_rq_lock(u32 from, u32 to);
void resched_curr(struct tun_rq *rq);
void update_curr(struct tun_rq *rq);
void activate(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating);
void deactivate(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating);
void schedule_locked(struct tun_rq *rq);
struct tun_task *pick(struct tun_rq *rq, struct tun_task *prev);
bool may_migrate(const struct tun_task *p);
struct tun_rq *lock_task(struct tun_task *p);
void unlock_task(struct tun_rq *rq, struct tun_task *p);

/* change.c */
void stay_here(struct tun_rq *rq, struct tun_task *p);

/* dsq.c */
extern struct tun_dsq global_dsq;
extern bool reenqueue_later[MAX_CPUS];
void unlink_task(struct tun_task *p);
void dispatch_dequeue(struct tun_task *p);
bool consume(struct tun_rq *rq, struct tun_dsq *dsq);
void dispatch_to_local(struct tun_rq *rq, struct tun_task *p, struct tun_dsq *dsq, u64 flags);
void flush_buffer(struct tun_rq *rq);
struct tun_rq *op_rq(void);
struct tun_dsq *find_dsq_for_dispatch(struct tun_rq *rq, u64 id, const struct tun_task *p);
void dispatch_enqueue(struct tun_dsq *dsq, struct tun_task *p, u64 flags);
bool is_taken(const struct tun_rq *rq);

/* ext.c */
void counted(const char *kfunc);
/* What balance_one() has found: the previous task goes on, the local queue has somebody, nobody. */
enum tun_verdict {
	KEEP,
	LOCAL,
	NOBODY,
};
enum tun_verdict balance_one(struct tun_rq *rq, struct tun_task *prev);
void enqueue_task_scx(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating, s32 sticky);
void dequeue_task_scx(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating);
void put_prev_task_scx(struct tun_rq *rq, struct tun_task *p, const struct tun_task *next,
		       bool changing);
void set_next_task_scx(struct tun_rq *rq, struct tun_task *p);
s32 select_task_rq_scx(struct tun_task *p, u32 prev_cpu, u64 wake_flags);
bool yield_to_scx(struct tun_rq *rq, struct tun_task *from, struct tun_task *to);
u64 call(const char *name, void *program, u32 may, s32 rq, u64 a, u64 b, u64 c);
struct sched_ext_ops *tun_ops(void);
/* An operation of the scheduler's, if it has it. */
#define OP(op, may, rq, a, b, c) \
	(tun_ops()->op ? call(#op, tun_ops()->op, may, rq, (u64)(a), (u64)(b), (u64)(c)) : 0)

/* Whether the scheduler takes its tasks back in ops.cpu_release(), or at switches. */
bool tun_uses_cpu_release(void);
/* Whether the kernel takes them back by itself: SCX_ENQ_IMMED, from 7.1 on. */
bool tun_takes_back(void);
void tun_deferred(u32 cpu);
void tun_set_cpu(u32 cpu);

/* maps.c */
const char *tun_whose(const void *at, u32 *offset);
void *tun_map_at(const struct tun_map *map, const void *value, int *key);

/* glue.c */
const char *glue_mask(const void *at);

/* Interrupts the program for long if that is wanted of this kfunc, or of atomics ("atomic"). */
void may_dwell(const char *kfunc);

/* costs.c */
void tun_count_call(const char *name);
void tun_count_kfunc(const char *name);
void tun_count_lock(void);
void tun_count_step(void);

/* idle.c */
void mark_idle(u32 cpu, bool idle);
void update_idle(u32 cpu, bool idle);

/* group.c */
extern struct tun_group *root_group;

/* kvm.c */
void vcpu_switched(struct tun_task *prev, struct tun_task *next);
int make_timers(void);

#endif
