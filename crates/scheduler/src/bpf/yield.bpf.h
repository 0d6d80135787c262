/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spins. A vCPU that spins waits for a sibling, and KVM calls ops.yield() with one that it has
 * guessed. The guess is not followed: once the spin has lasted for a while the vCPU is marked as
 * waiting, and its CPU goes on with the slice and whoever of the VM is worth most now (go_on(), at
 * ops.dispatch()).
 */
#ifndef OVERBOOK_YIELD_BPF_H
#define OVERBOOK_YIELD_BPF_H

#include "choose.bpf.h"
#include "relate.bpf.h"

/* Books a spin: how long it has lasted, as far as spins follow each other at once. */
static void book_spin(struct task_ctx *taskc, u64 now)
{
	u64 since = ovb_vtime_max(taskc->resumed_at, taskc->spin.last);
	struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);

	ovb_spin_exit(&taskc->spin, taskc->resumed_at, now, short_spin_ns);
	if (!vcpuc)
		return;
	vcpuc->stats.spins++;
	if (now - since < spin_gap_ns)
		vcpuc->stats.spin_ns += now - since;
}

/* A queued sibling that spun so long ago that it may have got what it waited for, by its id plus
 * one; 0 if there is none among the next few. */
static u32 stale_waiter(struct vm_ctx *vmc, u64 now)
{
	u32 id = vmc->next, i;

	for (i = 0; i < TRIES; i++, id++) {
		struct task_struct *p;
		struct task_ctx *taskc;
		bool waited;

		id = next_of_tier(vmc, OVB_TIER_WAITING, bounded(id, OVB_MAX_VCPUS));
		if (id >= OVB_MAX_VCPUS)
			return 0;
		p = bpf_task_from_pid(vmc->pids[bounded(id, OVB_MAX_VCPUS)]);
		if (!p)
			continue;
		taskc = task_ctx(p);
		waited = taskc && (s64)(now - taskc->spun_at) > (s64)stale_ns;
		bpf_task_release(p);
		if (waited)
			return id + 1;
	}
	return 0;
}

/* Whether a vCPU may as well spin on. Not if it has just sent an IPI, where these are seen: it may
 * wait for an answer, from a sibling that is queued. Nor if it yields by hypercall. */
static bool spins_on(struct task_ctx *taskc, u64 now)
{
	struct vcpu_ctx *self = own_vcpu_ctx(taskc);

	if (!taskc->spin_open ||
	    (self && self->sent.at && ovb_vtime_gap(now, self->sent.at) < 2 * short_spin_ns))
		return false;
	return ovb_spin_is_spared(&taskc->spin, short_spin_ns);
}

/* The whole of a directed yield. True: KVM need not try anybody else. */
static bool yield_to_task(struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc = task_ctx(from), *toc = task_ctx(to);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct ovb_vm_stats *stats;
	struct vm_ctx *vmc;
	u64 now = scx_bpf_now();
	u32 with = 0, best;

	if (!fromc || !toc || !cpuc)
		return false;
	enlist(from, fromc);
	enlist(to, toc);
	stats = vm_stats(fromc->vm);
	vmc = vm_ctx(fromc->vm);
	if (!stats || !vmc)
		return false;
	stats->asked++;
	if (!ends_seen && relations)
		look_for_answers(fromc->vm);
	if (spins_on(fromc, now)) {
		fromc->spin_open = false;
		stats->spared++;
		return true;
	}
	fromc->spin_open = false;
	cpuc->goes_on = 0;
	best = best_tier(vmc);
	if (best < OVB_TIER_CHAINED)
		with = stale_waiter(vmc, now);
	if (with || best >= OVB_TIER_CHAINED) {
		cpuc->goes_on = fromc->vm;
		cpuc->goes_on_with = with;
		cpuc->leaver = from->pid;
	} else {
		fromc->gave_up = true;
		stats->gave_up++;
	}
	fromc->spun_at = now;
	fromc->yielded = true;
	scx_bpf_task_set_slice(from, 0);
	return true;
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
	stir(vmc, now);
	book_spin(taskc, now);
	taskc->spin_open = true;
	return 0;
}

