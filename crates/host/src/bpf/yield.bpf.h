/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.yield(from, to): the six rules. The callback runs with the runqueues of both tasks locked, so
 * it moves nothing: it prices the yield and nominates. The dispatch that follows at once (KVM's
 * yield_to() calls schedule()) does the move.
 */
#ifndef OVERBOOK_YIELD_BPF_H
#define OVERBOOK_YIELD_BPF_H

#include "credit.h"
#include "deboost.h"
#include "forfeit.h"
#include "handoff.h"
#include "place.bpf.h"
#include "proportional.h"
#include "state.bpf.h"
#include "strict.h"
#include "vcpu.bpf.h"

/* A nomination that no dispatch has used within this time is forgotten. */
#define NOMINATION_NS 1000000
/* A VM's spinner that has not been heard of for this time has got what it waited for. */
#define HOT_NS 300000

/* Whether a task may run on a CPU. */
static bool may_run_on(const struct task_struct *p, s32 cpu)
{
	return !is_migration_disabled(p) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/* The rules that price a yield in virtual time. */
static void price(struct task_ctx *from, struct task_ctx *to, struct cpu_ctx *cpuc, u32 from_pid,
		  u32 to_pid, u64 clock, u64 dsq, u32 policy)
{
	u64 slice = weighted(from, slice_ns);
	struct ovb_place place = {.vtime = from->vtime, .deadline = from->deadline};

	if (policy == OVB_YIELD_DEBOOST) {
		struct ovb_deboost_call call = {
			.now = scx_bpf_now(),
			.source = from_pid,
			.target = to_pid,
			.gran = slice,
			.gap = ovb_vtime_gap(to->vtime, from->vtime),
			/* The yielder competes too. */
			.nr_queued = scx_bpf_dsq_nr_queued(dsq) + 1,
			.valid = to->dsq == dsq,
		};

		from->vtime += ovb_deboost(&cpuc->deboost, &call);
	} else if (policy == OVB_YIELD_CREDIT && to->dsq == dsq) {
		to->vtime = ovb_credit(to->vtime, clock, weighted(to, slice_ns),
				       scx_bpf_dsq_nr_queued(dsq));
	} else if (policy == OVB_YIELD_STRICT && to->dsq == dsq) {
		from->vtime = ovb_strict(from->vtime, to->vtime, weighted(to, preempt_margin_ns));
	}
	/* Everything but hand-off ends with the kernel's own yield, in this order (A1, step 14). */
	place.vtime = from->vtime;
	ovb_forfeit(&place, clock, slice);
	from->vtime = place.vtime;
}

/* How much a queued sibling can help a vCPU that spins. */
enum usefulness {
	/* Not queued, not allowed here, or it has just found that it must wait itself. */
	USELESS = 0,
	/* It waited, but long ago: it may have got what it waited for. */
	STALE = 1,
	/* It was preempted at work, and may hold what others wait for. */
	AT_WORK = 2,
	/* It has an interrupt to take. */
	INTERRUPTED = 3,
};

static u32 usefulness(struct task_struct *to, struct task_ctx *toc, s32 cpu, u64 now)
{
	if (!toc->queued_since || !may_run_on(to, cpu))
		return USELESS;
	if (has_pending_interrupt(to))
		return INTERRUPTED;
	if (!toc->spun_at)
		return AT_WORK;
	return now - toc->spun_at > stale_ns ? STALE : USELESS;
}

/* Looks for the best target: KVM's own choice if it can help most, else another sibling. */
static u32 choose(struct task_struct *from, struct task_struct *to, struct task_ctx *toc,
		  struct vm_ctx *vm, s32 cpu, u64 now, u32 *chosen)
{
	u32 best = usefulness(to, toc, cpu, now), i, nr = vm->nr_vcpus;

	*chosen = to->pid;
	if (best == INTERRUPTED)
		return best;
	bpf_for (i, 0, nr) {
		struct task_struct *p;
		struct task_ctx *taskc;
		u32 use = 0, pid;

		if (i >= OVB_MAX_VCPUS)
			break;
		pid = vm->pids[i & (OVB_MAX_VCPUS - 1)];
		if (!pid || pid == from->pid || pid == to->pid)
			continue;
		p = bpf_task_from_pid(pid);
		if (!p) {
			/* The thread has ended. */
			vm->pids[i & (OVB_MAX_VCPUS - 1)] = 0;
			continue;
		}
		taskc = task_ctx(p);
		if (taskc && taskc->vm == from->tgid)
			use = usefulness(p, taskc, cpu, now);
		bpf_task_release(p);
		if (use > best) {
			best = use;
			*chosen = pid;
		}
		if (best == INTERRUPTED)
			break;
	}
	return best;
}

/* Undoes a grant that was not used: the nomination came to nothing, or somebody else nominates. */
static void take_back(struct task_ctx *toc)
{
	struct task_struct *donor;
	struct task_ctx *donorc;
	u64 grant = toc->grant_ns;

	toc->grant_ns = 0;
	if (!grant)
		return;
	donor = bpf_task_from_pid(toc->donor);
	if (!donor)
		return;
	donorc = task_ctx(donor);
	if (donorc)
		__sync_fetch_and_sub(&donorc->vtime, weighted(donorc, grant));
	bpf_task_release(donor);
}

/* Nominates a target for hand-off, on the yielder's account. */
static void hand_over(struct task_struct *from, struct task_ctx *fromc, struct task_ctx *toc,
		      u32 to_pid, struct cpu_ctx *cpuc, u64 now)
{
	u64 ran = now - fromc->running_since;
	u64 left = fromc->turn_ns > ran ? fromc->turn_ns - ran : 0;
	u64 grant = ovb_handoff_grant(left, least_grant_ns, slice_ns);

	charge(from, fromc, now);
	take_back(toc);
	/* A target of another VM cannot be, but if it could, it would run on its own account. */
	if (fromc->vm == toc->vm) {
		__sync_fetch_and_add(&fromc->vtime, weighted(fromc, grant));
		toc->grant_ns = grant;
		toc->donor = from->pid;
	}
	toc->turn_ns = grant;
	cpuc->nominee = to_pid;
	cpuc->nominator = from->pid;
	cpuc->nominated_at = now;
}

/*
 * Nobody in the queues can help. One waiter per VM goes on spinning for a moment, so that somebody
 * takes a lock as soon as it is free; the others give up their turns. True if this one stays.
 */
static bool stay(struct task_struct *from, struct vm_ctx *vm, u64 now)
{
	if (now - vm->hot_at >= HOT_NS) {
		vm->hot = from->pid;
		vm->hot_since = now;
	}
	if (vm->hot != from->pid || now - vm->hot_since > stay_ns)
		return false;
	vm->hot_at = now;
	return true;
}

/* Our own rule. True always: KVM need not try anybody else. */
static bool yield_handoff(struct task_struct *from, struct task_ctx *fromc, struct task_struct *to,
			  struct task_ctx *toc, struct vm_ctx *vm, struct cpu_ctx *cpuc,
			  struct ovb_vm_stats *stats, s32 cpu, u64 now)
{
	u32 pid, use = choose(from, to, toc, vm, cpu, now, &pid);

	if (use) {
		struct task_struct *p = bpf_task_from_pid(pid);
		struct task_ctx *taskc;

		if (!p)
			return false;
		taskc = task_ctx(p);
		if (taskc) {
			hand_over(from, fromc, taskc, pid, cpuc, now);
			if (pid != to->pid && use == INTERRUPTED)
				stats->redirected_irq++;
			else if (pid != to->pid)
				stats->redirected_preempted++;
		}
		bpf_task_release(p);
	} else if (stay(from, vm, now)) {
		stats->stayed++;
		return true;
	} else {
		stats->gave_up++;
		charge(from, fromc, now);
		price(fromc, toc, cpuc, 0, 0, clock_of(from, cpu), 0, OVB_YIELD_FORFEIT);
	}
	fromc->spun_at = now;
	fromc->yielded = true;
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* The whole of a directed yield. True if it was taken up. */
static bool yield_to_task(struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc = task_ctx(from), *toc = task_ctx(to);
	s32 cpu = scx_bpf_task_cpu(from);
	u64 now = scx_bpf_now(), dsq = llc_dsq(llc_of(cpu));
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct ovb_vm_stats *stats;
	struct vm_ctx *vm;
	u32 policy = yield_policy;

	if (!fromc || !toc || !cpuc)
		return false;
	vm = enlist(from, fromc);
	enlist(to, toc);
	stats = vm_stats(fromc->vm);
	if (!vm || !stats)
		return false;
	stats->asked++;
	if (toc->dsq == dsq)
		stats->same_queue++;
	else
		stats->other_queue++;
	if (policy == OVB_YIELD_HANDOFF)
		return yield_handoff(from, fromc, to, toc, vm, cpuc, stats, cpu, now);
	/* Not in any queue: it is running, or about to. Or it may not run here. */
	if (!toc->queued_since || !may_run_on(to, cpu)) {
		stats->refused++;
		return false;
	}
	charge(from, fromc, now);
	price(fromc, toc, cpuc, from->pid, to->pid, clock_of(from, cpu), dsq, policy);
	toc->turn_ns = slice_ns;
	fromc->spun_at = now;
	fromc->yielded = true;
	if (policy != OVB_YIELD_FORFEIT) {
		cpuc->nominee = to->pid;
		cpuc->nominator = from->pid;
		cpuc->nominated_at = now;
	}
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* Moves a queued task to this CPU's local queue, from whichever queue holds it. */
static bool take_from_queue(struct task_struct *p, u64 dsq, u64 turn_ns)
{
	struct bpf_iter_scx_dsq it;
	bool taken = false;

	if (!bpf_iter_scx_dsq_new(&it, dsq, 0)) {
		scx_bpf_dsq_move_set_slice(&it, turn_ns);
		taken = scx_bpf_dsq_move(&it, p, SCX_DSQ_LOCAL, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	return taken;
}

/* Deadline of the first task in a queue; false if there is none. Not inlined: the compiler would
 * fold the tests of two such pointers into one bitwise operation, which the verifier forbids. */
static __noinline bool first_deadline(u64 dsq, u64 *deadline)
{
	struct task_struct *first = __COMPAT_scx_bpf_dsq_peek(dsq);

	if (!first)
		return false;
	*deadline = first->scx.dsq_vtime;
	return true;
}

/* Whether the rule lets the nominee run now, `earliest` being the deadline that it must beat. */
static bool rule_accepts(u32 policy, struct task_ctx *toc, u64 clock, u64 earliest)
{
	switch (policy) {
	case OVB_YIELD_HANDOFF:
		return true;
	case OVB_YIELD_STRICT:
		return ovb_strict_accepts(toc->deadline, earliest,
					  weighted(toc, preempt_margin_ns));
	default:
		/* EEVDF takes a buddy only if it has received no more than its share. */
		return ovb_eligible(toc->vtime, clock);
	}
}

/* Runs whom `prev` has nominated on this CPU. True if somebody was moved. */
static bool run_nominee(s32 cpu, struct cpu_ctx *cpuc, struct task_struct *prev)
{
	u32 nominee = cpuc->nominee, policy = yield_policy;
	u64 now, dsq = llc_dsq(llc_of(cpu)), earliest;
	struct ovb_vm_stats *stats;
	struct task_struct *to;
	struct task_ctx *toc;
	bool delivered = false;

	if (!nominee)
		return false;
	cpuc->nominee = 0;
	now = scx_bpf_now();
	to = bpf_task_from_pid(nominee);
	if (!to)
		return false;
	toc = task_ctx(to);
	if (!toc)
		goto out;
	if (prev && prev->pid == cpuc->nominator && now - cpuc->nominated_at < NOMINATION_NS &&
	    toc->queued_since && may_run_on(to, cpu)) {
		earliest = toc->deadline;
		first_deadline(dsq, &earliest);
		if (rule_accepts(policy, toc, clock_of(to, cpu), earliest))
			delivered = take_from_queue(to, toc->dsq, toc->turn_ns);
	}
	if (!delivered)
		take_back(toc);
	stats = vm_stats(toc->vm);
	if (stats) {
		if (delivered) {
			stats->delivered++;
			stats->wait_ns += now - cpuc->nominated_at;
		} else {
			stats->passed_over++;
		}
	}
out:
	bpf_task_release(to);
	return delivered;
}

#endif
