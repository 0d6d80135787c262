/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's core (kernel/sched/core.c): runqueues, their locks, switches, wake-ups, ticks,
 * and changes of tasks.
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
static u32 room_for_tasks;

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
	p->ran += delta;
	p->t.se.sum_exec_runtime = p->ran;
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
static struct tun_task *pick(struct tun_rq *rq, struct tun_task *prev)
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

/* sched_change_begin() and _end(): a task leaves its queue while what it is changes. */
static bool change_begin(struct tun_rq *rq, struct tun_task *p)
{
	bool running = rq->curr == p;

	if (p->on_rq)
		dequeue_task_scx(rq, p, DEQUEUE_SAVE_BIT, false);
	if (running)
		put_prev_task_scx(rq, p, NULL, true);
	return running;
}

static void change_end(struct tun_rq *rq, struct tun_task *p, bool running)
{
	if (p->on_rq)
		enqueue_task_scx(rq, p, ENQUEUE_RESTORE_BIT, false, running ? (s32)rq->id : -1);
	if (running)
		set_next_task_scx(rq, p);
}

/* A task may run on other CPUs, for as long as its owner's choice does not count. */
static void change_cpus(struct tun_rq *rq, struct tun_task *p, const struct cpumask *cpus)
{
	bool running = change_begin(rq, p);

	p->t.cpus_ptr = cpus;
	OP(set_cpumask, MAY_REST, (s32)rq->id, &p->t, cpus, 0);
	change_end(rq, p, running);
}

/* migrate_disable_switch(): who leaves its CPU with migration disabled may run on no other. */
static void stay_here(struct tun_rq *rq, struct tun_task *p)
{
	if (p->class != CLASS_EXT || !p->t.migration_disabled || p->t.cpus_ptr != &p->t.cpus_mask)
		return;
	p->one = (struct cpumask){};
	p->one.bits[rq->id / 64] = 1ul << (rq->id & 63);
	change_cpus(rq, p, &p->one);
}

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

static void begin(u32 cpu)
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
		p->sleeping = true;
		deactivate(rq, p, SCX_DEQ_SLEEP, false);
		schedule_locked(rq);
	}
	rq_unlock(cpu);
}

