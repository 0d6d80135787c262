/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sched_ext (kernel/sched/ext.c): when the scheduler is called and what it may do then, kicks.
 */
#include "model.h"
#include "libc.h"

/* What a program must have given back when it ends. */
static void check_end(const char *name)
{
	if (cx->refs)
		fault("%s ends with %d references that it has not released", name, cx->refs);
	if (cx->preempt || cx->rcu)
		fault("%s ends with preemption disabled or inside an RCU section", name);
	if (cx->spin)
		fault("%s ends with a bpf_spin_lock held", name);
	cx->refs = cx->preempt = cx->rcu = 0;
	cx->spin = NULL;
}

u64 call(const char *name, void *program, u32 may, s32 rq, u64 a, u64 b, u64 c)
{
	u64 args[4] = {a, b, c};
	const char *outer = cx->name;
	u32 outer_may = cx->may;
	s32 outer_rq = cx->rq;
	u64 outer_subjects[2] = {cx->subjects[0], cx->subjects[1]};
	bool about = may & (MAY_SELECT_CPU | MAY_ENQUEUE | MAY_REST) && !(may & MAY_DISPATCH);
	struct tun_op *op = cx;
	int result;

	tun_count_call(name);
	cx->name = name;
	cx->may = may;
	cx->rq = rq;
	cx->subjects[0] = about ? a : 0;
	cx->subjects[1] = about ? b : 0;
	point();
	result = ((int (*)(u64 *))program)(args);
	cx = op;
	check_end(name);
	cx->name = outer;
	cx->may = outer_may;
	cx->rq = outer_rq;
	cx->subjects[0] = outer_subjects[0];
	cx->subjects[1] = outer_subjects[1];
	return (s64)result;
}

bool allowed(u32 may, const char *kfunc)
{
	tun_count_kfunc(kfunc);
	point();
	if (!cx->name || cx->may & may)
		return true;
	fault("sched_ext: kfunc %s with mask 0x%x called from an operation only allowing 0x%x "
	      "(ops.%s)",
	      kfunc, may, cx->may, cx->name);
	return false;
}

/* A kfunc in which programs are always interrupted, and for long; NULL: none. */
static const char *dwell;

void tun_dwell(const char *kfunc)
{
	dwell = kfunc;
}

void may_dwell(const char *kfunc)
{
	if (dwell && interleave && !strcmp(dwell, kfunc))
		calls.dwell();
}

/* Counts a kfunc that may be called anywhere. */
void counted(const char *kfunc)
{
	tun_count_kfunc(kfunc);
	may_dwell(kfunc);
	point();
}

static void do_enqueue(struct tun_rq *rq, struct tun_task *p, u64 flags, s32 sticky);

static u32 reenqueue_local(struct tun_rq *rq)
{
	struct tun_task *list[256], *p = rq->local.first;
	u32 n = 0, i;

	/* The first is about to run. */
	if (p && tun_takes_back() && !is_taken(rq))
		p = p->next;
	for (; p && n < 256; p = p->next)
		if (!p->must_move && !p->t.migration_disabled && p->t.nr_cpus_allowed > 1)
			list[n++] = p;
	for (i = 0; i < n; i++)
		unlink_task(list[i]);
	for (i = 0; i < n; i++)
		do_enqueue(rq, list[i], SCX_ENQ_REENQ, -1);
	return n;
}

u32 scx_bpf_reenqueue_local___v1(void)
{
	allowed(MAY_RELEASE, "scx_bpf_reenqueue_local");
	return reenqueue_local(op_rq());
}

/* From 6.19 on it may be called anywhere, and is done when the runqueue's lock is released. */
void scx_bpf_reenqueue_local___v2___compat(void)
{
	counted("scx_bpf_reenqueue_local");
	reenqueue_later[cx->cpu] = true;
}

/* Which of the kfuncs that the scheduler asks for the kernel has. */
bool tun_has_ksym(const char *name)
{
	return LINUX_KERNEL_VERSION >= (6 << 16 | 19 << 8) ||
	       strcmp(name, "scx_bpf_reenqueue_local___v2___compat");
}

void tun_deferred(u32 cpu)
{
	if (!reenqueue_later[cpu])
		return;
	reenqueue_later[cpu] = false;
	tun_set_cpu(cpu);
	rq_lock(cpu);
	reenqueue_local(&rqs[cpu]);
	rq_unlock(cpu);
}

