/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Spins. A vCPU that spins waits for a sibling, and KVM calls ops.yield() with one that it has
 * guessed, if any was preempted. The guess is not followed: once the spin has lasted for a while
 * the vCPU is marked as waiting, and its CPU goes on with the slice and whoever of the VM is worth
 * most now (go_on(), at ops.dispatch()), or with whoever is first.
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

/* Whether a vCPU has sent an IPI a moment ago, where these are seen. */
static bool has_just_sent(const struct task_ctx *taskc, u64 now)
{
	struct vcpu_ctx *self = own_vcpu_ctx(taskc);

	return self && self->sent.at && ovb_vtime_gap(now, self->sent.at) < 2 * short_spin_ns;
}

/* Whether a vCPU may as well spin on. Not if it has just sent an IPI: it may wait for an answer,
 * from a sibling that is queued. Nor if it yields by hypercall. */
static bool spins_on(struct task_ctx *taskc, u64 now)
{
	return taskc->spin_open && !has_just_sent(taskc, now) &&
	       ovb_spin_is_spared(&taskc->spin, short_spin_ns);
}

/* The same if KVM has found nobody: siblings run, and soon do what it waits for. A latency VM may
 * poll, and is to be there when its device's interrupt comes. */
static bool spins_on_unheard(struct task_ctx *taskc, u32 best, u64 now)
{
	if (best >= OVB_TIER_INTERRUPT)
		return false;
	if (class_of(taskc->vm) == OVB_CLASS_LATENCY)
		return true;
	if (ovb_spin_was_long(&taskc->spin))
		return false;
	return !ovb_spins_are_long(&taskc->spin) || has_just_sent(taskc, now) ||
	       ovb_spin_is_spared(&taskc->spin, short_spin_ns);
}

/* Whether a vCPU that runs here stops spinning, and who has its CPU then. */
static bool stops_spinning(struct task_struct *p, struct task_ctx *taskc, struct cpu_ctx *cpuc,
			   struct ovb_vm_stats *stats, bool heard)
{
	struct vm_ctx *vmc = vm_ctx(taskc->vm);
	bool spares;
	u64 now = scx_bpf_now();
	u32 with = 0, best;

	if (!vmc)
		return false;
	if (!ends_seen && relations)
		look_for_answers(taskc->vm);
	spares = heard && spins_on(taskc, now);
	taskc->spin_open = false;
	if (spares) {
		stats->spared++;
		return false;
	}
	best = best_tier(vmc);
	if (!heard && spins_on_unheard(taskc, best, now))
		return false;
	cpuc->leaver = p->pid;
	cpuc->goes_on = 0;
	if (best < OVB_TIER_CHAINED)
		with = stale_waiter(vmc, now);
	if (with || best >= OVB_TIER_CHAINED) {
		cpuc->goes_on = taskc->vm;
		cpuc->goes_on_with = with;
	} else {
		taskc->gave_up = heard;
		stats->gave_up++;
	}
	taskc->spun_at = now;
	taskc->yielded = true;
	return true;
}

/* The whole of a directed yield. True: KVM need not try anybody else. */
static bool yield_to_task(struct task_struct *from, struct task_struct *to)
{
	struct task_ctx *fromc = task_ctx(from), *toc = task_ctx(to);
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct ovb_vm_stats *stats;

	if (!fromc || !toc || !cpuc)
		return false;
	enlist(from, fromc);
	enlist(to, toc);
	stats = vm_stats(fromc->vm);
	if (!stats)
		return false;
	stats->asked++;
	if (stops_spinning(from, fromc, cpuc, stats, true))
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
	struct task_struct *p = bpf_get_current_task_btf();
	struct cpu_ctx *cpuc = this_cpu_ctx();
	struct task_ctx *taskc = task_ctx(p);

	if (cpuc && taskc && taskc->yielded && p->pid == cpuc->leaver)
		scx_bpf_kick_cpu(*cpu, SCX_KICK_PREEMPT);
	return 0;
}

/* Whether a CPU could go on with somebody of its own queues. */
static bool somebody_is_due(s32 cpu, const struct cpu_ctx *cpuc)
{
	u64 pools = cpuc->pools;
	u32 i, llc = llc_of(cpu);

	if (scx_bpf_dsq_nr_queued(cpu_dsq(cpu)) > 0 || scx_bpf_dsq_nr_queued(llc_dsq(llc)) > 0)
		return true;
	bpf_for (i, 0, pools ? OVB_MAX_POOLS : 0)
		if (pools >> i & 1 && scx_bpf_dsq_nr_queued(pool_dsq(i, llc)) > 0)
			return true;
	return false;
}

/* KVM has asked nobody: all siblings run or sleep, or have just spun; and a spinner in the kernel
 * gets no help from those that were preempted in user mode. It stops spinning all the same, if
 * anybody waits. */
SEC("?fexit/kvm_vcpu_on_spin")
int BPF_PROG(spin_ends, struct kvm_vcpu___ovb *me)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct task_ctx *taskc = task_ctx(p);
	struct ovb_vm_stats *stats = taskc ? vm_stats(taskc->vm) : NULL;
	struct cpu_ctx *cpuc = this_cpu_ctx();
	u32 cpu = bpf_get_smp_processor_id();
	struct look_timer *timer = bpf_map_lookup_elem(&look_timers, &cpu);

	if (!stats || !cpuc || !timer || !taskc->spin_open)
		return 0;
	taskc->spin_open = false;
	stats->unheard++;
	/* Without siblings it polls. */
	if (me->kvm->online_vcpus.counter < 2 || !somebody_is_due((s32)cpu, cpuc) ||
	    !stops_spinning(p, taskc, cpuc, stats, false))
		return 0;
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
