/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU that looks for somebody may run: the first of its queues by key, who waits elsewhere,
 * who has waited for too long, and SCHED_IDLE tasks; on a guest's CPU that is not preferred, who
 * can run nowhere else. And how parked tasks come back to the queues.
 */
#ifndef OVERBOOK_DISPATCH_BPF_H
#define OVERBOOK_DISPATCH_BPF_H

#include "choose.bpf.h"
#include "prefer.bpf.h"
#include "wake.bpf.h"

/* So many looks are taken at the head of a queue. At each but the last, whoever stands there is
 * moved back if its tenant's new deadline gives it a key that is later by a slice or more. Whoever
 * still has an old key then may run too early; its tenant is charged all the same. */
#define REKEYED 16

/* Finds the new key of a queued task whose tenant's turn has ended since; false if it keeps its
 * own. */
static bool has_new_key(struct task_ctx *taskc, struct node_ctx *node)
{
	u64 later;

	if (taskc->out_of_turn || node->time.deadline == taskc->keyed_for)
		return false;
	/* Others of its tenant have run meanwhile, and it stands better among them. */
	later = node->time.deadline + pool_at(frame_of(taskc, node))->offset -
		pool_at(taskc->queue_pool)->offset + (u64)bias_of(taskc, &node->time, node, false);
	if (ovb_vtime_before(taskc->ceiling, later))
		later = taskc->ceiling;
	/* Skip a change of less than a slice: slices are booked whole. */
	if (!ovb_vtime_before(taskc->key, later) ||
	    later - taskc->key < ovb_vtime_max(slice_ns, aged_slice(&node->time)))
		return false;
	taskc->keyed_for = node->time.deadline;
	taskc->key = later;
	return true;
}

/* Looks who is the first of a queue. Returns 1 if it had an old key, and has gone further back. */
__noinline int look_at_first(u64 dsq, u32 may_move)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct bpf_iter_scx_dsq it;
	struct task_ctx *taskc;
	struct node_ctx *node;
	struct vm_ctx *vmc;
	int moved = 0;

	if (!cpuc)
		return 0;
	cpuc->peeked = first ? ORDINARY : NOBODY;
	cpuc->peeked_vm = 0;
	if (!first)
		return 0;
	cpuc->peeked_key = first->scx.dsq_vtime;
	taskc = task_ctx(first);
	node = taskc ? node_at(taskc->tenant) : NULL;
	if (!node)
		return 0;
	if (may_move && has_new_key(taskc, node)) {
		if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
			scx_bpf_dsq_move_set_vtime(&it, taskc->key);
			moved = scx_bpf_dsq_move_vtime(&it, first, dsq, 0);
		}
		bpf_iter_scx_dsq_destroy(&it);
	}
	vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	if (!vmc)
		return moved;
	cpuc->peeked = VCPU;
	if (!is_calm(vmc, scx_bpf_now()) && !is_passed_over(taskc, &node->time))
		cpuc->peeked_vm = taskc->vm;
	return moved;
}

/* Looks who is the first of a queue, once it stands right; false if there is nobody. */
static bool peek_at(u64 dsq, const struct cpu_ctx *cpuc)
{
	u32 i;

	bpf_for (i, 0, REKEYED)
		if (!look_at_first(dsq, i + 1 < REKEYED))
			break;
	return cpuc->peeked;
}

/* Compares the first of a queue with the earliest that a CPU has found so far; `pool` gives the
 * queue's offset. */
__noinline int look_into(u64 dsq, u32 pool)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	/* Those of CPUs and pools are empty, mostly, and that is cheaper to ask. */
	if (!cpuc || (dsq >= OVB_MAX_LLCS && scx_bpf_dsq_nr_queued(dsq) <= 0) ||
	    !peek_at(dsq, cpuc))
		return 0;
	cpuc->peeked_key += pool_at(pool)->offset;
	if (cpuc->found && !ovb_vtime_before(cpuc->peeked_key, cpuc->first_key))
		return 0;
	cpuc->found = cpuc->peeked;
	cpuc->first_key = cpuc->peeked_key;
	cpuc->first_vm = cpuc->peeked_vm;
	cpuc->first_dsq = dsq;
	return 0;
}

