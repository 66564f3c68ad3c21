/* Clocks, power, temperature and slowdowns of a GPU, by NVIDIA's management library (NVML).
 *
 * The library comes with the driver; where it or one of its functions is absent, there are no sensors and no
 * message. A thread reads them a few times a second, because at the end of a step the GPU may be idle.
 */
#ifndef FERRY_GPU_CUDA_SENSORS_H
#define FERRY_GPU_CUDA_SENSORS_H

#include "device/device.h"

struct cuda_sensors;

/* Opens the sensors of the GPU at this place of the PCI bus. NULL: there are none. */
struct cuda_sensors *cuda_sensors_open(const char *pci_bus_id);

/* Fills what was seen since the last call, and at least once. Returns 1, or 0 if the sensors say nothing. */
int cuda_sensors_read(struct cuda_sensors *sensors, struct device_condition *condition);

void cuda_sensors_close(struct cuda_sensors *sensors); /* NULL is allowed */

#endif
