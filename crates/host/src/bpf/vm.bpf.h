/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * VMs and their vCPUs: how they are found, and who of them is queued.
 *
 * A thread is known as a vCPU by the preempt notifier that KVM hangs on it (kvm.bpf.h), so VMs that
 * ran before the scheduler was loaded are found like new ones: when a turn of theirs ends, when
 * they spin, or when they send an IPI.
 */
#ifndef OVERBOOK_VM_BPF_H
#define OVERBOOK_VM_BPF_H

#include "kvm.bpf.h"
#include "state.bpf.h"

/* A table that was found full is not searched again for this time, ns. */
#define FULL_NS 1000000000

/* A VM by its place plus one; NULL for none. */
static struct vm_ctx *vm_ctx(u32 vm)
{
	u32 place = vm - 1;

	return bpf_map_lookup_elem(&vms, &place);
}

static struct vcpu_ctx *vcpu_at(u32 place_plus_one)
{
	u32 place = place_plus_one - 1;

	return bpf_map_lookup_elem(&vcpus, &place);
}

/* A vCPU by its id. */
static struct vcpu_ctx *vcpu_ctx(const struct vm_ctx *vmc, u32 id)
{
	return vcpu_at(vmc->places[bounded(id, OVB_MAX_VCPUS)]);
}

/* State of a task's own vCPU. */
static struct vcpu_ctx *own_vcpu_ctx(const struct task_ctx *taskc)
{
	return vcpu_at(taskc->vcpu_place);
}

static void mask_set(u64 *mask, u32 id)
{
	__sync_fetch_and_or(&mask[bounded(id / 64, MASK_WORDS)], 1ull << (id & 63));
}

static void mask_clear(u64 *mask, u32 id)
{
	__sync_fetch_and_and(&mask[bounded(id / 64, MASK_WORDS)], ~(1ull << (id & 63)));
}

static bool mask_test(const u64 *mask, u32 id)
{
	return mask[bounded(id / 64, MASK_WORDS)] >> (id & 63) & 1;
}

/* First member of a mask from `start` on, wrapping; OVB_MAX_VCPUS if it is empty. */
static u32 mask_next(const u64 *mask, u32 start)
{
	u32 i;

	/* No bpf_for, whose every step is a call: this is asked several times per yield. */
#pragma unroll
	for (i = 0; i < MASK_WORDS + 1; i++) {
		u32 word = bounded(start / 64 + i, MASK_WORDS);
		u64 bits = mask[word];

		if (!i)
			bits &= ~0ull << (start & 63);
		if (bits)
			return word * 64 + (u32)__builtin_ctzll(bits);
	}
	return OVB_MAX_VCPUS;
}

/* Takes an entry of the table of VMs for a process, with one vCPU too many. Returns its place plus
 * one, 0 if there is none. */
static u32 take_vm(u32 pid)
{
	u32 i, zero = 0, place = __sync_fetch_and_add(&vms_used, 1);
	struct vm_ctx *vmc, *blank = bpf_map_lookup_elem(&blank_vm, &zero);

	if (place >= OVB_MAX_VMS) {
		bpf_for (i, 0, OVB_MAX_VMS) {
			place = i;
			vmc = bpf_map_lookup_elem(&vms, &place);
			if (vmc && !__sync_val_compare_and_swap(&vmc->at.alive, 0, 1))
				break;
			place = OVB_MAX_VMS;
		}
	}
	vmc = bpf_map_lookup_elem(&vms, &place);
	if (!vmc || !blank)
		return 0;
	bpf_map_update_elem(&vms, &place, blank, BPF_ANY);
	bpf_for (i, 0, nr_cpus) {
		struct ovb_vm_stats *stats = bpf_map_lookup_percpu_elem(&vm_counts, &place, i);

		if (stats)
			*stats = (struct ovb_vm_stats){};
	}
	vmc->at.alive = 1;
	vmc->at.pid = pid;
	return place + 1;
}

/* Place of a process's VM plus one, with one vCPU more; 0 if it is not known. */
static u32 known_vm(u32 pid)
{
	u32 *place = bpf_map_lookup_elem(&vm_places, &pid);
	struct vm_ctx *vmc = place ? bpf_map_lookup_elem(&vms, place) : NULL;

	if (!vmc || vmc->at.pid != pid)
		return 0;
	__sync_fetch_and_add(&vmc->at.alive, 1);
	return *place + 1;
}

/* Place of a process's VM plus one, with one vCPU too many; 0 if the table is full. */
static u32 find_vm(u32 pid)
{
	u32 vm = known_vm(pid), place;
	struct vm_ctx *vmc;

	if (vm)
		return vm;
	vm = take_vm(pid);
	if (!vm)
		return 0;
	place = vm - 1;
	if (!bpf_map_update_elem(&vm_places, &pid, &place, BPF_NOEXIST))
		return vm;
	/* Another vCPU was discovered at the same time, and has made the entry; or there is one of
	 * a process that had this pid before. */
	vmc = vm_ctx(vm);
	vm = known_vm(pid);
	if (!vm) {
		bpf_map_update_elem(&vm_places, &pid, &place, BPF_ANY);
		return place + 1;
	}
	if (vmc) {
		vmc->at.pid = 0;
		vmc->at.alive = 0;
	}
	return vm;
}

/* Takes an entry of the table of vCPUs: the one that this id had before, or a free one. Returns its
 * place plus one, 0 if there is none. */
