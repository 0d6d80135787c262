/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx's header, with what only BPF has replaced by the model's: helpers are calls into bpf.c, and
 * constants of sched_ext, which a loader fills in, are the kernel's own.
 */

/* Used within the header itself. Macros with arguments do not touch the helpers' declarations. */
struct task_struct;
struct task_struct *tun_current(void);
#define bpf_get_current_task_btf() tun_current()
#define BPF_NO_KFUNC_PROTOTYPES
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

/* Symbols of this object are all there; kernels have them by version. */
bool tun_has_ksym(const char *name);
#undef bpf_ksym_exists
#define bpf_ksym_exists(symbol) (!!(symbol) && tun_has_ksym(#symbol))

#include_next <scx/common.bpf.h>

#include "enums-undef.h"
#include "helpers.h"
