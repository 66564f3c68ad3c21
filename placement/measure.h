/* Measures this machine in the meta device's terms, so that simulated steps match real ones.
 *
 * Mental model. It runs a step's work on a small scale. On the compute stream: attention, and a block's
 * forward and backward by the model's own stages. Also a pass over device memory, a copy each way of a
 * unit's size, a pass of the CPU's threads over host memory, and AdamW on planes of the run's types. On a
 * GPU also small kernels, host functions, copies both ways at once, and pinning.
 *
 * Each runs first on little data, then on enough for some milliseconds, and the best of a few repetitions
 * counts, because other load only slows it. All work goes through device/device.h. So a CPU and a GPU are
 * measured alike, the figures include a throttle of copies, and ranks that measure at once each get their
 * share.
 */
#ifndef FERRY_PLACEMENT_MEASURE_H
#define FERRY_PLACEMENT_MEASURE_H

#include "offload/engine.h"

/* options: as for engine_open of a training engine, on a computing device without an open arena. Uses and
 * frees memory within device_budget_bytes there and host_bytes of the host (0: any). *speed has assumed
 * values on entry; measured ones replace them (not for collectives). Takes about 0.3 s. ERR_FIT (too little
 * memory for any of it), ERR_NOMEM, ERR_DEVICE. */
int measure_speed(struct device_speed *speed, const struct engine_options *options, int64_t host_bytes);

/* Of that the part of attention, whose rate is set, and the part of other products: a rate of theirs at which
 * a block's forward and backward take on the clock, whose other figures are *speed's, what they take on the
 * device. What is too large is measured with fewer tokens, then heads and columns. Within most_bytes. */
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
	int64_t bytes; /* of both */
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
