/* GPUs, drivers, libraries, and the device that device=auto takes, for ferry topo. */
#ifndef FERRY_CLI_TOPO_GPUS_H
#define FERRY_CLI_TOPO_GPUS_H

#include "base/json.h"
#include "config/config.h"

/* Prints lines, or adds members "gpus", "cuda" and "device" to `object`. ERR_NOMEM. */
int topo_gpus_print(const struct config *c);
int topo_gpus_json(json_t *object);

#endif
