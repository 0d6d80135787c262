/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * CO-RE without BPF: the scheduler's sources are compiled for this machine, against the very
 * structs that they name, so every field is where the compiler puts it and exists. Included before
 * everything else (-include).
 */
#ifndef TUNNEL_CORE_H
#define TUNNEL_CORE_H

#define __builtin_preserve_access_index(x) (x)
/* 0: byte offset of a field of a null pointer; 2: exists; 1: size. */
#define __builtin_preserve_field_info(x, kind) \
	((unsigned)((kind) == 2 ? 1ul : (kind) == 0 ? (unsigned long)&(x) : sizeof(x)))
#define __builtin_preserve_enum_value(x, kind) 1
#define __builtin_preserve_type_info(x, kind)  1
#define __builtin_btf_type_id(x, kind)	       1

#endif
