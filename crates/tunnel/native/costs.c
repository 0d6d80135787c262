/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What each callback costs: calls, atomics, locks, and lines that other CPUs write too.
 */
#include "model.h"
#include "libc.h"

#define MAX_NAMES  32
#define MAX_SHARED 256
#define LINES	   (1u << 20)

struct tun_cost {
	const char *name;
	u64 calls, kfuncs, atomics, locks, steps, shared_lines;
	/* Most kfuncs and steps of one call. */
	u64 most;
};

static struct tun_cost costs[MAX_NAMES];
static u32 nr_costs;
/* Who wrote a line last: CPU plus one, by a hash of its address; and what the line is, plus one. */
static struct {
	u64 line;
	u32 cpu, what;
} *writers;

/* What is written by several CPUs, as far as it has been: a variable or a map, and bytes from where
 * its value begins. */
static struct {
	const char *name;
	u32 offset;
} shared[MAX_SHARED];
static u32 nr_shared;

struct tun_line {
	const char *callback, *name;
	u32 offset;
	u64 writes;
};

static u64 writes[MAX_NAMES][MAX_SHARED];
static struct tun_line lines[MAX_NAMES * MAX_SHARED];

static struct tun_cost *cost_of(const char *name)
{
	u32 i;

	for (i = 0; i < nr_costs; i++)
		if (costs[i].name == name || !strcmp(costs[i].name, name))
			return &costs[i];
	if (nr_costs == MAX_NAMES)
		return &costs[0];
	costs[nr_costs].name = name;
	return &costs[nr_costs++];
}

static struct tun_cost *present(void)
{
	return cx->name ? cost_of(cx->name) : NULL;
}

/* One more thing that the call that runs has done. */
static void one_more(struct tun_cost *cost)
{
	if (++cx->done > cost->most)
		cost->most = cx->done;
}

void tun_count_call(const char *name)
{
	cx->done = 0;
	if (counting)
		cost_of(name)->calls++;
}

void tun_count_kfunc(const char *name)
{
	struct tun_cost *cost = counting ? present() : NULL;

	if (!cost)
		return;
	cost->kfuncs++;
	one_more(cost);
}

void tun_count_lock(void)
{
	struct tun_cost *cost = counting ? present() : NULL;

	if (cost)
		cost->locks++;
}

void tun_count_step(void)
{
	struct tun_cost *cost = counting ? present() : NULL;

	if (!cost)
		return;
	cost->steps++;
	one_more(cost);
}

/* Finds out what a line is: by the place that was written first. */
static u32 what_is(const volatile void *at)
{
	u32 offset, i;
	const char *name = tun_whose((const void *)at, &offset);

	offset &= ~63u;
	for (i = 0; i < nr_shared; i++)
		if (shared[i].offset == offset && !strcmp(shared[i].name, name))
			return i + 1;
	if (nr_shared == MAX_SHARED)
		return MAX_SHARED;
	shared[i].name = name;
	shared[i].offset = offset;
	return ++nr_shared;
}

/* A line is shared if another CPU has written it since this one did last. */
static void written(const volatile void *at)
{
	u64 line = (u64)at >> 6, i = (line * 0x9e3779b97f4a7c15ull) >> 44;
	struct tun_cost *cost = present();
	char here;

	/* The stack is one's own. */
	if (!cost || (u64)at - (u64)&here + (1 << 20) < 2 << 20)
		return;
	if (!writers)
		writers = heap_new(LINES * sizeof(*writers));
	while (writers[i].line && writers[i].line != line)
		i = (i + 1) & (LINES - 1);
	if (writers[i].line && writers[i].cpu != cx->cpu + 1) {
		cost->shared_lines++;
		if (!writers[i].what)
			writers[i].what = what_is(at);
		writes[cost - costs][writers[i].what - 1]++;
	}
	writers[i].line = line;
	writers[i].cpu = cx->cpu + 1;
}

void tun_atomic(const volatile void *at)
{
	struct tun_cost *cost;

	may_dwell("atomic");
	point();
	if (!counting)
		return;
	cost = present();
	if (cost)
		cost->atomics++;
	written(at);
}

void tun_count(bool on)
{
	counting = on;
}

u32 tun_costs(const struct tun_cost **list)
{
	*list = costs;
	return nr_costs;
}

/* What each callback has written that another CPU had written last. */
u32 tun_lines(const struct tun_line **list)
{
	u32 name, what, n = 0;

	for (name = 0; name < nr_costs; name++)
		for (what = 0; what < nr_shared; what++)
			if (writes[name][what])
				lines[n++] =
					(struct tun_line){costs[name].name, shared[what].name,
							  shared[what].offset, writes[name][what]};
	*list = lines;
	return n;
}

/* Called before every store of sources built with -fsanitize-coverage=func,trace-stores. */
#define STORED(size)                                \
	void __sanitizer_cov_store##size(void *at); \
	void __sanitizer_cov_store##size(void *at)  \
	{                                           \
		if (counting)                       \
			written(at);                \
	}
STORED(1)
STORED(2)
STORED(4)
STORED(8)
STORED(16)
