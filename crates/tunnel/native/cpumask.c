/* SPDX-License-Identifier: GPL-2.0-only */
/* BPF's cpumasks (kernel/bpf/cpumask.c). */
#include "model.h"
#include "libc.h"

struct bpf_cpumask *bpf_cpumask_create(void)
{
	cx->refs++;
	return lines_of(sizeof(struct bpf_cpumask));
}

void bpf_cpumask_release(struct bpf_cpumask *mask)
{
	cx->refs--;
}

static bool has(const struct cpumask *mask, u32 cpu)
{
	return cpu < MAX_CPUS && mask->bits[cpu / 64] >> (cpu & 63) & 1;
}

void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	tun_atomic(&mask->cpumask.bits[cpu / 64]);
	point();
	if (cpu < nr_model_cpus)
		mask->cpumask.bits[cpu / 64] |= 1ul << (cpu & 63);
}

void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	tun_atomic(&mask->cpumask.bits[cpu / 64]);
	point();
	if (cpu < nr_model_cpus)
		mask->cpumask.bits[cpu / 64] &= ~(1ul << (cpu & 63));
}

bool bpf_cpumask_test_and_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bool was;

	tun_atomic(&mask->cpumask.bits[cpu / 64]);
	point();
	was = has(&mask->cpumask, cpu);
	if (was)
		mask->cpumask.bits[cpu / 64] &= ~(1ul << (cpu & 63));
	return was;
}

bool bpf_cpumask_test_and_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	bool was = has(&mask->cpumask, cpu);

	bpf_cpumask_set_cpu(cpu, mask);
	return was;
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	tun_count_kfunc("bpf_cpumask_test_cpu");
	return has(mask, cpu);
}

void bpf_cpumask_setall(struct bpf_cpumask *mask)
{
	memset(mask->cpumask.bits, 0xff, sizeof(mask->cpumask.bits));
}

void bpf_cpumask_clear(struct bpf_cpumask *mask)
{
	memset(mask->cpumask.bits, 0, sizeof(mask->cpumask.bits));
}

bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	tun_count_kfunc("bpf_cpumask_intersects");
	point();
	for (i = 0; i < MAX_CPUS / 64; i++)
		if (a->bits[i] & b->bits[i])
			return true;
	return false;
}

/* The kernel begins where the last choice of this CPU ended. */
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b)
{
	static u32 last[MAX_CPUS];
	u32 i;

	tun_count_kfunc("bpf_cpumask_any_and_distribute");
	point();
	for (i = 1; i <= nr_model_cpus; i++) {
		u32 cpu = (last[cx->cpu] + i) % nr_model_cpus;

		if (has(a, cpu) && has(b, cpu)) {
			last[cx->cpu] = cpu;
			return cpu;
		}
	}
	return nr_model_cpus;
}

u32 bpf_cpumask_first_and(const struct cpumask *a, const struct cpumask *b)
{
	u32 cpu;

	for (cpu = 0; cpu < nr_model_cpus; cpu++)
		if (has(a, cpu) && has(b, cpu))
			return cpu;
	return nr_model_cpus;
}

u32 bpf_cpumask_first(const struct cpumask *mask)
{
	return bpf_cpumask_first_and(mask, mask);
}
