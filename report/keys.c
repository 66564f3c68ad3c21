/* Compares the configurations of runs. */
#include "report/keys.h"

#include "base/err.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/table.h"

#include <math.h>
#include <string.h>

static int is_among(const struct report_keys *keys, const char *name)
{
	for (size_t i = 0; i < keys->count; i++)
		if (!strcmp(keys->items[i].name, name))
			return 1;
	return 0;
}

/* Whether the value is the key's default in this version. */
static int is_default(const struct config *defaults, const char *name, const char *value)
{
	const struct config_key *key = config_key_find(name);

	return key && value &&
	       (!strcmp(value, config_text(defaults, key->name)) || !strcmp(value, key->default_text));
}

static enum report_key_class class_of(
        const char *name, const struct report_run *runs, int run_count, const struct config *defaults)
{
	const struct report_run *first = NULL;

	for (int r = 0; r < run_count; r++) {
		const char *value = report_run_setting(&runs[r], name),
		           *other = first ? report_run_setting(first, name) : value;

		if (!runs[r].config.count)
			continue; /* a run without configuration differs in nothing */
		if (!value != !other || (value && strcmp(value, other)))
			return KEY_DIFFERS;
		first = &runs[r];
	}
	for (int r = 0; r < run_count; r++) {
		const char *value = report_run_setting(&runs[r], name);

		if (value && !is_default(defaults, name, value))
			return KEY_CHANGED;
	}
	return KEY_DEFAULT;
}

int report_keys_find(struct report_keys *keys, const struct report_run *runs, int run_count)
{
	struct config defaults = {0};
	size_t most = 0;
	int err = config_parse(&defaults, VERB_TRAIN, 0, NULL);

	for (int r = 0; r < run_count; r++)
		most += runs[r].config.count;
	keys->items = err ? NULL : mem_alloc(most, sizeof(*keys->items));
	if (!err && !keys->items)
		err = ERR_NOMEM;
	for (int r = 0; r < run_count && !err; r++)
		for (size_t i = 0; i < runs[r].config.count; i++) {
			const char *name = runs[r].config.items[i].path;

			if (!r || !is_among(keys, name))
				keys->items[keys->count++] =
				        (struct report_key){name, class_of(name, runs, run_count, &defaults)};
		}
	config_free(&defaults);
	return err;
}

int report_key_compares(const struct report_key *key)
{
	static const char *const names[] = {"output_dir", "resume_from_checkpoint", "logging_dir"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(key->name, names[i]))
			return 0;
	return key->class == KEY_DIFFERS;
}

void report_runs_sort(struct report_run *runs, int run_count)
{
	for (int i = 1; i < run_count; i++) { /* stable, and few */
		struct report_run one = runs[i];
		double loss = one.totals.best_eval_loss;
		int at = i;

		while (at > 0 && isfinite(loss) && !(runs[at - 1].totals.best_eval_loss <= loss)) {
			runs[at] = runs[at - 1];
			at--;
		}
		runs[at] = one;
	}
}
