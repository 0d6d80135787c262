/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the VMM and the micro-guest share: the layout of guest memory, the parameters that the VMM
 * writes before the first instruction, and the counters that the guest writes while it runs.
 *
 * Counters have one writer (their vCPU) and are read from outside while the guest runs, so a reader
 * sees every word whole but not all words of one instant.
 */
#ifndef OVERBOOK_GUEST_ABI_H
#define OVERBOOK_GUEST_ABI_H

typedef unsigned int ob_u32;
typedef unsigned long long ob_u64;

#define OB_MAX_VCPUS 256

/* Guest-physical layout. Everything is identity-mapped by 2 MiB pages that ring 3 may use too. */
#define OB_PML4	     0x2000
#define OB_PDPT	     0x3000
#define OB_PD	     0x4000
#define OB_GDT	     0x5000
#define OB_IDT	     0x6000
#define OB_PARAMS    0x8000
#define OB_IMAGE     0x100000
#define OB_SHARED    0x200000
#define OB_AREAS     0x400000
#define OB_AREA_SIZE 0x8000
/* Offsets within a vCPU's area. */
#define OB_AREA_STEAL		 0x2000
#define OB_AREA_TSS		 0x2100
#define OB_AREA_USER_STACK_TOP	 0x5000
#define OB_AREA_KERNEL_STACK_TOP 0x8000

#define OB_SELECTOR_CODE      0x08
#define OB_SELECTOR_DATA      0x10
#define OB_SELECTOR_USER_DATA 0x1b
#define OB_SELECTOR_USER_CODE 0x23
#define OB_SELECTOR_TSS	      0x28

/* A write to this port ends the guest: a fault if ob_vcpu.fault_vector says so. */
#define OB_PORT_FAULT 0xf4

enum ob_pattern {
	OB_LOCK = 1,
	OB_IPI = 2,
	OB_BARRIER = 3,
	OB_COMPUTE = 4,
	OB_HOSTILE = 5,
};

enum ob_lock_kind {
	OB_LOCK_TAS = 0,
	OB_LOCK_TICKET = 1,
};

/* What a receiver does between interrupts. */
enum ob_receiver {
	/* No vCPU only receives: all of them send, and all answer. */
	OB_RECEIVER_PEER = 0,
	/* Odd vCPUs compute in ring 0. */
	OB_RECEIVER_KERNEL = 1,
	/* Odd vCPUs compute in ring 3. */
	OB_RECEIVER_USER = 2,
	/* Odd vCPUs halt. */
	OB_RECEIVER_HALT = 3,
};

/* Bits of ob_params.storms; a hostile vCPU takes those that are set in turn. */
#define OB_STORM_PAUSE 1
#define OB_STORM_IPI   2
#define OB_STORM_HLT   4

/* 16 buckets per octave: a bucket is at most 1/16 wider than its lower bound. */
#define OB_HIST_SUB	16
#define OB_HIST_BUCKETS 720

struct ob_params {
	ob_u32 vcpus;
	ob_u32 pattern;
	/* One turn is one decrement and one taken branch. */
	ob_u64 critical_turns;
	ob_u64 outside_turns;
	ob_u32 lock_kind;
	ob_u32 receiver;
	/* Receivers of one request, 0 = all others. */
	ob_u32 targets;
	ob_u32 storms;
	/* Outside work varies by ± this many per cent, uniformly. */
	ob_u32 jitter_percent;
	/* Halt between two pieces of computation, in ns; 0: none. Varies as outside work does. */
	ob_u32 halt_ns;
	ob_u64 seed;
	/* Ticks of the TSC per ms; 0 if KVM does not tell. Written by the VMM, all else by who made
	 * the memory. */
	ob_u32 tsc_khz;
	ob_u32 reserved;
};

struct ob_shared {
	ob_u32 online __attribute__((aligned(64)));
	/* Test-and-set word, or the ticket lock's head and tail. */
	ob_u32 lock __attribute__((aligned(64)));
	ob_u32 ticket_head;
	ob_u32 ticket_tail __attribute__((aligned(64)));
	ob_u32 barrier_count __attribute__((aligned(64)));
	ob_u32 barrier_phase __attribute__((aligned(64)));
};

struct ob_vcpu {
	/* Written by this vCPU only. */
	ob_u64 work;
	ob_u64 spins;
	/* Computation of vCPUs whose work is counted elsewhere (receivers), in turns. */
	ob_u64 aside;
	ob_u64 waits;
	/* Sum of all waits, in TSC ticks. */
	ob_u64 waited;
	ob_u64 interrupts;
	ob_u64 rng;
	ob_u64 fault_vector;
	ob_u64 fault_error;
	ob_u64 fault_rip;
	ob_u64 fault_cr2;
	/* Written by siblings: who asks this vCPU to answer, a bit per sender. */
	ob_u64 inbox[OB_MAX_VCPUS / 64] __attribute__((aligned(64)));
	/* Written by siblings: receivers of this vCPU's request that have yet to answer. */
	ob_u32 pending __attribute__((aligned(64)));
	ob_u32 index;
	/* Wait times in TSC ticks. */
	ob_u64 hist[OB_HIST_BUCKETS] __attribute__((aligned(64)));
};

_Static_assert(sizeof(struct ob_vcpu) <= OB_AREA_STEAL, "counters run into the steal page");

#endif
