/* Writes a configuration for people and programs: with the place where each value is set, and single
 * settings.
 *
 *     learning_rate: 1e-05                      # command line (as lr)
 *     num_train_epochs: 3                       # run.yaml:12 (as num_epochs)
 *
 * Keys are those of a run, so that ferry train takes the text back as the same configuration. Shown are keys
 * that something set, with show_all all of them. config_write_yaml (config.h) writes a run's config.yaml. */
#ifndef FERRY_CONFIG_WRITE_H
#define FERRY_CONFIG_WRITE_H

#include "base/json.h"
#include "config/config.h"

/* Appends the settings as YAML, each with its origin, and the number of keys that are not shown. */
void config_write_origins(struct str *out, const struct config *c);

/* {key: {value, origin, as}}; as is null if the key has its own name there. NULL: out of memory. */
json_t *config_json(const struct config *c);

/* Appends "key: value" with the value as YAML. */
void config_write_setting(struct str *out, const struct config *c, const char *name);

#endif
