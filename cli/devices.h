/* The devices of this build: which there are, and what the `device` key means.
 */
#ifndef FERRY_CLI_DEVICES_H
#define FERRY_CLI_DEVICES_H

#include "base/json.h"
#include "base/str.h"
#include "cli/config.h"

/* The CUDA device first, where this build has it: auto takes the first that works. */
void devices_register(void);

/* What device_open is to open. ERR_UNSUPPORTED: cuda in a build without it. */
int devices_name(const char **name, const struct config *c);

/* Why a plan without a described machine is for the device that it is for, as one clause. ERR_NOMEM. */
int devices_plan_why(struct str *out, const struct config *c);

/* GPUs, drivers, libraries, and the device that auto takes, for ferry topo: as lines, and as members of
 * `object` ("gpus", "cuda", "device"). ERR_NOMEM. */
int devices_print(const struct config *c);
int devices_json(json_t *object);

#endif
