/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yields (virt/kvm/kvm_main.c, kernel/sched/syscalls.c), and interrupts between vCPUs.
 */
#include "kvm.h"
#include "libc.h"

/* In words of 32 bits: interrupts in service and requested; eight each, four apart. */
#define ISR (0x100 / 4)
#define IRR (0x200 / 4)

struct tun_vm *tun_new_vm(u32 vcpus)
{
	struct tun_vm *vm = heap_new(sizeof(*vm));

	vm->vcpus = heap_new(vcpus * sizeof(*vm->vcpus));
	return vm;
}

/* A task becomes a vCPU (KVM_CREATE_VCPU and a first KVM_RUN). */
void tun_new_vcpu(struct tun_vm *vm, u32 id)
{
	struct tun_vcpu *vcpu = heap_new(sizeof(*vcpu));

	vcpu->vm = vm;
	vcpu->index = vm->nr;
	vcpu->task = tasks[id];
	vcpu->seen = glue_new_vcpu(&tasks[id]->t, vm, vm->nr, &vcpu->apic);
	tasks[id]->vcpu = vcpu;
	vm->vcpus[vm->nr++] = vcpu;
}

/* A thread that runs no vCPU asks or tells KVM something about one of a VM, which takes until it
 * says so (vcpu_load() and _put()). */
void tun_vcpu_ioctl(struct tun_vm *vm, u32 id, bool inside)
{
	u32 *apic;

	glue_load_vcpu(&tasks[id]->t, inside ? glue_new_vcpu(NULL, vm, 0, &apic) : NULL);
}

int trace(const char *name, u64 a, u64 b, u64 c, u64 d)
{
	void *program = glue_program(name);
	u64 args[4] = {a, b, c, d};
	struct tun_op *op = cx;
	int answer;

	if (!program)
		return 0;
	tun_count_call(name);
	cx->name = name;
	cx->may = MAY_REST;
	cx->rq = -1;
	cx->subjects[0] = cx->subjects[1] = 0;
	answer = ((int (*)(u64 *))program)(args);
	cx = op;
	if (cx->refs || cx->preempt || cx->rcu)
		fault("%s ends with %d references that it has not released", name, cx->refs);
	cx->refs = cx->preempt = cx->rcu = 0;
	cx->name = NULL;
	return answer;
}

/* A program on something that happens in the middle of an operation of this CPU's. */
static void trace_within(const char *name, u64 a, u64 b, u64 c)
{
	struct tun_op saved = *cx;

	trace(name, a, b, c, 0);
	cx->name = saved.name;
	cx->may = saved.may;
	cx->rq = saved.rq;
	cx->subjects[0] = saved.subjects[0];
	cx->subjects[1] = saved.subjects[1];
}

/* kvm_sched_out() and kvm_sched_in(). */
void vcpu_switched(struct tun_task *prev, struct tun_task *next)
{
	struct tun_vcpu *vcpu;

	if (prev && prev->vcpu) {
		vcpu = prev->vcpu;
		vcpu->preempted = vcpu->ready = prev->on_rq;
		vcpu->preempted_in_kernel = vcpu->preempted && vcpu->in_kernel;
	}
	if (next && next->vcpu) {
		vcpu = next->vcpu;
		vcpu->preempted = vcpu->ready = vcpu->blocking = false;
	}
}

/* Ring 0 or 3, and whether it waits in HLT. */
void tun_vcpu_mode(u32 id, bool in_kernel, bool halted)
{
	struct tun_vcpu *vcpu = tasks[id]->vcpu;

	vcpu->in_kernel = in_kernel;
	vcpu->blocking = halted;
}

int sched_switch_program(struct tun_task *prev, struct tun_task *next);

int sched_switch_program(struct tun_task *prev, struct tun_task *next)
{
	static struct task_struct idle = {.prio = 120};

	if (tun_uses_cpu_release() || tun_takes_back() || !next || next->class == CLASS_EXT)
		return 0;
	trace_within("cpu_taken", false, (u64)(prev ? &prev->t : &idle), (u64)&next->t);
	return 0;
}

/* The loader's program that changes the preferred CPUs. */
void tun_prefer(u32 cpu)
{
	tun_set_cpu(cpu);
	trace("overbook_prefer", 0, 0, 0, 0);
}

/* And the one that makes timers; nonzero if one cannot be had. */
int make_timers(void)
{
	return trace("overbook_timers", 0, 0, 0, 0);
}

static bool pending(const struct tun_vcpu *vcpu)
{
	u32 i, any = 0;

	for (i = 0; i < 8; i++)
		any |= vcpu->apic[IRR + 4 * i];
	return any;
}

static bool hardirq;

bool tun_in_hardirq(void)
{
	return hardirq;
}

/* The local APIC accepts a vector for a vCPU, in whatever runs on `cpu`, or of a device, on top of
 * that. A halted one wakes up; that is the caller's affair. */
void tun_accept_irq(u32 cpu, u32 id, u32 vector, bool device)
{
	struct tun_vcpu *vcpu = tasks[id]->vcpu;

	tun_set_cpu(cpu);
	vcpu->apic[IRR + vector / 32 * 4] |= 1u << (vector & 31);
	hardirq = device;
	trace("irq_accepted", vcpu->index, 0, 0, vector);
	hardirq = false;
}

