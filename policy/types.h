/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Integers of known width, wherever these headers are compiled: BPF after vmlinux.h, userspace, a
 * kernel, a 32-bit kernel. Names of their own, as u64 and friends are taken in some of these places
 * and not in others.
 */
#ifndef OVERBOOK_POLICY_TYPES_H
#define OVERBOOK_POLICY_TYPES_H

typedef unsigned char ovb_u8;
typedef unsigned short ovb_u16;
typedef unsigned int ovb_u32;
typedef int ovb_s32;
typedef unsigned long long ovb_u64;
typedef long long ovb_s64;

#define OVB_U64_MAX (~0ull)

/* A word that others write meanwhile: read or written whole where it is named, and in that order.
 */
#define OVB_ONCE(word) (*(volatile __typeof__(word) *)&(word))

#endif
