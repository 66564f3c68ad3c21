/* Measures a GPU and its machine before training: starting, pinning, copies, launches, callbacks, libraries,
 * memory, products and attention. It takes some seconds; each measurement is a row.
 *
 * Rows of cards that ferry knows (gpu/cuda_cards.h) are judged by what such a card does, others by what is
 * usual. If a measurement fails, its row says why, and the next one follows. The caller gets each row as soon
 * as it is measured, so the last row of a probe that hangs shows how far it came. Uses no CUDA types.
 */
#ifndef FERRY_GPU_CUDA_PROBE_H
#define FERRY_GPU_CUDA_PROBE_H

#include "device/device_attention.h"

#include <stdint.h>

struct cuda_probe_row {
	const char *name, *unit, *what; /* "pin_huge", "GB/s", for people; static */
	double value;                   /* 0 if it failed */
	const char *why;                /* why it failed; NULL: it did not */
	const char *verdict; /* "ok", or what a value far from the usual of this card means; NULL: none */
};
typedef int cuda_probe_fn(void *context, const struct cuda_probe_row *row);

/* Probes GPU 0 of those that the process sees, with copies of copy_bytes (0: 128 MiB); opens cuDNN if its
 * attention is chosen. Returns 0, the first result of `found` that is not 0, or the error that keeps the
 * device from opening. */
int cuda_probe(cuda_probe_fn *found, void *context, int64_t copy_bytes, enum device_attention attention);

#endif
