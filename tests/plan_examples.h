/* `ferry plan` of the models and machines in examples/. */
#ifndef FERRY_TESTS_PLAN_EXAMPLES_H
#define FERRY_TESTS_PLAN_EXAMPLES_H

#include "tests/ferry_run.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>

static char models[400], machines[400], roomy[400]; /* roomy: the machines, each with 8 TB of host memory */

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

__attribute__((unused)) static json_t *plan_of_roomy(
        const char *model, const char *machine, const char *settings)
{
	json_t *object;

	assert_ferry_json(&object, "plan %s/%s.json machine=%s/%s.yaml %s --json", models, model, roomy,
	        machine, settings);
	return object;
}

static void roomy_put(void)
{
	char command[2400];

	snprintf(roomy, sizeof(roomy), "%s/roomy", work_dir);
	snprintf(command, sizeof(command),
	        "mkdir %1$s && cp %2$s/*.yaml %1$s && sed -i '/^host:/,$s/^  memory: .*/  memory: 8TB/' "
	        "%1$s/*",
	        roomy, machines);
	assert_int_equal(system(command), 0);
}

static int begin(void **state)
{
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	snprintf(models, sizeof(models), "%s/examples/models", source ? source : ".");
	snprintf(machines, sizeof(machines), "%s/examples/machines", source ? source : ".");
	ferry_run_begin("plan");
	roomy_put();
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

#endif
