/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's core (kernel/sched/core.c): runqueues, their locks, switches, wake-ups, ticks.
 */
#include "model.h"
#include "libc.h"

struct tun_calls calls;
bool interleave, counting;
int LINUX_KERNEL_VERSION = 6 << 16 | 18 << 8;
const char CONFIG_CC_VERSION_TEXT[64], CONFIG_LOCALVERSION[64];
bool CONFIG_PREEMPT_RCU = true;

u32 nr_model_cpus;
struct tun_rq rqs[MAX_CPUS];
struct tun_op ops_of[MAX_CPUS];
struct tun_op *cx = &ops_of[0];
struct tun_task **tasks;
u32 nr_tasks;

void fault(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	calls.fault(text);
}

void rq_lock(u32 cpu)
{
	point();
	if (rqs[cpu].owner == cx->cpu + 1) {
		fault("deadlock: CPU %u locks the runqueue of CPU %u, which it has locked, in %s",
		      cx->cpu, cpu, cx->name ? cx->name : "the core");
		return;
	}
	while (rqs[cpu].owner)
		calls.wait();
	rqs[cpu].owner = cx->cpu + 1;
}

void rq_unlock(u32 cpu)
{
	rqs[cpu].owner = 0;
	point();
}

void switch_rq_lock(u32 from, u32 to)
{
	rq_unlock(from);
	rq_lock(to);
}

void double_rq_lock(u32 a, u32 b)
{
	rq_lock(a < b ? a : b);
	if (a != b)
		rq_lock(a < b ? b : a);
}

void double_rq_unlock(u32 a, u32 b)
{
	if (b != a)
		rq_unlock(b);
	rq_unlock(a);
}

void resched_curr(struct tun_rq *rq)
{
	if (rq->need_resched)
		return;
	rq->need_resched = true;
	calls.resched(rq->id);
}

void update_curr(struct tun_rq *rq)
{
	struct tun_task *p = rq->curr;
	u64 delta;

	if (!p)
		return;
	delta = now() - p->exec_start;
	p->exec_start += delta;
	p->t.se.sum_exec_runtime += delta;
	if (p->class == CLASS_EXT && p->t.scx.slice != ~0ull)
		p->t.scx.slice -= p->t.scx.slice < delta ? p->t.scx.slice : delta;
}

void activate(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating)
{
	p->on_rq = true;
	enqueue_task_scx(rq, p, flags, migrating, migrating ? (s32)rq->id : -1);
}

void deactivate(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating)
{
	dequeue_task_scx(rq, p, flags, migrating);
	p->on_rq = false;
}

bool may_migrate(const struct tun_task *p)
{
	return p->t.nr_cpus_allowed > 1 && !p->t.migration_disabled;
}

/* pick_next_task(). The runqueue is locked; its lock may be dropped meanwhile. */
struct tun_task *pick(struct tun_rq *rq, struct tun_task *prev)
{
	struct tun_task *p;

	if (rq->higher)
		return rq->higher;
	switch (balance_one(rq, prev)) {
	case KEEP:
		/* Somebody of a higher class may have come while the lock was dropped. */
		if (rq->higher)
			return rq->higher;
		if (!prev->t.scx.slice)
			prev->t.scx.slice = SCX_SLICE_DFL;
		return prev;
	case LOCAL:
	case NOBODY:
		break;
	}
	if (rq->higher)
		return rq->higher;
	p = rq->local.first;
	if (p && !p->t.scx.slice)
		p->t.scx.slice = SCX_SLICE_DFL;
	return p;
}

int sched_switch_program(struct tun_task *prev, struct tun_task *next);

/* __schedule() after the previous task was dequeued if it sleeps; the runqueue is locked. */
void schedule_locked(struct tun_rq *rq)
{
	struct tun_task *prev = rq->curr, *next = pick(rq, prev);

	rq->need_resched = false;
	/* Who has claimed an idle CPU may not have made it run anything. */
	if (!prev && !next)
		mark_idle(rq->id, true);
	if (prev == next)
		return;
	if (prev && prev->class == CLASS_EXT)
		put_prev_task_scx(rq, prev, next, false);
	else if (!prev)
		update_idle(rq->id, false);
	if (!next)
		update_idle(rq->id, true);
	else if (next->class == CLASS_EXT)
		set_next_task_scx(rq, next);
	if (prev)
		prev->on_cpu = false;
	if (next) {
		next->on_cpu = true;
		next->exec_start = now();
	}
	sched_switch_program(prev, next);
	vcpu_switched(prev, next);
	rq->curr = next;
	if (prev)
		stay_here(rq, prev);
	calls.switched(rq->id, prev ? prev->id : ~0u, next ? next->id : ~0u, prev && prev->on_rq);
}

/* A task's own lock, which wake-ups and changes of it take first. */
static void pi_lock(struct tun_task *p)
{
	point();
	while (p->pi_owner)
		calls.wait();
	p->pi_owner = cx->cpu + 1;
}

