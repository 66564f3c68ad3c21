/* What the machine says of its GPUs and their driver. */
#include "gpu/cuda_info.h"

#include "base/err.h"
#include "gpu/cuda.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int driver_version(void)
{
	int version = 0;

	return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

/* Why no GPU can be used, in terms of what to do about it. */
static int refuse(cudaError_t error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = driver_version();

	if (error == cudaErrorInsufficientDriver && !driver)
		return err_set(ERR_UNSUPPORTED,
		        "no NVIDIA driver (libcuda.so.1) was found on this machine; install one, or use "
		        "device=host");
	if (error == cudaErrorStubLibrary)
		return err_set(ERR_UNSUPPORTED, "libcuda.so.1 is the stub of a CUDA toolkit, which is for "
		                                "linking, and no NVIDIA driver; take "
		                                "its folder out of LD_LIBRARY_PATH, or use device=host");
	if (error == cudaErrorInsufficientDriver)
		return err_set(ERR_UNSUPPORTED,
		        "the NVIDIA driver serves CUDA %d.%d, this program needs %d.%d; update the driver, "
		        "or use device=host",
		        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	if (error == cudaErrorNoDevice)
		return err_set(ERR_UNSUPPORTED,
		        "there is no NVIDIA GPU that this process may use%s%s%s; run where there is one, or "
		        "use device=host",
		        visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
		        visible ? "\")" : "");
	return cuda_check(error, "cudaGetDeviceCount");
}

int cuda_gpu_count(int *count)
{
	cudaError_t error = cudaGetDeviceCount(count);

	if (error == cudaSuccess && !*count)
		error = cudaErrorNoDevice;
	if (error == cudaSuccess)
		return 0;
	*count = 0;
	return refuse(error);
}

/* As the kernel says; it knows bus ids in small letters. */
static int numa_node_of(const char *pci_bus_id)
{
	char path[128] = "/sys/bus/pci/devices/";
	int node = -1;
	FILE *file;

	for (size_t at = strlen(path); *pci_bus_id && at + 16 < sizeof(path); at++, pci_bus_id++)
		path[at] = (char)tolower((unsigned char)*pci_bus_id);
	strcat(path, "/numa_node");
	file = fopen(path, "r");
	if (file && fscanf(file, "%d", &node) != 1)
		node = -1;
	if (file)
		fclose(file);
	return node;
}

int cuda_gpu_read(struct cuda_gpu *gpu, int index)
{
	struct cudaDeviceProp properties;
	int major = 0, minor = 0, rc;
	const struct {
		int *value;
		enum cudaDeviceAttr attribute;
	} list[] = {
	        {&major, cudaDevAttrComputeCapabilityMajor},
	        {&minor, cudaDevAttrComputeCapabilityMinor},
	        {&gpu->sm_count, cudaDevAttrMultiProcessorCount},
	        {&gpu->copy_engine_count, cudaDevAttrAsyncEngineCount},
	};

	memset(gpu, 0, sizeof(*gpu));
	rc = cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !rc; i++)
		rc = cuda_check(cudaDeviceGetAttribute(list[i].value, list[i].attribute, index),
		        "cudaDeviceGetAttribute");
	if (!rc)
		rc = cuda_check(cudaDeviceGetPCIBusId(gpu->pci_bus_id, sizeof(gpu->pci_bus_id), index),
		        "cudaDeviceGetPCIBusId");
	if (rc)
		return rc;
	snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1, properties.name);
	gpu->memory_bytes = (int64_t)properties.totalGlobalMem;
	gpu->capability = 10 * major + minor;
	gpu->numa_node = numa_node_of(gpu->pci_bus_id);
	return 0;
}

int cuda_gpu_check(const struct cuda_gpu *gpu)
{
	if (gpu->capability >= CUDA_CAPABILITY_MIN)
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s has compute capability %d.%d, at least %d.%d is needed; use device=host", gpu->name,
	        gpu->capability / 10, gpu->capability % 10, CUDA_CAPABILITY_MIN / 10,
	        CUDA_CAPABILITY_MIN % 10);
}

void cuda_info_read(struct cuda_info *info)
{
	int count, rc = cuda_gpu_count(&count);

	*info = (struct cuda_info){.runtime_version = CUDART_VERSION, .driver_version = driver_version()};
	for (int i = 0; i < count && i < CUDA_GPUS_MAX && !rc; i++) {
		rc = cuda_gpu_read(&info->gpu[i], i);
		info->gpu_count += !rc;
	}
	if (!rc)
		rc = cuda_gpu_check(&info->gpu[0]);
	if (rc)
		snprintf(info->trouble, sizeof(info->trouble), "%.*s", (int)sizeof(info->trouble) - 1,
		        err_text());
}
