/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yields: ops.yield(from, to). The callback runs with the runqueues of both tasks locked,
 * so it moves nothing: it prices the yield and nominates. The dispatch that follows at once (KVM's
 * yield_to() calls schedule()) does the move.
 */
#ifndef OVERBOOK_YIELD_BPF_H
#define OVERBOOK_YIELD_BPF_H

#include "handoff.h"
#include "place.bpf.h"
#include "select.bpf.h"

/* A nomination that no dispatch has used within this time is forgotten. */
#define NOMINATION_NS 1000000

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

/* Counts one for a tier. */
static void bump(unsigned long long *counters, u32 tier)
{
	barrier_var(tier);
	if (tier < OVB_TIERS)
		counters[tier]++;
}

/* Books a spin: how long it has lasted, as far as spins follow each other at once. */
static void book_spin(struct task_ctx *fromc, u64 now)
{
	u64 since = ovb_vtime_max(fromc->resumed_at, fromc->last_spin);
	struct ovb_vm_stats *stats = vm_stats(fromc->vm);
	struct vcpu_ctx *vcpuc = own_vcpu_ctx(fromc);

	if (!stats)
		return;
	/* KVM has found nobody to yield to when it spun last. */
	if (fromc->spin_open)
		stats->unheard++;
	fromc->spin_open = true;
	fromc->last_spin = now;
	if (vcpuc)
		vcpuc->stats.spins++;
	if (now - since >= spin_gap_ns)
		return;
	stats->spin_ns += now - since;
	if (vcpuc)
		vcpuc->stats.spin_ns += now - since;
}

/* What a spin has led to. */
enum direction {
	/* The yielder shall leave its CPU. */
	LEAVE,
	/* It shall go on. */
	STAY,
	/* Nothing is known of the yielder: KVM may try somebody else. */
	REFUSED,
};

/* Lets the best of a search run. */
static void serve(struct task_struct *from, struct task_ctx *fromc, const struct search *s,
		  struct cpu_ctx *cpuc)
{
	struct task_struct *p = bpf_task_from_pid(s->best_pid);
	struct task_ctx *taskc = p ? task_ctx(p) : NULL;
	bool served = taskc && hand_over(from, fromc, p, taskc, s);

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

	if (!fromc || !cpuc || !s || !fromc->running_since)
		return REFUSED;
	stats = vm_stats(fromc->vm);
	if (!stats)
		return REFUSED;
	ran = now - fromc->running_since;
	*s = (struct search){
		.pid = from->pid,
		.vm = fromc->vm,
		.vcpu = fromc->vcpu,
		.cpu = bpf_get_smp_processor_id(),
		.now = now,
		.left = fromc->turn_ns > ran ? fromc->turn_ns - ran : 0,
		.kvm_choice = kvm_choice,
	};
	choose();
	/* Where ends are not seen, nobody would know that the wait is over. */
	fromc->awaits_ipi = s->awaits && ends_seen;
	if (s->best) {
		serve(from, fromc, s, cpuc);
	} else if (s->stays) {
		stats->awaited++;
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

/* A PAUSE exit: the one place where all spins are seen, heard by KVM's scan or not. */
SEC("?fentry/kvm_vcpu_on_spin")
int BPF_PROG(spin_begins, struct kvm_vcpu___ovb *me)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);

	if (!taskc || !enlist(p, taskc))
		return 0;
	book_spin(taskc, scx_bpf_now());
	return 0;
}

/* Runs whom `prev` has nominated on this CPU. True if somebody was moved. */
static bool run_nominee(s32 cpu, struct cpu_ctx *cpuc, struct task_struct *prev)
{
	u32 nominee = cpuc->nominee;
	u64 now;
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
	    toc->queued_since && may_run_on(to, cpu))
		delivered = take_from_queue(to, toc->dsq, toc->turn_ns);
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
