/* ferry report: writes one HTML page of one or more runs. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "report/chart.h"
#include "report/page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { HEAD_BYTES = 1024 }; /* the marker of a report stands in them */

/* ---- what is asked ---- */

/* The directories: output_dirs is a JSON list, or one path. */
static int read_dirs(json_t **list, const struct config *c)
{
	const json_t *item;
	size_t i;

	if (*c->output_dirs != '[' ||
	        json_parse(list, "output_dirs", c->output_dirs, strlen(c->output_dirs)) ||
	        !json_is_array(*list)) {
		json_decref(*list);
		*list = json_pack("[s]", c->output_dirs);
	}
	if (!*list)
		return err_set(ERR_INPUT, "%s=%s is not UTF-8; rename it", config_where(c, "output_dirs"),
		        c->output_dirs);
	json_array_foreach(*list, i, item) if (!json_string_length(item) ||
	                                       strlen(json_string_value(item)) !=
	                                               json_string_length(item)) return err_set(ERR_INPUT,
	        "%s=%s: a directory has no name", config_where(c, "output_dirs"), c->output_dirs);
	i = json_array_size(*list);
	if (!i || i > PAGE_RUNS_MAX)
		return err_set(ERR_INPUT, "%s: names %zu runs; a page shows 1 to %d",
		        config_where(c, "output_dirs"), i, PAGE_RUNS_MAX);
	return 0;
}

/* Whether the file is empty or a former report. */
static int may_replace(const char *path)
{
	char head[HEAD_BYTES + 1] = {0};
	int64_t len = 0;
	int fd = file_open_read(path, &len), err = fd < 0;

	if (!err)
		err = file_read_at(fd, path, head, len < HEAD_BYTES ? (size_t)len : HEAD_BYTES, 0);
	if (fd >= 0)
		file_abandon(fd, path);
	return !err && (!len || strstr(head, page_marker));
}

/* Checks before the runs are read that the page may be written. */
static int check_html(const struct config *c)
{
	enum file_kind kind = c->html ? file_kind_of(c->html) : FILE_NONE;

	if (kind == FILE_DIR)
		return err_set(ERR_INPUT, "%s=%s is a directory; name a file in it", config_where(c, "html"),
		        c->html);
	if (kind != FILE_NONE && (kind != FILE_REGULAR || !may_replace(c->html)))
		return err_set(ERR_INPUT,
		        "%s=%s exists and is no report of ferry; remove it or name another file",
		        config_where(c, "html"), c->html);
	return 0;
}

/* ---- the runs ---- */

static int is_label_unique(const struct report_run *runs, int count, int run)
{
	for (int i = 0; i < count; i++)
		if (i != run && !strcmp(runs[i].label, runs[run].label))
			return 0;
	return 1;
}

/* Gives runs of the same name their whole paths. */
static int labels_choose(struct report_run *runs, int count)
{
	char *paths[PAGE_RUNS_MAX] = {0};
	int err = 0;

	for (int i = 0; i < count && !err; i++)
		if (!is_label_unique(runs, count, i)) {
			paths[i] = mem_strdup(runs[i].path);
			err = paths[i] ? 0 : ERR_NOMEM;
		}
	for (int i = 0; i < count; i++)
		if (paths[i]) {
			mem_free(runs[i].label);
			runs[i].label = paths[i];
		}
	return err;
}

static int read_runs(struct report_run *runs, int *count, const json_t *dirs)
{
	const json_t *dir;
	size_t i;
	int err = 0;

	json_array_foreach(dirs, i, dir)
	{
		if (err)
			break;
		err = report_run_read(&runs[(*count)++], json_string_value(dir));
	}
	return err ? err : labels_choose(runs, *count);
}

/* ---- what is said ---- */

static void say_run(const struct config *c, const struct report_run *r)
{
	const struct report_totals *t = &r->totals;
	struct str line = {0};

	str_printf(&line, "%s: step %" PRId64 ", loss ", r->path, t->last_step);
	chart_value_text(&line, CHART_NUMBER, t->loss);
	str_add(&line, " (best ");
	chart_value_text(&line, CHART_NUMBER, t->best_loss);
	str_add(&line, ")");
	if (isfinite(t->eval_loss)) {
		str_add(&line, ", eval loss ");
		chart_value_text(&line, CHART_NUMBER, t->eval_loss);
	}
	str_add(&line, ", ");
	chart_value_text(&line, CHART_RATE, t->tokens_per_s);
	str_add(&line, " tok/s, host ");
	chart_value_text(&line, CHART_BYTES, t->host_bytes);
	str_add(&line, ", device ");
	chart_value_text(&line, CHART_BYTES, t->device_bytes);
	if (line.data)
		cli_say(c, "%s\n", line.data);
	str_free(&line);
}

static int print_json(const struct config *c, const struct report_run *runs, int count)
{
	json_t *list = json_array(), *object = NULL, *run;
	int err = list ? 0 : ERR_NOMEM;

	for (int i = 0; i < count && !err; i++) {
		err = report_run_json(&run, &runs[i]);
		if (!err && json_array_append_new(list, run))
			err = ERR_NOMEM;
	}
	if (!err)
		object = json_pack(
		        "{s:o,s:O}", "html", c->html ? json_of_text(c->html) : json_null(), "runs", list);
	if (!err)
		err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	json_decref(list);
	return err;
}

static int write_page(const struct config *c, struct report_run *runs, int count)
{
	struct str page = {0}, size = {0};
	int err = page_write(&page, runs, count);

	file_clean_parts_of(c->html);
	if (!err)
		err = file_write_all(c->html, page.data, page.len_bytes);
	if (!err) {
		quantity_bytes(&size, (int64_t)page.len_bytes);
		cli_say(c, "%s: %d run%s, %s; open it in a browser\n", c->html, count, plural_s(count),
		        size.data ? size.data : "");
	}
	str_free(&size);
	str_free(&page);
	return err;
}

int cli_report(const struct config *c)
{
	struct report_run *runs = mem_alloc(PAGE_RUNS_MAX, sizeof(*runs));
	json_t *dirs = NULL;
	int count = 0, err = runs ? check_html(c) : ERR_NOMEM;

	if (!err)
		err = read_dirs(&dirs, c);
	if (!err)
		err = read_runs(runs, &count, dirs);
	for (int i = 0; i < count && !err; i++)
		say_run(c, &runs[i]);
	if (!err && c->html)
		err = write_page(c, runs, count);
	if (!err && c->json)
		err = print_json(c, runs, count);
	for (int i = 0; i < count; i++)
		report_run_free(&runs[i]);
	mem_free(runs);
	json_decref(dirs);
	return err;
}
