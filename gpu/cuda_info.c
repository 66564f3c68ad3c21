/* Reads facts about the machine's GPUs and their driver. */
#include "gpu/cuda_info.h"

#include "base/err.h"
#include "base/log.h"
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

/* Says why no GPU can be used, and what to do about it. */
static int refuse(cudaError_t error)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int driver = driver_version();

	if (error == cudaErrorInsufficientDriver && !driver)
		return err_set(ERR_UNSUPPORTED,
		        "no NVIDIA driver (libcuda.so.1) was found on this machine; install one, or use "
		        "device=host");
	if (error == cudaErrorStubLibrary)
		return err_set(ERR_UNSUPPORTED, "libcuda.so.1 is a link-time stub, not the NVIDIA driver; "
		                                "take its folder out of LD_LIBRARY_PATH, or use device=host");
	if (error == cudaErrorInsufficientDriver)
		return err_set(ERR_UNSUPPORTED,
		        "the NVIDIA driver supports CUDA %d.%d, but this build needs %d.%d; update the "
		        "driver, or use device=host",
		        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	if (error == cudaErrorNoDevice)
		return err_set(ERR_UNSUPPORTED,
		        "there is no NVIDIA GPU that this process may use%s%s%s; run where there is one, or "
		        "use device=host",
		        visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
		        visible ? "\")" : "");
	return cuda_check(error, "cudaGetDeviceCount");
}

#define CUDA_CONNECTIONS_ENVIRONMENT "CUDA_DEVICE_MAX_CONNECTIONS"

enum { CUDA_CONNECTIONS = 32 }; /* the most that CUDA takes */

/* Streams share the hardware's connections. With few, work of one stream waits for that of another:
 * copies and kernels for a host function that runs. ferry's, NCCL's and those of bounced copies are more
 * than the usual 8. CUDA reads the variable when it starts, so this comes before its first call. */
static void connections_set(void)
{
	const char *before = getenv(CUDA_CONNECTIONS_ENVIRONMENT);
	char text[16];

	if (before && strtol(before, NULL, 10) >= CUDA_CONNECTIONS)
		return;
	snprintf(text, sizeof(text), "%d", CUDA_CONNECTIONS);
	if (before)
		log_warn(
		        "cuda device: %s was %s, with which copies and kernels wait for each other; this run "
		        "sets it to %d",
		        CUDA_CONNECTIONS_ENVIRONMENT, before, CUDA_CONNECTIONS);
	setenv(CUDA_CONNECTIONS_ENVIRONMENT, text, 1);
}

int cuda_gpu_count(int *count)
{
	cudaError_t error;

	connections_set();
	error = cudaGetDeviceCount(count);

	if (error == cudaSuccess && !*count)
		error = cudaErrorNoDevice;
	if (error == cudaSuccess)
		return 0;
	*count = 0;
	return refuse(error);
}

/* Reads a line of the kernel's file about a device; "" if there is none. The kernel writes bus ids in small
 * letters. */
static void device_line(char *line, size_t line_bytes, const char *pci_bus_id, const char *name)
{
	const char *instead = getenv(CUDA_SYSFS_ENVIRONMENT);
	char path[512], id[32] = "";
	FILE *file;

	for (size_t i = 0; pci_bus_id[i] && i + 1 < sizeof(id); i++)
		id[i] = (char)tolower((unsigned char)pci_bus_id[i]);
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", instead && *instead ? instead : "/sys", id,
	        name);
	*line = 0;
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(line, (int)line_bytes, file))
		*line = 0;
	line[strcspn(line, "\n")] = 0;
	fclose(file);
}

static int numa_node_of(const char *pci_bus_id)
{
	char line[16], *end;
	long node;

	device_line(line, sizeof(line), pci_bus_id, "numa_node");
	node = strtol(line, &end, 10);
	return end == line || *end || node < 0 ? -1 : (int)node;
}

