/* Shared by the parts of a probe (gpu/cuda_probe.c, cuda_probe_rates.c). */
#ifndef FERRY_GPU_CUDA_PROBE_PARTS_H
#define FERRY_GPU_CUDA_PROBE_PARTS_H

#include "device/device.h"
#include "gpu/cuda_cards.h"
#include "gpu/cuda_probe.h"

struct probe {
	cuda_probe_fn *found;
	void *context;
	int ended; /* the last result of found */
	struct device *device;
	const struct cuda_card *card; /* NULL: not a known one */
	int64_t copy_bytes;
	struct stream *compute, *h2d, *d2h, *cpu;
	dev_addr arena;
	char *pinned, *pageable; /* slabs of 2 * copy_bytes */
};

/* Gives a row to the caller; rc < 0: the row says why it failed. Returns 0 while the caller wants more. */
int probe_tell(struct probe *p, int rc, const char *name, double value, const char *unit, const char *what);

/* The same with a row of the caller's. */
int probe_tell_verdict(struct probe *p, const struct cuda_probe_row *row);

/* Rates of products, attention and memory at work of some seconds, and the sensors meanwhile. */
void probe_rates(struct probe *p);

#endif
