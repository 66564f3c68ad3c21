/* ferry report: writes one HTML page of one or more runs. */
#include "cli/cli.h"
#include "cli/screen.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "report/chart.h"
#include "report/keys.h"
#include "report/page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { HEAD_BYTES = 1024 }; /* the marker of a report stands in them */

/* ---- what is asked ---- */

static int is_run(const char *dir)
{
	char *path = file_join(dir, "metrics.jsonl");
	int found = path && file_kind_of(path) == FILE_REGULAR;

	mem_free(path);
	return found;
}

/* Appends a run, or the runs of a folder, in the order of their names. What is neither is refused when it is
 * read. */
static int add_dir(json_t *list, const char *dir)
{
	size_t count = 0, before = json_array_size(list);
	char **names = NULL;
	int rc = 0;

	if (!is_run(dir) && file_kind_of(dir) == FILE_DIR)
		rc = file_list_dir(dir, &names, &count);
	for (size_t i = 0; i < count && !rc; i++) {
		char *path = file_join(dir, names[i]);

		if (!path || (is_run(path) && json_array_append_new(list, json_of_text(path))))
			rc = ERR_NOMEM;
		mem_free(path);
	}
	file_list_free(names, count);
	if (!rc && json_array_size(list) == before)
		rc = json_array_append_new(list, json_of_text(dir)) ? ERR_NOMEM : 0;
	return rc;
}

/* The directories: output_dirs is a JSON list, or one path. */
static int read_dirs(json_t **list, const struct config *c)
{
	json_t *named = NULL;
	const json_t *item;
	size_t i;
	int rc = 0;

	if (*c->output_dirs != '[' ||
	        json_parse(&named, "output_dirs", c->output_dirs, strlen(c->output_dirs)) ||
	        !json_is_array(named)) {
		json_decref(named);
		named = json_pack("[s]", c->output_dirs);
	}
	if (!named)
		return err_set(ERR_INPUT, "%s=%s is not UTF-8; rename it", config_where(c, "output_dirs"),
		        c->output_dirs);
	*list = json_array();
	json_array_foreach(named, i, item)
	{
		if (!rc && (!json_string_length(item) ||
		                   strlen(json_string_value(item)) != json_string_length(item)))
			rc = err_set(ERR_INPUT, "%s=%s: a directory has no name",
			        config_where(c, "output_dirs"), c->output_dirs);
		if (!rc)
			rc = *list ? add_dir(*list, json_string_value(item)) : ERR_NOMEM;
	}
	json_decref(named);
	i = json_array_size(*list);
	if (!rc && (!i || i > PAGE_RUNS_MAX))
		rc = err_set(ERR_INPUT, "%s: names %zu runs; a page shows 1 to %d",
		        config_where(c, "output_dirs"), i, PAGE_RUNS_MAX);
	return rc;
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
		cli_tell(c, "%s\n", line.data);
	str_free(&line);
}

/* ---- several runs as a table ---- */

enum { CELL_BYTES_MAX = 24, COLUMNS_OF_KEYS = 4 };

struct table {
	const struct report_run *runs;
	int count;
	const char *keys[COLUMNS_OF_KEYS];
	int key_count, more_count;
};

/* The text of a cell, a long one with its end only. row -1: the head. */
static void cell_text(struct str *out, const struct table *t, int row, int column)
{
	static const char *const heads[] = {"best eval", "loss", "step", "tok/s"};
	const struct report_run *r = row < 0 ? NULL : &t->runs[row];
	const char *text = r ? r->label : "run";
	int figure = column - 1 - t->key_count;
	size_t len;

	if (column > 0 && figure < 0)
		text = r ? report_run_setting(r, t->keys[column - 1]) : t->keys[column - 1];
	if (figure >= 0 && !r) {
		str_add(out, heads[figure]);
	} else if (figure == 2) {
		str_printf(out, "%" PRId64, r->totals.last_step);
	} else if (figure >= 0) {
		chart_value_text(out, figure == 3 ? CHART_RATE : CHART_NUMBER,
		        figure == 0   ? r->totals.best_eval_loss
		        : figure == 1 ? r->totals.loss
		                      : r->totals.tokens_per_s);
	} else {
		len = text ? strlen(text) : 0;
		if (row >= 0 && len > CELL_BYTES_MAX) {
			text += len - CELL_BYTES_MAX + 3;
			while (((unsigned char)*text & 0xc0) == 0x80) /* not within a character */
				text++;
			str_add(out, "...");
		}
		str_add(out, len ? text : "-");
	}
}

