/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside a VM: whenever a CPU serves it, it takes the vCPU that is worth most to the VM now
 * (policy/tiers.h). The choice does not change what the VM gets, only what it does with it.
 */
#ifndef OVERBOOK_CHOOSE_BPF_H
#define OVERBOOK_CHOOSE_BPF_H

#include "kvm.bpf.h"
#include "time.bpf.h"

/* So many vCPUs of the best tier are tried until one may run here. */
#define TRIES 3
/* A VM is calm after so many slices. */
#define CALM_SLICES 8
/* The first of a queue is not passed over for more than so many normal slices of its VM's virtual
 * time. */
#define PASSED_OVER_SLICES 2

/* The highest tier of a VM's queued vCPUs. */
static u32 best_tier(const struct vm_ctx *vmc)
{
	u32 best = OVB_TIER_NONE, i;

	for (i = 0; i < MASK_WORDS; i++) {
		u32 tier = ovb_tier_best(&vmc->known[i]);

		if (tier > best)
			best = tier;
	}
	return best;
}

/* Whether no vCPU of a VM has spun or was sent an IPI for long. Then a search brings next to
 * nothing. */
static bool is_calm(const struct vm_ctx *vmc, u64 now)
{
	return (sends_seen || !relations) &&
	       (s64)(now - vmc->stirred_at) > (s64)(CALM_SLICES * slice_ns);
}

/* The first vCPU of a tier from an id on, wrapping; OVB_MAX_VCPUS if there is none. */
static u32 next_of_tier(const struct vm_ctx *vmc, u32 tier, u32 from)
{
	u32 i;

	for (i = 0; i < MASK_WORDS + 1; i++) {
		u32 word = bounded(from / 64 + i, MASK_WORDS);
		u64 bits = ovb_tier_members(&vmc->known[word], tier);

		if (!i)
			bits &= ~0ull << (from & 63);
		if (bits)
			return word * 64 + (u32)__builtin_ctzll(bits);
	}
	return OVB_MAX_VCPUS;
}

/* Takes a thread to this CPU if it is queued where this CPU looks; with `far`, from another LLC's
 * queue too. Whether it may run here is asked when the iterator is there: a task whose affinity
 * changes after that is queued anew, and then the kernel does not move it. Asked before, such a
 * change would end the scheduler. */
static bool take_thread(u32 pid, s32 cpu, bool far)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	struct bpf_iter_scx_dsq it;
	struct task_ctx *taskc;
	bool taken = false;

	if (!p)
		return false;
	taskc = task_ctx(p);
	if (taskc && taskc->queued &&
	    (is_shared_in(taskc->dsq, llc_of(cpu)) || taskc->dsq == cpu_dsq(cpu) ||
	     (far && (taskc->dsq < OVB_MAX_LLCS || is_pool_dsq(taskc->dsq))))) {
		if (!bpf_iter_scx_dsq_new(&it, taskc->dsq, 0) && may_run_on(p, cpu))
			taken = move_here(&it, p, slice_of(taskc->vm));
		bpf_iter_scx_dsq_destroy(&it);
	}
	bpf_task_release(p);
	return taken;
}

/* Where IPIs are delivered without an exit nobody is told: looks whether a vCPU has one to take. */
static void look_for_interrupt(struct vm_ctx *vmc, u32 id)
{
	struct task_struct *p;

	id = next_of_tier(vmc, OVB_TIER_ANY, bounded(id, OVB_MAX_VCPUS));
	p = id < OVB_MAX_VCPUS ? bpf_task_from_pid(vmc->pids[bounded(id, OVB_MAX_VCPUS)]) : NULL;
	if (!p)
		return;
	if (has_interrupt(p, false))
		mark(&siblings_of(vmc, id)->interrupted, id, true);
	bpf_task_release(p);
}

/* Moves the best queued vCPU of a VM to this CPU; from other LLCs too after a spin, or if its tier
 * is better than `any` or it spun. Returns its id plus one, 0 for none. */
__noinline u32 run_best(u32 vm, u32 after_spin)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	s32 cpu = bpf_get_smp_processor_id();
	u32 tier, id, i;

	if (!vmc)
		return 0;
	if (!sends_seen && relations)
		look_for_interrupt(vmc, vmc->next);
	tier = best_tier(vmc);
	if (tier < OVB_TIER_CHAINED)
		return 0;
	id = vmc->next;
	for (i = 0; i < TRIES; i++) {
		id = next_of_tier(vmc, tier, bounded(id, OVB_MAX_VCPUS));
		if (id >= OVB_MAX_VCPUS)
			return 0;
		if (take_thread(vmc->pids[bounded(id, OVB_MAX_VCPUS)], cpu,
				after_spin || tier != OVB_TIER_ANY)) {
			struct ovb_vm_stats *stats = vm_stats(vm);

			barrier_var(tier);
			if (stats && tier < OVB_TIERS)
				stats->picked[tier]++;
			vmc->next = bounded(id + 1, OVB_MAX_VCPUS);
			return id + 1;
		}
		id++;
	}
	return 0;
}

/* Whether its VM has had so much since it was queued, and it has not. */
static bool is_passed_over(const struct task_ctx *taskc, const struct tenant *tenant)
{
	return ovb_vtime_gap(tenant->vtime, taskc->queued_at) >
	       PASSED_OVER_SLICES * aged_slice(tenant);
}

#endif
