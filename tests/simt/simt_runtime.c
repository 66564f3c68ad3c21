/* The fake runtime's machine: its errors and its properties. */
#include "tests/simt/simt_runtime_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct simt_runtime simt_runtime;

struct simt_machine_options simt_runtime_defaults(void)
{
	return (struct simt_machine_options){
	        .device_count = 1,
	        .driver_version = CUDART_VERSION,
	        .capability = 90,
	        .schedule = SIMT_LAZY,
	        .kernel_ns = 1000,
	        .call_ns = 1000,
	        .copy_bytes_per_ns = 1,
	        .calls_most = 32,
	};
}

void simt_runtime_set(const struct simt_machine_options *options)
{
	simt_runtime.options = *options;
	simt_set_capability(options->capability);
	simt_runtime.last = simt_runtime.sticky = cudaSuccess;
	simt_runtime.fail_at = simt_runtime.fail_work_at = 0;
	simt_runtime.has_started = 0;
	simt_runtime.blocked_ns = 0;
}

static void read_number(const char *name, int64_t *value)
{
	const char *text = getenv(name);

	if (text)
		*value = strtoll(text, NULL, 10);
}

/* Before main, so that a program that sets nothing has a machine too. */
__attribute__((constructor)) static void begin(void)
{
	struct simt_machine_options o = simt_runtime_defaults();
	int64_t seed = 0, eager = 0, devices = 1, fail_work = 0, capability = o.capability, no_register = 0,
	        no_alloc = 0;

	read_number("FERRY_SIMT_SEED", &seed);
	read_number("FERRY_SIMT_EAGER", &eager);
	read_number("FERRY_SIMT_DEVICES", &devices);
	read_number("FERRY_SIMT_CAPABILITY", &capability);
	read_number("FERRY_SIMT_MEMORY_BYTES", &o.memory_bytes);
	read_number("FERRY_SIMT_PIN_BYTES", &o.pin_bytes);
	read_number("FERRY_SIMT_NO_REGISTER", &no_register);
	read_number("FERRY_SIMT_NO_ALLOC", &no_alloc);
	read_number("FERRY_SIMT_FAIL_WORK", &fail_work);
	read_number("FERRY_SIMT_TAKEN_BYTES", &o.taken_bytes);
	read_number("FERRY_SIMT_REFUSED_FIRST", &o.refused_first);
	read_number("FERRY_SIMT_REFUSED_COUNT", &o.refused_count);
	o.name = getenv("FERRY_SIMT_NAME");
	o.seed = (uint64_t)seed;
	o.schedule = eager ? SIMT_EAGER : SIMT_LAZY;
	o.device_count = (int)devices;
	o.capability = (int)capability;
	o.refuses_register = (int)no_register;
	o.refuses_alloc = (int)no_alloc;
	simt_runtime_set(&o);
	simt_fail_work_after(fail_work, cudaErrorECCUncorrectable);
}

/* ---- errors ---- */

static int is_sticky(cudaError_t error)
{
	switch (error) {
	case cudaErrorDevicesUnavailable:
	case cudaErrorECCUncorrectable:
	case cudaErrorIllegalAddress:
	case cudaErrorLaunchTimeout:
	case cudaErrorAssert:
	case cudaErrorMisalignedAddress:
	case cudaErrorLaunchFailure:
		return 1;
	default:
		return 0;
	}
}

int64_t simt_fail_after(int64_t n, cudaError_t error)
{
	int64_t count = simt_runtime.call_count;

	simt_runtime.call_count = 0;
	simt_runtime.fail_at = n;
	simt_runtime.fail_with = error;
	return count;
}

int64_t simt_fail_work_after(int64_t n, cudaError_t error)
{
	int64_t count = simt_runtime.work_count;

	simt_runtime.work_count = 0;
	simt_runtime.fail_work_at = n;
	simt_runtime.fail_work_with = error;
	return count;
}

cudaError_t simt_leave(cudaError_t error)
{
	if (error != cudaSuccess && error != cudaErrorNotReady)
		simt_runtime.last = error;
	if (is_sticky(error))
		simt_break(error);
	return error;
}

void simt_break(cudaError_t error)
{
	if (simt_runtime.sticky == cudaSuccess)
		simt_runtime.sticky = error;
}

