/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPUs idle, and the kernel's own choice among them (kernel/sched/ext/idle.c).
 */
#include "model.h"

static struct cpumask idle_cpus, idle_cores;
/* Topology: core, last-level cache and node of every CPU, by the first CPU of each. */
static u32 core_of[MAX_CPUS], llc_first[MAX_CPUS], node_first[MAX_CPUS];

void tun_topology(u32 cpu, u32 core, u32 llc, u32 node)
{
	core_of[cpu] = core;
	llc_first[cpu] = llc;
	node_first[cpu] = node;
}

static void set(struct cpumask *mask, u32 cpu, bool on)
{
	if (on)
		mask->bits[cpu / 64] |= 1ul << (cpu & 63);
	else
		mask->bits[cpu / 64] &= ~(1ul << (cpu & 63));
}

/* Whether all threads of a CPU's core idle. */
static void update_core(u32 cpu)
{
	u32 i;
	bool all = true;

	for (i = core_of[cpu]; i < nr_model_cpus && core_of[i] == core_of[cpu]; i++)
		all &= mask_has(&idle_cpus, i);
	for (i = core_of[cpu]; i < nr_model_cpus && core_of[i] == core_of[cpu]; i++)
		set(&idle_cores, i, all);
}

void mark_idle(u32 cpu, bool idle)
{
	set(&idle_cpus, cpu, idle);
	update_core(cpu);
}

/* The same, and the scheduler is told: a CPU becomes idle, or busy. */
void update_idle(u32 cpu, bool idle)
{
	mark_idle(cpu, idle);
	if (tun_ops()->update_idle)
		OP(update_idle, MAY_REST, (s32)cpu, cpu, idle, 0);
}

static bool test_and_clear(u32 cpu)
{
	u32 i;

	if (!mask_has(&idle_cpus, cpu))
		return false;
	set(&idle_cpus, cpu, false);
	for (i = core_of[cpu]; i < nr_model_cpus && core_of[i] == core_of[cpu]; i++)
		set(&idle_cores, i, false);
	return true;
}

bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	tun_count_kfunc("scx_bpf_test_and_clear_cpu_idle");
	point();
	return cpu >= 0 && (u32)cpu < nr_model_cpus && test_and_clear(cpu);
}

/* The next CPU of two masks and, if `first` is given, of the same group as `like`; −1: none. */
static s32 find(const struct cpumask *a, const struct cpumask *b, const struct cpumask *c,
		const u32 *first, u32 like)
{
	u32 word, words = (nr_model_cpus + 63) / 64;

	for (word = 0; word < words; word++) {
		unsigned long bits = a->bits[word] & b->bits[word] & (c ? c->bits[word] : ~0ul);

		for (; bits; bits &= bits - 1) {
			u32 cpu = word * 64 + __builtin_ctzl(bits);

			if (cpu >= nr_model_cpus)
				return -1;
			if (!first || first[cpu] == first[like])
				return cpu;
		}
	}
	return -1;
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags)
{
	const struct cpumask *masks[] = {&idle_cores, &idle_cpus};
	u32 i;

	tun_count_kfunc("scx_bpf_pick_idle_cpu");
	point();
	for (i = 0; i < 2; i++) {
		s32 cpu = find(masks[i], allowed, NULL, NULL, 0);

		if (cpu >= 0 && test_and_clear(cpu))
			return cpu;
		if (flags & SCX_PICK_IDLE_CORE)
			break;
	}
	return -EBUSY;
}

/* scx_select_cpu_dfl(): its own CPU if the core idles, then an idle core near, then its own CPU,
 * then any that idles, near ones first. */
static s32 select_idle(const struct task_struct *p, u32 prev, const struct cpumask *also,
		       u64 wake_flags, u64 flags)
{
	const struct cpumask *allowed = p->cpus_ptr;
	bool prev_fits = mask_has(allowed, prev) && (!also || mask_has(also, prev));
	const u32 *near[] = {llc_first, node_first, NULL};
	u32 i;
	s32 cpu;

	/* Who wakes it is about to sleep: the waker's CPU, as long as any idles. Until 7.0 the
	 * masks were looked at that nobody fills. */
	if (wake_flags & SCX_WAKE_SYNC && LINUX_KERNEL_VERSION >= (7 << 16)) {
		cpu = (s32)cx->cpu;
		if (prev_fits && llc_first[cpu] == llc_first[prev] && test_and_clear(prev))
			return (s32)prev;
		if (!rqs[cpu].local.nr && mask_has(allowed, cpu) &&
		    (!also || mask_has(also, cpu)) &&
		    find(&idle_cpus, &idle_cpus, NULL, NULL, 0) >= 0) {
			test_and_clear((u32)cpu);
			return cpu;
		}
	}
	if (prev_fits && mask_has(&idle_cores, prev) && test_and_clear(prev))
		return prev;
	for (i = 0; i < 3; i++) {
		cpu = find(&idle_cores, allowed, also, near[i], prev);
		if (cpu >= 0 && test_and_clear(cpu))
			return cpu;
	}
	if (flags & SCX_PICK_IDLE_CORE)
		return -EBUSY;
	if (prev_fits && test_and_clear(prev))
		return prev;
	for (i = 0; i < 3; i++) {
		cpu = find(&idle_cpus, allowed, also, near[i], prev);
		if (cpu >= 0 && test_and_clear(cpu))
			return cpu;
	}
	return -EBUSY;
}

s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev, u64 flags, bool *idle)
{
	s32 cpu;

	tun_count_kfunc("scx_bpf_select_cpu_dfl");
	point();
	cpu = select_idle(p, prev, NULL, flags, 0);
	*idle = cpu >= 0;
	return cpu >= 0 ? cpu : prev;
}

s32 __scx_bpf_select_cpu_and(struct task_struct *p, const struct cpumask *also,
			     struct scx_bpf_select_cpu_and_args *args)
{
	tun_count_kfunc("scx_bpf_select_cpu_and");
	point();
	return select_idle(p, args->prev_cpu, also, args->wake_flags, args->flags);
}

const struct cpumask *scx_bpf_get_idle_cpumask(void)
{
	return &idle_cpus;
}

const struct cpumask *scx_bpf_get_idle_smtmask(void)
{
	return &idle_cores;
}

void scx_bpf_put_idle_cpumask(const struct cpumask *mask)
{
}
