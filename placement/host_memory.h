/* Host memory: what a run takes of it, and what it may take. */
#ifndef FERRY_PLACEMENT_HOST_MEMORY_H
#define FERRY_PLACEMENT_HOST_MEMORY_H

#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

struct host_memory {
	int64_t need_bytes; /* planes, staging, and what loading or saving takes; and the device's arena where
	                       the device is the host. Of all ranks of one host */
	int64_t limit_bytes;   /* for all of these: ram_budget, or what may still be taken */
	const char *limit_why; /* what the limit of this machine is, in brackets; static; else NULL */
	int fits;
};

/* Host memory of a rank, beside planes and staging: while it saves, and while it loads
 * (checkpoint/load_memory.h; a described machine is taken to load with 16 threads a rank). */
int64_t host_save_bytes(const struct engine_memory *memory);
int64_t host_load_bytes(
        const struct config *c, const struct engine_options *options, const struct machine *machine);

/* What operations take beside the arena where the device is the host: a bound (host/op_scratch.h). */
int64_t host_scratch_bytes(const struct engine_options *options, const struct machine *machine);

/* Planes, staging, tokenized rows, scratch, and the larger of the two: loading is over before the first save.
 */
int64_t host_need_bytes(const struct engine_memory *memory, int64_t load_bytes);

/* need_bytes: of a rank. machine NULL: this one. ERR_NOMEM, ERR_INTERNAL (the machine cannot be read).
 * Reserves nothing: others may take memory meanwhile. */
int host_memory_find(
        struct host_memory *host, const struct config *c, int64_t need_bytes, const struct machine *machine);

/* What each rank of a host may choose to take: of ram_budget or of the described machine; else of what this
 * process may take, less a 64th, as other programs take and leave memory meanwhile. 0: it cannot be read. */
int64_t host_limit_bytes(const struct config *c, const struct machine *machine, int ranks_here);

#endif