static void link_read(struct cuda_link *link, int from, int to)
{
	*link = (struct cuda_link){0};
	if (from == to || cudaDeviceCanAccessPeer(&link->can_copy, from, to) != cudaSuccess ||
	        !link->can_copy) {
		*link = (struct cuda_link){0};
		return;
	}
	if (cudaDeviceGetP2PAttribute(&link->rank, cudaDevP2PAttrPerformanceRank, from, to) != cudaSuccess)
		link->rank = 0;
	if (cudaDeviceGetP2PAttribute(&link->has_atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) !=
	        cudaSuccess)
		link->has_atomics = 0;
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
	device_line(gpu->processors, sizeof(gpu->processors), gpu->pci_bus_id, "local_cpulist");
	return 0;
}

#ifndef FERRY_CUDA_ARCHITECTURES
#define FERRY_CUDA_ARCHITECTURES "80,90"
#endif
const char cuda_built_for[] = FERRY_CUDA_ARCHITECTURES;

enum cuda_code cuda_code_for(int capability, const char *built)
{
	enum cuda_code best = CUDA_CODE_NONE;

	for (char *end; *built; built = *end ? end + 1 : end) {
		int of = (int)strtol(built, &end, 10), is_real = !strncmp(end, "-real", 5),
		    is_virtual = !strncmp(end, "-virtual", 8);

		end += strcspn(end, ",;");
		if (of <= 0 || of > capability)
			continue;
		if (of / 10 == capability / 10 && !is_virtual)
			return CUDA_CODE_READY;
		if (!is_real)
			best = CUDA_CODE_COMPILED_BY_DRIVER;
	}
	return best;
}

int cuda_gpu_check(const struct cuda_gpu *gpu)
{
	if (gpu->capability < CUDA_CAPABILITY_MIN)
		return err_set(ERR_UNSUPPORTED,
		        "%s has compute capability %d.%d, but ferry needs at least %d.%d; use device=host",
		        gpu->name, gpu->capability / 10, gpu->capability % 10, CUDA_CAPABILITY_MIN / 10,
		        CUDA_CAPABILITY_MIN % 10);
	if (cuda_code_for(gpu->capability, cuda_built_for) != CUDA_CODE_NONE)
		return 0;
	return err_set(ERR_UNSUPPORTED,
	        "%s has compute capability %d.%d, but this build has kernels for %s only; build with "
	        "-DFERRY_CUDA_ARCHITECTURES=%d, or use device=host",
	        gpu->name, gpu->capability / 10, gpu->capability % 10, cuda_built_for, gpu->capability);
}

int cuda_gpu_choose(int *gpu, int rank_here, int count)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	*gpu = rank_here;
	if (rank_here < count)
		return 0;
	*gpu = 0;
	if (count == 1 && visible && *visible)
		return 0;
	return err_set(ERR_INPUT,
	        "rank %d of this host needs a GPU of its own, and %d %s here (a MIG slice counts as one, and "
	        "a process sees only one); start at most %d rank%s on this host",
	        rank_here, count, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
}

void cuda_info_read(struct cuda_info *info)
{
	int count, rc = cuda_gpu_count(&count);

	*info = (struct cuda_info){.runtime_version = CUDART_VERSION, .driver_version = driver_version()};
	for (int i = 0; i < count && i < CUDA_GPUS_MAX && !rc; i++) {
		rc = cuda_gpu_read(&info->gpu[i], i);
		info->gpu_count += !rc;
	}
	for (int from = 0; from < info->gpu_count && !rc; from++)
		for (int to = 0; to < info->gpu_count; to++)
			link_read(&info->link[from][to], from, to);
	if (!rc)
		rc = cuda_gpu_check(&info->gpu[0]);
	if (rc)
		snprintf(info->trouble, sizeof(info->trouble), "%.*s", (int)sizeof(info->trouble) - 1,
		        err_text());
}