void scx_bpf_kick_cpu(s32 cpu, u64 flags)
{
	counted("scx_bpf_kick_cpu");
	if (cpu < 0 || (u32)cpu >= nr_model_cpus) {
		fault("sched_ext: invalid CPU %d", cpu);
		return;
	}
	if (flags & SCX_KICK_IDLE && flags & (SCX_KICK_PREEMPT | SCX_KICK_WAIT)) {
		fault("sched_ext: PREEMPT/WAIT cannot be used with SCX_KICK_IDLE");
		return;
	}
	if (flags & SCX_KICK_IDLE && rqs[cpu].curr && !rqs[cpu].in_balance)
		return;
	calls.kick(cx->cpu, cpu, flags);
}

/* The interrupt work behind a kick, on the CPU that has asked for it. */
void tun_kick(u32 from, u32 cpu, u64 flags)
{
	struct tun_rq *rq = &rqs[cpu];

	tun_set_cpu(from);
	rq_lock(cpu);
	if (flags & SCX_KICK_IDLE) {
		if (!rq->curr || rq->in_balance)
			resched_curr(rq);
	} else if (!rq->curr || rq->curr->class == CLASS_EXT) {
		if (flags & SCX_KICK_PREEMPT && rq->curr)
			rq->curr->t.scx.slice = 0;
		resched_curr(rq);
	}
	rq_unlock(cpu);
}

static void do_enqueue(struct tun_rq *rq, struct tun_task *p, u64 flags, s32 sticky)
{
	struct sched_ext_ops *ops = tun_ops();

	if (sticky == (s32)rq->id) {
		dispatch_enqueue(&rq->local, p, flags);
		return;
	}
	if (p->ddsp_dsq == SCX_DSQ_INVALID) {
		if ((!(ops->flags & SCX_OPS_ENQ_EXITING) && p->t.flags & 4) ||
		    (!(ops->flags & SCX_OPS_ENQ_MIGRATION_DISABLED) && p->t.migration_disabled)) {
			p->t.scx.slice = SCX_SLICE_DFL;
			dispatch_enqueue(&rq->local, p, flags);
			return;
		}
		cx->direct = p;
		OP(enqueue, MAY_ENQUEUE, (s32)rq->id, &p->t, flags, 0);
		cx->direct = NULL;
	}
	if (p->ddsp_dsq != SCX_DSQ_INVALID) {
		u64 all = p->ddsp_flags | flags;
		struct tun_dsq *dsq = find_dsq_for_dispatch(rq, p->ddsp_dsq, p);

		/* Another CPU's local queue: moved there at once, where the kernel does so as soon
		 * as it may drop the lock. */
		p->ddsp_dsq = SCX_DSQ_INVALID;
		p->ddsp_flags = 0;
		if (dsq->local >= 0 && dsq->local != (s32)rq->id)
			dispatch_to_local(rq, p, dsq, all);
		else
			dispatch_enqueue(dsq, p, all);
	}
	/* Else the scheduler has it, and inserts it later. */
	p->in_custody = !p->dsq;
}

void enqueue_task_scx(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating, s32 sticky)
{
	u64 all = flags | rq->extra_enq_flags;

	if (p->queued)
		return;
	p->queued = true;
	p->t.scx.flags |= SCX_TASK_QUEUED;
	rq->nr_running++;
	if (!migrating)
		OP(runnable, MAY_REST, (s32)rq->id, &p->t, all, 0);
	do_enqueue(rq, p, all, sticky);
}

void dequeue_task_scx(struct tun_rq *rq, struct tun_task *p, u64 flags, bool migrating)
{
	if (!p->queued)
		return;
	if (p->in_custody)
		OP(dequeue, MAY_REST, (s32)rq->id, &p->t, flags, 0);
	if (rq->curr == p) {
		update_curr(rq);
		OP(stopping, MAY_REST, (s32)rq->id, &p->t, false, 0);
	}
	if (!migrating)
		OP(quiescent, MAY_REST, (s32)rq->id, &p->t, flags, 0);
	p->queued = false;
	p->t.scx.flags &= ~SCX_TASK_QUEUED;
	rq->nr_running--;
	dispatch_dequeue(p);
	p->ddsp_dsq = SCX_DSQ_INVALID;
	p->ddsp_flags = 0;
}