/* try_to_wake_up(), by whatever runs on `cpu`. */
void tun_wake(u32 cpu, u32 id)
{
	struct tun_task *p = tasks[id];
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
		to = select_task_rq_scx(p, p->cpu, SCX_WAKE_TTWU);
	else if (!mask_has(p->t.cpus_ptr, to))
		to = -1;
	if (to < 0 || !mask_has(p->t.cpus_ptr, to) || !rqs[to].online)
		for (to = 0; to < (s32)nr_model_cpus; to++)
			if (mask_has(p->t.cpus_ptr, to) && rqs[to].online)
				break;
	rq = &rqs[to];
	rq_lock(to);
	/* Its end came between. */
	if (!p->on_rq && p->alive) {
		p->cpu = to;
		p->t.__state = 0;
		p->sleeping = false;
		activate(rq, p, SCX_ENQ_WAKEUP | SCX_ENQ_CPU_SELECTED, false);
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
static struct tun_rq *lock_task(struct tun_task *p)
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

static void unlock_task(struct tun_rq *rq, struct tun_task *p)
{
	rq_unlock(rq->id);
	pi_unlock(p);
}

/* Somebody on `cpu` changes a task: its runqueue, locked; NULL if it has ended. */
static struct tun_rq *begin_change(u32 cpu, struct tun_task *p)
{
	begin(cpu);
	return p->alive ? lock_task(p) : NULL;
}

/* Moves a queued task to a CPU that it may use (move_queued_task()). */
static void move_queued(struct tun_rq *rq, struct tun_task *p)
{
	u32 to = 0;

	while (to < nr_model_cpus && !(mask_has(p->t.cpus_ptr, to) && rqs[to].online))
		to++;
	if (to == nr_model_cpus)
		return;
	deactivate(rq, p, 0, true);
	p->migrating = true;
	p->cpu = to;
	switch_rq_lock(rq->id, to);
	p->migrating = false;
	/* Not by sched_ext itself: the scheduler is asked. */
	p->on_rq = true;
	enqueue_task_scx(&rqs[to], p, 0, true, -1);
	if (!rqs[to].curr)
		resched_curr(&rqs[to]);
	switch_rq_lock(to, rq->id);
}

/* sched_setaffinity(): `bits` are words of a mask. */
void tun_set_affinity(u32 cpu, u32 id, const unsigned long *bits)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq = begin_change(cpu, p);
	bool running;
	u32 i, n = 0;

	if (!rq)
		return;
	running = change_begin(rq, p);
	for (i = 0; i < MAX_CPUS / 64; i++) {
		p->t.cpus_mask.bits[i] = bits[i];
		n += __builtin_popcountl(bits[i]);
	}
	p->t.nr_cpus_allowed = n;
	OP(set_cpumask, MAY_REST, (s32)rq->id, &p->t, &p->t.cpus_mask, 0);
	change_end(rq, p, running);
	if (p->on_rq && !mask_has(p->t.cpus_ptr, p->cpu)) {
		if (running) {
			/* The stopper moves it: it goes before whatever this CPU would pick. */
			p->must_move = true;
			calls.stopper(rq->id, p->id);
		} else {
			move_queued(rq, p);
		}
	}
	unlock_task(rq, p);
}

/* Takes the running task off its CPU, as a stopper does that is of a higher class. */
static void stop_running(struct tun_rq *rq, struct tun_task *p)
{
	struct tun_task *next;

	put_prev_task_scx(rq, p, NULL, false);
	p->on_cpu = false;
	vcpu_switched(p, NULL);
	rq->curr = NULL;
	calls.switched(rq->id, p->id, ~0u, true);
	if (p->queued)
		move_queued(rq, p);
	rq->need_resched = false;
	next = pick(rq, NULL);
	if (next && next->class == CLASS_EXT)
		set_next_task_scx(rq, next);
	if (next) {
		next->on_cpu = true;
		next->exec_start = now();
	} else {
		update_idle(rq->id, true);
	}
	vcpu_switched(NULL, next);
	rq->curr = next;
	calls.switched(rq->id, ~0u, next ? next->id : ~0u, false);
}

/* The stopper of `cpu` moves a task that may no longer run there (migration_cpu_stop()). */
void tun_stopper(u32 cpu, u32 id)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq;

	begin(cpu);
	rq = lock_task(p);
	p->must_move = false;
	if (p->alive && p->on_rq && !mask_has(p->t.cpus_ptr, rq->id)) {
		if (rq->curr == p && rq->id != cpu) {
			/* It has come to another CPU meanwhile, whose stopper takes over. */
			p->must_move = true;
			calls.stopper(rq->id, id);
		} else if (rq->curr == p) {
			stop_running(rq, p);
		} else if (p->queued) {
			move_queued(rq, p);
		}
	}
	unlock_task(rq, p);
}

/* nice and policy: `weight` as sched_ext counts it (100 is nice 0). */
void tun_set_weight(u32 cpu, u32 id, u32 weight, u32 policy)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq = begin_change(cpu, p);
	bool running;

	if (!rq)
		return;
	running = change_begin(rq, p);
	p->t.scx.weight = weight;
	p->t.policy = policy;
	OP(set_weight, MAY_REST, (s32)rq->id, &p->t, weight, 0);
	change_end(rq, p, running);
	unlock_task(rq, p);
}

/* Another cgroup (sched_move_task()). */
void tun_move_group(u32 cpu, u32 id, struct tun_group *to)
{
	struct tun_task *p = tasks[id];
	struct tun_group *from = p->group;
	struct tun_rq *rq = begin_change(cpu, p);
	bool running;

	if (!rq)
		return;
	running = change_begin(rq, p);
	p->group = to;
	OP(cgroup_move, MAY_UNLOCKED, (s32)rq->id, &p->t, &from->cg, &to->cg);
	change_end(rq, p, running);
	unlock_task(rq, p);
}

/* migrate_disable() and _enable(). */
void tun_migration(u32 cpu, u32 id, bool disable)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq = begin_change(cpu, p);

	if (!rq)
		return;
	p->t.migration_disabled = disable;
	if (!disable && p->t.cpus_ptr != &p->t.cpus_mask)
		change_cpus(rq, p, &p->t.cpus_mask);
	unlock_task(rq, p);
}

/* rcu_note_context_switch() in a read section, and its end. */
void tun_rcu_section(u32 cpu, u32 id, bool inside)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq = begin_change(cpu, p);

	if (!rq)
		return;
	p->t.rcu_read_unlock_special.b.blocked = inside;
	unlock_task(rq, p);
}

