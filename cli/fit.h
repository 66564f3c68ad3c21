/* Whether a plan fits the host memory of this machine and the memory of the device, and what to say where it
 * does not. */
#ifndef FERRY_CLI_FIT_H
#define FERRY_CLI_FIT_H

#include "base/str.h"
#include "cli/config.h"
#include "cli/speed.h"
#include "offload/choice.h"
#include "offload/engine.h"

enum { PREFETCH_UNITS = 2 }; /* where nothing is said and nothing is chosen */

/* The device's memory: the plan's arena, and beside it what its libraries take, by name. */
struct fit_device {
	const char *name; /* of the device that is planned for */
	struct device_reserve reserves[DEVICE_RESERVES_MAX];
	int reserve_count;
	int64_t reserve_bytes; /* their sum */
	int64_t limit_bytes;   /* for arena and reserves: vram_budget, or what the device has free, where
	                          that is less; 0: none */
	int is_budget;         /* it is vram_budget */
	struct speed speed;    /* of its machine, once something is to be chosen or simulated */
};

struct fit {
	int64_t need_bytes; /* planes, staging, and what saving takes; and the device's arena where the device
	                       is the host. Of all ranks of one host */
	int64_t limit_bytes;   /* for all of these: ram_budget, or what may still be taken */
	const char *limit_why; /* of what may be taken here, as one clause; static; else NULL */
	int fits;
};

/* Host memory of a rank: planes, staging, and what saving them takes beside a run. */
int64_t fit_save_bytes(const struct engine_memory *memory);
int64_t fit_host_bytes(const struct engine_memory *memory);

/* machine NULL: this one. ERR_NOMEM, ERR_INTERNAL (it cannot be read). Reserves nothing: others may take
 * memory meanwhile. */
int fit_host(struct fit *fit, const struct config *c, const struct engine_memory *memory,
        const struct fit_device *device, const struct machine *machine);

/* What would make a plan fit the host: of the sets of changes with the fewest members that do, the one with
 * the shortest step on the meta clock. All of them are planned, with the budgets spent as a run would. asked:
 * before they were spent. */
struct fit_host_found {
	int64_t bytes;       /* of the host, as struct fit; where nothing fits, least_bytes */
	int64_t least_bytes; /* that was seen */
	int fits;
	struct str settings; /* " key=value key=value"; str_free */
};
int fit_host_search(struct fit_host_found *found, const struct config *c, const struct engine_options *asked,
        const struct fit_device *device, const struct machine *machine);

/* "it fits, in 50 GiB, with optimizer_state=bf16", or the least that there is. */
void fit_host_text(struct str *out, const struct fit_host_found *found);

/* ERR_FIT by how much, and that. */
int fit_refuse(const struct fit *fit, const struct fit_host_found *found, const struct config *c);

/* What each rank of a host may choose to take: of ram_budget or of the described machine; else of what this
 * process may take, less a 64th, as other programs take and leave memory meanwhile. 0: it cannot be read. */
int64_t fit_host_limit(const struct config *c, const struct machine *machine, int ranks_here);

/* Of the device that is open; where that is meta (ferry plan), of the machine that is described, or else of
 * the one that the configuration names. */
void fit_device_find(struct fit_device *fit, const struct config *c, const struct device *device,
        const struct machine *machine);

/* For the arena, as in engine_options; -1: the reserves alone leave nothing. */
int64_t fit_device_budget(const struct fit_device *fit);

/* Is there a budget to spend on what stays on the device? And which of its ways are free: 0 for `smaller`. */
int fit_spends(const struct config *c, int64_t device_budget_bytes);
void fit_freedom(struct choice_freedom *f, const struct config *c, const struct engine_options *options);

/* What the budgets are spent on (offload/choice.h), as policy; keys that say otherwise are kept, and *choice
 * is empty where there is no budget. All ranks get what rank 0 chooses within the least that any of them has.
 * device->speed is found where there is something to choose. What does not fit is refused later. ERR_NOMEM,
 * or another rank's error. */
int fit_spend(struct choice *choice, struct engine_options *options, const struct config *c,
        struct fit_device *device, const struct machine *machine);

/* The same for this rank alone, of a configuration that is only tried; FIT_ROUGHLY leaves out what fills
 * smaller budgets. */
enum fit_thoroughness { FIT_ROUGHLY, FIT_AS_A_RUN };
int fit_would_spend(struct choice *choice, struct engine_options *options, const struct config *c,
        const struct fit_device *device, const struct machine *machine, enum fit_thoroughness thoroughness);

/* ERR_FIT: by how much, and which settings fit (fit_search.h), or the least that there is. */
int fit_device_refuse(const struct fit_device *fit, const struct config *c,
        const struct engine_options *options, const struct machine *machine);

/* "2 of 34 units, weights of 3 more, activations of 4 of 32 blocks"; empty where there are none. */
void fit_resident_text(struct str *out, const struct engine_memory *memory, const struct unit_map *units);

#endif
