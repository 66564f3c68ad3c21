#include "bench/bench.h"

#include "base/err.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct bench table[] = {
        {"adam", "AdamW on the planes, bf16 gradients, against in-place memory bandwidth; count: parameters",
                bench_adam},
        {"adam-f32", "the same with fp32 gradients", bench_adam_f32},
        {"pool", "what the worker pool takes to hand out calls and tasks; count: calls", bench_pool},
};

enum { TABLE_COUNT = sizeof(table) / sizeof(table[0]) };

const struct bench *bench_at(int index)
{
	return index >= 0 && index < TABLE_COUNT ? &table[index] : NULL;
}

int bench_run(json_t **result, const char *name, const struct bench_args *args)
{
	struct str names = {0};
	int rc;

	*result = NULL;
	for (int i = 0; i < TABLE_COUNT; i++) {
		if (strcmp(table[i].name, name) == 0) {
			str_free(&names);
			return table[i].run(result, args);
		}
		str_printf(&names, "%s%s", i ? ", " : "", table[i].name);
	}
	rc = str_check(&names);
	if (!rc)
		rc = err_set(ERR_INPUT, "no benchmark '%s': there are list, %s", name, names.data);
	str_free(&names);
	return rc;
}

int64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), ascending);
	return values[(count - 1) / 2];
}
