/* The root and the quotient of gpu/adamw_usual.cuh, one call each. */
#include "gpu/adamw_usual.cuh"

#include "tests/simt/exact.h"

float exact_root(float v, float root)
{
	return adamw_root(v, root);
}

float exact_quotient(float m, float d, float inverse)
{
	return adamw_quotient(m, d, inverse);
}
