/* The machine's rates for spending budgets and simulating steps.
 *
 * For a described machine (machine=FILE) they come from the description and are the same each time. For this
 * machine ferry measures them at first use (placement/measure.h): a run only if it has something to choose,
 * `plan` always. If a device cannot be measured (no such GPU here, nothing to train, no memory), ferry
 * assumes figures.
 */
#ifndef FERRY_PLACEMENT_RATES_H
#define FERRY_PLACEMENT_RATES_H

#include "base/json.h"
#include "base/str.h"
#include "config/config.h"
#include "offload/engine.h"
#include "placement/machine.h"

enum rates_origin { RATES_UNKNOWN, RATES_DESCRIBED, RATES_MEASURED, RATES_ASSUMED };

struct machine_rates {
	enum rates_origin origin;
	struct device_speed speed; /* 0 means the meta device's built-in values */
};

/* Finds the rates if they are unknown. machine: the planned machine; NULL: this one, for which the
 * configuration may name a description too. kind: of the planned device. options: those of the run, on that
 * device or on meta. ERR_INPUT (the described machine has another kind of device), ERR_NOMEM, ERR_DEVICE. */
int rates_find(struct machine_rates *rates, const struct config *c, const struct machine *machine,
        enum device_kind kind, const struct engine_options *options);

/* Gives all ranks rank 0's described rates, or the slowest measured rates of any rank; 0 is not measured. */
int rates_share(struct machine_rates *rates);

/* "this machine, measured: products 160 GFLOP/s, ..." */
void rates_text(struct str *out, const struct machine_rates *rates);
json_t *rates_json(const struct machine_rates *rates); /* NULL: out of memory */

#endif