/* Finds the queue whose first goes before those of all others that a CPU looks at. */
static void find_first(s32 cpu, u32 llc, struct cpu_ctx *cpuc)
{
	u64 pools = cpuc->pools;
	u32 i;

	cpuc->found = NOBODY;
	look_into(cpu_dsq(cpu), cpu_pool(cpu));
	bpf_for (i, 0, OVB_MAX_POOLS) {
		u32 pool = pools ? (u32)__builtin_ctzll(pools) : 0;

		if (!pool)
			break;
		look_into(pool_dsq(pool), pool);
		pools &= pools - 1;
	}
	look_into(llc_dsq(llc), 0);
}

/* Whether a task waits in a queue, or one of SCHED_IDLE beside it. */
static bool is_queued_in(u64 dsq)
{
	return scx_bpf_dsq_nr_queued(dsq) > 0 || scx_bpf_dsq_nr_queued(idle_dsq(dsq)) > 0;
}

/* Whether a task is queued where a CPU that has nothing to do takes it from. */
static bool somebody_waits(s32 cpu)
{
	struct cpu_ctx *cpuc = cpu_ctx_of(cpu);
	u64 pools = cpuc ? cpuc->pools : 0;
	u32 i;

	if (is_queued_in(cpu_dsq(cpu)))
		return true;
	if (!is_preferred(cpu))
		return false;
	bpf_for (i, 0, nr_llcs)
		if (is_queued_in(llc_dsq(i)))
			return true;
	bpf_for (i, 0, pools ? OVB_MAX_POOLS : 0)
		if (pools >> i & 1 && scx_bpf_dsq_nr_queued(pool_dsq(i)) > 0)
			return true;
	return false;
}

/* So many tasks of another LLC's queue are looked at for one that may run here. */
#define PULL_SCAN 8

/* Takes the first of those at the head of a queue that may run here, and whose key is before
 * `before`; 0: whatever it is. */
__noinline int pull_from(u64 dsq, u64 before)
{
	struct task_struct *p;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, 0) {
		if (before && !ovb_vtime_before(p->scx.dsq_vtime, before))
			break;
		if (may_run_on(p, bpf_get_smp_processor_id()) &&
		    move_here(BPF_FOR_EACH_ITER, p, p->scx.slice))
			return 1;
		if (++i >= PULL_SCAN)
			break;
	}
	return 0;
}

/* For a CPU without work: takes who waits in another LLC, this NUMA node's first; or a SCHED_IDLE
 * task. */
static bool pull(u32 llc, bool sched_idle)
{
	u32 i, node = llc_node[bounded(llc, OVB_MAX_LLCS)];

	bpf_for (i, 0, 2 * nr_llcs) {
		bool remote = i >= nr_llcs;
		u32 other = llc + (remote ? i - nr_llcs : i);
		u64 dsq;

		if (other >= nr_llcs)
			other -= nr_llcs;
		if (other == llc || (llc_node[bounded(other, OVB_MAX_LLCS)] != node) != remote)
			continue;
		dsq = sched_idle ? idle_dsq(llc_dsq(other)) : llc_dsq(other);
		if (scx_bpf_dsq_nr_queued(dsq) > 0 && pull_from(dsq, 0)) {
			count(OVB_COUNT_PULLED);
			return true;
		}
	}
	return false;
}

/* So often a CPU looks at one other LLC, slices; and it takes a task whose key is so many slices
 * earlier. */
#define BALANCE_EVERY  2
#define BALANCE_SLICES 4

/* LLCs have an order of their own each, and one time. Whoever is owed much more elsewhere than the
 * first here, or than the task that runs here if nobody waits, is taken over: so LLCs with unequal
 * loads become alike, and a task does not change its LLC at every slice. One other LLC at a time.
 */
