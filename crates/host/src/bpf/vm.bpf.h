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

static u64 vcpu_key(u32 vm, u32 id)
{
	return (u64)vm << 32 | id;
}

static struct vm_ctx *vm_ctx(u32 vm)
{
	return bpf_map_lookup_elem(&vm_ctxs, &vm);
}

static struct vcpu_ctx *vcpu_ctx(u32 vm, u32 id)
{
	u64 key = vcpu_key(vm, id);

	return bpf_map_lookup_elem(&vcpus, &key);
}

/* State of a task's own vCPU. */
static struct vcpu_ctx *own_vcpu_ctx(const struct task_ctx *taskc)
{
	return taskc->vcpu ? vcpu_ctx(taskc->vm, taskc->vcpu - 1) : NULL;
}

static void mask_set(u64 *mask, u32 id)
{
	__sync_fetch_and_or(&mask[bounded(id / 64, MASK_WORDS)], 1ull << (id & 63));
}

static void mask_clear(u64 *mask, u32 id)
{
	__sync_fetch_and_and(&mask[bounded(id / 64, MASK_WORDS)], ~(1ull << (id & 63)));
}

/* First member of a mask from `start` on, wrapping; OVB_MAX_VCPUS if it is empty. */
static u32 mask_next(const u64 *mask, u32 start)
{
	u32 i;

	bpf_for (i, 0, MASK_WORDS + 1) {
		u32 word = bounded(start / 64 + i, MASK_WORDS);
		u64 bits = mask[word];

		if (!i)
			bits &= ~0ull << (start & 63);
		if (bits)
			return word * 64 + (u32)__builtin_ctzll(bits);
	}
	return OVB_MAX_VCPUS;
}

static struct vm_ctx *make_vm_ctx(u32 vm)
{
	struct vm_ctx *vmc = vm_ctx(vm), *blank;
	u32 zero = 0;

	if (vmc)
		return vmc;
	blank = bpf_map_lookup_elem(&blank_vm, &zero);
	if (!blank)
		return NULL;
	bpf_map_update_elem(&vm_ctxs, &vm, blank, BPF_NOEXIST);
	return vm_ctx(vm);
}

/* Finds out whether a task is a vCPU, and of which VM. Returns the VM if it is. */
static struct vm_ctx *enlist(struct task_struct *p, struct task_ctx *taskc)
{
	struct kvm_vcpu___ovb *vcpu;
	struct vcpu_ctx *vcpuc, *blank;
	struct vm_ctx *vmc;
	u32 zero = 0, id;
	u64 key;

	if (taskc->vm) {
		vmc = vm_ctx(taskc->vm);
		if (vmc)
			return vmc;
	}
	vcpu = vcpu_of(p);
	if (!vcpu)
		return NULL;
	vmc = make_vm_ctx(p->tgid);
	if (!vmc)
		return NULL;
	taskc->vm = p->tgid;
	id = BPF_CORE_READ(vcpu, vcpu_id);
	if (id >= OVB_MAX_VCPUS)
		return vmc;
	blank = bpf_map_lookup_elem(&blank_vcpu, &zero);
	if (!blank)
		return vmc;
	key = vcpu_key(p->tgid, id);
	/* Of an earlier process of this number, if it is there already. */
	bpf_map_update_elem(&vcpus, &key, blank, BPF_ANY);
	vcpuc = vcpu_ctx(p->tgid, id);
	if (!vcpuc)
		return vmc;
	vcpuc->stats.pid = p->pid;
	vmc->pids[bounded(id, OVB_MAX_VCPUS)] = p->pid;
	taskc->vcpu = id + 1;
	return vmc;
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
	struct vcpu_ctx *vcpuc;
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
	if (relations_mode != OVB_RELATIONS_PLE_KVM)
		return;
	vcpuc = own_vcpu_ctx(taskc);
	if (vcpuc)
		vcpuc->senders = 0;
}

/* A vCPU's thread ends. */
static void vcpu_gone(struct task_ctx *taskc)
{
	struct vm_ctx *vmc;
	u64 key;

	if (!taskc->vcpu)
		return;
	key = vcpu_key(taskc->vm, taskc->vcpu - 1);
	bpf_map_delete_elem(&vcpus, &key);
	vmc = vm_ctx(taskc->vm);
	if (vmc)
		vmc->pids[bounded(taskc->vcpu - 1, OVB_MAX_VCPUS)] = 0;
}

#endif
