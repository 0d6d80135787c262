/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * sched_ext (kernel/sched/ext.c): dispatch queues, what is put into them and taken out, and who
 * walks them.
 */
#include "model.h"
#include "libc.h"

static struct tun_dsq *dsqs[MAX_DSQS];
static u32 nr_dsqs;
struct tun_dsq global_dsq = {.id = SCX_DSQ_GLOBAL, .local = -1};

static struct tun_dsq *user_dsq(u64 id)
{
	u32 i = (id * 0x9e3779b97f4a7c15ull) >> 51, n;

	for (n = 0; n < MAX_DSQS; n++, i = (i + 1) % MAX_DSQS)
		if (!dsqs[i] || dsqs[i]->id == id)
			return dsqs[i];
	return NULL;
}

s32 scx_bpf_create_dsq(u64 id, s32 node)
{
	u32 i = (id * 0x9e3779b97f4a7c15ull) >> 51;
	struct tun_dsq *dsq;

	allowed(MAY_SLEEP | MAY_UNLOCKED, "scx_bpf_create_dsq");
	if (id & SCX_DSQ_FLAG_BUILTIN)
		return -EINVAL;
	if (user_dsq(id))
		return -EEXIST;
	if (++nr_dsqs == MAX_DSQS)
		return -ENOMEM;
	dsq = heap_new(sizeof(*dsq));
	dsq->id = id;
	dsq->local = -1;
	while (dsqs[i])
		i = (i + 1) % MAX_DSQS;
	dsqs[i] = dsq;
	return 0;
}

