/* `ferry plan` of the models and machines in examples/. */
#ifndef FERRY_TESTS_PLAN_EXAMPLES_H
#define FERRY_TESTS_PLAN_EXAMPLES_H

#include "tests/ferry_run.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>

static char models[400], machines[400];

static double real_of(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static json_t *plan_of(const char *model, const char *machine, const char *settings)
{
	json_t *object;

	assert_ferry_json(&object, "plan %s/%s.json machine=%s/%s.yaml %s --json", models, model, machines,
	        machine, settings);
	return object;
}

static int begin(void **state)
{
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	snprintf(models, sizeof(models), "%s/examples/models", source ? source : ".");
	snprintf(machines, sizeof(machines), "%s/examples/machines", source ? source : ".");
	ferry_run_begin("plan");
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

#endif