/* Appends a line of the table. The first pass finds the widths. */
static void line_text(struct str *line, const struct table *t, int row, int widths[])
{
	int columns = 1 + t->key_count + 4;

	for (int i = 0; i < columns; i++) {
		struct str cell = {0};
		int width;

		cell_text(&cell, t, row, i);
		width = screen_width(cell.data);
		widths[i] = width > widths[i] ? width : widths[i];
		str_printf(line, "%s%s%*s", i ? "  " : "", cell.data ? cell.data : "",
		        i < columns - 1 ? widths[i] - width : 0, "");
		str_free(&cell);
	}
}

static int table_width(const struct table *t, int widths[])
{
	int width = 2 * (t->key_count + 4);

	memset(widths, 0, (1 + COLUMNS_OF_KEYS + 4) * sizeof(*widths));
	for (int row = -1; row < t->count; row++) {
		struct str line = {0};

		line_text(&line, t, row, widths);
		str_free(&line);
	}
	for (int i = 0; i < 1 + t->key_count + 4; i++)
		width += widths[i];
	return width;
}

/* A terminal gets the keys that it has room for. */
static void say_table(const struct config *c, struct table *t)
{
	int widths[1 + COLUMNS_OF_KEYS + 4], room = screen_columns(c->json ? stderr : stdout);

	while (table_width(t, widths) > room && room && t->key_count) {
		t->key_count--;
		t->more_count++;
	}
	for (int row = -1; row < t->count; row++) {
		struct str line = {0};

		line_text(&line, t, row, widths);
		if (line.data)
			cli_say(c, "%s\n", line.data);
		str_free(&line);
	}
	if (t->more_count)
		cli_say(c, "%d more key%s differ%s; the page shows %s\n", t->more_count,
		        plural_s(t->more_count), t->more_count == 1 ? "s" : "",
		        t->more_count == 1 ? "it" : "them");
}

static int say_runs(const struct config *c, const struct report_run *runs, int count)
{
	struct table t = {.runs = runs, .count = count};
	struct report_keys keys = {0};
	int err = report_keys_find(&keys, runs, count);

	for (size_t i = 0; i < keys.count && !err; i++) {
		if (!report_key_compares(&keys.items[i]))
			continue;
		if (t.key_count < COLUMNS_OF_KEYS)
			t.keys[t.key_count++] = keys.items[i].name;
		else
			t.more_count++;
	}
	if (!err)
		say_table(c, &t);
	mem_free(keys.items);
	return err;
}

/* ---- for programs ---- */

/* The names of the keys that differ between the runs. */
static int differs_json(json_t **list, const struct report_run *runs, int count)
{
	struct report_keys keys = {0};
	int err = report_keys_find(&keys, runs, count);

	*list = json_array();
	for (size_t i = 0; i < keys.count && !err; i++)
		if (report_key_compares(&keys.items[i]) &&
		        json_array_append_new(*list, json_of_text(keys.items[i].name)))
			err = ERR_NOMEM;
	mem_free(keys.items);
	return err ? err : *list ? 0 : ERR_NOMEM;
}

static int print_json(const struct config *c, const struct report_run *runs, int count)
{
	json_t *list = json_array(), *differs = NULL, *object = NULL, *run;
	int err = list ? differs_json(&differs, runs, count) : ERR_NOMEM;

	for (int i = 0; i < count && !err; i++) {
		err = report_run_json(&run, &runs[i]);
		if (!err && json_array_append_new(list, run))
			err = ERR_NOMEM;
	}
	if (!err)
		object = json_pack("{s:o,s:O,s:O}", "html", c->html ? json_of_text(c->html) : json_null(),
		        "differs", differs, "runs", list);
	if (!err)
		err = object ? cli_print_json(object) : err_set(ERR_NOMEM, "out of memory for JSON");
	json_decref(object);
	json_decref(differs);
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
		cli_tell(c, "%s: %d run%s, %s; open it in a browser\n", c->html, count, plural_s(count),
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
	if (!err)
		report_runs_sort(runs, count);
	if (!err && count == 1)
		say_run(c, runs);
	else if (!err)
		err = say_runs(c, runs, count);
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
