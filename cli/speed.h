/* How fast the machine is taken to be on which budgets are spent and steps simulated. */
#ifndef FERRY_CLI_SPEED_H
#define FERRY_CLI_SPEED_H

#include "cli/config.h"
#include "cli/machine.h"

/* Of the machine that is described; of this one where the host computes (device_name "host"), by what a
 * thread of a current server does and the throttle of its copies; else all 0: the meta device has built-in
 * values. The same for `plan` and for a run, so that both choose alike. */
void speed_find(struct device_speed *speed, const struct config *c, const struct machine *machine,
        const char *device_name, int threads);

#endif