static bool balance(u32 llc, struct cpu_ctx *cpuc, u64 first)
{
	u64 before, now;
	u32 other;

	if (nr_llcs < 2)
		return false;
	now = scx_bpf_now();
	if (now - cpuc->balanced_at < BALANCE_EVERY * slice_ns)
		return false;
	cpuc->balanced_at = now;
	other = cpuc->next_llc + 1;
	if (other >= nr_llcs)
		other = 0;
	cpuc->next_llc = other;
	before = first - pool_at(0)->offset - BALANCE_SLICES * slice_ns;
	if (other == llc || !peek_at(llc_dsq(other), cpuc) ||
	    !ovb_vtime_before(cpuc->peeked_key, before) || !pull_from(llc_dsq(other), before))
		return false;
	count(OVB_COUNT_BALANCE);
	return true;
}

/* Whoever has waited for so long, ns, comes before all who have not: the kernel's watchdog, whose
 * patience is 30 s, is about to end the scheduler. */
#define URGENT 20000000000

/* Somebody goes who has waited for so long, ns: others may be as urgent, at either end. */
static void found_overdue(u64 waited)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	if (cpuc && waited >= URGENT)
		cpuc->urgent = 2;
}

/* Whether a queued task may run on this CPU, be it that it may run nowhere else. */
static bool may_run_here(struct task_struct *p, s32 cpu)
{
	return scx_bpf_task_cpu(p) == cpu || may_run_on(p, cpu);
}

/* Runs the first SCHED_IDLE task of a queue if it has waited for so long that others must wait now;
 * or at once. */
static bool run_sched_idle(u64 dsq, u64 patience_ns)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(idle_dsq(dsq));
	struct task_ctx *taskc;

	if (!first)
		return false;
	taskc = task_ctx(first);
	if (patience_ns) {
		s32 cpu = bpf_get_smp_processor_id();
		u64 waited = taskc ? wait_of(taskc, scx_bpf_now()) : 0;

		if (waited < patience_ns || !may_run_here(first, cpu) ||
		    !scx_bpf_dsq_move_to_local(idle_dsq(dsq), 0))
			return false;
		/* Or the next who wakes up would have its CPU. */
		if (taskc)
			taskc->out_of_turn = true;
		found_overdue(waited);
		count(OVB_COUNT_IDLE_OVERDUE);
		return true;
	}
	return scx_bpf_dsq_move_to_local(idle_dsq(dsq), 0);
}

/* How much longer than it may a queued task has waited that may run on a CPU; 0: nothing. Whoever
 * is urgent comes before all who are not, whatever their patience. */
static u64 overdue_by(struct task_struct *p, s32 cpu, u64 now)
{
	struct task_ctx *taskc = task_ctx(p);
	u64 patience, waited;

	if (!taskc)
		return 0;
	patience =
		some_classes ? ovb_class_patience(patience_ns, class_of(taskc->vm)) : patience_ns;
	waited = wait_of(taskc, now);
	if (waited <= patience || !may_run_here(p, cpu))
		return 0;
	return waited >= URGENT ? URGENT + waited : waited - patience;
}

/* Runs the one among the first tasks of a queue, so many, that has waited for too long by most;
 * with SCX_DSQ_ITER_REV among the last. */
__noinline int run_overdue(u64 dsq, u32 scan, u64 flags, u64 now)
{
	s32 cpu = bpf_get_smp_processor_id();
	struct task_struct *p;
	u64 most = 0;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, flags) {
		u64 by = overdue_by(p, cpu, now);

		if (by > most)
			most = by;
		if (++i >= scan)
			break;
	}
	if (!most)
		return false;
	i = 0;
	bpf_for_each (scx_dsq, p, dsq, flags) {
		struct task_ctx *taskc = task_ctx(p);

		if (taskc && overdue_by(p, cpu, now) >= most) {
			u64 waited = wait_of(taskc, now);

			if (!move_here(BPF_FOR_EACH_ITER, p, slice_of(taskc->vm)))
				break;
			taskc->out_of_turn = true;
			found_overdue(waited);
			count(OVB_COUNT_OVERDUE);
			return true;
		}
		if (++i >= scan)
			break;
	}
	return false;
}

