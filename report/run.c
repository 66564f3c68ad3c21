/* Reads what a run left in its output_dir. */
#include "report/run.h"

#include "report/rows.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/save.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* The last part of the path; for . and .. that of the directory they stand for. */
static char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char whole[PATH_MAX];

	if ((!*name || !strcmp(name, ".") || !strcmp(name, "..")) && realpath(path, whole)) {
		slash = strrchr(whole, '/');
		name = slash && slash[1] ? slash + 1 : whole;
	}
	return mem_strdup(name);
}

static int compare_steps(const void *a, const void *b)
{
	int64_t x = checkpoint_step_of(*(char *const *)a), y = checkpoint_step_of(*(char *const *)b);

	return (x > y) - (x < y);
}

/* Finds the checkpoints, the result and a trace by their names. */
static int read_names(struct report_run *r)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(r->path, &names, &count);

	r->checkpoints = err ? NULL : mem_alloc(count, sizeof(*r->checkpoints));
	if (!err && !r->checkpoints)
		err = ERR_NOMEM;
	for (size_t i = 0; i < count && !err; i++) {
		if (checkpoint_step_of(names[i]) >= 0) {
			r->checkpoints[r->checkpoint_count++] = names[i];
			names[i] = NULL;
		} else if (!strcmp(names[i], "model") || !strcmp(names[i], "adapter")) {
			r->result = *names[i] == 'm' ? "model" : "adapter";
		} else if (!strcmp(names[i], "trace.json")) {
			r->has_trace = 1;
		}
	}
	if (r->checkpoint_count)
		qsort(r->checkpoints, (size_t)r->checkpoint_count, sizeof(*r->checkpoints), compare_steps);
	file_list_free(names, count);
	return err;
}

/* ---- the parts ---- */

static int read_config(struct report_run *r)
{
	char *path = file_join(r->path, "config.yaml");
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_NONE)
		report_note(r, "%s is missing; the report shows no configuration of this run", path);
	else if (!err)
		err = yaml_read_file(&r->config, path);
	if (err == ERR_INPUT || err == ERR_IO) {
		report_note(r, "%s; the report shows no configuration of this run", err_text());
		err = 0;
	}
	mem_free(path);
	return err;
}

static int read_metrics(struct report_run *r)
{
	char *path = file_join(r->path, "metrics.jsonl");
	int err = path ? 0 : ERR_NOMEM;

	if (!err && file_kind_of(path) == FILE_NONE)
		err = err_set(ERR_INPUT,
		        "%s has no metrics.jsonl; name the output_dir of a run, or a folder of runs",
		        r->path);
	if (!err)
		err = report_rows_read(r, path);
	mem_free(path);
	return err;
}

int report_run_read(struct report_run *r, const char *path)
{
	size_t len = strlen(path);
	int err;

	memset(r, 0, sizeof(*r));
	while (len > 1 && path[len - 1] == '/')
		len--;
	r->path = mem_strndup(path, len);
	r->label = r->path ? name_of(r->path) : NULL;
	if (!r->label)
		return ERR_NOMEM;
	if (file_kind_of(r->path) != FILE_DIR)
		return file_refuse_no_dir(NULL, r->path, "the output_dir of a run");
	err = read_metrics(r);
	if (!err)
		err = read_config(r);
	if (!err)
		err = read_names(r);
	return err ? err : str_check(&r->notes);
}

void report_run_free(struct report_run *r)
{
	json_decref(r->sets);
	mem_free(r->path);
	mem_free(r->label);
	columns_free(&r->columns);
	yaml_doc_free(&r->config);
	for (int i = 0; i < r->checkpoint_count; i++)
		mem_free(r->checkpoints[i]);
	mem_free(r->checkpoints);
	str_free(&r->notes);
	memset(r, 0, sizeof(*r));
}

const char *report_run_setting(const struct report_run *r, const char *key)
{
	for (size_t i = 0; i < r->config.count; i++)
		if (!strcmp(r->config.items[i].path, key))
			return r->config.items[i].text;
	return NULL;
}

/* ---- JSON ---- */

/* An integer, or null. */
static json_t *whole(double value)
{
	return fabs(value) < 0x1p63 ? json_integer((json_int_t)value) : json_null();
}

static json_t *waits_json(const struct report_totals *t)
{
	double whole = report_time_ms(t->step_ms, t->wait_ms);
	json_t *object = json_object();

	for (int w = 0; w < REPORT_WAIT_COUNT && object; w++)
		if (json_object_set_new(object, report_wait_names[w],
		            json_finite(whole > 0 ? t->wait_ms[w] / whole : 0))) {
			json_decref(object);
			object = NULL;
		}
	return object;
}

static json_t *checkpoints_json(const struct report_run *r)
{
	json_t *list = json_array();

	for (int i = 0; i < r->checkpoint_count && list; i++)
		if (json_array_append_new(list, json_of_text(r->checkpoints[i]))) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

/* All keys of config.yaml, each as text. */
static json_t *config_json(const struct report_run *r)
{
	json_t *object = json_object();

	for (size_t i = 0; i < r->config.count && object; i++) {
		const char *text = r->config.items[i].text;

		if (json_object_set_new(
		            object, r->config.items[i].path, text ? json_of_text(text) : json_null())) {
			json_decref(object);
			object = NULL;
		}
	}
	return object;
}

int report_run_json(json_t **object, const struct report_run *r)
{
	const struct report_totals *t = &r->totals;
	const char *model = report_run_setting(r, "model");

	*object =
	        json_pack("{s:o,s:o,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:o}",
	                "path", json_of_text(r->path), "model", model ? json_of_text(model) : json_null(),
	                "step", (json_int_t)t->last_step, "rows", (json_int_t)t->row_count, "skipped",
	                (json_int_t)t->skipped_count, "loss", json_finite(t->loss), "best_loss",
	                json_finite(t->best_loss), "eval_loss", json_finite(t->eval_loss), "best_eval_loss",
	                json_finite(t->best_eval_loss), "tokens", whole(t->token_count), "tokens_per_s",
	                json_finite(t->tokens_per_s), "seconds", json_finite(t->seconds), "host_peak_bytes",
	                whole(t->host_bytes), "pinned_bytes", whole(t->pinned_bytes), "device_peak_bytes",
	                whole(t->device_bytes), "estimated", t->is_sampled, "wait_share", waits_json(t),
	                "checkpoints", checkpoints_json(r), "result",
	                r->result ? json_string(r->result) : json_null(), "config", config_json(r));
	if (*object && r->sets && json_object_set(*object, "data_sets", r->sets)) {
		json_decref(*object);
		*object = NULL;
	}
	return *object ? 0 : err_set(ERR_NOMEM, "out of memory for JSON");
}
