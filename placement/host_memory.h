/* Host memory: the need of a run and its limit.
 *
 * A plane is one array of weights, gradients or optimizer state in host memory (offload/store.h). A run needs
 * memory for planes, staging buffers for copies, tokenized rows, and buffers while it loads and saves. If the
 * CPU is the device, the arena is host memory too. */
#ifndef FERRY_PLACEMENT_HOST_MEMORY_H
#define FERRY_PLACEMENT_HOST_MEMORY_H

#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

struct host_memory {
	int64_t need_bytes;    /* planes, staging, loading or saving, and the arena if the host is the device;
	                          for all ranks of one host */
	int64_t limit_bytes;   /* the smaller of ram_budget and the memory that is still available */
	int64_t there_bytes;   /* what is still available; of a described machine, what it has */
	const char *limit_is;  /* "ram_budget is", "the machine has" or "this process may use" */
	const char *limit_why; /* the kind of this machine's limit, in brackets, static; else NULL */
	int fits;
};

/* Host memory of a rank, beside planes and staging, while it saves and while it loads
 * (checkpoint/file/load_memory.h; for a described machine with 16 threads a rank). */
int64_t host_save_bytes(const struct engine_memory *memory);
int64_t host_load_bytes(
        const struct config *c, const struct engine_options *options, const struct machine *machine);

/* A bound on the memory of operations beside the arena if the host is the device (host/op_scratch.h). */
int64_t host_scratch_bytes(const struct engine_options *options, const struct machine *machine);

/* Planes, staging, tokenized rows, scratch, and the larger of loading and saving, because loading ends
 * before the first save. */
int64_t host_need_bytes(const struct engine_memory *memory, int64_t load_bytes);

/* need_bytes: of a rank. machine NULL: this one. ERR_NOMEM, ERR_INTERNAL (the machine cannot be read).
 * Reserves nothing: other programs may take memory meanwhile. */
int host_memory_find(
        struct host_memory *host, const struct config *c, int64_t need_bytes, const struct machine *machine);

/* Warns if ram_budget is more than there is: it has no effect then. */
void host_memory_warn(const struct host_memory *host, const struct config *c);

/* Warns that key=budget_bytes is above what there is. but: "the machine has", as the sentence needs it. */
void budget_warn(
        const struct config *c, const char *key, int64_t budget_bytes, const char *but, int64_t there_bytes);

/* The smaller of two limits, 0 being none. */
int64_t budget_smaller(int64_t a, int64_t b);

/* The limit of each rank of a host: the smaller of ram_budget and what there is, that of this process less a
 * 64th, because other programs' memory changes meanwhile. 0: unknown. */
int64_t host_limit_bytes(const struct config *c, const struct machine *machine, int ranks_here);

#endif
