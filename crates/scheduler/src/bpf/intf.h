/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF scheduler and its loader share: sizes, counters, layouts.
 */
#ifndef OVERBOOK_INTF_H
#define OVERBOOK_INTF_H

#include "class.h"
#include "tiers.h"

/* Powers of two, as they serve as masks. */
#define OVB_MAX_CPUS 1024
#define OVB_MAX_LLCS 64
#define OVB_MAX_VMS  1024
/* So many CPUs are looked at for somebody whom a woken task may preempt: from its last one on, of
 * all; on a host that has more, of that one's LLC, or of its VM's home. */
#define OVB_VICTIMS 64
/* vCPUs of all VMs. */
#define OVB_MAX_ALL_VCPUS 8192
/* vCPUs of one VM that are told apart, by vCPU id; a power of two. Others are ordinary members. */
#define OVB_MAX_VCPUS 256
/* Groups, and VMs that share one: more than libvirt makes for as many VMs and vCPUs, one for each
 * vCPU and three for each VM. */
#define OVB_MAX_NODES 16384
/* Sets of CPUs that tasks are bound to and that have a queue; as many as a word has bits. */
#define OVB_MAX_POOLS 64
/* Classes of VMs, up to a power of two. */
#define OVB_CLASS_SLOTS 4

/* Counters of the whole host, per CPU. */
enum ovb_count {
	/* Tasks sent straight to an idle CPU. */
	OVB_COUNT_DIRECT,
	/* Tasks queued, by queue. */
	OVB_COUNT_QUEUED_LLC,
	OVB_COUNT_QUEUED_CPU,
	OVB_COUNT_QUEUED_POOL,
	OVB_COUNT_QUEUED_IDLE,
	/* Tasks parked, as their group has used its cpu.max. */
	OVB_COUNT_PARKED,
	/* Running tasks preempted by one that woke up. */
	OVB_COUNT_PREEMPT,
	/* Slices extended although others waited, as nobody had an earlier key. */
	OVB_COUNT_KEEP,
	/* Slices of vCPUs extended although others were due, as all of these could wait. */
	OVB_COUNT_OVERSTAY,
	/* Tasks pulled from another LLC's queue by a CPU that had nothing else, and as more was
	 * owed to them there. */
	OVB_COUNT_PULLED,
	OVB_COUNT_BALANCE,
	/* Running tasks sent to another CPU, as who waited could use few. */
	OVB_COUNT_SPREAD,
	/* SCHED_IDLE tasks that had waited for so long that they went before others. */
	OVB_COUNT_IDLE_OVERDUE,
	/* Tasks queued on a CPU that is not preferred, as they may run on no other. */
	OVB_COUNT_OUTSIDE,
	/* Running tasks moved off a CPU that had lost preference. */
	OVB_COUNT_PUSHED,
	/* Tasks that had waited for so long that they went before others. */
	OVB_COUNT_OVERDUE,
	/* Tasks queued before others, as they were preempted inside an RCU read section. */
	OVB_COUNT_IN_RCU,
	OVB_COUNTS,
};

/* Counters of one VM, per CPU. */
struct ovb_vm_stats {
	/* Directed yields that KVM asked for. */
	unsigned long long asked;
	/* Of these, those after which the vCPU kept its CPU: its spin was not long yet. */
	unsigned long long spared;
	/* Spins, heard or unheard, after which the CPU went on with a sibling. */
	unsigned long long delivered;
	/* vCPUs picked, by what they were worth most for; see enum ovb_tier. */
	unsigned long long picked[OVB_TIERS];
	/* Spins for which KVM found nobody to yield to. */
	unsigned long long unheard;
	/* Nobody of the VM was worth the CPU: it went to whoever was next. */
	unsigned long long gave_up;
	/* IPIs between vCPUs that were seen, and EOIs. */
	unsigned long long ipis;
	unsigned long long eois;
};

/* Whose entry it is in the table of VMs; its first words. */
struct ovb_place_of_vm {
	/* Process; 0 if the entry was never used. */
	unsigned int pid;
	/* Its vCPUs; none: the VM has ended, and whoever needs the place may have it. */
	unsigned int alive;
};

/* Counters of one vCPU, the first words of its entry in the table of vCPUs. */
struct ovb_vcpu_stats {
	unsigned long long spins;
	/* Times that a CPU went on with it after a sibling's yield. */
	unsigned long long boosts;
	/* ns that it ran, waited in queues, and lost between spins that followed at once. */
	unsigned long long run_ns;
	unsigned long long queued_ns;
	unsigned long long spin_ns;
	/* ns of the longest of these waits, since it is known. */
	unsigned long long longest_ns;
	/* LLCs that have CPUs which it may use, a bit each, when it last ran. */
	unsigned long long llcs;
	/* Thread; 0 if the entry was never used. */
	unsigned int pid;
	/* Place of its VM plus one, its id there, and whether it lives. */
	unsigned int vm;
	unsigned int id;
	unsigned int alive;
	/* Its VM's process: another VM may have that VM's place by now. */
	unsigned int process;
};

#endif
