/* What the budgets of memory (vram_budget, ram_budget) are spent on: how many units stay on the device, how
 * many blocks keep their activations, how far ahead units are fetched (placement/choice.h). Keys that say
 * otherwise are kept.
 */
#ifndef FERRY_PLACEMENT_BUDGET_H
#define FERRY_PLACEMENT_BUDGET_H

#include "placement/choice.h"
#include "placement/device_memory.h"

/* Is there a budget to spend on what stays on the device? And which of its ways are free: 0 for `smaller`. */
int budget_is_spent(const struct config *c, int64_t device_budget_bytes);
void budget_freedom(struct choice_freedom *f, const struct config *c, const struct engine_options *options);

/* Spends it on the policy in *options; *choice is empty where there is no budget. All ranks get what rank 0
 * chooses within the least that any of them has. device->rates is found where there is something to choose.
 * What does not fit is refused later. Collective. ERR_NOMEM, or another rank's error. */
int budget_spend(struct choice *choice, struct engine_options *options, const struct config *c,
        struct device_memory *device, const struct machine *machine);

/* The same for this rank alone, of a configuration that is only tried; BUDGET_ROUGHLY leaves out what fills
 * smaller budgets. */
enum budget_thoroughness { BUDGET_ROUGHLY, BUDGET_AS_A_RUN };
int budget_try(struct choice *choice, struct engine_options *options, const struct config *c,
        const struct device_memory *device, const struct machine *machine,
        enum budget_thoroughness thoroughness);

#endif