static void pi_unlock(struct tun_task *p)
{
	p->pi_owner = 0;
}

/* What the outside does by itself, between operations: as CPU 0, which may be amid one. */
void begin_outside(void)
{
	static struct tun_op outside = {.rq = -1};

	cx = &outside;
}

void begin(u32 cpu)
{
	cx = &ops_of[cpu];
	cx->cpu = cpu;
}

void tun_set_cpu(u32 cpu)
{
	cx = &ops_of[cpu];
}

/* What the outside does. Every function runs on the CPU that it names. */

void tun_schedule(u32 cpu)
{
	begin(cpu);
	rq_lock(cpu);
	schedule_locked(&rqs[cpu]);
	rq_unlock(cpu);
}

/* Whoever runs there sleeps, or ends. */
void tun_sleep(u32 cpu)
{
	struct tun_rq *rq = &rqs[cpu];
	struct tun_task *p = rq->curr;

	begin(cpu);
	rq_lock(cpu);
	if (p->class == CLASS_RT) {
		rq->higher = NULL;
		p->on_rq = false;
		p->t.__state = 1;
		schedule_locked(rq);
	} else {
		p->t.__state = 1;
		deactivate(rq, p, SCX_DEQ_SLEEP, false);
		schedule_locked(rq);
	}
	rq_unlock(cpu);
}

/* try_to_wake_up(), by whatever runs on `cpu`; the first time wake_up_new_task(), which does not
 * say so when it enqueues. */
void tun_wake(u32 cpu, u32 id, bool sync)
{
	struct tun_task *p = tasks[id];
	bool begins = !p->begun;
	struct tun_rq *rq;
	s32 to;

	begin(cpu);
	pi_lock(p);
	if (p->on_rq || p->migrating || !p->alive) {
		pi_unlock(p);
		return;
	}
	p->t.__state = 0x200;
	if (p->class == CLASS_RT) {
		rq = &rqs[p->cpu];
		rq_lock(p->cpu);
		rq->higher = p;
		p->on_rq = true;
		p->t.__state = 0;
		resched_curr(rq);
		rq_unlock(p->cpu);
		pi_unlock(p);
		return;
	}
	to = p->cpu;
	if (may_migrate(p))
		to = select_task_rq_scx(p, p->cpu,
					begins ? SCX_WAKE_FORK
					       : SCX_WAKE_TTWU | (sync ? SCX_WAKE_SYNC : 0));
	else if (!mask_has(p->t.cpus_ptr, to))
		to = -1;
	if (to < 0 || !mask_has(p->t.cpus_ptr, to))
		for (to = 0; to < (s32)nr_model_cpus; to++)
			if (mask_has(p->t.cpus_ptr, to))
				break;
	rq = &rqs[to];
	rq_lock(to);
	/* Its end came between. */
	if (!p->on_rq && p->alive) {
		p->cpu = to;
		p->t.__state = 0;
		p->begun = true;
		activate(rq, p, (begins ? 0 : SCX_ENQ_WAKEUP) | SCX_ENQ_CPU_SELECTED, false);
		/* wakeup_preempt(): only the idle task is of a lower class. */
		if (!rq->curr)
			resched_curr(rq);
	} else if (!rq->curr) {
		/* In the kernel no task ends while it is woken; here the idle CPU that was claimed
		 * for it must be idle again. */
		resched_curr(rq);
	}
	rq_unlock(to);
	pi_unlock(p);
}

/* The periodic tick. */
void tun_tick(u32 cpu)
{
	struct tun_rq *rq = &rqs[cpu];

	begin(cpu);
	rq_lock(cpu);
	if (rq->curr && rq->curr->class == CLASS_EXT) {
		update_curr(rq);
		OP(tick, MAY_REST, (s32)cpu, rq->curr, 0, 0);
		if (!rq->curr->t.scx.slice)
			resched_curr(rq);
	}
	rq_unlock(cpu);
}

/* sched_yield() of whoever runs there. */
void tun_plain_yield(u32 cpu)
{
	struct tun_rq *rq = &rqs[cpu];

	begin(cpu);
	rq_lock(cpu);
	if (rq->curr && rq->curr->class == CLASS_EXT) {
		update_curr(rq);
		yield_to_scx(rq, rq->curr, NULL);
	}
	schedule_locked(rq);
	rq_unlock(cpu);
}

/* The runqueue that a task is on, locked (task_rq_lock()). */
struct tun_rq *lock_task(struct tun_task *p)
{
	pi_lock(p);
	for (;;) {
		u32 cpu = p->cpu;

		rq_lock(cpu);
		if (p->cpu == cpu && !p->migrating)
			return &rqs[cpu];
		rq_unlock(cpu);
		if (p->migrating)
			calls.wait();
	}
}

void unlock_task(struct tun_rq *rq, struct tun_task *p)
{
	rq_unlock(rq->id);
	pi_unlock(p);
}
