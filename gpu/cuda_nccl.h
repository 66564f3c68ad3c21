/* One rank's NCCL communicator, and the thread that watches it.
 *
 * The communicator does not block: ferry polls an unfinished NCCL call until it is done or the deadline
 * passes. Queued work runs on the GPU and waits there for the other ranks. If a rank died, this wait would
 * last forever, and so would any wait for the stream. So a thread checks ten times a second whether NCCL
 * noticed an error, or whether the owning thread has been in one wait for longer than the deadline
 * (cuda_device.waiting_since_ns). After an error of the device the deadline is a few seconds. The thread then
 * aborts the communicator, which ends the work on the GPU, and the reason becomes the device's error. The
 * thread makes no CUDA calls.
 */
#ifndef FERRY_GPU_CUDA_NCCL_H
#define FERRY_GPU_CUDA_NCCL_H

#include "gpu/cuda_device.h"

struct cuda_nccl;

/* Joins the group. Every rank of the world calls it with its own group; all groups have the same size and
 * stride. `bootstrap` carries an id from the first rank of each group (NULL is allowed in a world of one).
 * Either all ranks get a communicator or, as far as they can still reach each other, none. ERR_UNSUPPORTED
 * (no NCCL, on some rank), ERR_DEVICE, ERR_NOMEM. */
int cuda_nccl_open(struct cuda_nccl **nccl, struct cuda_device *device,
        const struct device_bootstrap *bootstrap, const struct comm_group *group);

/* Its work must be done, or the device must have an error. NULL is allowed. */
void cuda_nccl_close(struct cuda_nccl *nccl);

/* Queues a collective on the stream. ERR_DEVICE. */
int cuda_nccl_queue(struct cuda_nccl *nccl, cudaStream_t stream, const struct work *work);

#endif
