/* What work cost that was queued under a name: its loads, in order. */
#ifndef FERRY_DEVICE_META_META_MEMORY_H
#define FERRY_DEVICE_META_META_MEMORY_H

#include "device/meta/meta_clock.h"

struct meta_memory;

/* What ops did, for statistics. */
struct meta_tally {
	double flops, bytes;
	int64_t ops;
};

int meta_memory_open(struct meta_memory **memory);  /* 0 or ERR_NOMEM */
void meta_memory_close(struct meta_memory *memory); /* NULL is ignored */

/* Returns 0 if nothing was queued under this name. The loads are valid until the next add. */
int meta_memory_find(const struct meta_memory *memory, uint64_t name, const struct meta_load **loads,
        int64_t *count, struct meta_tally *tally);

/* Between begin and end, each load that is added counts for the name; outside, none does. `tally` is the
 * device's so far. end returns 0 or ERR_NOMEM. */
void meta_memory_begin(struct meta_memory *memory, uint64_t name, const struct meta_tally *tally);
void meta_memory_add(struct meta_memory *memory, const struct meta_load *load);
int meta_memory_end(struct meta_memory *memory, const struct meta_tally *tally);

#endif
