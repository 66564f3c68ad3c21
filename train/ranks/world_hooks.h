/* Callbacks that give lower folders access to the ranks (comm/world.h). */
#ifndef FERRY_TRAIN_RANKS_WORLD_HOOKS_H
#define FERRY_TRAIN_RANKS_WORLD_HOOKS_H

#include "checkpoint/save.h"
#include "device/device.h"

/* Callbacks for the collective parts of saving. */
struct checkpoint_world world_for_checkpoint(void);

/* Callbacks for devices of several ranks; static. */
const struct device_bootstrap *world_for_device(void);

#endif