s32 scx_bpf_dsq_nr_queued(u64 id)
{
	struct tun_dsq *dsq;

	counted("scx_bpf_dsq_nr_queued");
	if (id == SCX_DSQ_LOCAL)
		return rqs[cx->rq >= 0 ? cx->rq : (s32)cx->cpu].local.nr;
	if ((id & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON)
		return rqs[id & 0xffffffff].local.nr;
	dsq = user_dsq(id);
	return dsq ? (s32)dsq->nr : -ENOENT;
}

/* The queue that an insertion names. Errors go to the global one, as in the kernel. */
struct tun_dsq *find_dsq_for_dispatch(struct tun_rq *rq, u64 id, const struct tun_task *p)
{
	struct tun_dsq *dsq;

	if (id == SCX_DSQ_LOCAL)
		return &rq->local;
	if ((id & SCX_DSQ_LOCAL_ON) == SCX_DSQ_LOCAL_ON) {
		u32 cpu = id & 0xffffffff;

		if (cpu < nr_model_cpus)
			return &rqs[cpu].local;
		fault("sched_ext: invalid CPU %u in SCX_DSQ_LOCAL_ON verdict", cpu);
		return &global_dsq;
	}
	dsq = id == SCX_DSQ_GLOBAL ? &global_dsq : user_dsq(id);
	if (!dsq) {
		fault("sched_ext: non-existent DSQ 0x%llx for %s[%d]", id, p->t.comm, p->t.pid);
		return &global_dsq;
	}
	return dsq;
}

void unlink_task(struct tun_task *p)
{
	struct tun_dsq *dsq = p->dsq;

	if (p->prev)
		p->prev->next = p->next;
	else
		dsq->first = p->next;
	if (p->next)
		p->next->prev = p->prev;
	else
		dsq->last = p->prev;
	p->prev = p->next = NULL;
	dsq->nr--;
	p->dsq = NULL;
	calls.queued(p->id, ~0ull);
}

/* Behind `before`, which may be NULL: at the head. */
static void link_behind(struct tun_dsq *dsq, struct tun_task *p, struct tun_task *before)
{
	p->prev = before;
	p->next = before ? before->next : dsq->first;
	if (p->next)
		p->next->prev = p;
	else
		dsq->last = p;
	if (before)
		before->next = p;
	else
		dsq->first = p;
	dsq->nr++;
	p->dsq = dsq;
	p->in_custody = false;
	p->dsq_seq = ++dsq->seq;
	calls.queued(p->id, dsq->id);
}

void dispatch_dequeue(struct tun_task *p)
{
	/* In transit: whoever moves it finds that it has gone. */
	p->holding_cpu = -1;
	if (p->dsq)
		unlink_task(p);
}

/* What follows from a task in a CPU's local queue (local_dsq_post_enq()). */
bool reenqueue_later[MAX_CPUS];

bool tun_takes_back(void)
{
	return LINUX_KERNEL_VERSION >= (7 << 16 | 1 << 8);
}

/* Whether a higher class has a CPU, or is about to. */
bool is_taken(const struct tun_rq *rq)
{
	return rq->higher || (rq->curr && rq->curr->class != CLASS_EXT);
}

static void after_local(struct tun_rq *rq, struct tun_task *p, u64 flags)
{
	struct tun_task *curr = rq->curr;

	if (tun_takes_back() && (rq->local.nr > 1 || is_taken(rq)))
		reenqueue_later[rq->id] = true;

	/* In balance, who is picked is about to be decided. */
	if (rq->in_balance)
		return;
	if (flags & SCX_ENQ_PREEMPT && p != curr && curr && curr->class == CLASS_EXT) {
		curr->t.scx.slice = 0;
		resched_curr(rq);
	} else if (!curr) {
		resched_curr(rq);
	}
}

void dispatch_enqueue(struct tun_dsq *dsq, struct tun_task *p, u64 flags)
{
	bool vtime = flags & SCX_ENQ_DSQ_PRIQ;

	if (p->dsq) {
		fault("task %u is put into DSQ 0x%llx while it is in 0x%llx", p->id, dsq->id,
		      p->dsq->id);
		return;
	}
	if (vtime && dsq->id & SCX_DSQ_FLAG_BUILTIN) {
		fault("sched_ext: cannot use vtime ordering for built-in DSQs");
		vtime = false;
	}
	if (dsq->nr && dsq->local < 0 && dsq->id != SCX_DSQ_GLOBAL && vtime != dsq->priq)
		fault("sched_ext: DSQ ID 0x%016llx already had %s-enqueued tasks", dsq->id,
		      dsq->priq ? "PRIQ" : "FIFO");
	dsq->priq = vtime;
	if (vtime) {
		struct tun_task *before = dsq->last;

		while (before && (s64)(before->t.scx.dsq_vtime - p->t.scx.dsq_vtime) > 0)
			before = before->prev;
		link_behind(dsq, p, before);
	} else {
		link_behind(dsq, p, flags & (SCX_ENQ_HEAD | SCX_ENQ_PREEMPT) ? NULL : dsq->last);
	}
	p->ddsp_dsq = SCX_DSQ_INVALID;
	p->ddsp_flags = 0;
	if (dsq->local >= 0)
		after_local(&rqs[dsq->local], p, flags);
}

static bool can_run_on(const struct tun_task *p, const struct tun_rq *rq, bool enforce)
{
	if (p->must_move)
		return false;
	if (p->t.migration_disabled && p->cpu != rq->id) {
		if (enforce)
			fault("sched_ext: SCX_DSQ_LOCAL[_ON] cannot move migration disabled %s[%d] "
			      "from CPU %u to %u",
			      p->t.comm, p->t.pid, p->cpu, rq->id);
		return false;
	}
	if (!mask_has(p->t.cpus_ptr, rq->id)) {
		if (enforce)
			fault("sched_ext: SCX_DSQ_LOCAL[_ON] target CPU %u not allowed for %s[%d]",
			      rq->id, p->t.comm, p->t.pid);
		return false;
	}
	return true;
}

/* Moves a task that was unlinked to another CPU's local queue. `from` is locked, and `to` after. */
static void move_remote(struct tun_task *p, u64 flags, struct tun_rq *from, struct tun_rq *to)
{
	deactivate(from, p, 0, true);
	p->migrating = true;
	p->cpu = to->id;
	switch_rq_lock(from->id, to->id);
	p->migrating = false;
	to->extra_enq_flags = flags;
	activate(to, p, 0, true);
	to->extra_enq_flags = 0;
}

/* Unlinks and goes for the source's lock; false if somebody has taken the task meanwhile. This
 * runqueue's lock is released either way, and the source's is held. */
static bool unlink_and_switch(struct tun_task *p, u32 locked, struct tun_rq *from)
{
	unlink_task(p);
	p->holding_cpu = cx->cpu;
	switch_rq_lock(locked, from->id);
	return p->holding_cpu == (s32)cx->cpu && p->cpu == from->id;
}

bool consume(struct tun_rq *rq, struct tun_dsq *dsq)
{
	struct tun_task *p;

retry:
	for (p = dsq->first; p; p = p->next) {
		struct tun_rq *from = &rqs[p->cpu];

		tun_count_step();
		if (from == rq) {
			u64 slice = p->t.scx.slice;

			unlink_task(p);
			link_behind(&rq->local, p, rq->local.last);
			p->t.scx.slice = slice;
			return true;
		}
		if (!can_run_on(p, rq, false))
			continue;
		if (unlink_and_switch(p, rq->id, from)) {
			p->holding_cpu = -1;
			move_remote(p, 0, from, rq);
			return true;
		}
		switch_rq_lock(from->id, rq->id);
		goto retry;
	}
	return false;
}

struct tun_rq *op_rq(void)
{
	return &rqs[cx->rq >= 0 ? cx->rq : (s32)cx->cpu];
}

void dispatch_to_local(struct tun_rq *rq, struct tun_task *p, struct tun_dsq *dsq, u64 flags)
{
	struct tun_rq *from = &rqs[p->cpu], *to = &rqs[dsq->local];

	if (from == rq && to == rq) {
		dispatch_enqueue(dsq, p, flags);
		return;
	}
	if (from != to && !can_run_on(p, to, true)) {
		dispatch_enqueue(&global_dsq, p, flags);
		return;
	}
	p->holding_cpu = cx->cpu;
	if (rq != from)
		switch_rq_lock(rq->id, from->id);
	if (p->holding_cpu == (s32)cx->cpu && p->cpu == from->id) {
		p->holding_cpu = -1;
		if (from == to) {
			dispatch_enqueue(dsq, p, flags);
			if (rq != from)
				switch_rq_lock(from->id, rq->id);
			return;
		}
		move_remote(p, flags, from, to);
		if (to != rq)
			switch_rq_lock(to->id, rq->id);
		return;
	}
	if (rq != from)
		switch_rq_lock(from->id, rq->id);
}

void flush_buffer(struct tun_rq *rq)
{
	u32 i;

	for (i = 0; i < cx->buffered; i++) {
		struct tun_task *p = cx->buffer[i].p;
		struct tun_dsq *dsq = find_dsq_for_dispatch(rq, cx->buffer[i].dsq, p);

		/* Dispatched by another CPU meanwhile, or it sleeps: not ours any more. */
		if (p->dsq || !p->queued || p->on_cpu)
			continue;
		if (dsq->local >= 0)
			dispatch_to_local(rq, p, dsq, cx->buffer[i].flags);
		else
			dispatch_enqueue(dsq, p, cx->buffer[i].flags);
	}
	cx->buffered = 0;
}

static bool insert(struct tun_task *p, u64 id, u64 flags)
{
	if (!allowed(MAY_ENQUEUE | MAY_DISPATCH | MAY_SELECT_CPU, "scx_bpf_dsq_insert"))
		return false;
	if (cx->direct || cx->may & (MAY_ENQUEUE | MAY_SELECT_CPU)) {
		if (cx->direct != p) {
			fault("sched_ext: scheduling for %s[%d] but trying to direct-dispatch "
			      "%s[%d]",
			      cx->direct ? cx->direct->t.comm : "nobody",
			      cx->direct ? cx->direct->t.pid : 0, p->t.comm, p->t.pid);
			return false;
		}
		if (p->ddsp_dsq != SCX_DSQ_INVALID) {
			fault("sched_ext: %s[%d] already direct-dispatched", p->t.comm, p->t.pid);
			return false;
		}
		p->ddsp_dsq = id;
		p->ddsp_flags = flags;
		return true;
	}
	if (cx->buffered == 32) {
		fault("sched_ext: dispatch buffer overflow");
		return false;
	}
	cx->buffer[cx->buffered].p = p;
	cx->buffer[cx->buffered].dsq = id;
	cx->buffer[cx->buffered++].flags = flags;
	return true;
}

bool scx_bpf_dsq_insert___v2___compat(struct task_struct *p, u64 id, u64 slice, u64 flags)
{
	p->scx.slice = slice ? slice : p->scx.slice ? p->scx.slice : 1;
	return insert(tt(p), id, flags);
}

bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args)
{
	p->scx.slice = args->slice ? args->slice : p->scx.slice ? p->scx.slice : 1;
	p->scx.dsq_vtime = args->vtime;
	return insert(tt(p), args->dsq_id, args->enq_flags | SCX_ENQ_DSQ_PRIQ);
}

