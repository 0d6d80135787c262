/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the model uses of the C library. Its own headers and vmlinux.h do not go together.
 */
#ifndef TUNNEL_LIBC_H
#define TUNNEL_LIBC_H

typedef __builtin_va_list va_list;
#define va_start(args, last) __builtin_va_start(args, last)
#define va_end(args)	     __builtin_va_end(args)

int vsnprintf(char *to, unsigned long size, const char *format, va_list args);
int snprintf(char *to, unsigned long size, const char *format, ...);
void *calloc(unsigned long n, unsigned long size);
void free(void *at);
void *memcpy(void *to, const void *from, unsigned long size);
void *memset(void *to, int byte, unsigned long size);
int memcmp(const void *a, const void *b, unsigned long size);
char *strncpy(char *to, const char *from, unsigned long size);
int strcmp(const char *a, const char *b);

/* heap.c */
void *heap_new(unsigned long size);
void *heap_more(const void *old, unsigned long size, unsigned long more);

/* dlfcn.h */
typedef struct {
	const char *file;
	void *base;
	const char *symbol;
	void *at;
} Dl_info;
int dladdr(const void *at, Dl_info *info);

/* Zeroes, from the beginning of a line on: which fields share one does not depend on chance. */
static inline void *lines_of(unsigned long size)
{
	return (void *)(((unsigned long)heap_new(size + 64) + 63) & ~63ul);
}

/* Flags of the core (kernel/sched/sched.h), which vmlinux.h does not have. */
#define DEQUEUE_SAVE_BIT    0x02
#define ENQUEUE_RESTORE_BIT 0x02

#endif
