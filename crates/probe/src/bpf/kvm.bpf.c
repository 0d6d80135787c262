// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts what KVM does about spinning vCPUs, per VM (thread group of the vCPU threads).
 *
 * Everything here runs on the path of a VM exit, so it counts and nothing else. Types are declared
 * by hand, as little of them as is used, and relocated by CO-RE.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define MAX_VMS	      1024
#define MAX_EXIT_ROWS 16384

typedef _Bool bool;
typedef __u32 u32;
typedef __u64 u64;

struct thread_info {
	u32 cpu;
} __attribute__((preserve_access_index));

struct task_struct {
	struct thread_info thread_info;
} __attribute__((preserve_access_index));

struct kvm_vcpu;

struct vm_counts {
	u64 on_spin;
	u64 yield_tried;
	u64 yield_ok;
	u64 yield_same_rq;
	u64 yield_other_rq;
};

struct exit_key {
	u32 tgid;
	u32 reason;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct vm_counts);
} vms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_EXIT_ROWS);
	__type(key, struct exit_key);
	__type(value, u64);
} exits SEC(".maps");

/* CPU vendor by KVM's words: 1 VMX, 2 SVM; exit reasons mean nothing without it. */
u32 isa;

static u32 current_vm(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

static struct vm_counts *counts_of(u32 tgid)
{
	static const struct vm_counts zero;
	struct vm_counts *counts = bpf_map_lookup_elem(&vms, &tgid);

	if (counts)
		return counts;
	bpf_map_update_elem(&vms, &tgid, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&vms, &tgid);
}

SEC("fentry/kvm_vcpu_on_spin")
int BPF_PROG(on_spin, struct kvm_vcpu *me)
{
	struct vm_counts *counts = counts_of(current_vm());

	if (counts)
		counts->on_spin++;
	return 0;
}

/* KVM is the only caller of yield_to(). Whether it succeeds is known when it has rescheduled. */
SEC("fentry/yield_to")
int BPF_PROG(yield_asked, struct task_struct *target)
{
	struct vm_counts *counts = counts_of(current_vm());

	if (!counts)
		return 0;
	counts->yield_tried++;
	if (target->thread_info.cpu == bpf_get_smp_processor_id())
		counts->yield_same_rq++;
	else
		counts->yield_other_rq++;
	return 0;
}

SEC("fexit/yield_to")
int BPF_PROG(yield_done, struct task_struct *target, bool preempt, int result)
{
	struct vm_counts *counts = counts_of(current_vm());

	if (counts && result > 0)
		counts->yield_ok++;
	return 0;
}

struct kvm_exit_event {
	u64 common;
	u32 exit_reason;
	u64 guest_rip;
	u32 isa;
};

SEC("tp/kvm/kvm_exit")
int vm_exit(struct kvm_exit_event *event)
{
	struct exit_key key = {.tgid = current_vm(), .reason = event->exit_reason};
	u64 *count = bpf_map_lookup_elem(&exits, &key), one = 1;

	if (count)
		(*count)++;
	else
		bpf_map_update_elem(&exits, &key, &one, BPF_NOEXIST);
	isa = event->isa;
	return 0;
}

/* Spinning of one vCPU thread; see spin_time(). */
struct spin {
	u64 spins;
	u64 spin_ns;
	u64 last;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_EXIT_ROWS);
	__type(key, u32);
	__type(value, struct spin);
} spins SEC(".maps");

/* Two spins of a thread no further apart than this are one: the hardware's window, an exit and some
 * room. A thread that was preempted in between comes later. */
u64 spin_gap_ns = 20000;

/* Loaded on demand: how long threads spin, for those who want to know what it costs a host. */
SEC("?fentry/kvm_vcpu_on_spin")
int BPF_PROG(spin_time, struct kvm_vcpu *me)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct spin *spin = bpf_map_lookup_elem(&spins, &tid), first = {};
	u64 now = bpf_ktime_get_ns();

	if (!spin) {
		first.last = now;
		first.spins = 1;
		bpf_map_update_elem(&spins, &tid, &first, BPF_ANY);
		return 0;
	}
	spin->spins++;
	if (now - spin->last < spin_gap_ns)
		spin->spin_ns += now - spin->last;
	spin->last = now;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
