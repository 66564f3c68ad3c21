/* An element of a plane in host memory: `width` bytes, 2 or 4, as plane_width says. */
#ifndef FERRY_TESTS_PLANE_ELEMENT_H
#define FERRY_TESTS_PLANE_ELEMENT_H

#include <stdint.h>

static inline uint32_t element_at(const void *plane, int width, int64_t i)
{
	return width == 2 ? ((const uint16_t *)plane)[i] : ((const uint32_t *)plane)[i];
}

static inline void element_put(void *plane, int width, int64_t i, uint32_t value)
{
	if (width == 2)
		((uint16_t *)plane)[i] = (uint16_t)value;
	else
		((uint32_t *)plane)[i] = value;
}

#endif
