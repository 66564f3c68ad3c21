/* What folders below get of the world (comm/world.h), which they do not know: callbacks. */
#ifndef FERRY_TRAIN_WORLD_HOOKS_H
#define FERRY_TRAIN_WORLD_HOOKS_H

#include "checkpoint/save.h"
#include "device/device.h"

/* Collective parts of saving. */
struct checkpoint_world world_for_checkpoint(void);

/* For a device whose ranks must find each other; static. */
const struct device_bootstrap *world_for_device(void);

#endif
