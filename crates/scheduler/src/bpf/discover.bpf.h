/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How VMs and their vCPUs are found, and how they go.
 *
 * A thread is known as a vCPU by the preempt notifier that KVM hangs on it (kvm.bpf.h), so VMs that
 * ran before the scheduler was loaded are found like new ones: at a tick, when they leave
 * their CPU, when they spin, or when they send an IPI.
 */
#ifndef OVERBOOK_DISCOVER_BPF_H
#define OVERBOOK_DISCOVER_BPF_H

#include "kvm.bpf.h"
#include "tenant.bpf.h"

/* Takes an entry of the table of VMs, with one vCPU too many. Returns its place plus one, 0 if
 * there is none. */
static u32 take_vm(u64 kvm, u32 pid)
{
	u32 i, place = take_place(&vms_used, vm_in_use, OVB_MAX_VMS);
	struct vm_ctx *vmc;

	vmc = bpf_map_lookup_elem(&vms, &place);
	if (!vmc)
		return 0;
	bpf_map_update_elem(&vms, &place, &blank_vm, BPF_ANY);
	vm_classes[bounded(place, OVB_MAX_VMS)] = OVB_CLASS_NORMAL;
	vm_homes[bounded(place, OVB_MAX_VMS)] = 0;
	bpf_for (i, 0, nr_cpus) {
		struct ovb_vm_stats *stats = bpf_map_lookup_percpu_elem(&vm_counts, &place, i);

		if (stats)
			*stats = (struct ovb_vm_stats){};
	}
	vmc->at.alive = 1;
	vmc->at.pid = pid;
	vmc->kvm = kvm;
	return place + 1;
}

/* Place of a VM plus one, with one vCPU more; 0 if it is not known. Of a process that has ended
 * another may have the same `kvm` soon. */
static u32 known_vm(u64 kvm, u32 pid)
{
	u32 *place = bpf_map_lookup_elem(&vm_places, &kvm), alive, tries;
	struct vm_ctx *vmc = place ? bpf_map_lookup_elem(&vms, place) : NULL;

	if (!vmc || vmc->kvm != kvm)
		return 0;
	if (vmc->at.pid != pid) {
		bpf_map_delete_elem(&vm_places, &kvm);
		return 0;
	}
	bpf_for (tries, 0, 8) {
		alive = vmc->at.alive;
		if (!alive)
			return 0;
		if (__sync_val_compare_and_swap(&vmc->at.alive, alive, alive + 1) == alive)
			return *place + 1;
	}
	return 0;
}

/* Place of a VM plus one, with one vCPU too many; 0 if the table is full, or it cannot be known
 * yet. */
static u32 find_vm(u64 kvm, u32 pid)
{
	u32 vm = known_vm(kvm, pid), place;

	if (vm)
		return vm;
	vm = take_vm(kvm, pid);
	if (!vm) {
		full_at = scx_bpf_now();
		return 0;
	}
	place = vm - 1;
	if (!bpf_map_update_elem(&vm_places, &kvm, &place, BPF_NOEXIST))
		return vm;
	/* Another vCPU was discovered at the same time, and has made the entry; or there is no
	 * memory for it. */
	bpf_map_update_elem(&vms, &place, &blank_vm, BPF_ANY);
	give_back(vm_in_use, OVB_MAX_VMS, place);
	return known_vm(kvm, pid);
}

/* A vCPU of a VM has gone, or was one too many. */
static void leave_vm(u32 vm, struct vm_ctx *vmc)
{
	struct node_ctx *node;
	u64 kvm = vmc->kvm;
	u32 *place;

	if (__sync_fetch_and_sub(&vmc->at.alive, 1) != 1)
		return;
	place = bpf_map_lookup_elem(&vm_places, &kvm);
	if (place && *place == vm - 1)
		bpf_map_delete_elem(&vm_places, &kvm);
	node = node_at(vmc->node);
	if (node)
		__sync_val_compare_and_swap(&node->vm, vm, 0);
	__sync_fetch_and_add(&generation, 1);
	free_node(vmc->spare);
	/* Its group may have gone before it. */
	free_gone(vmc->group);
	give_back(vm_in_use, OVB_MAX_VMS, vm - 1);
}

