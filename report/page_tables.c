/* Writes the tables of a page: the runs, and their configuration. */
#include "report/page_parts.h"

#include "report/chart.h"
#include "report/html.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "config/config.h"
#include "config/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- runs ---- */

enum { CHECKPOINTS_SHOWN = 3 }; /* and the last one */

/* Appends a number with another one in small letters below it, if there is one. */
static void add_pair(struct str *out, enum chart_unit unit, double value, const char *name, double small)
{
	str_add(out, "<td>");
	chart_value_text(out, unit, value);
	if (isfinite(small)) {
		str_printf(out, "<small>%s ", name);
		chart_value_text(out, unit, small);
		str_add(out, "</small>");
	}
	str_add(out, "</td>\n");
}

static void add_name(struct str *out, const struct report_run *r, int run, int run_count)
{
	str_add(out, "<tr><th scope=\"row\" title=\"");
	html_add(out, r->path);
	str_add(out, "\">");
	if (run_count > 1)
		str_printf(out, "<span class=\"dot c%d\"></span>", run % PAGE_COLOURS);
	html_add(out, r->label);
	str_add(out, "</th>\n");
}

/* The last two parts of a path: the last one alone is often "model", or a number. */
static const char *end_of(const char *path)
{
	const char *end = path + strlen(path);

	for (int slashes = 0; end > path; end--)
		if (end[-1] == '/' && ++slashes == 2)
			break;
	return end;
}

static void add_model(struct str *out, const struct report_run *r)
{
	const char *model = report_run_setting(r, "model");

	str_add(out, "<td class=\"text\" title=\"");
	html_add(out, model ? model : "");
	str_add(out, "\">");
	html_add(out, model ? end_of(model) : "\xe2\x80\x93");
	str_add(out, "</td>\n");
}

static void add_counts(struct str *out, const struct report_totals *t)
{
	const char *about = t->is_sampled ? "\xe2\x89\x88 " : ""; /* about */

	str_printf(out, "<td>%" PRId64, t->last_step);
	if (t->skipped_count)
		str_printf(out, "<small>%" PRId64 " skipped</small>", t->skipped_count);
	str_printf(out, "</td>\n<td>%s", about);
	quantity_count(out, t->token_count);
	str_printf(out, "</td>\n<td>%s", about);
	quantity_seconds(out, fmin(t->seconds, 1e15));
	str_add(out, "</td>\n");
}

static double waited_share(const struct report_totals *t)
{
	double waits = 0, whole = report_time_ms(t->step_ms, t->wait_ms);

	for (int w = 0; w < REPORT_WAIT_COUNT; w++)
		waits += t->wait_ms[w];
	return whole > 0 ? waits / whole : NAN;
}

static void add_files(struct str *out, const struct report_run *r)
{
	str_add(out, "<td class=\"files\">");
	for (int i = 0; i < r->checkpoint_count; i++) {
		if (i >= CHECKPOINTS_SHOWN && i < r->checkpoint_count - 1)
			continue;
		str_add(out, i == CHECKPOINTS_SHOWN ? "<div>\xe2\x80\xa6</div><div>" : "<div>");
		html_add(out, r->checkpoints[i]);
		str_add(out, "</div>");
	}
	if (r->result)
		str_printf(out, "<div>%s</div>", r->result);
	if (r->has_trace)
		str_add(out, "<div>trace.json</div>");
	str_add(out, "</td></tr>\n");
}

static void add_notes(struct str *out, const struct report_run *r)
{
	const char *at = r->notes.data;

	while (at && *at) {
		size_t len = strcspn(at, "\n");
		char *line = mem_strndup(at, len);

		str_add(out, "<p class=\"note\">");
		html_add(out, line ? line : "");
		str_add(out, "</p>\n");
		out->broken |= !line;
		mem_free(line);
		at += len + (at[len] == '\n');
	}
}

