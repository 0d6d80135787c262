/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vCPUs as KVM keeps them. What the scheduler reads of one has the layout of its own declarations,
 * so glue.c has that.
 */
#ifndef TUNNEL_KVM_H
#define TUNNEL_KVM_H

#include "model.h"

struct tun_vm {
	u32 nr;
	u32 last_boosted;
	struct tun_vcpu **vcpus;
};

struct tun_vcpu {
	struct tun_vm *vm;
	u32 index;
	struct tun_task *task;
	/* As the scheduler sees it. */
	void *seen;
	u32 *apic;
	bool ready, blocking, in_spin_loop, eligible;
	/* In the guest: ring 0. */
	bool in_kernel;
	bool preempted, preempted_in_kernel;
};

/* glue.c */
void *glue_new_vcpu(struct task_struct *p, void *kvm, u32 id, u32 **apic);
void glue_load_vcpu(struct task_struct *p, void *seen);
void *glue_apic(void *seen);
u32 glue_marks(struct task_struct *p);
/* Programs, NULL where there is none. */
void *glue_program(const char *name);

/* Runs a program on a tracepoint or function, if the scheduler has it; its answer. */
int trace(const char *name, u64 a, u64 b, u64 c, u64 d);

#endif