/* Takes an entry of the table of vCPUs. Returns its place plus one, 0 if there is none. */
static u32 take_vcpu(u32 vm, u32 id)
{
	u32 place = take_place(&vcpus_used, vcpu_in_use, OVB_MAX_ALL_VCPUS);
	struct vcpu_ctx *vcpuc = bpf_map_lookup_elem(&vcpus, &place);

	if (!vcpuc)
		return 0;
	bpf_map_update_elem(&vcpus, &place, &blank_vcpu, BPF_ANY);
	vcpuc->stats.vm = vm;
	vcpuc->stats.id = id;
	vcpuc->stats.alive = 1;
	return place + 1;
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
	u32 id, vm;

	if (!p)
		return 0;
	taskc = task_ctx(p);
	vcpu = vcpu_of(p);
	if (!taskc || !vcpu || taskc->vm || (full_at && now - full_at < FULL_NS))
		goto out;
	/* A tick, or a sibling's spin, may come in between. */
	if (__sync_val_compare_and_swap(&taskc->discovered, 0, 1))
		goto out;
	if (taskc->vm)
		goto done;
	vm = find_vm(kvm_of(vcpu), p->tgid);
	vmc = vm_ctx(vm);
	if (!vmc)
		goto done;
	taskc->vm = vm;
	id = BPF_CORE_READ(vcpu, vcpu_id);
	if (id >= OVB_MAX_VCPUS)
		goto done;
	taskc->vcpu_place = take_vcpu(vm, id);
	vcpuc = own_vcpu_ctx(taskc);
	if (!vcpuc) {
		full_at = now;
		taskc->vm = 0;
		leave_vm(vm, vmc);
		goto done;
	}
	vcpuc->stats.pid = pid;
	vcpuc->stats.process = p->tgid;
	vmc->pids[bounded(id, OVB_MAX_VCPUS)] = pid;
	vmc->places[bounded(id, OVB_MAX_VCPUS)] = taskc->vcpu_place;
	taskc->moves = vmc->moves;
	if (!find_group(vm, vmc, taskc->node))
		taskc->moves--;
	vcpuc->weight = 0;
	weigh_vcpu(vmc, vcpuc, weight_in_vm(taskc, vmc));
	taskc->vcpu = id + 1;
	__sync_fetch_and_add(&generation, 1);
done:
	taskc->discovered = 0;
out:
	bpf_task_release(p);
	return 0;
}

/* The VM of a thread, NULL if it is no vCPU. Nothing is known of one that has been of a higher
 * class all the time, not even its group: it is left out. */
static struct vm_ctx *enlist(struct task_struct *p, const struct task_ctx *taskc)
{
	if (!taskc->vm && taskc->weight && vcpu_of(p))
		discover(p->pid);
	return vm_ctx(taskc->vm);
}

/* Looks whether a task is a vCPU: at the 1st, 2nd, 4th … time, as most tasks are none. */
static void look_at(struct task_struct *p, struct task_ctx *taskc)
{
	u32 looks = ++taskc->looks;

	if (!taskc->vm && !(looks & (looks - 1)))
		enlist(p, taskc);
}

/* A vCPU's thread ends. */
static void vcpu_gone(const struct task_struct *p, struct task_ctx *taskc)
{
	struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);
	struct vm_ctx *vmc = vm_ctx(taskc->vm);
	u32 id = taskc->vcpu - 1, vm = taskc->vm;

	if (!vmc)
		return;
	vcpu_left_queue(taskc, true);
	/* Unless another thread runs this vCPU by now. */
	if (vcpuc && vcpuc->stats.pid == (u32)p->pid) {
		ovb_sent_reset(&vcpuc->sent);
		if (vmc->pids[bounded(id, OVB_MAX_VCPUS)] == (u32)p->pid)
			vmc->pids[bounded(id, OVB_MAX_VCPUS)] = 0;
		if (vmc->places[bounded(id, OVB_MAX_VCPUS)] == taskc->vcpu_place)
			vmc->places[bounded(id, OVB_MAX_VCPUS)] = 0;
		vcpuc->stats.alive = 0;
		weigh_vcpu(vmc, vcpuc, 0);
		give_back(vcpu_in_use, OVB_MAX_ALL_VCPUS, taskc->vcpu_place - 1);
	}
	taskc->vm = 0;
	taskc->vcpu = 0;
	taskc->vcpu_place = 0;
	taskc->generation = 0;
	leave_vm(vm, vmc);
}

#endif
