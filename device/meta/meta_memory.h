/* What work cost that was queued under a name: its loads, in order. */
#ifndef FERRY_DEVICE_META_META_MEMORY_H
#define FERRY_DEVICE_META_META_MEMORY_H

#include "device/meta/meta_clock.h"
#include "device/op.h"

struct meta_memory;

/* What ops did, for statistics. */
struct meta_tally {
	double flops, bytes;
	int64_t ops;
};

int meta_memory_open(struct meta_memory **memory);  /* 0 or ERR_NOMEM */
void meta_memory_close(struct meta_memory *memory); /* NULL is ignored */

/* What was queued under a name. reach: the bytes used behind each base; 0: none. */
struct meta_known {
	const struct meta_load *loads;
	int64_t count;
	struct meta_tally tally;
	const int64_t *reach;
	int base_count;
};

/* Returns 0 if nothing was queued under this name. The arrays are valid until the next begin or add. */
int meta_memory_find(const struct meta_memory *memory, uint64_t name, struct meta_known *known);

/* Between begin and end, each load that is added counts for the name, and what each op touches; outside,
 * nothing does. `tally` is the device's so far, `bases` are valid until the end. begin and end return 0 or
 * ERR_NOMEM. */
int meta_memory_begin(struct meta_memory *memory, uint64_t name, const struct meta_tally *tally,
        const dev_addr *bases, int base_count);
void meta_memory_add(struct meta_memory *memory, const struct meta_load *load);
void meta_memory_touch(struct meta_memory *memory, const struct op *op);
int meta_memory_end(struct meta_memory *memory, const struct meta_tally *tally);

#endif
