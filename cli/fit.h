/* Whether a plan fits the host memory of this machine, and what to say where it does not. */
#ifndef FERRY_CLI_FIT_H
#define FERRY_CLI_FIT_H

#include "cli/config.h"
#include "offload/engine.h"

struct fit {
	int64_t need_bytes;  /* planes and staging; and the device's arena where the device is the host */
	int64_t limit_bytes; /* ram_budget, or what this process may still take */
	int fits;
};

/* ERR_NOMEM, ERR_INTERNAL (the machine cannot be read). Reserves nothing: others may take memory meanwhile.
 */
int fit_host(struct fit *fit, const struct config *c, const struct engine_memory *memory);

/* ERR_FIT by how much, and which setting would help. */
int fit_refuse(const struct fit *fit, const struct config *c, const struct engine_memory *memory);

#endif
