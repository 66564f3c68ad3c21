/* An address in device memory. Not a pointer: the host must not follow it. */
#ifndef FERRY_DEVICE_ADDR_H
#define FERRY_DEVICE_ADDR_H

#include <stdint.h>

typedef struct dev_addr {
	uint64_t value;
} dev_addr;

/* The address of an optional operand that is absent. */
#define DEV_NONE ((dev_addr){0})

static inline dev_addr dev_at(dev_addr base, int64_t offset_bytes)
{
	return (dev_addr){base.value + (uint64_t)offset_bytes};
}

static inline int dev_is_none(dev_addr a)
{
	return a.value == 0;
}

#endif