void page_summary(struct str *out, const struct report_run *runs, int run_count)
{
	int is_sampled = 0;

	str_add(out, "<div class=\"scroll\"><table class=\"runs\">\n<thead><tr><th>run</th>"
	             "<th class=\"text\">model</th><th>step</th><th>tokens</th><th>time</th><th>loss</th>"
	             "<th>eval loss</th><th>tokens/s</th><th>waiting</th><th>host memory</th>"
	             "<th>device memory</th><th class=\"files\">saved</th></tr></thead>\n<tbody>\n");
	for (int r = 0; r < run_count; r++) {
		const struct report_totals *t = &runs[r].totals;

		is_sampled |= t->is_sampled;
		add_name(out, &runs[r], r, run_count);
		add_model(out, &runs[r]);
		add_counts(out, t);
		add_pair(out, CHART_NUMBER, t->loss, "best", t->best_loss);
		add_pair(out, CHART_NUMBER, t->eval_loss, "best", t->best_eval_loss);
		add_pair(out, CHART_RATE, t->tokens_per_s, "", NAN);
		add_pair(out, CHART_SHARE, waited_share(t), "", NAN);
		add_pair(out, CHART_BYTES, t->host_bytes, "pinned", t->pinned_bytes);
		add_pair(out, CHART_BYTES, t->device_bytes, "", NAN);
		add_files(out, &runs[r]);
	}
	str_add(out, "</tbody></table></div>\n<p class=\"hint\">time is that of training steps alone, "
	             "tokens/s the median, memory the peak");
	if (is_sampled)
		str_add(out, "; \xe2\x89\x88 is an estimate, because not every step was logged");
	str_add(out, ".</p>\n");
	for (int r = 0; r < run_count; r++)
		add_notes(out, &runs[r]);
}

/* ---- configuration ---- */

enum { VALUE_BYTES_MAX = 300 };

enum key_class { KEY_DIFFERS, KEY_CHANGED, KEY_DEFAULT, KEY_CLASS_COUNT };

/* A key of some run. */
struct key {
	const char *name;
	enum key_class class;
};

struct keys {
	struct key *items;
	size_t count;
};

static int is_among(const struct keys *keys, const char *name)
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

static enum key_class class_of(
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

static int keys_find(struct keys *keys, const struct report_run *runs, int run_count)
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
				        (struct key){name, class_of(name, runs, run_count, &defaults)};
		}
	config_free(&defaults);
	return err;
}

/* Appends a value, a long one cut. */
static void add_value(struct str *out, const char *value)
{
	size_t len = value ? strlen(value) : 0, end = VALUE_BYTES_MAX;
	char *begin;

	if (len <= VALUE_BYTES_MAX) {
		html_add(out, len ? value : "\xe2\x80\x93");
		return;
	}
	while (end && ((unsigned char)value[end] & 0xc0) == 0x80) /* not within a character */
		end--;
	begin = mem_strndup(value, end);
	html_add(out, begin ? begin : "");
	str_printf(out, "\xe2\x80\xa6 <small>%zu bytes in all</small>", len);
	out->broken |= !begin;
	mem_free(begin);
}

static void add_key_row(struct str *out, const struct key *key, const struct report_run *runs, int run_count)
{
	static const char *const classes[] = {
	        [KEY_DIFFERS] = "differs", [KEY_CHANGED] = "changed", [KEY_DEFAULT] = "default"};

	str_printf(out, "<tr class=\"%s\"><th scope=\"row\">", classes[key->class]);
	html_add(out, key->name);
	str_add(out, "</th>");
	for (int r = 0; r < run_count; r++) {
		str_add(out, "<td>");
		add_value(out, report_run_setting(&runs[r], key->name));
		str_add(out, "</td>");
	}
	str_add(out, "</tr>\n");
}

static void add_head(struct str *out, const struct report_run *runs, int run_count)
{
	str_add(out, "<h2>Configuration</h2>\n<p class=\"hint\">");
	if (run_count > 1)
		str_add(out, "<span class=\"mark differs\"></span> differs between runs \xc2\xa0 ");
	str_add(out, "<span class=\"mark changed\"></span> differs from its default</p>\n"
	             "<div class=\"scroll\"><table class=\"keys\">\n<thead><tr><th>key</th>");
	for (int r = 0; r < run_count; r++) {
		str_add(out, "<th>");
		if (run_count > 1)
			str_printf(out, "<span class=\"dot c%d\"></span>", r % PAGE_COLOURS);
		html_add(out, runs[r].label);
		str_add(out, "</th>");
	}
	str_add(out, "</tr></thead>\n");
}

int page_configuration(struct str *out, const struct report_run *runs, int run_count)
{
	struct keys keys = {0};
	int err = keys_find(&keys, runs, run_count);

	if (!err && keys.count) {
		add_head(out, runs, run_count);
		for (int class = 0; class < KEY_CLASS_COUNT; class ++) {
			str_add(out, "<tbody>\n");
			for (size_t i = 0; i < keys.count; i++)
				if ((int)keys.items[i].class == class)
					add_key_row(out, &keys.items[i], runs, run_count);
			str_add(out, "</tbody>\n");
		}
		str_add(out, "</table></div>\n");
	}
	mem_free(keys.items);
	return err;
}
