/* Errors of CUDA calls, and the first one of a device. */
#include "gpu/cuda_device.h"

int cuda_check(cudaError_t error, const char *call)
{
	if (error == cudaSuccess)
		return 0;
	return err_set(ERR_DEVICE, "%s: %s (%s)", call, cudaGetErrorString(error), cudaGetErrorName(error));
}

int cuda_device_error(struct cuda_device *device)
{
	int rc;

	if (!atomic_load(&device->failed))
		return 0;
	pthread_mutex_lock(&device->error_lock);
	rc = err_give(&device->error);
	pthread_mutex_unlock(&device->error_lock);
	return rc;
}

int cuda_device_fail(struct cuda_device *device, int rc)
{
	pthread_mutex_lock(&device->error_lock);
	err_take(&device->error, rc);
	pthread_mutex_unlock(&device->error_lock);
	atomic_store(&device->failed, 1);
	return cuda_device_error(device);
}
