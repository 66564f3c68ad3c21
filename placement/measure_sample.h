/* A part of a step's computation, cut so that measuring it takes some milliseconds.
 *
 * A user fills in the functions of struct sample. sample_measure times it first on little data, then on
 * enough. sample_fit finds the rate at which the meta clock predicts the same time. */
#ifndef FERRY_PLACEMENT_MEASURE_SAMPLE_H
#define FERRY_PLACEMENT_MEASURE_SAMPLE_H

#include "placement/measure.h"

struct sample {
	/* Sets the sample's size after `cut` cuts; 0: no cut. Cuts beyond the smallest size have no
	 * effect. */
	void (*cut)(struct sample *s, int cut);
	/* Places the buffers with sample_take and sets flops. */
	void (*lay)(struct sample *s);
	/* Queues copies of inputs that need valid numbers, and waits for them. */
	int (*write)(const struct sample *s, struct stream *stream);
	int (*queue)(const struct sample *s, struct stream *stream);
	double flops;
	dev_addr base;
	int64_t bytes; /* bytes taken from base on */
};

/* Takes `bytes` more of the sample's memory, aligned. */
dev_addr sample_take(struct sample *s, int64_t bytes);

/* Measures the sample's seconds on the device, cut so that it takes about about_s. The sample stays cut.
 * *seconds is 0 if there is no memory for any of it. ERR_*. */
int sample_measure(
        double *seconds, struct sample *s, struct device *device, int64_t most_bytes, double about_s);

/* Sets all of `rates` (pointers into *speed, ended by NULL) to one rate, at which the sample takes `seconds`
 * on the meta clock. Finds it by halving, around the rate at which only products take time. If passes over
 * memory alone take longer on the clock than `seconds`, because here they stay within caches, the rate stays
 * near the upper end. */
int sample_fit(struct device_speed *speed, double *const rates[], struct sample *s, double seconds);

#endif
