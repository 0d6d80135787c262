// SPDX-License-Identifier: GPL-2.0-only
/*
 * The model's memory: all of it goes when the model goes, and nothing before.
 */
#include "libc.h"

/* As long as what calloc() aligns to. */
struct block {
	struct block *next;
	unsigned long unused;
};

static struct block *blocks;

/* Zeroes; pages that nobody writes take no memory. */
void *heap_new(unsigned long size)
{
	struct block *block = calloc(1, sizeof(*block) + size);

	block->next = blocks;
	blocks = block;
	return block + 1;
}

/* A longer copy, with zeroes after it. */
void *heap_more(const void *old, unsigned long size, unsigned long more)
{
	return size ? memcpy(heap_new(more), old, size) : heap_new(more);
}

void tun_end(void)
{
	while (blocks) {
		struct block *block = blocks;

		blocks = block->next;
		free(block);
	}
}
