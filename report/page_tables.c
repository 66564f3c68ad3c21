/* Writes the tables of a page: the runs, and their configuration. */
#include "report/page_parts.h"

#include "report/chart.h"
#include "report/html.h"
#include "report/keys.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "config/config.h"
#include "config/table.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- runs ---- */

enum { CHECKPOINTS_SHOWN = 3, /* and the last one */ COMPARED_MAX = 6, VALUE_BYTES_MAX = 300 };

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

/* A line of the data sets that have steps of their own. */
static void add_sets(struct str *out, const struct report_run *r)
{
	const char *name, *before = "data sets of ";
	json_t *set;

	json_object_foreach(r->sets, name, set)
	{
		const json_t *loss = json_object_get(set, "loss"), *eval = json_object_get(set, "eval_loss");

		str_add(out, *before == 'd' ? "<p class=\"hint\">" : "");
		str_add(out, before);
		if (*before == 'd') {
			html_add(out, r->label);
			str_add(out, ": ");
		}
		before = "; ";
		html_add(out, name);
		str_printf(out, ", %" JSON_INTEGER_FORMAT " logged steps",
		        json_integer_value(json_object_get(set, "steps")));
		if (json_is_number(loss))
			str_printf(out, ", loss %.4g", json_number_value(loss));
		if (json_is_number(eval))
			str_printf(out, ", eval loss %.4g", json_number_value(eval));
	}
	str_add(out, *before == ';' ? "</p>\n" : "");
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

/* Appends the value of each key that is compared. run: NULL: the head of its column. */
static void add_compared(struct str *out, const struct report_keys *keys, const struct report_run *run)
{
	int count = 0;

	for (size_t i = 0; i < keys->count && count < COMPARED_MAX; i++) {
		if (!report_key_compares(&keys->items[i]) || !strcmp(keys->items[i].name, "model"))
			continue;
		count++;
		str_add(out, run ? "<td class=\"text set\">" : "<th class=\"text\">");
		if (run)
			add_value(out, report_run_setting(run, keys->items[i].name));
		else
			html_add(out, keys->items[i].name);
		str_add(out, run ? "</td>\n" : "</th>");
	}
}

void page_summary(
        struct str *out, const struct report_run *runs, int run_count, const struct report_keys *keys)
{
	int is_sampled = 0;

	str_add(out, "<div class=\"scroll\"><table class=\"runs\">\n<thead><tr><th>run</th>"
	             "<th class=\"text\">model</th>");
	add_compared(out, keys, NULL);
	str_add(out, "<th>step</th><th>tokens</th><th>time</th><th>loss</th>"
	             "<th>eval loss</th><th>tokens/s</th><th>waiting</th><th>host memory</th>"
	             "<th>device memory</th><th class=\"files\">saved</th></tr></thead>\n<tbody>\n");
	for (int r = 0; r < run_count; r++) {
		const struct report_totals *t = &runs[r].totals;

		is_sampled |= t->is_sampled;
		add_name(out, &runs[r], r, run_count);
		add_model(out, &runs[r]);
		add_compared(out, keys, &runs[r]);
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
		add_sets(out, &runs[r]);
	for (int r = 0; r < run_count; r++)
		add_notes(out, &runs[r]);
}

/* ---- configuration ---- */

static void add_key_row(
        struct str *out, const struct report_key *key, const struct report_run *runs, int run_count)
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

void page_configuration(
        struct str *out, const struct report_run *runs, int run_count, const struct report_keys *keys)
{
	if (keys->count) {
		add_head(out, runs, run_count);
		for (int class = 0; class < KEY_CLASS_COUNT; class ++) {
			str_add(out, "<tbody>\n");
			for (size_t i = 0; i < keys->count; i++)
				if ((int)keys->items[i].class == class)
					add_key_row(out, &keys->items[i], runs, run_count);
			str_add(out, "</tbody>\n");
		}
		str_add(out, "</table></div>\n");
	}
}
