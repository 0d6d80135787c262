/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BPF's own: maps, storage of tasks and groups, timers, cpumasks, references.
 */
#include "model.h"
#include "libc.h"

#define TYPE_HASH	  1
#define TYPE_ARRAY	  2
#define TYPE_PERCPU_ARRAY 6
#define TYPE_LRU_HASH	  9
#define MAX_MAPS	  32

struct tun_entry {
	struct tun_entry *next, *newer;
	char data[];
};

struct tun_map {
	void *of;
	u32 type, max, key, value;
	u32 storage;
	char *data;
	struct tun_entry **buckets, *oldest, *newest;
	u32 entries;
};

static struct tun_map maps[MAX_MAPS];
static u32 nr_maps, nr_storages;
/* One in so many allocations of storage fails; 0: none. */
static u32 starve;

void tun_starve(u32 one_in)
{
	starve = one_in;
}

/* So many timers more cannot be had. */
static u32 no_timers;

void tun_refuse_timers(u32 n)
{
	no_timers = n;
}

static bool out_of_memory(void)
{
	return starve && calls.random() % starve == 0;
}

/* Bytes from one CPU's values to the next one's: whole lines. */
static unsigned long cpu_stride(const struct tun_map *map)
{
	return ((unsigned long)map->max * map->value + 63) & ~63ul;
}

struct tun_map *tun_map_of(void *of, unsigned type, unsigned max, unsigned key, unsigned value)
{
	struct tun_map *map = maps;

	for (; map < maps + nr_maps; map++)
		if (map->of == of)
			return map;
	if (nr_maps++ == MAX_MAPS)
		fault("more than %d maps", MAX_MAPS);
	*map = (struct tun_map){.of = of, .type = type, .max = max, .key = key, .value = value};
	if (!max)
		map->storage = nr_storages++;
	else if (type == TYPE_ARRAY)
		map->data = lines_of((unsigned long)max * value);
	else if (type == TYPE_PERCPU_ARRAY)
		map->data = lines_of(MAX_CPUS * cpu_stride(map));
	else if (type == TYPE_HASH || type == TYPE_LRU_HASH)
		map->buckets = heap_new(max * sizeof(*map->buckets));
	else
		fault("maps of type %u are not modelled", type);
	return map;
}

static struct tun_entry **bucket(struct tun_map *map, const void *key)
{
	const unsigned char *bytes = key;
	u64 hash = 14695981039346656037ull;
	u32 i;

	for (i = 0; i < map->key; i++)
		hash = (hash ^ bytes[i]) * 1099511628211ull;
	return &map->buckets[hash % map->max];
}

static struct tun_entry **find(struct tun_map *map, const void *key)
{
	struct tun_entry **at = bucket(map, key);

	while (*at && memcmp((*at)->data, key, map->key))
		at = &(*at)->next;
	return at;
}

void *tun_lookup_percpu(struct tun_map *map, const void *key, unsigned cpu)
{
	u32 i = *(const u32 *)key;

	tun_count_kfunc("map lookup");
	point();
	if (i >= map->max || cpu >= MAX_CPUS)
		return NULL;
	return map->data + cpu * cpu_stride(map) + (unsigned long)i * map->value;
}

void *tun_lookup(struct tun_map *map, const void *key)
{
	struct tun_entry *entry;
	u32 i;

	if (map->type == TYPE_PERCPU_ARRAY)
		return tun_lookup_percpu(map, key, cx->cpu);
	tun_count_kfunc("map lookup");
	point();
	if (map->type == TYPE_ARRAY) {
		i = *(const u32 *)key;
		return i < map->max ? map->data + (unsigned long)i * map->value : NULL;
	}
	entry = *find(map, key);
	return entry ? entry->data + ((map->key + 7) & ~7u) : NULL;
}

static void forget(struct tun_map *map, struct tun_entry **at)
{
	struct tun_entry *entry = *at, **list = &map->oldest;

	*at = entry->next;
	while (*list != entry)
		list = &(*list)->newer;
	*list = entry->newer;
	if (map->newest == entry)
		for (map->newest = map->oldest; map->newest && map->newest->newer;)
			map->newest = map->newest->newer;
	map->entries--;
	/* Programs may still look at it, as they may in the kernel within an RCU section. */
}

