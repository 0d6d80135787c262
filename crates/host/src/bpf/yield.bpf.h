/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yields: ops.yield(from, to), and spins for which KVM finds nobody. The six rules. The
 * callback runs with the runqueues of both tasks locked, so it moves nothing: it prices the yield
 * and nominates. The dispatch that follows at once (KVM's yield_to() calls schedule()) does the
 * move.
 */
#ifndef OVERBOOK_YIELD_BPF_H
#define OVERBOOK_YIELD_BPF_H

#include "credit.h"
#include "deboost.h"
#include "forfeit.h"
#include "handoff.h"
#include "place.bpf.h"
#include "select.bpf.h"
#include "strict.h"

/* A nomination that no dispatch has used within this time is forgotten. */
#define NOMINATION_NS 1000000
/* A VM's spinner that has not been heard of for this time has got what it waited for. */
#define HOT_NS 300000

/* The rules that price a yield in virtual time. */
static void price(struct task_struct *p, struct task_ctx *from, struct task_ctx *to,
		  struct cpu_ctx *cpuc, u32 policy)
{
	struct search *s = this_search();
	struct ovb_place place = {.vtime = from->vtime, .deadline = from->deadline};
	u64 slice = weighted(from, slice_ns), clock;
	u64 dsq;

	if (!s)
		return;
	clock = clock_of(p, s->cpu);
	dsq = llc_dsq(llc_of(s->cpu));
	if (policy == OVB_YIELD_DEBOOST) {
		struct ovb_deboost_call call = {
			.now = s->now,
			.source = s->pid,
			.target = s->best_pid,
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
	} else if (policy == OVB_YIELD_PROPORTIONAL) {
		push_groups(p, from, clock, slice_ns);
	}
	/* Everything but hand-off ends with the kernel's own yield, in this order (A1, step 14). */
	place.vtime = from->vtime;
	ovb_forfeit(&place, clock, slice);
	from->vtime = place.vtime;
}

/* Nominates a target for the dispatch that follows. */
static void nominate(struct task_struct *from, struct cpu_ctx *cpuc, const struct search *s)
{
	cpuc->nominee = s->best_pid;
	cpuc->nominator = from->pid;
	cpuc->nominee_tier = s->best;
	cpuc->nominated_at = s->now;
}

/* Whether a target is chosen only to take an interrupt, is at nothing in the guest's kernel, and
 * has not run ahead: what it is in debt beyond a bound is forgiven (place()), so a VM could have
 * its work charged to a vCPU that never pays. */
static bool is_aside(struct task_struct *to, const struct task_ctx *toc, const struct search *s)
{
	return (s->best == OVB_TIER_RECEIVER || s->best == OVB_TIER_INTERRUPT) &&
	       !ovb_vtime_before(clock_of(to, s->cpu) + weighted(toc, slice_ns), toc->vtime) &&
	       !preempted_in_kernel(to);
}

/* Hands the rest of the yielder's turn over, on the yielder's account. False if nothing is left. */
static bool hand_over(struct task_struct *from, struct task_ctx *fromc, struct task_struct *to,
		      struct task_ctx *toc, const struct search *s)
{
	u64 left = s->left, grant, price;

	grant = ovb_handoff_grant(left, least_grant_ns, slice_ns, fromc->overtime);
	price = ovb_handoff_price(grant, least_grant_ns, is_aside(to, toc, s));
	charge(from, fromc, s->now);
	if (!grant)
		return false;
	take_back(toc);
	/* A target of another VM cannot be, but if it could, it would run on its own account. */
	if (fromc->vm == toc->vm) {
		__sync_fetch_and_add(&fromc->vtime, weighted(fromc, price));
		toc->grant_ns = price;
		toc->donor = from->pid;
	}
	toc->overtime = ovb_handoff_overtime(left, least_grant_ns, fromc->overtime);
	toc->turn_ns = grant;
	return true;
}

/*
 * Nobody in the queues can help. With stay_ns, one waiter per VM goes on spinning, so that somebody
 * takes a lock as soon as it is free, if the VM is within its share; the others give up their
 * turns. True if this one stays.
 */
static bool stay(struct task_struct *from, struct vm_ctx *vmc, s32 cpu, u64 now)
{
	u32 running, llc = llc_of(cpu);

	if (!stay_ns)
		return false;
	running = vmc->at.alive - nr_queued_vcpus(vmc);
	/* On a CPU that it cannot leave, its share is what others there leave to it. */
	if (is_pinned(from) && scx_bpf_dsq_nr_queued(cpu_dsq(cpu)) > 0)
		return false;
	if (!ovb_stay_within_share(running, vmc->at.alive, llc_cpus[bounded(llc, OVB_MAX_LLCS)],
				   scx_bpf_dsq_nr_queued(llc_dsq(llc))))
		return false;
	if (now - vmc->hot_at >= HOT_NS) {
		vmc->hot = from->pid;
		vmc->hot_since = now;
	}
	if (vmc->hot != from->pid || now - vmc->hot_since > stay_ns)
		return false;
	vmc->hot_at = now;
	return true;
}

/* Counts one for a tier. */
static void bump(unsigned long long *counters, u32 tier)
{
	barrier_var(tier);
	if (tier < OVB_TIERS)
		counters[tier]++;
}

/* Whether the sibling that a vCPU has yielded to has helped: it ran on without spinning. */
static void settle_help(struct task_ctx *taskc, struct ovb_vm_stats *stats, u64 now)
{
	if (taskc->helped_by && now - taskc->resumed_at >= progress_ns)
		bump(stats->tier_useful, taskc->helped_by);
	taskc->helped_by = 0;
}

/* Books a spin: how long it has lasted, as far as spins follow each other at once. */
static void book_spin(struct task_ctx *fromc, struct vm_ctx *vmc, u64 now)
{
	u64 since = ovb_vtime_max(fromc->resumed_at, fromc->last_spin);
	struct ovb_vm_stats *stats = vm_stats(fromc->vm);
	struct vcpu_ctx *vcpuc = own_vcpu_ctx(fromc);

	if (!stats)
		return;
	settle_help(fromc, stats, now);
	fromc->last_spin = now;
	if (vcpuc)
		vcpuc->stats.spins++;
	if (now - since >= spin_gap_ns)
		return;
	stats->spin_ns += now - since;
	__sync_fetch_and_add(&vmc->spin_ns, now - since);
	if (vcpuc)
		vcpuc->stats.spin_ns += now - since;
}

/* What a spin has led to. */
enum direction {
	/* The yielder shall leave its CPU. */
	LEAVE,
	/* It shall go on. */
	STAY,
	/* The rule can do nothing: KVM may try somebody else. */
	REFUSED,
};

/* Lets the best of a search run: prices the yield by the rule that is in force, and nominates. */
static void serve(struct task_struct *from, struct task_ctx *fromc, const struct search *s,
		  struct cpu_ctx *cpuc, u32 policy)
{
	struct task_struct *p = bpf_task_from_pid(s->best_pid);
	struct task_ctx *taskc = p ? task_ctx(p) : NULL;
	bool served = policy != OVB_YIELD_FORFEIT;

	if (taskc && policy == OVB_YIELD_HANDOFF) {
		served = hand_over(from, fromc, p, taskc, s);
	} else if (taskc) {
		charge(from, fromc, s->now);
		price(from, fromc, taskc, cpuc, policy);
		taskc->turn_ns = slice_ns;
	}
	if (p)
		bpf_task_release(p);
	if (served)
		nominate(from, cpuc, s);
}

/* The vCPU that runs here spins; `kvm_choice` is the thread that KVM would run, 0 for none. Returns
 * an enum direction. */
__noinline int direct(u32 kvm_choice)
{
	struct task_struct *from = bpf_get_current_task_btf();
	struct task_ctx *fromc = task_ctx(from);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct search *s = this_search();
	u64 now = scx_bpf_now(), ran;
	struct ovb_vm_stats *stats;
	u32 policy = yield_policy;
	struct vm_ctx *vmc;

	if (!fromc || !cpuc || !s || !fromc->running_since)
		return REFUSED;
	vmc = vm_ctx(fromc->vm);
	stats = vm_stats(fromc->vm);
	if (!vmc || !stats)
		return REFUSED;
	ran = now - fromc->running_since;
	*s = (struct search){
		.pid = from->pid,
		.vm = fromc->vm,
		.vcpu = fromc->vcpu,
		.cpu = bpf_get_smp_processor_id(),
		.now = now,
		.left = fromc->turn_ns > ran ? fromc->turn_ns - ran : 0,
		.window = window_of(vmc),
		.kvm_choice = kvm_choice,
	};
	choose();
	/* Where ends are not seen, nobody would know that the wait is over. */
	fromc->awaits_ipi = s->awaits && ends_seen;
	if (s->best) {
		serve(from, fromc, s, cpuc, policy);
		if (s->best_pid != kvm_choice)
			bump(stats->tier_tried, s->best);
		fromc->helped_by = s->best;
	} else if (s->stays) {
		stats->awaited++;
		return STAY;
	} else if (policy != OVB_YIELD_HANDOFF) {
		/* KVM's choice is running, or about to, or may not run here. */
		stats->refused++;
		return REFUSED;
	} else if (stay(from, vmc, s->cpu, now)) {
		stats->stayed++;
		return STAY;
	} else {
		stats->gave_up++;
		charge(from, fromc, now);
		fromc->gave_up = true;
	}
	fromc->spun_at = now;
	fromc->yielded = true;
	return LEAVE;
}

/* The whole of a directed yield. True if it was taken up: KVM need not try anybody else. */
static bool yield_to_task(struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc = task_ctx(from), *toc = task_ctx(to);
	s32 cpu = scx_bpf_task_cpu(from);
	struct ovb_vm_stats *stats;
	int direction;

	if (!fromc || !toc)
		return false;
	fromc->spin_open = false;
	enlist(from, fromc);
	enlist(to, toc);
	stats = vm_stats(fromc->vm);
	if (!stats)
		return false;
	stats->asked++;
	if (toc->dsq == llc_dsq(llc_of(cpu)))
		stats->same_queue++;
	else
		stats->other_queue++;
	direction = direct(to->pid);
	if (direction == LEAVE)
		scx_bpf_task_set_slice(from, 0);
	return direction != REFUSED;
}

/*
 * A vCPU that a probe has told to leave its CPU leaves it a moment later. At once, it would be
 * preempted inside the probe, where migration is disabled: it would be queued as anybody, and no
 * other CPU could take it. (It was; IPIs then waited for receivers that nobody could run.)
 */
#define LEAVE_NS 4000
/* include/uapi/linux/time.h */
#define CLOCK_MONOTONIC 1

struct leave_timer {
	struct bpf_timer timer;
};

/* By CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OVB_MAX_CPUS);
	__type(key, u32);
	__type(value, struct leave_timer);
} leave_timers SEC(".maps");

static int leave_now(void *map, int *cpu, struct leave_timer *leave)
{
	scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

static void init_leave_timer(u32 cpu)
{
	struct leave_timer *leave = bpf_map_lookup_elem(&leave_timers, &cpu);

	if (!leave)
		return;
	/* It may have one of an earlier attachment. */
	bpf_timer_init(&leave->timer, &leave_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&leave->timer, leave_now);
}

/* A PAUSE exit: the one place where all spins are seen, heard by KVM's scan or not. */
SEC("?fentry/kvm_vcpu_on_spin")
int BPF_PROG(spin_begins, struct kvm_vcpu___ovb *me)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct vm_ctx *vmc = taskc ? enlist(p, taskc) : NULL;
	u64 now = scx_bpf_now();

	if (!vmc)
		return 0;
	taskc->spin_open = true;
	book_spin(taskc, vmc, now);
	if (gang_choice == OVB_GANG_AUTO)
		ovb_gang_step(&vmc->gang, now, vmc->run_ns, vmc->spin_ns, gang_period_ns);
	return 0;
}