bool scx_bpf_dsq_move_to_local___v2___compat(u64 id, u64 flags)
{
	struct tun_rq *rq = op_rq();
	struct tun_dsq *dsq;

	if (!allowed(MAY_DISPATCH, "scx_bpf_dsq_move_to_local"))
		return false;
	flush_buffer(rq);
	dsq = user_dsq(id);
	if (!dsq) {
		fault("sched_ext: invalid DSQ ID 0x%016llx", id);
		return false;
	}
	tun_count_lock();
	return consume(rq, dsq);
}

/* An iterator as the kernel keeps it, within the six words that programs have for it. */
struct tun_iter {
	struct tun_dsq *dsq;
	struct tun_task *at;
	u32 seq;
	u32 flags;
	u64 slice, vtime;
};

#define ITER_HAS_SLICE (1u << 30)
#define ITER_HAS_VTIME (1u << 29)
#define ITER_BEGUN     (1u << 28)

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 id, u64 flags)
{
	struct tun_iter *iter = (void *)it;

	_Static_assert(sizeof(struct tun_iter) <= sizeof(struct bpf_iter_scx_dsq), "iterator");
	counted("bpf_iter_scx_dsq_new");
	/* To be destroyed in any case. */
	cx->refs++;
	iter->dsq = user_dsq(id);
	if (!iter->dsq)
		return -ENOENT;
	iter->at = NULL;
	iter->seq = iter->dsq->seq;
	iter->flags = flags & SCX_DSQ_ITER_REV;
	return 0;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	struct tun_iter *iter = (void *)it;
	bool reverse = iter->flags & SCX_DSQ_ITER_REV;
	struct tun_task *p;

	counted("bpf_iter_scx_dsq_next");
	tun_count_lock();
	if (!iter->dsq)
		return NULL;
	if (!(iter->flags & ITER_BEGUN)) {
		p = reverse ? iter->dsq->last : iter->dsq->first;
	} else if (!iter->at) {
		return NULL;
	} else if (iter->at->dsq != iter->dsq) {
		/* The kernel's cursor keeps its place though the task has gone; begin again. */
		p = reverse ? iter->dsq->last : iter->dsq->first;
	} else {
		p = reverse ? iter->at->prev : iter->at->next;
	}
	iter->flags |= ITER_BEGUN;
	/* Those who came after the iterator are not seen. */
	while (p && (s32)(p->dsq_seq - iter->seq) > 0)
		p = reverse ? p->prev : p->next;
	iter->at = p;
	return p ? &p->t : NULL;
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it)
{
	cx->refs--;
}