long tun_update(struct tun_map *map, const void *key, const void *value, unsigned long flags)
{
	struct tun_entry **at, *entry;

	tun_count_kfunc("map update");
	point();
	if (!map->buckets) {
		void *to = tun_lookup(map, key);

		if (!to)
			return -E2BIG;
		memcpy(to, value, map->value);
		return 0;
	}
	at = find(map, key);
	if (*at) {
		if (flags == BPF_NOEXIST)
			return -EEXIST;
		memcpy((*at)->data + ((map->key + 7) & ~7u), value, map->value);
		return 0;
	}
	if (flags == BPF_EXIST)
		return -ENOENT;
	if (map->entries == map->max) {
		if (map->type != TYPE_LRU_HASH)
			return -E2BIG;
		forget(map, find(map, map->oldest->data));
		at = find(map, key);
	}
	if (out_of_memory())
		return -ENOMEM;
	entry = heap_new(sizeof(*entry) + ((map->key + 7) & ~7u) + map->value);
	memcpy(entry->data, key, map->key);
	memcpy(entry->data + ((map->key + 7) & ~7u), value, map->value);
	*at = entry;
	if (map->newest)
		map->newest->newer = entry;
	else
		map->oldest = entry;
	map->newest = entry;
	map->entries++;
	return 0;
}

long tun_delete(struct tun_map *map, const void *key)
{
	struct tun_entry **at;

	tun_count_kfunc("map delete");
	point();
	if (!map->buckets)
		return -EINVAL;
	at = find(map, key);
	if (!*at)
		return -ENOENT;
	forget(map, at);
	return 0;
}

/* Storage that was made, for those who ask what lies at an address. */
static struct tun_stored {
	struct tun_stored *next;
	struct tun_map *map;
	char *data;
} *all_stored;

static void note(struct tun_map *map, void *data)
{
	struct tun_stored *stored = heap_new(sizeof(*stored));

	*stored = (struct tun_stored){.next = all_stored, .map = map, .data = data};
	all_stored = stored;
}

static bool holds(const void *data, unsigned long size, const void *at)
{
	return data && at >= data && at < data + size;
}

static const char *symbol(const void *of)
{
	Dl_info info;

	return dladdr(of, &info) && info.symbol ? info.symbol : "?";
}

/* What lies at an address: a map, and where in its value; or a variable. */
const char *tun_whose(const void *at, u32 *offset)
{
	struct tun_map *map = maps;
	struct tun_stored *stored;
	Dl_info info;

	for (stored = all_stored; stored; stored = stored->next)
		if (holds(stored->data, stored->map->value, at)) {
			*offset = (char *)at - stored->data;
			return symbol(stored->map->of);
		}
	for (; map < maps + nr_maps; map++) {
		unsigned long size = (unsigned long)map->max * map->value;

		if (map->type == TYPE_ARRAY && holds(map->data, size, at)) {
			*offset = ((char *)at - map->data) % map->value;
			return symbol(map->of);
		}
		if (map->type == TYPE_PERCPU_ARRAY &&
		    holds(map->data, MAX_CPUS * cpu_stride(map), at)) {
			*offset = ((char *)at - map->data) % cpu_stride(map) % map->value;
			return symbol(map->of);
		}
	}
	*offset = 0;
	if (glue_mask(at))
		return glue_mask(at);
	if (!dladdr(at, &info))
		return "others";
	if (info.symbol)
		*offset = (char *)at - (char *)info.at;
	return info.symbol ? info.symbol : "variables";
}

static void *storage(struct tun_map *map, void **slots, const void *value, u64 flags)
{
	tun_count_kfunc("storage");
	point();
	if (map->storage >= MAX_STORAGE) {
		fault("more than %d maps of storage", MAX_STORAGE);
		return NULL;
	}
	if (slots[map->storage] || !(flags & BPF_LOCAL_STORAGE_GET_F_CREATE) || out_of_memory())
		return slots[map->storage];
	slots[map->storage] = lines_of(map->value);
	note(map, slots[map->storage]);
	if (value)
		memcpy(slots[map->storage], value, map->value);
	return slots[map->storage];
}

void *tun_task_storage(struct tun_map *map, struct task_struct *p, void *value, unsigned long flags)
{
	return p ? storage(map, tt(p)->storage, value, flags) : NULL;
}

void *tun_cgroup_storage(struct tun_map *map, struct cgroup *cgroup, void *value,
			 unsigned long flags)
{
	struct tun_group *group = container_of(cgroup, struct tun_group, cg);

	return cgroup ? storage(map, group->storage, value, flags) : NULL;
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
	int key;

	tun_set_cpu(cpu);
	if (node->generation != generation)
		return;
	key = ((char *)node->value - node->map->data) / node->map->value;
	cx->name = "timer";
	cx->may = MAY_UNLOCKED;
	cx->rq = -1;
	node->callback(node->map->of, &key, node->value);
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
