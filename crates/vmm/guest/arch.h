/* SPDX-License-Identifier: GPL-2.0-only */
/* x86-64 instructions and the x2APIC registers that the guest uses. */
#ifndef OVERBOOK_GUEST_ARCH_H
#define OVERBOOK_GUEST_ARCH_H

#include "abi.h"

#define MSR_APIC_BASE		 0x1b
#define APIC_BASE_X2APIC_ENABLED 0xc00
#define MSR_X2APIC_EOI		 0x80b
#define MSR_X2APIC_SVR		 0x80f
#define MSR_X2APIC_ICR		 0x830
#define MSR_X2APIC_LVT_TIMER	 0x832
#define MSR_X2APIC_TIMER_COUNT	 0x838
#define MSR_X2APIC_TIMER_DIVIDE	 0x83e
#define TIMER_DIVIDE_BY_1	 0xb
#define MSR_X2APIC_SELF_IPI	 0x83f
#define MSR_KVM_STEAL_TIME	 0x4b564d03

static inline void wrmsr(ob_u32 msr, ob_u64 value)
{
	asm volatile("wrmsr" ::"c"(msr), "a"((ob_u32)value), "d"((ob_u32)(value >> 32)) : "memory");
}

static inline ob_u64 rdmsr(ob_u32 msr)
{
	ob_u32 lo, hi;

	asm volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
	return (ob_u64)hi << 32 | lo;
}

static inline ob_u64 rdtsc(void)
{
	ob_u32 lo, hi;

	asm volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (ob_u64)hi << 32 | lo;
}

static inline void cpu_pause(void)
{
	asm volatile("pause" ::: "memory");
}

static inline void irq_enable(void)
{
	asm volatile("sti" ::: "memory");
}

static inline void irq_disable(void)
{
	asm volatile("cli" ::: "memory");
}

/* STI takes effect after the next instruction, so no interrupt is lost between the two. */
static inline void enable_and_halt(void)
{
	asm volatile("sti; hlt" ::: "memory");
}

static inline void out_fault(void)
{
	asm volatile("outb %0, %1" ::"a"((unsigned char)0), "Nd"((unsigned short)OB_PORT_FAULT));
}

/* The unit of computation: the same instructions everywhere, none that the compiler removes. */
static inline void turns(ob_u64 n)
{
	if (n)
		asm volatile("1: decq %0; jnz 1b" : "+r"(n)::"cc");
}

static inline void send_ipi(ob_u32 apic_id, ob_u32 vector)
{
	/* x2APIC: fixed delivery, physical destination, edge. */
	wrmsr(MSR_X2APIC_ICR, (ob_u64)apic_id << 32 | 1u << 14 | vector);
}

#endif
