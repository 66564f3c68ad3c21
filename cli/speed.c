#include "cli/speed.h"

#include "offload/simulate.h"

#include <string.h>

void speed_find(struct device_speed *speed, const struct config *c, const struct machine *machine,
        const char *device_name, int threads)
{
	*speed = (struct device_speed){0};
	if (machine)
		machine_speed(speed, machine, c->world_size);
	else if (!strcmp(device_name, "host"))
		simulate_host_speed(speed, threads, c->host_copy_gbps);
}
