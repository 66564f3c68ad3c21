/* How fast the machine is taken to be on which budgets are spent and steps simulated.
 *
 * Of a machine that is described (machine=FILE), what the description says, and the same each time. Of this
 * one, what is measured when it is first asked for (placement/measure.h): by
 * a run only where it has something to choose, by `plan` always. Where a device cannot be measured (a GPU
 * that is not here, nothing that trains, no memory to do it in) figures are assumed.
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
	struct device_speed speed; /* what is 0 has the meta device's built-in values */
};

/* Does nothing where it is known. machine: that is planned for; NULL: this one, which a run may have
 * described all the same. kind: of the device that is planned for; options: what is asked for, on that
 * device or on meta. ERR_INPUT (a described machine computes elsewhere), ERR_NOMEM, ERR_DEVICE. */
int rates_find(struct machine_rates *rates, const struct config *c, const struct machine *machine,
        enum device_kind kind, const struct engine_options *options);

/* All ranks know what rank 0 was told, or the least that any of them measured. */
int rates_share(struct machine_rates *rates);

/* "this machine, measured: products 160 GFLOP/s, ..." */
void rates_text(struct str *out, const struct machine_rates *rates);
json_t *rates_json(const struct machine_rates *rates); /* NULL: out of memory */

#endif
