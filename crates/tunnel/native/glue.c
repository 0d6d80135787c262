/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's own sources, and what must be compiled with them: what they declare for
 * themselves of KVM, and their state, which tests look at.
 */
#include <scx/common.bpf.h>
#include "main.bpf.c"

void *glue_new_vcpu(struct task_struct *p, void *kvm, u32 id, u32 **apic);
void glue_load_vcpu(struct task_struct *p, void *seen);
void *glue_apic(void *seen);
void *glue_program(const char *name);
struct sched_ext_ops *tun_ops(void);
bool tun_uses_cpu_release(void);
u32 glue_marks(struct task_struct *p);
const char *glue_mask(const void *at);

void *heap_new(unsigned long size);
int strcmp(const char *a, const char *b);

/* A vCPU of a VM that a thread runs; or, without one, that nobody runs. */
void *glue_new_vcpu(struct task_struct *p, void *kvm, u32 id, u32 **apic)
{
	struct kvm_vcpu___ovb *vcpu = heap_new(4096);
	struct kvm_lapic___ovb *lapic = heap_new(sizeof(*lapic));

	lapic->regs = heap_new(1024);
	vcpu->arch.apic = lapic;
	vcpu->vcpu_id = id;
	vcpu->kvm = kvm;
	vcpu->wants_to_run = p;
	if (p)
		glue_load_vcpu(p, vcpu);
	*apic = lapic->regs;
	return vcpu;
}

/* Hangs a vCPU's notifier on a thread, or none. */
void glue_load_vcpu(struct task_struct *p, void *seen)
{
	struct kvm_vcpu___ovb *vcpu = seen;

	((struct task_struct___ovb *)p)->preempt_notifiers.first =
		vcpu ? &vcpu->preempt_notifier.link : (void *)0;
}

void *glue_apic(void *seen)
{
	return ((struct kvm_vcpu___ovb *)seen)->arch.apic;
}

struct sched_ext_ops *tun_ops(void)
{
	/* As the loader has it. */
	if (tun_uses_cpu_release())
		overbook_ops.cpu_release = (void *)overbook_cpu_release;
	return &overbook_ops;
}

bool tun_uses_cpu_release(void)
{
	return LINUX_KERNEL_VERSION < KERNEL_VERSION(6, 19, 0);
}

