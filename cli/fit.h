/* Whether a plan fits the host memory of this machine and the memory of the device, and what to say where it
 * does not. */
#ifndef FERRY_CLI_FIT_H
#define FERRY_CLI_FIT_H

#include "base/str.h"
#include "cli/config.h"
#include "cli/machine.h"
#include "offload/engine.h"

/* The device's memory: the plan's arena, and beside it what its libraries take, by name. */
struct fit_device {
	const char *name; /* of the device that is planned for */
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	int reserve_count;
	int64_t reserve_bytes; /* their sum */
	int64_t limit_bytes;   /* for arena and reserves: vram_budget, or what the device has free; 0: none */
};

struct fit {
	int64_t need_bytes; /* planes and staging; and the device's arena where the device is the host. Of all
	                       ranks of a described machine */
	int64_t limit_bytes; /* ram_budget, or what this process may still take */
	int fits;
};

/* machine NULL: this one. ERR_NOMEM, ERR_INTERNAL (it cannot be read). Reserves nothing: others may take
 * memory meanwhile. */
int fit_host(struct fit *fit, const struct config *c, const struct engine_memory *memory,
        const struct fit_device *device, const struct machine *machine);

/* ERR_FIT by how much, and which setting would help. */
int fit_refuse(const struct fit *fit, const struct config *c, const struct engine_memory *memory);

/* Of the device that is open; where that is meta (ferry plan), of the machine that is described, or else of
 * the one that the configuration names. */
void fit_device_find(struct fit_device *fit, const struct config *c, const struct device *device,
        const struct machine *machine);

/* For the arena: *budget_bytes as in engine_options. ERR_FIT where the reserves alone are too much. */
int fit_device_budget(int64_t *budget_bytes, const struct fit_device *fit, const struct config *c);

/* ERR_FIT: by how much, and which settings fit (fit_search.h), or the least that there is. */
int fit_device_refuse(const struct fit_device *fit, const struct config *c,
        const struct engine_options *options, const struct machine *machine);

/* "2 of 34 units, weights of 3 more, activations of 4 of 32 blocks"; empty where there are none. */
void fit_resident_text(struct str *out, const struct engine_memory *memory, const struct unit_map *units);

#endif
