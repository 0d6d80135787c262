/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BPF's own helpers and kfuncs: timers, references to tasks, locks, loops.
 */
#include "model.h"
#include "libc.h"

/* So many timers more cannot be had. */
static u32 no_timers;

void tun_refuse_timers(u32 n)
{
	no_timers = n;
}

/* A timer of a map's element, whose first member it is. */
struct tun_timer {
	struct tun_map *map;
	void *value;
	int (*callback)(void *map, int *key, void *value);
	u32 generation;
};

static struct tun_timer **timer_of(struct bpf_timer *timer)
{
	return (void *)timer;
}

long tun_timer_init(struct bpf_timer *timer, struct tun_map *map)
{
	struct tun_timer *node = *timer_of(timer);

	if (node)
		return -EBUSY;
	/* It does not wait for memory (kmalloc_nolock). */
	if (no_timers) {
		no_timers--;
		return -ENOMEM;
	}
	node = heap_new(sizeof(*node));
	node->map = map;
	node->value = timer;
	*timer_of(timer) = node;
	return 0;
}

long tun_timer_callback(struct bpf_timer *timer, void *callback)
{
	struct tun_timer *node = *timer_of(timer);

	if (!node)
		return -EINVAL;
	node->callback = callback;
	return 0;
}

long tun_timer_start(struct bpf_timer *timer, unsigned long ns, unsigned long flags)
{
	struct tun_timer *node = *timer_of(timer);

	tun_count_kfunc("bpf_timer_start");
	point();
	if (!node || !node->callback)
		return -EINVAL;
	node->generation++;
	calls.timer((void *)node, cx->cpu, flags & BPF_F_TIMER_ABS ? ns - now() : ns);
	return 0;
}

long tun_timer_cancel(struct bpf_timer *timer)
{
	struct tun_timer *node = *timer_of(timer);

	if (node)
		node->generation++;
	return 0;
}

u32 tun_timer_generation(const struct tun_timer *node)
{
	return node->generation;
}

/* A timer has ended, unless it was started anew meanwhile. */
void tun_timer_fire(u32 cpu, struct tun_timer *node, u32 generation)
{
	void *map;
	int key;

	tun_set_cpu(cpu);
	if (node->generation != generation)
		return;
	map = tun_map_at(node->map, node->value, &key);
	cx->name = "timer";
	cx->may = MAY_UNLOCKED;
	cx->rq = -1;
	node->callback(map, &key, node->value);
	cx->name = NULL;
}

void *tun_kptr_xchg(void *slot, void *fresh)
{
	void **at = slot, *old = *at;

	*at = fresh;
	/* One reference goes in, and maybe one comes out. */
	if (fresh)
		cx->refs--;
	if (old)
		cx->refs++;
	return old;
}

long tun_probe_read(void *to, unsigned size, const void *from)
{
	tun_count_kfunc("bpf_probe_read_kernel");
	point();
	if ((unsigned long)from < 4096) {
		memset(to, 0, size);
		return -EFAULT;
	}
	memcpy(to, from, size);
	return 0;
}

long tun_probe_read_str(void *to, unsigned size, const void *from)
{
	if ((unsigned long)from < 4096 || !size)
		return -EFAULT;
	strncpy(to, from, size);
	((char *)to)[size - 1] = 0;
	return size;
}

unsigned tun_this_cpu(void)
{
	return cx->cpu;
}

static struct tun_task idle_tasks[MAX_CPUS];

struct task_struct *tun_current(void)
{
	struct tun_task *p = rqs[cx->cpu].curr;

	return p ? &p->t : &idle_tasks[cx->cpu].t;
}

unsigned long tun_now(void)
{
	return now();
}

unsigned tun_random(void)
{
	return calls.random();
}

void tun_spin_lock(struct bpf_spin_lock *lock)
{
	u32 *owner = (void *)lock;

	tun_count_lock();
	point();
	if (cx->spin)
		fault("deadlock: a second bpf_spin_lock is taken in %s", cx->name);
	while (*owner)
		calls.wait();
	*owner = cx->cpu + 1;
	cx->spin = lock;
}

void tun_spin_unlock(struct bpf_spin_lock *lock)
{
	*(u32 *)lock = 0;
	cx->spin = NULL;
	point();
}

/* Tasks by pid: a table, as look-ups are many. */
struct task_struct *bpf_task_from_pid(s32 pid)
{
	static u32 *ids;
	static u32 known, room;
	u32 i;

	tun_count_kfunc("bpf_task_from_pid");
	point();
	for (; known < nr_tasks; known++) {
		u32 of = tasks[known]->t.pid;

		if (of >= room) {
			u32 more = 2 * of + 1024;

			ids = heap_more(ids, room * sizeof(*ids), more * sizeof(*ids));
			room = more;
		}
		ids[of] = known + 1;
	}
	if (pid <= 0 || (u32)pid >= room || !ids[pid])
		return NULL;
	i = ids[pid] - 1;
	if (!tasks[i]->alive)
		return NULL;
	cx->refs++;
	return &tasks[i]->t;
}

struct task_struct *bpf_task_acquire(struct task_struct *p)
{
	cx->refs++;
	return p;
}

void bpf_task_release(struct task_struct *p)
{
	cx->refs--;
	point();
}

void bpf_preempt_disable(void)
{
	cx->preempt++;
}

void bpf_preempt_enable(void)
{
	cx->preempt--;
}

void bpf_rcu_read_lock(void)
{
	cx->rcu++;
}

void bpf_rcu_read_unlock(void)
{
	cx->rcu--;
}

int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end)
{
	int *state = (void *)it;

	state[0] = start - 1;
	state[1] = end;
	return start > end ? -EINVAL : 0;
}

int *bpf_iter_num_next(struct bpf_iter_num *it)
{
	int *state = (void *)it;

	return ++state[0] < state[1] ? state : NULL;
}

void bpf_iter_num_destroy(struct bpf_iter_num *it)
{
}
