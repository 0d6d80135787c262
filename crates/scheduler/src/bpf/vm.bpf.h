/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * VMs and their vCPUs: how they are found, which tenant they are, and what is known of each vCPU.
 *
 * A thread is known as a vCPU by the preempt notifier that KVM hangs on it (kvm.bpf.h), so VMs that
 * ran before the scheduler was loaded are found like new ones: at a tick, when they leave
 * their CPU, when they spin, or when they send an IPI.
 *
 * The tenant is the group that holds the VM and no other, with all that is in it; where VMs share a
 * group, the VM is a node of its own below that group, with the weights of all its vCPUs, whether
 * they want to run or not.
 */
#ifndef OVERBOOK_VM_BPF_H
#define OVERBOOK_VM_BPF_H

#include "kvm.bpf.h"
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

/* The least group that holds two; 0: the root. */
static u32 common_group(u32 a, u32 b)
{
	u32 depth;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node;

		if (is_within(b, a))
			return a;
		node = node_at(a);
		if (!node)
			break;
		a = node->parent;
	}
	return 0;
}

/* Tenants of VMs are found on one CPU at a time; who comes meanwhile comes again. */
u32 settling;

/* Gives a VM that shares its group a node of its own. */
__noinline int stand_alone(u32 vm)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct node_ctx *node;
	u32 place;

	if (!vmc || vmc->own_node)
		return 0;
	node = node_at(vmc->node);
	if (node && node->vm == vm)
		node->vm = 0;
	place = vmc->spare ? vmc->spare : new_node(vmc->group, OVB_WEIGHT_NICE_0);
	vmc->spare = place;
	vmc->node = place;
	vmc->own_node = 1;
	node = node_at(place);
	if (node) {
		node->vm = vm;
		node->parent = vmc->group;
		/* After own_node: a vCPU that is weighed meanwhile sees that. */
		if (vmc->weight)
			node->weight = vmc->weight;
	}
	__sync_fetch_and_add(&generation, 1);
	return 0;
}

/* Whether a VM shares a group with others, whose groups are this one or below. VMs that have this
 * one, or one above it, to themselves have so no more. */
__noinline u32 is_shared(u32 vm, u32 group)
{
	u32 place, shared = 0;

	bpf_for (place, 0, vms_used) {
		struct vm_ctx *other = place + 1 == vm ? NULL : vm_ctx(place + 1);

		if (!other || !other->at.alive || !other->settled)
			continue;
		if (!other->own_node && is_within(group, other->group))
			stand_alone(place + 1);
		if (!shared && is_within(other->group, group))
			shared = 1;
	}
	return shared;
}

/* Finds the tenant of a VM, one of whose threads is in a group. */
__noinline int settle_group(u32 vm, u32 group)
{
	struct vm_ctx *vmc = vm_ctx(vm);
	struct node_ctx *node, *before;
	bool alone;

	if (!vmc)
		return 0;
	if (vmc->settled && is_within(group, vmc->group))
		return 0;
	if (vmc->settled)
		group = common_group(vmc->group, group);
	vmc->group = group;
	vmc->settled = 1;
	node = node_at(group);
	/* In the root each stands alone. */
	alone = !node || is_shared(vm, group);
	if (alone && vmc->own_node) {
		move_node(vmc->node, group);
		__sync_fetch_and_add(&generation, 1);
		return 0;
	}
	before = vmc->own_node ? NULL : node_at(vmc->node);
	if (before && before->vm == vm)
		before->vm = 0;
	if (alone) {
		stand_alone(vm);
		recount_above(vmc->node);
		return 0;
	}
	node->vm = vm;
	vmc->node = group;
	vmc->own_node = 0;
	/* What its parts have run as tenants is settled with them. */
	node->time.vtime = tide;
	node->time.deadline = tide;
	node->fresh = true;
	__sync_fetch_and_add(&generation, 1);
	return 0;
}

/* The tenant of a VM is to be found anew, as part of it is in another group. */
static void forget_tenant(struct vm_ctx *vmc)
{
	vmc->settled = 0;
	__sync_fetch_and_add(&vmc->moves, 1);
	__sync_fetch_and_add(&generation, 1);
}

