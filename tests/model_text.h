/* A model from a config.json that a test writes. */
#ifndef FERRY_TESTS_MODEL_TEXT_H
#define FERRY_TESTS_MODEL_TEXT_H

#include "tests/check.h"

#include "base/json.h"
#include "model/families/open.h"

#include <string.h>

static inline struct model *model_from(const char *config_text)
{
	struct model *model;
	json_t *config;

	check_ok(json_parse(&config, "config.json", config_text, strlen(config_text)));
	check_ok(model_open(&model, config, "config.json"));
	json_decref(config);
	return model;
}

#endif
