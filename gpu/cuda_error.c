/* Errors of CUDA calls, and the first one of a device. */
#include "gpu/cuda_device.h"

/* Advice for errors, if CUDA's text has none. */
static const struct {
	cudaError_t error;
	const char *hint;
} hints[] = {
        {cudaErrorMemoryAllocation,
                "GPU memory ran out: another process may hold some (nvidia-smi lists them); end it, or set "
                "vram_budget lower"},
        {cudaErrorNoKernelImageForDevice, "this build has no kernels for this GPU; build with "
                                          "-DFERRY_CUDA_ARCHITECTURES naming its compute capability"},
        {cudaErrorUnsupportedPtxVersion,
                "the driver is older than the toolkit that built ferry and cannot compile its kernels for "
                "this GPU; update the driver, or build with -DFERRY_CUDA_ARCHITECTURES naming the GPU's "
                "compute capability"},
        {cudaErrorDevicesUnavailable,
                "another process uses the GPU alone (nvidia-smi -q -d COMPUTE shows the compute mode)"},
        {cudaErrorSystemNotReady, "the NVSwitch fabric is not up; start nvidia-fabricmanager"},
        {cudaErrorSystemDriverMismatch,
                "the kernel's driver and libcuda.so.1 have different versions; reboot, or update both"},
        {cudaErrorCompatNotSupportedOnDevice, "a libcuda.so.1 of a cuda-compat package is in the way; take "
                                              "its folder out of LD_LIBRARY_PATH, or update the driver"},
};

int cuda_check(cudaError_t error, const char *call)
{
	const char *hint = NULL;

	if (error == cudaSuccess)
		return 0;
	for (size_t i = 0; i < sizeof(hints) / sizeof(*hints); i++)
		if (hints[i].error == error)
			hint = hints[i].hint;
	return err_set(ERR_DEVICE, "%s: %s (%s)%s%s", call, cudaGetErrorString(error),
	        cudaGetErrorName(error), hint ? "; " : "", hint ? hint : "");
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
