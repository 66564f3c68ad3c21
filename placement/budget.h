/* Spends the memory budgets (vram_budget, ram_budget).
 *
 * A unit is a group of tensors that is copied together (offload/unit.h). Spending a budget means choosing how
 * many units stay on the device, how many blocks keep their activations, and how many units are fetched ahead
 * (placement/choice.h). Keys that the user set are kept. */
#ifndef FERRY_PLACEMENT_BUDGET_H
#define FERRY_PLACEMENT_BUDGET_H

#include "placement/choice.h"
#include "placement/device_memory.h"

/* budget_is_spent: 1 if a budget may keep data on the device. budget_freedom: the choices that the keys leave
 * open; its `smaller` is 0. */
int budget_is_spent(const struct config *c, int64_t device_budget_bytes);
void budget_freedom(struct choice_freedom *f, const struct config *c, const struct engine_options *options);

/* BUDGET_ROUGHLY skips the candidates of smaller budgets. */
enum budget_thoroughness { BUDGET_ROUGHLY, BUDGET_AS_A_RUN };

/* Spends the budget on the policy in *options. Without a budget *choice is unchanged. Rank 0 chooses for all
 * ranks within the smallest budget of any. Finds device->rates if there is a choice. A plan that does not fit
 * is refused later. Collective. ERR_NOMEM, or another rank's error. */
int budget_spend(struct choice *choice, struct engine_options *options, const struct config *c,
        struct device_memory *device, const struct machine *machine, enum budget_thoroughness thoroughness);

/* Without a budget, on a device that is the host: lets as many blocks keep their activations as three
 * quarters of the memory that the run may use have room for. Keeping them is faster on any machine, so
 * nothing is measured. Collective, errors as budget_spend. */
int budget_keep_activations(struct engine_options *options, const struct config *c,
        const struct device_memory *device, const struct machine *machine);

/* The same for a trial configuration on this rank alone. */
int budget_try(struct choice *choice, struct engine_options *options, const struct config *c,
        const struct device_memory *device, const struct machine *machine,
        enum budget_thoroughness thoroughness);

/* What budget_try would find, from estimates alone (choice_estimate), also without a budget; for trials of
 * steps with many micro-batches. */
enum { BUDGET_MICROS = 8 /* trials of more are estimated */ };
int budget_estimate(struct choice_candidate *k, const struct engine_options *options, const struct config *c,
        const struct device_memory *device, const struct machine *machine);

/* Whether what budget_try would find surely fits the budgets (choice_fits); *fits 0: not known. */
int budget_fits(int *fits, const struct engine_options *options, const struct config *c,
        const struct device_memory *device, const struct machine *machine);

#endif
