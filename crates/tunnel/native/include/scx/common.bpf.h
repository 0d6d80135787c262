/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * scx's header, with what only BPF has replaced by the model's: helpers are calls into bpf.c, and constants of
 * sched_ext, which a loader fills in, are the kernel's own.
 */
#include_next <scx/common.bpf.h>

#include "enums-undef.h"
#include "helpers.h"
