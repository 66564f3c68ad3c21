/* The memory of the device that is planned for: what may be taken of it, and what its libraries take. */
#ifndef FERRY_PLACEMENT_DEVICE_MEMORY_H
#define FERRY_PLACEMENT_DEVICE_MEMORY_H

#include "base/str.h"
#include "config/config.h"
#include "offload/engine.h"
#include "placement/rates.h"

/* The plan's arena, and beside it what the device's libraries take, by name. */
struct device_memory {
	enum device_kind kind; /* of the device that is planned for */
	int is_host;           /* the host computes, in its own memory */
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	int reserve_count;
	int64_t reserve_bytes;      /* their sum */
	int64_t limit_bytes;        /* for arena and reserves: vram_budget, or what the device has free, where
	                               that is less; 0: none */
	int is_budget;              /* it is vram_budget */
	struct machine_rates rates; /* of its machine, once something is to be chosen or simulated */
};

/* Of the options' device, for their ranks; where that is meta (ferry plan), of the machine that is described,
 * or else of the one that the configuration names. */
void device_memory_find(struct device_memory *memory, const struct config *c, const struct engine_options *o,
        const struct machine *machine);

/* plan_policy.head_rows there. */
int64_t device_memory_head_rows(const struct device_memory *memory, const struct model *model);

/* For the arena, as in engine_options; -1: the reserves alone leave nothing. */
int64_t device_memory_budget(const struct device_memory *memory);

/* "on the GPU: state of 2 of 34 groups, weights of 3, activations of 4 of 32 layers; saves 1 GiB of copies
 * each step"; empty where nothing stays. */
void device_memory_resident_text(struct str *out, const struct device_memory *device,
        const struct engine_memory *memory, const struct unit_map *units);

#endif
