/* How fast the machine at hand is, in the meta device's words, so that a step can be simulated as it will
 * run here.
 *
 * Mental model. What a step does is done on a small scale: attention, and a block's forward and backward by
 * the model's own stages, on the compute stream; a pass over device memory; a copy each way of a unit's size;
 * a pass of the CPU's threads over host memory, and AdamW on planes of the run's types; on a GPU also small
 * kernels, host functions, copies both ways at once and pinning. Each is tried on
 * little first, then on as much as takes some milliseconds, and the best of a few repetitions counts: others'
 * load only takes away. All of it goes through device/device.h, so a CPU and a GPU are measured alike, a
 * throttle of copies is in the figures, and ranks that measure at once each get what they have beside the
 * others.
 */
#ifndef FERRY_PLACEMENT_MEASURE_H
#define FERRY_PLACEMENT_MEASURE_H

#include "offload/engine.h"

/* options: as for engine_open, of a training engine, on a device that computes and whose arena is not open;
 * memory within device_budget_bytes there and host_bytes of the host (0: any) is taken, and freed again.
 * *speed, on entry what is to be assumed, is set where it can be measured; collectives cannot. Takes about
 * three tenths of a second. ERR_FIT (too little memory for any of it), ERR_NOMEM, ERR_DEVICE. */
int measure_speed(struct device_speed *speed, const struct engine_options *options, int64_t host_bytes);

/* Of that the part of attention, whose rate is set, and the part of other products: a rate of theirs at which
 * a block's forward and backward take on the clock, whose other figures are *speed's, what they take on the
 * device. What is too large is measured with fewer tokens, then heads and columns. Within most_bytes. */
int measure_attention(struct device_speed *speed, const struct engine_options *options, int64_t most_bytes);
int measure_block(struct device_speed *speed, const struct engine_options *options, int64_t most_bytes);

/* What small kernels and host functions take, and at which rate memory is pinned, within host_bytes (0: any).
 */
int measure_overheads(struct device_speed *speed, const struct engine_options *options, int64_t host_bytes);

/* What copies carry both ways at once; their rates one way are known. */
struct measure_place {
	struct stream *h2d, *d2h;
	dev_addr arena;
	char *slab;
	int64_t bytes; /* of both */
};
int measure_copies(struct device_speed *speed, const struct measure_place *place);

/* Nanoseconds of what was queued between two stamps, in seconds; waits. */
struct measure_span {
	struct stream *stream;
	int64_t begin_ns, end_ns;
};
int measure_begin(struct measure_span *span, struct stream *stream);
int measure_end(double *seconds, struct measure_span *span, int code);

#endif
