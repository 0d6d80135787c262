/* SPDX-License-Identifier: GPL-2.0-only */
/* The tables of VMs and vCPUs, and what is known of each. */
#ifndef OVERBOOK_VM_BPF_H
#define OVERBOOK_VM_BPF_H

#include "relations.h"
#include "tree.bpf.h"

/* A table that was found full is not searched again for this time, ns. */
#define FULL_NS 1000000000

#define MASK_WORDS (OVB_MAX_VCPUS / 64)

/*
 * VMs and vCPUs live in tables and not in hash maps: they are looked up several times per switch
 * and per IPI, and a table's entry costs next to nothing. An entry whose VM has ended stays as it
 * is, for the statistics, until somebody needs the place.
 */
struct vm_ctx {
	struct ovb_place_of_vm at;
	/* Its struct kvm. */
	u64 kvm;
	/* Place of the tenant; 0: its vCPUs are ordinary tasks, for want of a place. */
	u32 node;
	/* Smallest group that holds all its threads; whether `node` is the VM's own, as other VMs
	 * share the group; its own, if it ever had one; and whether any of this is known. */
	u32 group;
	u32 own_node;
	u32 spare;
	u32 settled;
	/* How often a part of it has come to another group. */
	u32 moves;
	/* Sum of its vCPUs' weights. */
	u32 weight;
	/* vCPU id from which the next choice begins. */
	u32 next;
	/* When a vCPU last spun or was sent an IPI, to a slice. */
	u64 stirred_at;
	/* What is known of its vCPUs, 64 at a time. */
	struct ovb_siblings known[MASK_WORDS];
	/* Threads, and places in `vcpus` plus one, by vCPU id. */
	u32 pids[OVB_MAX_VCPUS];
	u32 places[OVB_MAX_VCPUS];
};

TABLE(ARRAY, vms, struct vm_ctx, OVB_MAX_VMS);

/* By place in `vms`. */
TABLE(PERCPU_ARRAY, vm_counts, struct ovb_vm_stats, OVB_MAX_VMS);

/* Places of VMs by their struct kvm. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2 * OVB_MAX_VMS);
	__type(key, u64);
	__type(value, u32);
} vm_places SEC(".maps");

/* A vCPU. */
struct vcpu_ctx {
	struct ovb_vcpu_stats stats;
	/* Whom it has sent IPIs, and who has sent it one that it has not ended. */
	struct ovb_sent sent;
	u64 from[MASK_WORDS];
	/* What it adds to the weight of its VM. */
	u32 weight;
};

TABLE(ARRAY, vcpus, struct vcpu_ctx, OVB_MAX_ALL_VCPUS);

/* Zeroes, too many for the stack. */
struct vm_ctx blank_vm;

struct vcpu_ctx blank_vcpu;

/* See take_place(). */
u32 vms_used;
u32 vcpus_used;
u64 vm_in_use[OVB_MAX_VMS / 64];
u64 vcpu_in_use[OVB_MAX_ALL_VCPUS / 64];
/* When a table was last found full. */
u64 full_at;

/* Counters of a VM by its place plus one; NULL for none. */
static struct ovb_vm_stats *vm_stats(u32 vm)
{
	u32 place = vm - 1;

	return bpf_map_lookup_elem(&vm_counts, &place);
}

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

/* The 64 vCPUs that one belongs to. */
static struct ovb_siblings *siblings_of(struct vm_ctx *vmc, u32 id)
{
	return &vmc->known[bounded(id / 64, MASK_WORDS)];
}

/* Sets or clears a vCPU's bit; a line that CPUs share is written only if that changes anything. */
static void mark(u64 *bits, u32 id, bool set)
{
	u64 bit = 1ull << (id & 63);

	if (!(*bits & bit) == !set)
		return;
	if (set)
		__sync_fetch_and_or(bits, bit);
	else
		__sync_fetch_and_and(bits, ~bit);
}

/* Note that a VM is not calm. */
static void stir(struct vm_ctx *vmc, u64 now)
{
	if ((s64)(now - vmc->stirred_at) > (s64)slice_ns)
		vmc->stirred_at = now;
}

/* A vCPU is about to be queued. */
__noinline int vcpu_queued(struct task_ctx *taskc __arg_nonnull)
{
	struct vm_ctx *vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	struct ovb_siblings *known;

	if (!vmc)
		return 0;
	known = siblings_of(vmc, taskc->vcpu - 1);
	mark(taskc->spun_at ? &known->waiting : &known->at_work, taskc->vcpu - 1, true);
	return 0;
}

/* A vCPU runs, or sleeps. */
__noinline int vcpu_left_queue(struct task_ctx *taskc __arg_nonnull, u32 runs)
{
	struct vm_ctx *vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	u32 id = taskc->vcpu - 1;
	struct ovb_siblings *known;

	if (!vmc)
		return 0;
	known = siblings_of(vmc, id);
	mark(&known->waiting, id, false);
	mark(&known->at_work, id, false);
	if (!runs)
		return 0;
	mark(&known->interrupted, id, false);
	mark(&known->answered, id, false);
	return 0;
}

#endif