/* The running vCPU takes what is requested: the highest vector, 0 if none. */
u32 tun_take_irq(u32 id)
{
	struct tun_vcpu *vcpu = tasks[id]->vcpu;
	s32 i;

	for (i = 7; i >= 0; i--) {
		u32 bits = vcpu->apic[IRR + 4 * i];

		if (bits) {
			u32 bit = 31 - __builtin_clz(bits);

			vcpu->apic[IRR + 4 * i] &= ~(1u << bit);
			vcpu->apic[ISR + 4 * i] |= 1u << bit;
			return 32 * i + bit;
		}
	}
	return 0;
}

bool tun_has_irq(u32 id)
{
	return pending(tasks[id]->vcpu);
}

/* The running vCPU ends an interrupt. With paravirtual EOI it does so in memory, and nobody is
 * told. */
void tun_eoi(u32 cpu, u32 id, u32 vector, bool told)
{
	struct tun_vcpu *vcpu = tasks[id]->vcpu;

	tun_set_cpu(cpu);
	vcpu->apic[ISR + vector / 32 * 4] &= ~(1u << (vector & 31));
	if (told)
		trace("irq_ended", (u64)glue_apic(vcpu->seen), vector, 0, 0);
}

/* yield_to(): 1 it was taken up, 0 it was not, negative: there is no point. */
static int yield_to(struct tun_task *p)
{
	struct tun_rq *rq = &rqs[cx->cpu], *other;
	struct tun_task *curr = rq->curr;
	bool yielded = false;

again:
	other = &rqs[p->cpu];
	if (rq->nr_running == 1 && other->nr_running == 1)
		return -ESRCH;
	double_rq_lock(rq->id, other->id);
	if (p->cpu != other->id) {
		double_rq_unlock(rq->id, other->id);
		goto again;
	}
	if (curr->class == p->class && !p->on_cpu && p->on_rq && rq->curr == curr) {
		yielded = yield_to_scx(rq, curr, p);
		if (yielded && rq != other)
			resched_curr(other);
	}
	double_rq_unlock(rq->id, other->id);
	if (yielded) {
		rq_lock(rq->id);
		if (rq->curr == curr)
			schedule_locked(rq);
		rq_unlock(rq->id);
	}
	return yielded;
}

static void spin_ends(struct tun_task *p)
{
	p->vcpu->in_spin_loop = false;
	p->vcpu->eligible = false;
	p->in_spin = false;
	trace("spin_ends", (u64)p->vcpu->seen, 0, 0, 0);
}

static bool is_eligible(struct tun_vcpu *vcpu)
{
	bool eligible = !vcpu->in_spin_loop || vcpu->eligible;

	if (vcpu->in_spin_loop)
		vcpu->eligible = !vcpu->eligible;
	return eligible;
}

/* kvm_vcpu_on_spin() of the vCPU that runs on `cpu`. */
void tun_spin(u32 cpu)
{
	struct tun_rq *rq = &rqs[cpu];
	struct tun_task *p = rq->curr;
	struct tun_vcpu *me = p->vcpu, *vcpu;
	struct tun_vm *vm = me->vm;
	u32 i, start = vm->last_boosted + 1, try = 3;

	tun_set_cpu(cpu);
	trace("spin_begins", (u64)me->seen, 0, 0, 0);
	if (vm->nr < 2) {
		spin_ends(p);
		return;
	}
	me->in_spin_loop = true;
	p->in_spin = true;
	for (i = 0; i < vm->nr; i++) {
		int yielded;

		vcpu = vm->vcpus[(start + i) % vm->nr];
		if (vcpu == me || !vcpu->ready || !vcpu->task->alive)
			continue;
		if (vcpu->blocking && !pending(vcpu))
			continue;
		if (vcpu->preempted && me->in_kernel && !pending(vcpu) &&
		    !vcpu->preempted_in_kernel)
			continue;
		if (!is_eligible(vcpu))
			continue;
		yielded = yield_to(vcpu->task);
		if (yielded > 0) {
			vm->last_boosted = vcpu->index;
			break;
		}
		if (yielded < 0 && !--try)
			break;
	}
	if (rq->curr == p)
		spin_ends(p);
}

/* kvm_sched_yield() of the vCPU that runs on `cpu`. */
void tun_pv_yield(u32 cpu, u32 id)
{
	struct tun_task *p = rqs[cpu].curr, *to = tasks[id];

	tun_set_cpu(cpu);
	/* single_task_running() */
	if (rqs[cpu].nr_running == 1)
		return;
	if (p && p->vcpu && p != to && to->vcpu->ready && to->alive)
		yield_to(to);
}

/* A vCPU that had left its CPU while it spun runs again. */
void tun_resumed(u32 cpu)
{
	struct tun_task *p = rqs[cpu].curr;

	tun_set_cpu(cpu);
	if (p && p->in_spin)
		spin_ends(p);
}

/* See glue_marks(). */
u32 tun_marks(u32 id)
{
	return glue_marks(&tasks[id]->t);
}
