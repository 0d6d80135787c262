/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the native sources call instead of BPF's helpers (maps.c, bpf.c).
 */
#ifndef TUNNEL_MAPS_H
#define TUNNEL_MAPS_H

struct tun_map;
struct bpf_timer;
struct bpf_spin_lock;

struct tun_map *tun_map_of(void *map, unsigned type, unsigned max, unsigned key, unsigned value);
void *tun_lookup(struct tun_map *map, const void *key);
void *tun_lookup_percpu(struct tun_map *map, const void *key, unsigned cpu);
long tun_update(struct tun_map *map, const void *key, const void *value, unsigned long flags);
long tun_delete(struct tun_map *map, const void *key);
void *tun_task_storage(struct tun_map *map, struct task_struct *p, void *value,
		       unsigned long flags);
void *tun_cgroup_storage(struct tun_map *map, struct cgroup *cgroup, void *value,
			 unsigned long flags);
long tun_timer_init(struct bpf_timer *timer, struct tun_map *map);
long tun_timer_callback(struct bpf_timer *timer, void *callback);
long tun_timer_start(struct bpf_timer *timer, unsigned long ns, unsigned long flags);
long tun_timer_cancel(struct bpf_timer *timer);
void *tun_kptr_xchg(void *slot, void *fresh);
long tun_probe_read(void *to, unsigned size, const void *from);
long tun_probe_read_str(void *to, unsigned size, const void *from);
unsigned tun_this_cpu(void);
struct task_struct *tun_current(void);
unsigned long tun_now(void);
unsigned tun_random(void);
void tun_spin_lock(struct bpf_spin_lock *lock);
void tun_spin_unlock(struct bpf_spin_lock *lock);
void tun_atomic(const volatile void *at);
_Bool tun_in_hardirq(void);

#endif
