/* Measures this machine in the meta device's terms, so that simulated steps match real ones.
 *
 * Mental model. It runs a step's work on a small scale. On the compute stream these are attention, and a
 * block's forward and backward by the model's own stages. It also measures AdamW in device memory, and a copy
 * each way of a unit's size. In host memory it measures a copy by the CPU's threads, and AdamW on planes of
 * the run's types. On a GPU it also measures small kernels, host functions, copies both ways at once, and
 * pinning.
 *
 * Each runs first on little data, then on enough for some milliseconds. The best of a few repetitions counts,
 * because other load only makes it slower. All work goes through device/device.h. So a CPU and a GPU are
 * measured alike, and the figures include a throttle of copies. Ranks that measure at the same time each get
 * their share.
 */
#ifndef FERRY_PLACEMENT_MEASURE_H
#define FERRY_PLACEMENT_MEASURE_H

#include "offload/engine.h"

/* Measures all rates but those of collectives. options: as for engine_open of a training engine, on a
 * computing device without an open arena. Uses and frees memory within device_budget_bytes there and
 * host_bytes of the host (0: any). *speed has assumed values on entry; measured ones replace them. Takes
 * about 0.3 s. ERR_FIT (too little memory to measure), ERR_NOMEM, ERR_DEVICE. */
int measure_speed(struct device_speed *speed, const struct engine_options *options, int64_t host_bytes);

/* Parts of measure_speed. measure_attention sets the rate of attention, measure_block the rate of other
 * products. With that rate and the other rates in *speed, attention or a block's forward and backward take as
 * long on the meta clock as on the device. If the work is too large for most_bytes, it is measured with fewer
 * tokens, then with fewer heads and columns. */
int measure_attention(struct device_speed *speed, const struct engine_options *options, int64_t most_bytes);
int measure_block(struct device_speed *speed, const struct engine_options *options, int64_t most_bytes);

/* Measures the time of small kernels and host functions, and the rate of pinning, within host_bytes (0:
 * any). */
int measure_overheads(struct device_speed *speed, const struct engine_options *options, int64_t host_bytes);

/* Measures the rate of copies both ways at once; the rates one way must be known. */
struct measure_place {
	struct stream *h2d, *d2h;
	dev_addr arena;
	char *slab;
	int64_t bytes; /* of arena and slab each */
};
int measure_copies(struct device_speed *speed, const struct measure_place *place);

/* Measures the time of work queued between two stamps, in seconds; waits for it. */
struct measure_span {
	struct stream *stream;
	int64_t begin_ns, end_ns;
};
int measure_begin(struct measure_span *span, struct stream *stream);
int measure_end(double *seconds, struct measure_span *span, int code);

#endif