struct task_struct *scx_bpf_dsq_peek(u64 id)
{
	struct tun_dsq *dsq = user_dsq(id);

	counted("scx_bpf_dsq_peek");
	if (!dsq) {
		fault("sched_ext: peek on non-existent DSQ 0x%llx", id);
		return NULL;
	}
	return dsq->first ? &dsq->first->t : NULL;
}

void scx_bpf_dsq_move_set_slice___new(struct bpf_iter_scx_dsq *it, u64 slice)
{
	struct tun_iter *iter = (void *)it;

	iter->slice = slice;
	iter->flags |= ITER_HAS_SLICE;
}

void scx_bpf_dsq_move_set_vtime___new(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	struct tun_iter *iter = (void *)it;

	iter->vtime = vtime;
	iter->flags |= ITER_HAS_VTIME;
}

static bool dsq_move(struct tun_iter *iter, struct tun_task *p, u64 id, u64 flags)
{
	struct tun_rq *rq = op_rq(), *from;
	bool has_lock = cx->rq >= 0;
	struct tun_dsq *to;

	if (!iter->dsq || !allowed(MAY_DISPATCH | MAY_UNLOCKED, "scx_bpf_dsq_move"))
		return false;
	flush_buffer(rq);
	from = &rqs[p->cpu];
	if (!has_lock)
		rq_lock(from->id);
	else if (from != rq)
		switch_rq_lock(rq->id, from->id);
	tun_count_lock();
	/* Somebody else got to it, or it came back later. */
	if (p->dsq != iter->dsq || p->cpu != from->id || (s32)(p->dsq_seq - iter->seq) > 0) {
		if (!has_lock)
			rq_unlock(from->id);
		else if (from != rq)
			switch_rq_lock(from->id, rq->id);
		iter->flags &= ~(ITER_HAS_SLICE | ITER_HAS_VTIME);
		return false;
	}
	to = find_dsq_for_dispatch(rq, id, p);
	if (iter->flags & ITER_HAS_VTIME)
		p->t.scx.dsq_vtime = iter->vtime;
	if (iter->flags & ITER_HAS_SLICE)
		p->t.scx.slice = iter->slice;
	iter->flags &= ~(ITER_HAS_SLICE | ITER_HAS_VTIME);
	if (to->local >= 0 && from != &rqs[to->local] && !can_run_on(p, &rqs[to->local], true))
		to = &global_dsq;
	/* The kernel's cursor stays where it is, also if the task only goes elsewhere in its queue.
	 */
	if (iter->at == p) {
		iter->at = iter->flags & 1 ? p->next : p->prev;
		if (!iter->at)
			iter->flags &= ~ITER_BEGUN;
	}
	unlink_task(p);
	if (to->local >= 0 && from != &rqs[to->local]) {
		struct tun_rq *dest = &rqs[to->local];

		move_remote(p, flags, from, dest);
		from = dest;
	} else {
		dispatch_enqueue(to, p, flags);
	}
	if (!has_lock)
		rq_unlock(from->id);
	else if (from != rq)
		switch_rq_lock(from->id, rq->id);
	return true;
}

bool scx_bpf_dsq_move___new(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id, u64 flags)
{
	return dsq_move((void *)it, tt(p), id, flags);
}

bool scx_bpf_dsq_move_vtime___new(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 id,
				  u64 flags)
{
	return dsq_move((void *)it, tt(p), id, flags | SCX_ENQ_DSQ_PRIQ);
}
