/* NVIDIA's management library for tests: one GPU with sensors. PLANTED_LACKS leaves out a function,
 * PLANTED_REFUSES starts with an error, as where the driver and the library differ. PLANTED_NO_POWER cannot
 * measure power. The second reading finds the GPU idle, with a low clock. */
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { REASON_IDLE = 0x1, REASON_POWER = 0x4, REASON_HEAT = 0x20 };

static int opened, readings;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **gpu);
EXPORT int nvmlDeviceGetClockInfo(void *gpu, int which, unsigned *mhz);
EXPORT int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts);
EXPORT int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius);

int nvmlInit_v2(void)
{
#ifdef PLANTED_REFUSES
	return 18; /* the driver's version is another */
#endif
	opened++;
	return 0;
}

int nvmlShutdown(void)
{
	opened--;
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **gpu)
{
	*gpu = &opened;
	return opened && strlen(id) == strlen("0000:01:00.0") ? 0 : 6;
}

int nvmlDeviceGetClockInfo(void *gpu, int which, unsigned *mhz)
{
	if (gpu != &opened || (which != 1 && which != 2))
		return 2;
	*mhz = which == 2 ? 2619 : readings == 2 ? 210 : 1500;
	return 0;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts)
{
#ifdef PLANTED_NO_POWER
	return 3; /* not supported */
#endif
	*milliwatts = 698500;
	return gpu != &opened;
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius)
{
	*celsius = 71;
	return gpu != &opened || sensor;
}

#ifndef PLANTED_LACKS
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *bits);

int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *bits)
{
	*bits = readings++ == 1 ? REASON_IDLE : REASON_POWER | REASON_HEAT;
	return gpu != &opened;
}
#endif