u32 tun_new_task(u32 cpu, u32 on, u32 pid, u32 tgid, u32 weight, u32 policy, bool higher,
		 const unsigned long *bits, struct tun_group *group)
{
	struct tun_task *p = heap_new(sizeof(*p));
	u32 i;

	if (nr_tasks == room_for_tasks) {
		room_for_tasks = room_for_tasks ? 2 * room_for_tasks : 256;
		tasks = heap_more(tasks, nr_tasks * sizeof(*tasks),
				  room_for_tasks * sizeof(*tasks));
	}
	p->id = nr_tasks;
	tasks[nr_tasks++] = p;
	p->cpu = on;
	p->class = higher ? CLASS_RT : CLASS_EXT;
	p->alive = true;
	p->holding_cpu = -1;
	p->ddsp_dsq = SCX_DSQ_INVALID;
	p->group = group ? group : root_group;
	p->t.pid = pid;
	p->t.tgid = tgid;
	p->t.prio = higher ? 50 : 120;
	p->t.policy = policy;
	p->t.scx.weight = weight;
	p->t.scx.slice = SCX_SLICE_DFL;
	p->t.cpus_ptr = &p->t.cpus_mask;
	for (i = 0; i < MAX_CPUS / 64; i++) {
		p->t.cpus_mask.bits[i] = bits[i];
		p->t.nr_cpus_allowed += __builtin_popcountl(bits[i]);
	}
	p->t.__state = 1;
	snprintf(p->t.comm, sizeof(p->t.comm), "task%u", p->id);
	begin_outside();
	if (!higher) {
		struct scx_init_task_args args = {.fork = true, .cgroup = &p->group->cg};

		OP(init_task, MAY_UNLOCKED | MAY_SLEEP, -1, &p->t, &args, 0);
		OP(enable, MAY_REST, -1, &p->t, 0, 0);
		OP(set_weight, MAY_REST, -1, &p->t, weight, 0);
	}
	return p->id;
}

/* A sleeping task ends, for good. */
void tun_end_task(u32 cpu, u32 id)
{
	struct tun_task *p = tasks[id];
	struct scx_exit_task_args args = {};

	begin(cpu);
	if (!p->alive || p->on_rq)
		return;
	p->alive = false;
	p->t.__state = 0x80;
	if (p->class == CLASS_EXT) {
		OP(disable, MAY_REST, -1, &p->t, 0, 0);
		OP(exit_task, MAY_REST, -1, &p->t, &args, 0);
	}
}

/* Whether it is about to end (PF_EXITING). */
void tun_set_exiting(u32 id)
{
	tasks[id]->t.flags |= 4;
}

void tun_init(u32 cpus, int version, bool may_interleave, const struct tun_calls *from)
{
	u32 cpu;

	calls = *from;
	nr_model_cpus = cpus;
	LINUX_KERNEL_VERSION = version;
	interleave = may_interleave;
	for (cpu = 0; cpu < cpus; cpu++) {
		rqs[cpu].id = cpu;
		rqs[cpu].online = true;
		rqs[cpu].local.local = cpu;
		rqs[cpu].local.id = SCX_DSQ_LOCAL_ON | cpu;
		ops_of[cpu].cpu = cpu;
		ops_of[cpu].rq = -1;
		update_idle(cpu, true);
	}
}

/* Flags as the loader sets them, and ops.init(). */
s32 tun_start(void)
{
	u32 i;

	tun_ops()->flags |= SCX_OPS_ENQ_EXITING | SCX_OPS_ENQ_MIGRATION_DISABLED;
	if (tun_takes_back())
		tun_ops()->flags |= SCX_OPS_ALWAYS_ENQ_IMMED;
	begin_outside();
	for (i = 0; i < 5 && make_timers(); i++)
		;
	return (s32)OP(init, MAY_UNLOCKED | MAY_SLEEP, -1, 0, 0, 0);
}

u64 tun_ran(u32 id)
{
	return tasks[id]->ran;
}

/* Which CPU a runnable task waits or runs on, and in which queue: ~0 none. */
u64 tun_dsq_of(u32 id)
{
	return tasks[id]->dsq ? tasks[id]->dsq->id : ~0ull;
}

bool tun_is_runnable(u32 id)
{
	return tasks[id]->on_rq || tasks[id]->migrating;
}

bool tun_need_resched(u32 cpu)
{
	return rqs[cpu].need_resched;
}

u32 tun_curr(u32 cpu)
{
	return rqs[cpu].curr ? rqs[cpu].curr->id : ~0u;
}