/* CUDA reads its environment once. */
static void start(void)
{
	const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	simt_runtime.has_started = 1;
	simt_runtime.connections = text ? (int)strtol(text, NULL, 10) : 0;
}

int simt_runtime_connections(void)
{
	return simt_runtime.connections;
}

cudaError_t simt_enter(void)
{
	if (!simt_runtime.has_started)
		start();
	if (++simt_runtime.call_count == simt_runtime.fail_at)
		return simt_leave(simt_runtime.fail_with);
	return simt_runtime.sticky;
}

static const struct {
	cudaError_t error;
	const char *name, *text;
} errors[] = {
#define ERROR(name, number, text) {name, #name, text},
        SIMT_CUDA_ERRORS(ERROR)
#undef ERROR
};

const char *cudaGetErrorName(cudaError_t error)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			return errors[i].name;
	return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
	if (error && error == (cudaError_t)simt_finding_error())
		return simt_finding();
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].error == error)
			return errors[i].text;
	return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
	return simt_runtime.sticky ? simt_runtime.sticky : simt_runtime.last;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t error = cudaPeekAtLastError();

	simt_runtime.last = cudaSuccess;
	return error;
}

int simt_runtime_live(void)
{
	return simt_runtime.live_count;
}

/* ---- the machine ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
	cudaError_t error = simt_enter();

	*version = simt_runtime.options.driver_version;
	return error;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return simt_enter();
}

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = simt_enter();

	*count = 0;
	if (error)
		return error;
	if (simt_runtime.options.driver_version < CUDART_VERSION)
		return simt_leave(cudaErrorInsufficientDriver);
	*count = simt_runtime.options.device_count;
	return *count ? cudaSuccess : simt_leave(cudaErrorNoDevice);
}

static cudaError_t enter_device(int device)
{
	cudaError_t error = simt_enter();

	if (!error && (device < 0 || device >= simt_runtime.options.device_count))
		error = simt_leave(cudaErrorInvalidDevice);
	return error;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = simt_runtime.current;
	return simt_enter();
}

cudaError_t cudaSetDevice(int device)
{
	cudaError_t error = enter_device(device);

	if (!error)
		simt_runtime.current = device;
	return error;
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
	(void)flags;
	return simt_enter();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
	int64_t bytes = simt_runtime.options.memory_bytes;

	memset(properties, 0, sizeof(*properties));
	snprintf(properties->name, sizeof(properties->name), "%s",
	        simt_runtime.options.name ? simt_runtime.options.name : "SIMT emulator");
	properties->totalGlobalMem = bytes ? (size_t)bytes : (size_t)80 << 30;
	return enter_device(device);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	cudaError_t error = enter_device(device);

	switch (attribute) {
	case cudaDevAttrMultiProcessorCount:
		*value = 4;
		break;
	case cudaDevAttrAsyncEngineCount:
		*value = 2;
		break;
	case cudaDevAttrComputeCapabilityMajor:
		*value = simt_runtime.options.capability / 10;
		break;
	case cudaDevAttrComputeCapabilityMinor:
		*value = simt_runtime.options.capability % 10;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*value = simt_shared_max();
		break;
	default:
		error = simt_leave(cudaErrorInvalidValue);
	}
	return error;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
	snprintf(id, (size_t)bytes, "0000:%02X:00.0", device + 1);
	return enter_device(device);
}

/* Pairs are joined by NVLink, pairs of pairs by PCIe, others by nothing. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
	*can = device != peer && device / 4 == peer / 4;
	return enter_device(device) ? enter_device(device) : enter_device(peer);
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device, int peer)
{
	int is_pair = device / 2 == peer / 2;

	*value = attribute == cudaDevP2PAttrPerformanceRank ? !is_pair : is_pair;
	return device == peer ? cudaErrorInvalidValue : enter_device(device);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
	cudaError_t error = simt_enter();

	if (error)
		return error;
	if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
		simt_set_carveout(kernel, value);
		return simt_leave(value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue);
	}
	if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
		return simt_leave(cudaErrorInvalidValue);
	return simt_leave((cudaError_t)simt_set_dynamic_max(kernel, value));
}
