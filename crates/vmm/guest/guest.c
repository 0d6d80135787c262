// SPDX-License-Identifier: GPL-2.0-only
/*
 * The micro-guest: every vCPU runs one synchronization pattern for ever and counts.
 *
 * There is no operating system here, so whatever a vCPU waits for is exactly what the pattern says:
 * a lock's holder, the handler of an interrupt, the last vCPU of a phase. All waits go through
 * wait_until(), which spins with PAUSE as Linux does, and are recorded in a histogram.
 */
#include "arch.h"

#define VECTOR_REQUEST 0xf0
#define VECTOR_STORM   0xf1
#define VECTOR_TIMER   0xf2
/* Iterations of one storm before a hostile vCPU takes the next. */
#define STORM_LENGTH 64
/* Turns between two updates of a counter in endless computation. */
#define COMPUTE_CHUNK 5000

static struct ob_params *const params = (struct ob_params *)OB_PARAMS;
static struct ob_shared *const shared = (struct ob_shared *)OB_SHARED;

struct frame {
	ob_u64 vector, error, rip, cs, rflags, rsp, ss;
};

static struct ob_vcpu *area(ob_u32 index)
{
	return (struct ob_vcpu *)(OB_AREAS + (ob_u64)index * OB_AREA_SIZE);
}

/* The VMM points GS at the vCPU's area. */
static struct ob_vcpu *self(void)
{
	ob_u32 index;

	asm volatile("movl %%gs:%c1, %0"
		     : "=r"(index)
		     : "i"(__builtin_offsetof(struct ob_vcpu, index)));
	return area(index);
}