/* KVM has found nobody; we may. Only for hand-off: the others are what they were published as. */
SEC("?fexit/kvm_vcpu_on_spin")
int BPF_PROG(spin_ends, struct kvm_vcpu___ovb *me)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct ovb_vm_stats *stats;

	if (!taskc || !taskc->spin_open)
		return 0;
	taskc->spin_open = false;
	if (yield_policy != OVB_YIELD_HANDOFF)
		return 0;
	/* The nomination is this CPU's. */
	bpf_preempt_disable();
	enlist(p, taskc);
	stats = vm_stats(taskc->vm);
	if (stats) {
		stats->unheard++;
		if (direct(0) == LEAVE) {
			u32 cpu = bpf_get_smp_processor_id();
			struct leave_timer *leave = bpf_map_lookup_elem(&leave_timers, &cpu);

			if (leave)
				bpf_timer_start(&leave->timer, LEAVE_NS, BPF_F_TIMER_CPU_PIN);
		}
	}
	bpf_preempt_enable();
	return 0;
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
		if (policy == OVB_YIELD_STRICT)
			first_deadline(dsq, &earliest);
		if (rule_accepts(policy, toc, clock_of(to, cpu), earliest))
			delivered = take_from_queue(to, toc->dsq, toc->turn_ns);
	}
	if (delivered) {
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(toc);

		if (vcpuc)
			vcpuc->stats.boosts++;
	} else {
		take_back(toc);
	}
	stats = vm_stats(toc->vm);
	if (stats) {
		if (delivered) {
			stats->delivered++;
			bump(stats->tier_delivered, cpuc->nominee_tier);
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
