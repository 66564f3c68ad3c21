/* What a GPU's machine costs before anything is trained: starting, pinning, copies, launches, callbacks and
 * libraries, in some seconds and each in a row of its own.
 *
 * A measurement that fails is a row that says why, and the next one is made. Rows are handed out as they are
 * found, so that of a probe that hangs the last row tells what it hangs in. No types of CUDA's.
 */
#ifndef FERRY_GPU_CUDA_PROBE_H
#define FERRY_GPU_CUDA_PROBE_H

#include <stdint.h>

struct cuda_probe_row {
	const char *name, *unit, *what; /* "pin_huge", "GB/s", for people; static */
	double value;                   /* 0 where it failed */
	const char *why;                /* it failed; NULL: it did not */
};
typedef int cuda_probe_fn(void *context, const struct cuda_probe_row *row);

/* Probes GPU 0 of those that the process sees, with copies of so many bytes (0: 128 MiB). 0, what `found`
 * returned where that is not 0, or the error that keeps the device from opening. */
int cuda_probe(cuda_probe_fn *found, void *context, int64_t copy_bytes);

#endif
