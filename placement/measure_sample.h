/* A part of a step's computation, made small enough to measure: first on little data, then on enough for
 * some milliseconds. */
#ifndef FERRY_PLACEMENT_MEASURE_SAMPLE_H
#define FERRY_PLACEMENT_MEASURE_SAMPLE_H

#include "placement/measure.h"

struct sample {
	/* Sets the sample to its size after `cut` cuts; 0: the whole. Further cuts may change nothing. */
	void (*cut)(struct sample *s, int cut);
	/* Places the buffers, each by sample_take; sets flops. */
	void (*lay)(struct sample *s);
	/* Queues copies of inputs that need valid numbers, and waits for them. */
	int (*write)(const struct sample *s, struct stream *stream);
	int (*queue)(const struct sample *s, struct stream *stream);
	double flops;
	dev_addr base;
	int64_t bytes; /* taken, from base on */
};

/* `bytes` more of the sample's memory, aligned. */
dev_addr sample_take(struct sample *s, int64_t bytes);

/* Seconds on the device for the sample, cut so that it takes about about_s; it stays cut. 0: no memory for
 * any of it. ERR_*. */
int sample_measure(
        double *seconds, struct sample *s, struct device *device, int64_t most_bytes, double about_s);

/* Sets all of `rates` (of *speed; NULL ends them), to the one at which the sample takes so long on the clock
 * of such a machine. By halving, around the rate at which nothing but products takes time. Where passes over
 * memory alone take longer on the clock than all of it did, because here they stay within caches, it stays
 * near that. */
int sample_fit(struct device_speed *speed, double *const rates[], struct sample *s, double seconds);

#endif
