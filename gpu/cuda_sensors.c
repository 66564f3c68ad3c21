/* Reads a GPU's sensors by NVML. */
#include "gpu/cuda_sensors.h"

#include "base/mem.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <math.h>
#include <time.h>

enum { READ_EVERY_NS = 200000000, NVML_SM = 1, NVML_MEMORY = 2, NVML_ON_DIE = 0 };

/* The bits of nvmlDeviceGetCurrentClocksThrottleReasons. A GPU that is idle says nothing of its work. */
enum { NVML_IDLE = 0x1 };
static const struct {
	unsigned long long bits;
	enum device_slow slow;
} reasons[] = {
        {0x2 | 0x100, DEVICE_SLOW_SET}, /* clocks of applications, of the display */
        {0x4, DEVICE_SLOW_POWER},
        {0x8, DEVICE_SLOW_HARDWARE},
        {0x10, DEVICE_SLOW_SYNC},
        {0x20 | 0x40, DEVICE_SLOW_HEAT}, /* by software, by hardware */
        {0x80, DEVICE_SLOW_BRAKE},
};

/* ferry's own declarations: the library's header is not there wherever CUDA is. The first seven functions are
 * in every NVML since 2014. */
struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	int (*handle)(const char *pci_bus_id, void **gpu);
	int (*clock)(void *gpu, int which, unsigned *mhz);
	int (*power)(void *gpu, unsigned *milliwatts);
	int (*temperature)(void *gpu, int sensor, unsigned *celsius);
	int (*reasons)(void *gpu, unsigned long long *bits);
};

struct cuda_sensors {
	struct nvml nvml;
	void *library, *gpu;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t end;
	int is_ending, has_thread;
	struct device_condition sums; /* of clocks and power; the highest temperature; all slowdowns */
	int count;                    /* of readings in the sums */
};

static int bind(struct cuda_sensors *s)
{
	const struct {
		const char *name;
		void *function;
	} list[] = {
	        {"nvmlInit_v2", &s->nvml.init},
	        {"nvmlShutdown", &s->nvml.shutdown},
	        {"nvmlDeviceGetHandleByPciBusId_v2", &s->nvml.handle},
	        {"nvmlDeviceGetClockInfo", &s->nvml.clock},
	        {"nvmlDeviceGetPowerUsage", &s->nvml.power},
	        {"nvmlDeviceGetTemperature", &s->nvml.temperature},
	        {"nvmlDeviceGetCurrentClocksThrottleReasons", &s->nvml.reasons},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		*(void **)list[i].function = dlsym(s->library, list[i].name);
		if (!*(void **)list[i].function)
			return 0;
	}
	return 1;
}

/* A sensor that a card lacks gives 0. Call with the lock held. */
static void take(struct cuda_sensors *s, int also_idle)
{
	unsigned sm = 0, memory = 0, milliwatts = 0, celsius = 0;
	unsigned long long bits = 0;

	if (s->nvml.reasons(s->gpu, &bits))
		bits = 0;
	if ((bits & NVML_IDLE) && !also_idle)
		return;
	if (s->nvml.clock(s->gpu, NVML_SM, &sm))
		sm = 0;
	if (s->nvml.clock(s->gpu, NVML_MEMORY, &memory))
		memory = 0;
	if (s->nvml.power(s->gpu, &milliwatts))
		milliwatts = 0;
	if (s->nvml.temperature(s->gpu, NVML_ON_DIE, &celsius))
		celsius = 0;
	s->sums.sm_mhz += sm;
	s->sums.memory_mhz += memory;
	s->sums.watts += 1e-3 * milliwatts;
	s->sums.celsius = fmax(s->sums.celsius, celsius);
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (bits & reasons[i].bits)
			s->sums.slowed |= 1U << reasons[i].slow;
	s->count++;
}

static void *sensors_run(void *context)
{
	struct cuda_sensors *s = context;

	pthread_mutex_lock(&s->lock);
	while (!s->is_ending) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += READ_EVERY_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&s->end, &s->lock, &until);
		if (!s->is_ending)
			take(s, 0);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

struct cuda_sensors *cuda_sensors_open(const char *pci_bus_id)
{
	struct cuda_sensors *s = mem_alloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!s->library || !bind(s) || s->nvml.init()) {
		if (s->library)
			dlclose(s->library);
		mem_free(s);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->end, NULL);
	if (s->nvml.handle(pci_bus_id, &s->gpu)) {
		cuda_sensors_close(s);
		return NULL;
	}
	s->has_thread = !thread_start(&s->thread, sensors_run, s); /* without it steps have one reading */
	return s;
}

int cuda_sensors_read(struct cuda_sensors *s, struct device_condition *condition)
{
	pthread_mutex_lock(&s->lock);
	if (!s->count)
		take(s, 1);
	*condition = s->sums;
	condition->sm_mhz /= s->count;
	condition->memory_mhz /= s->count;
	condition->watts /= s->count;
	s->sums = (struct device_condition){0};
	s->count = 0;
	pthread_mutex_unlock(&s->lock);
	return condition->sm_mhz > 0 || condition->watts > 0 || condition->celsius > 0;
}

void cuda_sensors_close(struct cuda_sensors *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->is_ending = 1;
	pthread_cond_signal(&s->end);
	pthread_mutex_unlock(&s->lock);
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->end);
	pthread_mutex_destroy(&s->lock);
	s->nvml.shutdown();
	dlclose(s->library);
	mem_free(s);
}