static void count(ob_u64 *counter, ob_u64 n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* xorshift64*: reproducible from the seed, and good enough to decorrelate vCPUs. */
static ob_u64 random(struct ob_vcpu *me)
{
	ob_u64 x = me->rng;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	me->rng = x;
	return x * 0x2545f4914f6cdd1dull;
}

static ob_u32 random_below(struct ob_vcpu *me, ob_u32 n)
{
	return (ob_u32)(((random(me) >> 32) * n) >> 32);
}

static void record_wait(struct ob_vcpu *me, ob_u64 ticks)
{
	ob_u32 bucket;

	if (ticks < OB_HIST_SUB) {
		bucket = (ob_u32)ticks;
	} else {
		ob_u32 octave = 63 - (ob_u32)__builtin_clzll(ticks);

		bucket = (octave - 3) * OB_HIST_SUB + (ob_u32)((ticks >> (octave - 4)) & 15);
		if (bucket >= OB_HIST_BUCKETS)
			bucket = OB_HIST_BUCKETS - 1;
	}
	count(&me->hist[bucket], 1);
	count(&me->waits, 1);
	count(&me->waited, ticks);
}

/* Spins until `cond` holds. A macro, since the condition is evaluated in the loop. */
#define wait_until(me, cond)                    \
	do {                                    \
		while (!(cond)) {               \
			count(&(me)->spins, 1); \
			cpu_pause();            \
		}                               \
	} while (0)

static ob_u64 varied(struct ob_vcpu *me, ob_u64 n)
{
	ob_u64 spread = n * params->jitter_percent / 100;

	if (spread && spread < 0x7fffffff)
		n += random_below(me, (ob_u32)(2 * spread)) - spread;
	return n;
}

static void outside(struct ob_vcpu *me)
{
	turns(varied(me, params->outside_turns));
}

/* Until the timer of this vCPU's LAPIC, which KVM has count nanoseconds. By how much too late it
 * wakes up is a wait. */
static void halt(struct ob_vcpu *me)
{
	/* A count of 0 would stop the timer, and nobody else wakes this vCPU. */
	ob_u64 ns = varied(me, params->halt_ns) + 1, start = rdtsc(), slept;
	ob_u64 wanted = ns * params->tsc_khz / 1000000;

	irq_disable();
	wrmsr(MSR_X2APIC_TIMER_COUNT, ns);
	enable_and_halt();
	slept = rdtsc() - start;
	record_wait(me, slept > wanted ? slept - wanted : 0);
}

static void lock_acquire(struct ob_vcpu *me)
{
	if (params->lock_kind == OB_LOCK_TICKET) {
		ob_u32 mine = __atomic_fetch_add(&shared->ticket_tail, 1, __ATOMIC_RELAXED);

		wait_until(me, __atomic_load_n(&shared->ticket_head, __ATOMIC_ACQUIRE) == mine);
		return;
	}
	wait_until(me, !__atomic_load_n(&shared->lock, __ATOMIC_RELAXED) &&
			       !__atomic_exchange_n(&shared->lock, 1, __ATOMIC_ACQUIRE));
}

static void lock_release(void)
{
	if (params->lock_kind == OB_LOCK_TICKET)
		__atomic_store_n(&shared->ticket_head, shared->ticket_head + 1, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&shared->lock, 0, __ATOMIC_RELEASE);
}

static void run_lock(struct ob_vcpu *me)
{
	for (;;) {
		ob_u64 start;

		outside(me);
		start = rdtsc();
		lock_acquire(me);
		record_wait(me, rdtsc() - start);
		turns(params->critical_turns);
		lock_release();
		count(&me->work, 1);
	}
}

static void request(struct ob_vcpu *me, ob_u32 target)
{
	__atomic_fetch_or(&area(target)->inbox[me->index / 64], 1ull << (me->index % 64),
			  __ATOMIC_RELEASE);
	send_ipi(target, VECTOR_REQUEST);
}

/* Asks `n` siblings (from a random one on) to run the handler, and waits for all of them. */
static void request_many(struct ob_vcpu *me, ob_u32 n)
{
	ob_u32 others = params->vcpus - 1, first = random_below(me, others);

	__atomic_store_n(&me->pending, n, __ATOMIC_RELAXED);
	for (ob_u32 i = 0; i < n; i++)
		request(me, (me->index + 1 + (first + i) % others) % params->vcpus);
}

static void user_compute(struct ob_vcpu *me)
{
	for (;;) {
		turns(COMPUTE_CHUNK);
		count(&me->aside, COMPUTE_CHUNK);
	}
}

extern void enter_user(ob_u64 rip, ob_u64 rsp, ob_u64 arg);

static void run_receiver(struct ob_vcpu *me)
{
	switch (params->receiver) {
	case OB_RECEIVER_USER:
		enter_user((ob_u64)user_compute, (ob_u64)me + OB_AREA_USER_STACK_TOP - 8,
			   (ob_u64)me);
		break;
	case OB_RECEIVER_HALT:
		for (;;)
			enable_and_halt();
	default:
		user_compute(me);
	}
}

static void run_ipi(struct ob_vcpu *me)
{
	bool pairs = params->receiver != OB_RECEIVER_PEER;
	ob_u32 n = params->targets;

	if (pairs && me->index % 2)
		run_receiver(me);
	if (!n || n > params->vcpus - 1)
		n = params->vcpus - 1;
	for (;;) {
		ob_u64 start;

		outside(me);
		start = rdtsc();
		if (pairs) {
			__atomic_store_n(&me->pending, 1, __ATOMIC_RELAXED);
			request(me, me->index + 1);
		} else {
			request_many(me, n);
		}
		wait_until(me, !__atomic_load_n(&me->pending, __ATOMIC_ACQUIRE));
		record_wait(me, rdtsc() - start);
		count(&me->work, 1);
	}
}

/* Work is counted by the last to arrive, so that the sum over the vCPUs is the number of phases. */
static void run_barrier(struct ob_vcpu *me)
{
	for (;;) {
		ob_u32 phase = __atomic_load_n(&shared->barrier_phase, __ATOMIC_ACQUIRE);
		ob_u64 start;

		outside(me);
		start = rdtsc();
		if (__atomic_add_fetch(&shared->barrier_count, 1, __ATOMIC_ACQ_REL) ==
		    params->vcpus) {
			__atomic_store_n(&shared->barrier_count, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&shared->barrier_phase, phase + 1, __ATOMIC_RELEASE);
			count(&me->work, 1);
		} else {
			wait_until(me, __atomic_load_n(&shared->barrier_phase, __ATOMIC_ACQUIRE) !=
					       phase);
		}
		record_wait(me, rdtsc() - start);
	}
}

static void run_compute(struct ob_vcpu *me)
{
	if (params->halt_ns) {
		wrmsr(MSR_X2APIC_TIMER_DIVIDE, TIMER_DIVIDE_BY_1);
		/* One shot. */
		wrmsr(MSR_X2APIC_LVT_TIMER, VECTOR_TIMER);
	}
	for (;;) {
		if (params->halt_ns) {
			outside(me);
			halt(me);
		} else {
			turns(params->outside_turns ? params->outside_turns : COMPUTE_CHUNK);
		}
		count(&me->work, 1);
	}
}

static void storm(struct ob_vcpu *me, ob_u32 kind)
{
	for (ob_u32 i = 0; i < STORM_LENGTH; i++) {
		switch (kind) {
		case OB_STORM_PAUSE:
			cpu_pause();
			break;
		case OB_STORM_IPI:
			send_ipi((me->index + 1 + i) % params->vcpus, VECTOR_STORM);
			break;
		case OB_STORM_HLT:
			/* The self-IPI stays pending until STI, so that the HLT always ends. */
			irq_disable();
			wrmsr(MSR_X2APIC_SELF_IPI, VECTOR_STORM);
			enable_and_halt();
			break;
		}
		count(&me->work, 1);
	}
}

static void run_hostile(struct ob_vcpu *me)
{
	for (;;) {
		for (ob_u32 kind = 1; kind <= OB_STORM_HLT; kind <<= 1)
			if (params->storms & kind)
				storm(me, kind);
		outside(me);
	}
}

/* Answers everybody who asked. Runs with interrupts off. */
static void answer_requests(struct ob_vcpu *me)
{
	for (ob_u32 word = 0; word < OB_MAX_VCPUS / 64; word++) {
		ob_u64 bits;

		if (!__atomic_load_n(&me->inbox[word], __ATOMIC_RELAXED))
			continue;
		bits = __atomic_exchange_n(&me->inbox[word], 0, __ATOMIC_ACQ_REL);
		turns(params->critical_turns);
		for (; bits; bits &= bits - 1) {
			ob_u32 sender = word * 64 + (ob_u32)__builtin_ctzll(bits);

			__atomic_fetch_sub(&area(sender)->pending, 1, __ATOMIC_RELEASE);
		}
	}
}

void guest_interrupt(struct frame *frame);
void guest_interrupt(struct frame *frame)
{
	struct ob_vcpu *me = self();

	if (frame->vector < 32) {
		me->fault_vector = frame->vector | 1ull << 32;
		me->fault_error = frame->error;
		me->fault_rip = frame->rip;
		asm volatile("movq %%cr2, %0" : "=r"(me->fault_cr2));
		out_fault();
	}
	count(&me->interrupts, 1);
	if (frame->vector == VECTOR_REQUEST)
		answer_requests(me);
	wrmsr(MSR_X2APIC_EOI, 0);
}

void guest_main(ob_u32 index);
void guest_main(ob_u32 index)
{
	struct ob_vcpu *me = area(index);

	wrmsr(MSR_APIC_BASE, rdmsr(MSR_APIC_BASE) | APIC_BASE_X2APIC_ENABLED);
	wrmsr(MSR_X2APIC_SVR, 0x1ff);
	wrmsr(MSR_KVM_STEAL_TIME, ((ob_u64)me + OB_AREA_STEAL) | 1);
	irq_enable();

	/* An IPI to a vCPU whose LAPIC is still off is lost, and its sender would spin for ever. */
	__atomic_fetch_add(&shared->online, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&shared->online, __ATOMIC_ACQUIRE) < params->vcpus)
		cpu_pause();

	switch (params->pattern) {
	case OB_LOCK:
		run_lock(me);
		break;
	case OB_IPI:
		run_ipi(me);
		break;
	case OB_BARRIER:
		run_barrier(me);
		break;
	case OB_COMPUTE:
		run_compute(me);
		break;
	case OB_HOSTILE:
		run_hostile(me);
		break;
	}
	me->fault_vector = 2ull << 32;
	out_fault();
}