void put_prev_task_scx(struct tun_rq *rq, struct tun_task *p, const struct tun_task *next,
		       bool changing)
{
	update_curr(rq);
	if (p->queued) {
		OP(stopping, MAY_REST, (s32)rq->id, &p->t, true, 0);
		if (p->t.scx.slice && tun_takes_back()) {
			do_enqueue(rq, p, SCX_ENQ_REENQ, -1);
		} else if (p->t.scx.slice) {
			dispatch_enqueue(&rq->local, p, SCX_ENQ_HEAD);
		} else if (!next && !changing) {
			do_enqueue(rq, p, SCX_ENQ_LAST, -1);
		} else {
			do_enqueue(rq, p, 0, -1);
		}
	}
	if (next && next->class != CLASS_EXT && !rq->cpu_released) {
		struct scx_cpu_release_args args = {.reason = SCX_CPU_PREEMPT_RT,
						    .task = (void *)&next->t};

		if (tun_ops()->cpu_release && tun_uses_cpu_release())
			OP(cpu_release, MAY_RELEASE, (s32)rq->id, rq->id, &args, 0);
		rq->cpu_released = true;
	}
}

void set_next_task_scx(struct tun_rq *rq, struct tun_task *p)
{
	if (p->queued)
		dispatch_dequeue(p);
	p->exec_start = now();
	if (p->queued)
		OP(running, MAY_REST, (s32)rq->id, &p->t, 0, 0);
}

s32 select_task_rq_scx(struct tun_task *p, u32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	if (!tun_ops()->select_cpu)
		return prev_cpu;
	cx->direct = p;
	cpu = (s32)OP(select_cpu, MAY_SELECT_CPU | MAY_ENQUEUE, -1, &p->t, prev_cpu, wake_flags);
	cx->direct = NULL;
	if (cpu < 0 || (u32)cpu >= nr_model_cpus) {
		fault("sched_ext: invalid CPU %d from ops.select_cpu()", cpu);
		return prev_cpu;
	}
	return cpu;
}

bool yield_to_scx(struct tun_rq *rq, struct tun_task *from, struct tun_task *to)
{
	if (tun_ops()->yield)
		return (bool)OP(yield, MAY_REST, (s32)rq->id, &from->t, to ? &to->t : NULL, 0);
	if (!to)
		from->t.scx.slice = 0;
	return false;
}

enum tun_verdict balance_one(struct tun_rq *rq, struct tun_task *prev)
{
	bool ext = prev && prev->class == CLASS_EXT;
	enum tun_verdict verdict = NOBODY;
	u32 loops = 32, inserted;

	rq->in_balance = true;
	rq->cpu_released = false;
	if (ext) {
		update_curr(rq);
		if (prev->queued && prev->t.scx.slice) {
			verdict = KEEP;
			goto out;
		}
	}
	if (rq->local.nr || (global_dsq.nr && consume(rq, &global_dsq))) {
		verdict = LOCAL;
		goto out;
	}
	do {
		cx->buffered = 0;
		OP(dispatch, MAY_DISPATCH | MAY_ENQUEUE, (s32)rq->id, rq->id,
		   ext && prev ? &prev->t : NULL, 0);
		inserted = cx->buffered;
		flush_buffer(rq);
		if (ext && prev->queued && prev->t.scx.slice) {
			verdict = KEEP;
			goto out;
		}
		if (rq->local.nr || (global_dsq.nr && consume(rq, &global_dsq))) {
			verdict = LOCAL;
			goto out;
		}
		if (!--loops) {
			calls.kick(rq->id, rq->id, 0);
			break;
		}
	} while (inserted);
	if (ext && prev->queued && !(tun_ops()->flags & SCX_OPS_ENQ_LAST))
		verdict = KEEP;
out:
	rq->in_balance = false;
	return verdict;
}

bool scx_bpf_task_running(const struct task_struct *p)
{
	counted("scx_bpf_task_running");
	return tt(p)->on_cpu;
}

s32 scx_bpf_task_cpu(const struct task_struct *p)
{
	counted("scx_bpf_task_cpu");
	return tt(p)->cpu;
}

u64 scx_bpf_now(void)
{
	counted("scx_bpf_now");
	return now();
}

bool scx_bpf_task_set_slice___new(struct task_struct *p, u64 slice)
{
	counted("scx_bpf_task_set_slice");
	p->scx.slice = slice;
	return true;
}

bool scx_bpf_task_set_dsq_vtime___new(struct task_struct *p, u64 vtime)
{
	counted("scx_bpf_task_set_dsq_vtime");
	p->scx.dsq_vtime = vtime;
	return true;
}

void scx_bpf_error_bstr(char *format, unsigned long long *data, u32 size)
{
	fault("sched_ext: scx_bpf_error: %s", format);
}

struct task_struct *scx_bpf_cpu_curr(s32 cpu)
{
	counted("scx_bpf_cpu_curr");
	return rqs[cpu].curr ? &rqs[cpu].curr->t : NULL;
}

u32 scx_bpf_nr_cpu_ids(void)
{
	return nr_model_cpus;
}
