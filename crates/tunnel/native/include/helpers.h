/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * BPF's helpers for sources that are compiled natively. A map's kind and sizes are types of its
 * declaration and not data, so macros read them off it; each call remembers its map.
 */
#ifndef TUNNEL_HELPERS_H
#define TUNNEL_HELPERS_H

#include "maps.h"

#define TUN_MAP(map)                                                                        \
	({                                                                                  \
		static struct tun_map *tun_found;                                           \
		if (!tun_found)                                                             \
			tun_found = tun_map_of((map), sizeof(*(map)->type) / sizeof(int),   \
					       sizeof(*(map)->max_entries) / sizeof(int),   \
					       sizeof(*(map)->key), sizeof(*(map)->value)); \
		tun_found;                                                                  \
	})

/* Maps of storage have no size. */
#define TUN_STORAGE(map)                                                                     \
	({                                                                                   \
		static struct tun_map *tun_found;                                            \
		if (!tun_found)                                                              \
			tun_found = tun_map_of((map), sizeof(*(map)->type) / sizeof(int), 0, \
					       sizeof(*(map)->key), sizeof(*(map)->value));  \
		tun_found;                                                                   \
	})

#define bpf_map_lookup_elem(map, key)		    tun_lookup(TUN_MAP(map), key)
#define bpf_map_lookup_percpu_elem(map, key, cpu)   tun_lookup_percpu(TUN_MAP(map), key, cpu)
#define bpf_map_update_elem(map, key, value, flags) tun_update(TUN_MAP(map), key, value, flags)
#define bpf_map_delete_elem(map, key)		    tun_delete(TUN_MAP(map), key)
#define bpf_task_storage_get(map, task, value, flags) \
	tun_task_storage(TUN_STORAGE(map), task, value, flags)
#define bpf_cgrp_storage_get(map, cgroup, value, flags) \
	tun_cgroup_storage(TUN_STORAGE(map), cgroup, value, flags)
#define bpf_timer_init(timer, map, clock)	  tun_timer_init(timer, TUN_MAP(map))
#define bpf_timer_set_callback(timer, callback)	  tun_timer_callback(timer, (void *)(callback))
#define bpf_timer_start(timer, ns, flags)	  tun_timer_start(timer, ns, flags)
#define bpf_timer_cancel(timer)			  tun_timer_cancel(timer)
#define bpf_kptr_xchg(slot, new)		  ((typeof(*(slot)))tun_kptr_xchg(slot, new))
#define bpf_probe_read_kernel(to, size, from)	  tun_probe_read(to, size, from)
#define bpf_probe_read_kernel_str(to, size, from) tun_probe_read_str(to, size, from)
#define bpf_get_smp_processor_id()		  tun_this_cpu()
#define bpf_ktime_get_ns()			  tun_now()
#define bpf_ktime_get_boot_ns()			  tun_now()
#define bpf_get_prandom_u32()			  tun_random()
#define in_hardirq()				  tun_in_hardirq()
#define bpf_spin_lock(lock)			  tun_spin_lock(lock)
#define bpf_spin_unlock(lock)			  tun_spin_unlock(lock)

/* Counted where costs are. A macro's own name is not expanded within it. */
#define __sync_fetch_and_add(at, by)	 (tun_atomic(at), __sync_fetch_and_add(at, by))
#define __sync_fetch_and_sub(at, by)	 (tun_atomic(at), __sync_fetch_and_sub(at, by))
#define __sync_fetch_and_or(at, by)	 (tun_atomic(at), __sync_fetch_and_or(at, by))
#define __sync_fetch_and_and(at, by)	 (tun_atomic(at), __sync_fetch_and_and(at, by))
#define __sync_lock_test_and_set(at, to) (tun_atomic(at), __sync_lock_test_and_set(at, to))
#define __sync_val_compare_and_swap(at, old, new) \
	(tun_atomic(at), __sync_val_compare_and_swap(at, old, new))

#endif
