/* Copies between the GPU and host memory that the machine refuses to pin.
 *
 * Mental model. The driver can stage such memory itself, but it may block the caller meanwhile, so nothing
 * would overlap. Therefore the device pins one small buffer. A stream takes a share of it: two slots, and a
 * second CUDA stream for host functions that copy between slots and memory. Events hand slots over in both
 * directions; the owning thread only queues.
 *
 * 	copy in:   stage: [memory -> slot 0] [memory -> slot 1] [memory -> slot 0] ...
 * 	           main:               [slot 0 -> GPU]    [slot 1 -> GPU] ...
 */
#ifndef FERRY_GPU_CUDA_BOUNCE_H
#define FERRY_GPU_CUDA_BOUNCE_H

#include "gpu/cuda_device.h"

enum { CUDA_BOUNCE_BYTES = 64 << 20, CUDA_BOUNCE_STREAMS = 4 };

/* Pins the device's buffer unless it has one. Returns 1, or 0 if even that is refused. */
int cuda_bounce_pin(struct cuda_device *device);
void cuda_bounce_unpin(struct cuda_device *device);

/* 1: the stream has its share, 0: there is none (no buffer, or all shares are taken), or ERR_DEVICE,
 * ERR_NOMEM. */
int cuda_bounce_open(struct cuda_stream *stream);
void cuda_bounce_close(struct cuda_bounce *bounce); /* NULL is allowed; the stream has been synchronised */

/* The stream of the host functions; NULL if `bounce` is NULL. */
const struct cuda_stream *cuda_bounce_stage(const struct cuda_bounce *bounce);

/* Queue a copy on a stream that has a share. Return 0, ERR_DEVICE or ERR_NOMEM. */
int cuda_bounce_in(struct cuda_stream *stream, char *dst, const char *src, int64_t bytes);
int cuda_bounce_out(struct cuda_stream *stream, char *dst, const char *src, int64_t bytes);

#endif