/* Brings a queued task of a tenant that weighs more to where it may stand at the latest. 1 if it
 * has stood further back. */
__noinline int is_brought_forward(struct task_ctx *taskc __arg_nonnull, s32 cpu, u64 queue_offset)
{
	struct node_ctx *node = node_at(taskc->tenant);
	u64 latest;

	if (!node)
		return false;
	forgive(taskc->tenant, cpu, pool_at(frame_of(taskc, node))->offset);
	latest = latest_of(&node->time, node, foremost(cpu) - queue_offset);
	if (!ovb_vtime_before(latest, taskc->key))
		return false;
	taskc->key = taskc->ceiling = latest;
	taskc->keyed_for = node->time.deadline;
	return true;
}

/* Once a group weighs more, what waits of it stands behind slices that were booked by the little
 * that it weighed. */
__noinline int bring_forward(u64 dsq, u32 pool, u32 scan)
{
	u64 offset = pool_at(pool)->offset;
	s32 cpu = bpf_get_smp_processor_id();
	struct task_struct *p;
	u32 i = 0;

	bpf_for_each (scx_dsq, p, dsq, SCX_DSQ_ITER_REV) {
		struct task_ctx *taskc = task_ctx(p);

		if (++i > scan)
			break;
		if (!taskc || !is_brought_forward(taskc, cpu, offset))
			continue;
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, taskc->key);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, dsq, 0);
	}
	return 0;
}

/* So many of the last tasks of a queue are looked at for who waits too far behind. */
#define RAISED_SCAN 1024

/* Brings tasks forward in all queues that a CPU takes tasks from, once their groups weigh more. */
__noinline int look_for_raised(s32 cpu, u32 llc)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 i;

	if (!cpuc || cpuc->raised == raised)
		return 0;
	cpuc->raised = raised;
	bring_forward(cpu_dsq(cpu), cpu_pool(cpu), RAISED_SCAN);
	bring_forward(llc_dsq(llc), 0, RAISED_SCAN);
	bpf_for (i, 1, OVB_MAX_POOLS)
		if (cpuc->pools >> i & 1)
			bring_forward(pool_dsq(i), i, RAISED_SCAN);
	return 0;
}

/* The queues that a CPU looks into by turns: of its pools, the first of which stands for its own
 * queue, as no pool has that place; of its LLC; and SCHED_IDLE ones of both. */
enum {
	OVERDUE_CPU,
	OVERDUE_LLC = OVB_MAX_POOLS,
	OVERDUE_IDLE_CPU,
	OVERDUE_IDLE_LLC,
	OVERDUE_QUEUES
};

static bool run_overdue_of(u32 nth, s32 cpu, u32 llc, const struct cpu_ctx *cpuc, u32 scan, u64 now)
{
	u64 flags = cpuc->looks & 1 ? SCX_DSQ_ITER_REV : 0;

	if (nth == OVERDUE_CPU)
		return run_overdue(cpu_dsq(cpu), scan, flags, now);
	if (nth == OVERDUE_LLC)
		return run_overdue(llc_dsq(llc), scan, flags, now);
	if (nth == OVERDUE_IDLE_CPU)
		return run_sched_idle(cpu_dsq(cpu), URGENT);
	if (nth == OVERDUE_IDLE_LLC)
		return run_sched_idle(llc_dsq(llc), URGENT);
	return cpuc->pools >> nth & 1 && run_overdue(pool_dsq(nth), scan, flags, now);
}

/* A CPU looks for who has waited for too long so often, ns, and not at every dispatch, unless the
 * one that it found last was urgent. */