/* Tells CPUs to look again, a moment later. */
struct look_timer {
	struct bpf_timer timer;
};

TABLE(ARRAY, look_timers, struct look_timer, OVB_MAX_CPUS);

static int look_again(void *map, u32 *cpu, struct look_timer *timer)
{
	struct cpu_ctx *cpuc = this_cpu_ctx();

	if (cpuc && cpuc->goes_on && bpf_get_current_task_btf()->pid == cpuc->leaver)
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* KVM has asked nobody: a spinner in the kernel gets no help from siblings that were preempted in
 * user mode. If one of them has an interrupt to take, this CPU goes on with it all the same. */
SEC("?fexit/kvm_vcpu_on_spin")
int BPF_PROG(spin_ends, struct kvm_vcpu___ovb *me)
{
	struct task_ctx *taskc = task_ctx(bpf_get_current_task_btf());
	struct vm_ctx *vmc = taskc ? vm_ctx(taskc->vm) : NULL;
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 cpu = bpf_get_smp_processor_id();
	struct look_timer *timer = bpf_map_lookup_elem(&look_timers, &cpu);
	struct ovb_vm_stats *stats;

	if (!vmc || !cpuc || !timer || !taskc->spin_open)
		return 0;
	taskc->spin_open = false;
	stats = vm_stats(taskc->vm);
	if (stats)
		stats->unheard++;
	if (best_tier(vmc) < OVB_TIER_INTERRUPT)
		return 0;
	cpuc->goes_on = taskc->vm;
	cpuc->goes_on_with = 0;
	cpuc->leaver = bpf_get_current_task_btf()->pid;
	taskc->spun_at = scx_bpf_now();
	taskc->yielded = true;
	/* Not now: a BPF program runs inside an RCU section, and must not be preempted there. */
	bpf_timer_start(&timer->timer, look_again_ns, BPF_F_TIMER_CPU_PIN);
	return 0;
}

/* Goes on with the slice of the VM whose vCPU has just left this CPU waiting, unless less than an
 * eighth of it is left, or a task that is no vCPU has come that goes before it. */
static bool go_on(struct cpu_ctx *cpuc, struct task_struct *prev)
{
	u32 vm = cpuc->goes_on, id;
	bool stale;
	struct ovb_vm_stats *stats;
	struct task_ctx *prevc;
	struct vcpu_ctx *vcpuc;
	struct vm_ctx *vmc;

	cpuc->goes_on = 0;
	if (!vm || !prev || prev->pid != cpuc->leaver)
		return false;
	prevc = task_ctx(prev);
	vmc = vm_ctx(vm);
	if (!prevc || !vmc)
		return false;
	if ((s64)(cpuc->until - scx_bpf_now()) < (s64)(slice_of(vm) / 8) ||
	    (cpuc->found == ORDINARY &&
	     ovb_vtime_before(cpuc->first_key + preempt_margin_ns, key_of(prevc))))
		return false;
	id = cpuc->goes_on_with;
	stale = id;
	if (!id)
		id = run_best(vm, true);
	else if (!take_thread(vmc->pids[bounded(id - 1, OVB_MAX_VCPUS)], bpf_get_smp_processor_id(),
			      true))
		id = 0;
	if (!id)
		return false;
	cpuc->heir = vmc->pids[bounded(id - 1, OVB_MAX_VCPUS)];
	stats = vm_stats(vm);
	if (stats) {
		stats->delivered++;
		stats->picked[OVB_TIER_WAITING] += stale;
	}
	vcpuc = vcpu_ctx(vmc, id - 1);
	if (vcpuc)
		vcpuc->stats.boosts++;
	return true;
}

bool BPF_STRUCT_OPS(overbook_yield, struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc;

	if (to)
		return yield_to_task(from, to);
	fromc = task_ctx(from);
	if (fromc) {
		fromc->yielded = true;
		fromc->gave_up = true;
	}
	scx_bpf_task_set_slice(from, 0);
	return false;
}

#endif
