#include "cli/speed.h"

#include <string.h>

/* Of one thread: measured on the machine of examples/machines/laptop-2-cores.yaml. */
static const double thread_flops = 70e9, thread_bytes = 21e9;

/* More threads do not move more. */
enum { BUS_THREADS = 16 };

void speed_find(struct device_speed *speed, const struct config *c, const struct machine *machine,
        const char *device_name, int threads)
{
	double bytes = thread_bytes * (threads < BUS_THREADS ? threads : BUS_THREADS), copy = bytes / 2;

	*speed = (struct device_speed){0};
	if (machine) {
		machine_speed(speed, machine, c->world_size);
		return;
	}
	if (strcmp(device_name, "host") != 0)
		return;
	if (c->host_copy_gbps > 0 && 1e9 * c->host_copy_gbps < copy)
		copy = 1e9 * c->host_copy_gbps;
	*speed = (struct device_speed){.matmul_flops_bf16 = thread_flops * threads,
	        .matmul_flops_f32 = thread_flops * threads,
	        .memory_bytes = bytes,
	        .h2d_bytes = copy,
	        .d2h_bytes = copy,
	        .host_memory_bytes = bytes,
	        .comm_bytes = bytes / 2,
	        .host_computes = 1};
}