#define LOOK_EVERY 100000000

/* So many tasks are looked at from one end of a queue, as walking it holds the CPU; at one look of
 * so many, an odd number, more: somebody may be stuck in the middle. */
#define OVERDUE_SCAN 32
#define LONG_SCAN    512
#define LONG_LOOKS   9

/*
 * With shares by weight, one of the least weight beside very many others waits for long, maybe in a
 * section that others wait for, and the kernel's watchdog ends a scheduler under which anything
 * waits for 30 s. Who is overtaken all the time is among the last of its queue. In a crowd, who has
 * just run is: there who has waited for longest is nearer to the head. So either end has its turn.
 * Where there are very many tasks one has always waited for too long: the look begins behind the
 * queue where the last one was found, and if there is none it ends there.
 */
static bool look_for_overdue(s32 cpu, u32 llc, struct cpu_ctx *cpuc)
{
	u64 now = scx_bpf_now();
	u32 i, scan;

	if (!cpuc->urgent && now - cpuc->looked_at < LOOK_EVERY)
		return false;
	cpuc->looks++;
	scan = cpuc->urgent || !(cpuc->looks % LONG_LOOKS) ? LONG_SCAN : OVERDUE_SCAN;
	if (cpuc->urgent)
		cpuc->urgent--;
	cpuc->looked_at = now;
	look_for_raised(cpu, llc);
	bpf_for (i, 0, OVERDUE_QUEUES) {
		/* In memory, as the verifier would follow every value of a variable. */
		u32 nth = cpuc->overdue + 1;

		cpuc->overdue = nth < OVERDUE_QUEUES ? nth : 0;
		if (run_overdue_of(cpuc->overdue, cpu, llc, cpuc, scan, now))
			return true;
	}
	return run_sched_idle(cpu_dsq(cpu), idle_patience_ns) ||
	       run_sched_idle(llc_dsq(llc), idle_patience_ns);
}

/* Lets `prev` go on with a new slice, as if it had been queued and picked: who wakes up meanwhile
 * is compared with what it has run, and not with what it had when it began. */
static void keep_running(struct task_struct *prev, struct task_ctx *prevc, struct cpu_ctx *cpuc,
			 s32 cpu)
{
	u64 slice = slice_of(prevc->vm);

	/* That it has yielded counts for one look. */
	prevc->yielded = false;
	charge(prevc, cpu, scx_bpf_now());
	prevc->queue_pool = prevc->pool;
	find_key(prev, prevc, cpu, false);
	goes_by_key(prevc, cpuc, cpu);
	cpuc->until = scx_bpf_now() + slice;
	scx_bpf_task_set_slice(prev, slice);
}

/* So many tasks are looked at for one that must not stay in an LLC's queue. */
#define RESCUES 64

/* Brings those who may run on a preferred CPU from the queue of an LLC that has none to one that
 * has, and runs one who may not. */
__noinline int evacuate(u32 cpu, u32 llc)
{
	bool all = !llc_preferred[bounded(llc, OVB_MAX_LLCS)];
	struct task_struct *p;
	u32 i = 0, to;

	bpf_for_each (scx_dsq, p, llc_dsq(llc), 0) {
		struct task_ctx *taskc = task_ctx(p);
		s32 other = preferred_cpu(p, cpu);

		if (++i > RESCUES)
			break;
		if (!taskc)
			continue;
		if (other < 0 && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return move_here(BPF_FOR_EACH_ITER, p, slice_of(taskc->vm));
		if (other < 0 || !all)
			continue;
		to = llc_of(other);
		if (to == llc)
			continue;
		taskc->dsq = llc_dsq(to);
		scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, taskc->key);
		scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, llc_dsq(to), 0);
		scx_bpf_kick_cpu(other, SCX_KICK_IDLE);
	}
	return 0;
}

