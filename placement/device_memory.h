/* The memory of the planned device: its limit and the memory of its libraries. */
#ifndef FERRY_PLACEMENT_DEVICE_MEMORY_H
#define FERRY_PLACEMENT_DEVICE_MEMORY_H

#include "base/str.h"
#include "config/config.h"
#include "offload/engine.h"
#include "placement/rates.h"

/* Limits of the arena, and the memory of the device's libraries by name. */
struct device_memory {
	enum device_kind kind; /* of the device that is planned for */
	int is_host;           /* the host computes, in its own memory */
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	int reserve_count;
	int64_t reserve_bytes; /* their sum */
	int64_t limit_bytes; /* for arena and reserves: the smaller of vram_budget and free device memory; 0:
	                        none */
	int is_budget;       /* the limit is vram_budget */
	struct machine_rates rates; /* of its machine, when a choice or simulation needs it */
};

/* Finds the memory of the options' device for their ranks. If that is meta (ferry plan), of the described
 * machine, else of the configuration's device. Warns if vram_budget is more than there is. */
void device_memory_find(struct device_memory *memory, const struct config *c, const struct engine_options *o,
        const struct machine *machine);

/* plan_policy.head_rows for this device. */
int64_t device_memory_head_rows(const struct device_memory *memory, const struct model *model);

/* The budget of the arena, as in engine_options; -1: the reserves leave nothing. */
int64_t device_memory_budget(const struct device_memory *memory);

/* "on the GPU: state of 2 of 34 groups, weights of 3, activations of 4 of 32 layers; saves 1 GiB of copies
 * each step"; empty if nothing stays. */
void device_memory_resident_text(struct str *out, const struct device_memory *device,
        const struct engine_memory *memory, const struct unit_map *units);

#endif
