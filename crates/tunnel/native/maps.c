/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BPF's maps, and the storage of tasks and groups.
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

/* The array that a value is an element of, as the scheduler knows it, and the element's key. */
void *tun_map_at(const struct tun_map *map, const void *value, int *key)
{
	*key = ((char *)value - map->data) / map->value;
	return map->of;
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