/* A CPU that is not preferred runs what can run nowhere else. */
static void run_outside(s32 cpu, struct task_struct *prev, struct task_ctx *prevc,
			struct cpu_ctx *cpuc)
{
	if (prevc && is_throttled(prevc->node))
		prevc = NULL;
	if (run_sched_idle(cpu_dsq(cpu), idle_patience_ns) ||
	    scx_bpf_dsq_move_to_local(cpu_dsq(cpu), 0) || evacuate(cpu, llc_of(cpu)))
		return;
	if (prevc && !is_bound(prev, cpu)) {
		/* Nothing else here: it is queued, and so goes to others. */
		count(OVB_COUNT_PUSHED);
		run_sched_idle(cpu_dsq(cpu), 0);
		return;
	}
	if ((!prevc || prevc->sched_idle) && run_sched_idle(cpu_dsq(cpu), 0))
		return;
	if (prevc)
		keep_running(prev, prevc, cpuc, cpu);
}

/* A CPU to be told of a task that has come out of parking: an idle one, or negative if none is; in
 * a guest a bound task's own. */
static s32 cpu_for(const struct task_struct *p)
{
	struct bpf_cpumask *mask = preferred;
	s32 cpu = scx_bpf_task_cpu(p);

	if (!packs() || !mask)
		return scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	return is_bound(p, cpu) ? cpu : scx_bpf_pick_idle_cpu(cast_mask(mask), 0);
}

/* Whoever comes out of parking was no rival meanwhile, and is owed nothing for that: he stands as
 * one who wakes up. */
__noinline int catch_up(struct task_ctx *taskc __arg_nonnull, s32 cpu)
{
	u64 level = level_of(cpu), vtime, floor;
	u64 least = level - slice_ns - pool_at(taskc->queue_pool)->offset;
	struct node_ctx *node = node_at(taskc->tenant);
	struct tenant *tenant = node ? &node->time : &taskc->own;

	vtime = tenant->vtime;
	floor = level - aged_slice(tenant) - pool_at(frame_of(taskc, node))->offset;

	if (ovb_vtime_before(vtime, floor))
		__sync_val_compare_and_swap(&tenant->vtime, vtime, floor);
	if (ovb_vtime_before(taskc->key, least)) {
		taskc->ceiling += least - taskc->key;
		taskc->key = least;
	}
	return 0;
}

/* Puts those who are parked, and whose groups may run again, into their queues. */
static void unpark(void)
{
	bool crowded = scx_bpf_dsq_nr_queued(PARKED) > UNPARK;
	struct bpf_iter_scx_dsq it;
	u32 i;

	if (!bpf_iter_scx_dsq_new(&it, PARKED, 0)) {
		bpf_for (i, 0, UNPARK) {
			struct task_struct *p = bpf_iter_scx_dsq_next(&it);
			struct task_ctx *taskc;
			s32 cpu;

			if (!p)
				break;
			taskc = task_ctx(p);
			if (!taskc || is_throttled(taskc->node)) {
				if (crowded)
					scx_bpf_dsq_move(&it, p, PARKED, 0);
				continue;
			}
			if (!taskc->sched_idle) {
				vcpu_queued(taskc);
				is_brought_forward(taskc, bpf_get_smp_processor_id(),
						   pool_at(taskc->queue_pool)->offset);
				catch_up(taskc, scx_bpf_task_cpu(p));
			}
			scx_bpf_dsq_move_set_vtime(&it, taskc->key);
			if (taskc->sched_idle ? !scx_bpf_dsq_move(&it, p, taskc->dsq, 0)
					      : !scx_bpf_dsq_move_vtime(&it, p, taskc->dsq, 0)) {
				/* It has gone meanwhile. */
				if (!taskc->queued)
					vcpu_left_queue(taskc, false);
				continue;
			}
			cpu = cpu_for(p);
			if (cpu >= 0)
				scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		}
	}
	bpf_iter_scx_dsq_destroy(&it);
}

#endif