#define PROGRAM(program)             \
	if (!strcmp(name, #program)) \
		return (void *)program;

/* Programs on tracepoints and on kvm's functions, as the loader attaches them by default. */
void *glue_program(const char *name)
{
	PROGRAM(irq_accepted)
	PROGRAM(irq_ended)
	PROGRAM(spin_begins)
	PROGRAM(spin_ends)
	PROGRAM(cpu_taken)
	PROGRAM(group_idle)
	PROGRAM(group_shares)
	PROGRAM(overbook_prefer)
	PROGRAM(overbook_timers)
	return (void *)0;
}

/* What the scheduler has booked as run by the VM of a process, in all its entries, ns. */
u64 tun_booked(u32 tgid, u32 *entries)
{
	u64 sum = 0;
	u32 place, vcpu;

	*entries = 0;
	for (place = 0; place < OVB_MAX_VMS && place < vms_used; place++) {
		struct vm_ctx *vmc = bpf_map_lookup_elem(&vms, &place);

		if (!vmc || vmc->at.pid != tgid)
			continue;
		*entries += 1;
		for (vcpu = 1; vcpu <= vcpus_used && vcpu <= OVB_MAX_ALL_VCPUS; vcpu++)
			if (vcpu_at(vcpu)->stats.vm == place + 1)
				sum += vcpu_at(vcpu)->stats.run_ns;
	}
	return sum;
}

/* The VM at a place, as the loader reads it: its process, 0 if it does not live; its vCPUs; and ns
 * that they have run and waited, and the LLCs that they may use. */
u32 tun_vm_at(u32 place, u32 *alive, u64 *wanted_ns, u64 *llcs)
{
	struct vm_ctx *vmc = place < vms_used ? bpf_map_lookup_elem(&vms, &place) : (void *)0;
	u32 vcpu;

	*wanted_ns = 0;
	*llcs = 0;
	*alive = vmc ? vmc->at.alive : 0;
	for (vcpu = 1; *alive && vcpu <= vcpus_used && vcpu <= OVB_MAX_ALL_VCPUS; vcpu++) {
		const struct ovb_vcpu_stats *stats = &vcpu_at(vcpu)->stats;

		if (stats->vm != place + 1 || !stats->alive)
			continue;
		*wanted_ns += stats->run_ns + stats->queued_ns;
		*llcs |= stats->llcs;
	}
	return *alive ? vmc->at.pid : 0;
}

#define WORD(word, counter)      \
	if (!strcmp(name, word)) \
		return __builtin_offsetof(struct ovb_vm_stats, counter) / sizeof(u64);

/* Which of all words of struct ovb_vm_stats a counter is; one past them if there is none of the
 * name. */
static u32 vm_word(const char *name)
{
	WORD("asked", asked)
	WORD("answered picked", picked[OVB_TIER_ANSWERED])
	WORD("spared", spared)
	WORD("gave up", gave_up)
	WORD("ipis", ipis)
	return sizeof(struct ovb_vm_stats) / sizeof(u64);
}

/* A counter of the VM of a process, by its name above; ~0 if there is none of the name. */
u64 tun_vm_counter(u32 tgid, const char *name)
{
	u32 place, cpu, word = vm_word(name);
	u64 sum = 0;

	if (word == sizeof(struct ovb_vm_stats) / sizeof(u64))
		return ~0ull;
	for (place = 0; place < OVB_MAX_VMS && place < vms_used; place++) {
		struct vm_ctx *vmc = bpf_map_lookup_elem(&vms, &place);

		if (!vmc || vmc->at.pid != tgid)
			continue;
		for (cpu = 0; cpu < nr_cpus; cpu++)
			sum += ((u64 *)bpf_map_lookup_percpu_elem(&vm_counts, &place, cpu))[word];
	}
	return sum;
}

/* How often a running task was sent to another CPU (spread.bpf.h). */
u64 tun_spread(void)
{
	u64 sum = 0;
	u32 cpu;

	for (cpu = 0; cpu < nr_cpus; cpu++)
		sum += cpu_ctx_of((s32)cpu)->counts[OVB_COUNT_SPREAD];
	return sum;
}

/* How often a vCPU of the VM of a process was run after a directed yield. */
u64 tun_boosts(u32 tgid, u32 id)
{
	u32 place;

	for (place = 0; place < OVB_MAX_VMS && place < vms_used; place++) {
		struct vm_ctx *vmc = bpf_map_lookup_elem(&vms, &place);
		struct vcpu_ctx *vcpuc = vmc && vmc->at.pid == tgid ? vcpu_ctx(vmc, id) : 0;

		if (vcpuc)
			return vcpuc->stats.boosts;
	}
	return 0;
}

/* IPIs of the last window that no end of an interrupt will answer any more: the sender waits for
 * the receiver, and the receiver does not know. */
u32 tun_lost_relations(void)
{
	u32 place, from, to, lost = 0;

	for (place = 0; place < OVB_MAX_VMS && place < vms_used; place++) {
		struct vm_ctx *vmc = bpf_map_lookup_elem(&vms, &place);

		for (from = 0; vmc && vmc->at.alive && from < OVB_MAX_VCPUS; from++) {
			struct vcpu_ctx *sender = vcpu_ctx(vmc, from);

			if (!sender || scx_bpf_now() - sender->sent.at > window_ns)
				continue;
			for (to = 0; to < OVB_MAX_VCPUS; to++)
				if (sender->sent.to[to / 32] >> (to & 31) & 1 &&
				    vcpu_ctx(vmc, to) &&
				    !(vcpu_ctx(vmc, to)->from[from / 64] >> (from & 63) & 1))
					lost++;
		}
	}
	return lost;
}

/* What the scheduler believes of a vCPU: 1 known, 2 in its VM's masks of queued ones, 4 queued, 8
 * counted as runnable; and from the 9th bit on, how many vCPUs its VM has. */
u32 glue_marks(struct task_struct *p)
{
	struct task_ctx *taskc = task_ctx(p);
	struct vm_ctx *vmc = taskc && taskc->vcpu ? vm_ctx(taskc->vm) : (void *)0;
	struct ovb_siblings *known;
	u32 marks = 1;
	u64 bit;

	if (!vmc)
		return 0;
	known = siblings_of(vmc, taskc->vcpu - 1);
	bit = 1ull << ((taskc->vcpu - 1) & 63);
	if ((known->at_work | known->waiting) & bit)
		marks |= 2;
	if (taskc->queued)
		marks |= 4;
	if (taskc->counted)
		marks |= 8;
	return marks | (vmc->at.alive & 0xfff) << 8;
}

/* The masks of CPUs, by name; NULL for anything else. */
const char *glue_mask(const void *at)
{
	if (preferred && at >= (void *)preferred && at < (void *)(preferred + 1))
		return "preferred";
	return (void *)0;
}
