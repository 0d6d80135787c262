/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that begin and end, the host's beginning, and what the outside asks of both.
 */
#include "model.h"
#include "libc.h"

static u32 room_for_tasks;

u32 tun_new_task(u32 cpu, u32 on, u32 pid, u32 tgid, u32 weight, u32 policy, bool higher,
		 const unsigned long *bits, struct tun_group *group)
{
	struct tun_task *p = heap_new(sizeof(*p));
	struct scx_init_task_args args = {.fork = true};
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
	p->t.sched_task_group = &p->group->tg;
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
	/* Of whatever class: it may become an ordinary one. */
	args.cgroup = &p->group->cg;
	OP(init_task, MAY_UNLOCKED | MAY_SLEEP, -1, &p->t, &args, 0);
	if (!higher) {
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
	if (p->class == CLASS_EXT)
		OP(disable, MAY_REST, -1, &p->t, 0, 0);
	OP(exit_task, MAY_REST, -1, &p->t, &args, 0);
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