/* The tenants of a process's VMs are to be found anew. */
__noinline int forget_tenants(u32 pid)
{
	u32 place;

	bpf_for (place, 0, vms_used) {
		struct vm_ctx *vmc = vm_ctx(place + 1);

		if (vmc && vmc->at.alive && vmc->at.pid == pid)
			forget_tenant(vmc);
	}
	return 0;
}

/* Place of the group of a process, as it was when its leader last woke up. */
static u32 group_of_process(u32 pid, u32 otherwise)
{
	struct task_struct *leader = bpf_task_from_pid(pid);
	struct task_ctx *leaderc;

	if (!leader)
		return otherwise;
	leaderc = task_ctx(leader);
	if (leaderc && leaderc->weight)
		otherwise = leaderc->node;
	bpf_task_release(leader);
	return otherwise;
}

/* Finds the tenant of a VM, by the group of one of its vCPUs; false if another CPU is at it. */
static bool find_group(u32 vm, struct vm_ctx *vmc, u32 group)
{
	if (__sync_lock_test_and_set(&settling, 1))
		return false;
	if (!vmc->settled)
		settle_group(vm, group_of_process(vmc->at.pid, group));
	settle_group(vm, group);
	__sync_lock_test_and_set(&settling, 0);
	return true;
}

/* What a vCPU adds to the weight of its VM: that of its group below the VM's, or its own. */
static u32 weight_in_vm(const struct task_ctx *taskc, const struct vm_ctx *vmc)
{
	u32 depth, place = taskc->node;

	bpf_for (depth, 0, MAX_DEPTH) {
		struct node_ctx *node = place == vmc->group ? NULL : node_at(place);

		if (!node)
			break;
		if (node->parent == vmc->group)
			return node->weight;
		place = node->parent;
	}
	return taskc->weight;
}

/* Another weight of a vCPU, 0 if it is gone. */
static void weigh_vcpu(struct vm_ctx *vmc, struct vcpu_ctx *vcpuc, u32 weight)
{
	struct node_ctx *node;

	__sync_fetch_and_add(&vmc->weight, weight - vcpuc->weight);
	vcpuc->weight = weight;
	node = vmc->own_node ? node_at(vmc->node) : NULL;
	if (node && vmc->weight) {
		node->weight = vmc->weight;
		recount_above(vmc->node);
		reweigh(vmc->node);
	}
}

/* Finds out which tenant pays for a task, if that may have changed. */
__noinline int find_tenant(struct task_ctx *taskc __arg_nonnull)
{
	u32 tenant, place = taskc->node;
	struct vm_ctx *vmc;

	if (taskc->generation == generation)
		return 0;
	taskc->generation = generation;
	vmc = taskc->vcpu ? vm_ctx(taskc->vm) : NULL;
	if (vmc) {
		struct vcpu_ctx *vcpuc = own_vcpu_ctx(taskc);
		u32 weight;

		if (taskc->moves != vmc->moves) {
			u32 moves = vmc->moves;

			if (find_group(taskc->vm, vmc, place))
				taskc->moves = moves;
			else
				taskc->generation = 0;
		}
		weight = weight_in_vm(taskc, vmc);
		if (vcpuc && vcpuc->weight != weight)
			weigh_vcpu(vmc, vcpuc, weight);
		tenant = vmc->node;
		if (vmc->own_node)
			place = tenant;
	} else {
		tenant = tenant_of_group(place);
	}
	if (tenant != taskc->tenant) {
		taskc->tenant = tenant;
		taskc->fresh = true;
	}
	if (taskc->counted)
		count_in(taskc, place, taskc->weight);
	return 0;
}

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

/* Place of a VM plus one, with one vCPU too many; 0 if the table is full. */
static u32 find_vm(u64 kvm, u32 pid)
{
	u32 vm = known_vm(kvm, pid), place;

	if (vm)
		return vm;
	vm = take_vm(kvm, pid);
	if (!vm)
		return 0;
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
	if (!vmc) {
		full_at = now;
		goto done;
	}
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

/* The VM of a thread, NULL if it is no vCPU. */
static struct vm_ctx *enlist(struct task_struct *p, const struct task_ctx *taskc)
{
	if (!taskc->vm && vcpu_of(p))
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
	if (vcpuc && vcpuc->stats.pid == p->pid) {
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
