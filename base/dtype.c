/* The tables behind base/dtype.h. */
#include "base/dtype.h"

#include <assert.h>
#include <string.h>

static const struct {
	const char *name;
	int bits, exponent_bits, fraction_bits, computes;
} dtypes[DTYPE_COUNT] = {
#define DTYPE_ROW(NAME, bits, exponent, fraction, computes) {#NAME, bits, exponent, fraction, computes},
        DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static int is_dtype(enum dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT;
}

int dtype_bits(enum dtype dtype)
{
	return dtypes[dtype].bits;
}

int64_t dtype_bytes(enum dtype dtype)
{
	assert(dtypes[dtype].bits % 8 == 0);
	return dtypes[dtype].bits / 8;
}

const char *dtype_name(enum dtype dtype)
{
	return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

int dtype_exponent_bits(enum dtype dtype)
{
	return dtypes[dtype].exponent_bits;
}

int dtype_fraction_bits(enum dtype dtype)
{
	return dtypes[dtype].fraction_bits;
}

int dtype_computes(enum dtype dtype)
{
	return is_dtype(dtype) && dtypes[dtype].computes;
}

int dtype_find(enum dtype *dtype, const char *name)
{
	for (int i = 0; i < DTYPE_COUNT; i++)
		if (!strcmp(dtypes[i].name, name)) {
			*dtype = (enum dtype)i;
			return 1;
		}
	return 0;
}

const char *dtype_computes_text(void)
{
#define DTYPE_TEXT_0(NAME)
#define DTYPE_TEXT_1(NAME) " or " #NAME
#define DTYPE_TEXT(NAME, bits, exponent, fraction, computes) DTYPE_TEXT_##computes(NAME)
	static const char text[] = DTYPE_LIST(DTYPE_TEXT);
#undef DTYPE_TEXT
#undef DTYPE_TEXT_1
#undef DTYPE_TEXT_0

	return text + strlen(" or ");
}

const struct format_facts format_facts[FORMAT_COUNT] = {
#define FORMAT_ROW(NAME, name, torch_name, element, block, scale, is_of_weights)                             \
	{name, torch_name, DTYPE_##element, DTYPE_##scale, block, is_of_weights},
        FORMAT_LIST(FORMAT_ROW)
#undef FORMAT_ROW
};

int format_of_weights(enum format *format, enum dtype element)
{
	for (int i = 0; i < FORMAT_COUNT; i++)
		if (format_facts[i].is_of_weights && format_facts[i].element == element) {
			*format = (enum format)i;
			return 1;
		}
	return 0;
}

int format_of_torch_name(enum format *format, const char *torch_name)
{
	for (int i = 0; i < FORMAT_COUNT; i++)
		if (format_facts[i].is_of_weights && !strcmp(format_facts[i].torch_name, torch_name)) {
			*format = (enum format)i;
			return 1;
		}
	return 0;
}

/* A dtype with at least as many exponent and fraction bits holds every number of the element. A subnormal
 * number of the element is subnormal there too, with enough fraction bits, or normal. */
int format_fits(enum format format, enum dtype dtype)
{
	enum dtype element = format_facts[format].element;

	return !format_facts[format].block && dtype_exponent_bits(element) > 0 &&
	       dtype_exponent_bits(element) <= dtype_exponent_bits(dtype) &&
	       dtype_fraction_bits(element) <= dtype_fraction_bits(dtype);
}
