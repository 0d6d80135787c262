/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Changes of tasks (kernel/sched/core.c, kernel/sched/syscalls.c): where they may run, what they
 * weigh, their group; and the stopper, which takes them from where they may no longer run.
 */
#include "model.h"
#include "libc.h"

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
void stay_here(struct tun_rq *rq, struct tun_task *p)
{
	if (p->class != CLASS_EXT || !p->t.migration_disabled || p->t.cpus_ptr != &p->t.cpus_mask)
		return;
	p->one = (struct cpumask){};
	p->one.bits[rq->id / 64] = 1ul << (rq->id & 63);
	change_cpus(rq, p, &p->one);
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

	while (to < nr_model_cpus && !mask_has(p->t.cpus_ptr, to))
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

/* A task that may no longer be where it is goes elsewhere (affine_move_task()). */
static void leave_forbidden(struct tun_rq *rq, struct tun_task *p)
{
	if (!p->on_rq || mask_has(p->t.cpus_ptr, p->cpu))
		return;
	if (rq->curr == p) {
		/* The stopper moves it: it goes before whatever this CPU would pick. */
		p->must_move = true;
		calls.stopper(rq->id, p->id);
	} else if (!p->t.migration_disabled) {
		move_queued(rq, p);
	}
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
	OP(set_cpumask, MAY_REST, (s32)rq->id, &p->t, p->t.cpus_ptr, 0);
	change_end(rq, p, running);
	leave_forbidden(rq, p);
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
		if (p->t.migration_disabled) {
			/* It stays until it is enabled. The stopper has taken it off its CPU for a
			 * moment. */
			stay_here(rq, p);
		} else if (rq->curr == p && rq->id != cpu) {
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
	p->t.sched_task_group = &to->tg;
	OP(cgroup_move, MAY_UNLOCKED, (s32)rq->id, &p->t, &from->cg, &to->cg);
	change_end(rq, p, running);
	unlock_task(rq, p);
}

/* migrate_disable() and _enable(), by the task itself. */
void tun_migration(u32 cpu, u32 id, bool disable)
{
	struct tun_task *p = tasks[id];
	struct tun_rq *rq = begin_change(cpu, p);

	if (!rq)
		return;
	p->t.migration_disabled = disable;
	if (!disable && p->t.cpus_ptr != &p->t.cpus_mask)
		change_cpus(rq, p, &p->t.cpus_mask);
	if (!disable)
		leave_forbidden(rq, p);
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