static u32 take_vcpu(u32 vm, struct vm_ctx *vmc, u32 id)
{
	u32 i, zero = 0, place;
	struct vcpu_ctx *vcpuc = vcpu_ctx(vmc, id), *blank;

	if (vcpuc && vcpuc->stats.vm == vm && vcpuc->stats.id == id) {
		vcpuc->stats.alive = 1;
		return vmc->places[bounded(id, OVB_MAX_VCPUS)];
	}
	place = __sync_fetch_and_add(&vcpus_used, 1);
	if (place >= OVB_MAX_ALL_VCPUS) {
		bpf_for (i, 0, OVB_MAX_ALL_VCPUS) {
			place = i;
			vcpuc = bpf_map_lookup_elem(&vcpus, &place);
			if (vcpuc && !__sync_val_compare_and_swap(&vcpuc->stats.alive, 0, 1))
				break;
			place = OVB_MAX_ALL_VCPUS;
		}
	}
	vcpuc = bpf_map_lookup_elem(&vcpus, &place);
	blank = bpf_map_lookup_elem(&blank_vcpu, &zero);
	if (!vcpuc || !blank)
		return 0;
	bpf_map_update_elem(&vcpus, &place, blank, BPF_ANY);
	vcpuc->stats.vm = vm;
	vcpuc->stats.id = id;
	vcpuc->stats.alive = 1;
	return place + 1;
}

/* A vCPU becomes runnable, or is no longer. */
static void vcpu_wants(struct task_ctx *taskc, bool wants)
{
	struct vm_ctx *vmc = taskc->vm ? vm_ctx(taskc->vm) : NULL;

	if (!vmc || taskc->wants == wants)
		return;
	taskc->wants = wants;
	__sync_fetch_and_add(&vmc->nr_wanting, wants ? 1 : -1);
}

/* Finds out whether a thread is a vCPU, and of which VM. */
__noinline int discover(u32 pid)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	struct kvm_vcpu___ovb *vcpu;
	struct task_ctx *taskc;
	struct vcpu_ctx *vcpuc;
	struct vm_ctx *vmc;
	u64 now = scx_bpf_now();
	u32 id;

	if (!p)
		return 0;
	taskc = task_ctx(p);
	vcpu = vcpu_of(p);
	if (!taskc || !vcpu || taskc->vm || (full_at && now - full_at < FULL_NS))
		goto out;
	taskc->vm = find_vm(p->tgid);
	vmc = vm_ctx(taskc->vm);
	if (!vmc) {
		full_at = now;
		goto out;
	}
	id = BPF_CORE_READ(vcpu, vcpu_id);
	if (id >= OVB_MAX_VCPUS)
		goto out;
	taskc->vcpu_place = take_vcpu(taskc->vm, vmc, id);
	vcpuc = own_vcpu_ctx(taskc);
	if (!vcpuc) {
		full_at = now;
		goto out;
	}
	vcpuc->stats.pid = pid;
	vmc->pids[bounded(id, OVB_MAX_VCPUS)] = pid;
	vmc->places[bounded(id, OVB_MAX_VCPUS)] = taskc->vcpu_place;
	taskc->vcpu = id + 1;
	/* Only tasks that run or are queued are looked at. */
	vcpu_wants(taskc, true);
out:
	bpf_task_release(p);
	return 0;
}

/* The VM of a thread, NULL if it is no vCPU. */
static struct vm_ctx *enlist(struct task_struct *p, const struct task_ctx *taskc)
{
	if (!taskc->vm && vcpu_of(p))
		discover(p->pid);
	return vm_ctx(taskc->vm);
}

/* Looks at a task whose turn has ended: at the 1st, 2nd, 4th … turn, as most tasks are no vCPUs. */
static void look_at(struct task_struct *p, struct task_ctx *taskc)
{
	u32 turns = ++taskc->turns;

	if (!taskc->vm && !(turns & (turns - 1)))
		enlist(p, taskc);
}

/* A vCPU is about to be queued. */
static void vcpu_queued(struct task_ctx *taskc)
{
	struct vm_ctx *vmc;

	if (!taskc->vcpu)
		return;
	vmc = vm_ctx(taskc->vm);
	if (!vmc)
		return;
	mask_set(taskc->spun_at ? vmc->waiting : vmc->at_work, taskc->vcpu - 1);
}

/* A vCPU runs, or sleeps. */
static void vcpu_left_queue(struct task_ctx *taskc, bool runs)
{
	struct vm_ctx *vmc;
	u32 id = taskc->vcpu - 1;

	if (!taskc->vcpu)
		return;
	vmc = vm_ctx(taskc->vm);
	if (!vmc)
		return;
	mask_clear(vmc->waiting, id);
	mask_clear(vmc->at_work, id);
	if (!runs)
		return;
	mask_clear(vmc->interrupted, id);
}

/* A vCPU's thread ends. */
static void vcpu_gone(const struct task_struct *p, struct task_ctx *taskc)
{
	struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);
	struct vm_ctx *vmc = vm_ctx(taskc->vm);
	u32 id = taskc->vcpu - 1;

	if (!vmc)
		return;
	/* Unless another thread runs this vCPU by now. */
	if (vcpuc && vcpuc->stats.pid == p->pid) {
		ovb_relations_reset(&vcpuc->sent);
		vmc->pids[bounded(id, OVB_MAX_VCPUS)] = 0;
		vcpuc->stats.alive = 0;
	}
	vcpu_wants(taskc, false);
	taskc->vm = 0;
	taskc->vcpu = 0;
	taskc->vcpu_place = 0;
	__sync_fetch_and_sub(&vmc->at.alive, 1);
}

#endif
