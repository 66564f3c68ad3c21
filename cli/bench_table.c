/* Prints a benchmark's result as a table. */
#include "cli/bench_table.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 64, NAME_BYTES = 96, CELL_BYTES = 256, LINE_COLUMNS = 100 };

struct columns {
	char name[COLUMNS_MAX][NAME_BYTES];
	int width[COLUMNS_MAX];
	int count;
};

static int ends_in(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);

	return a >= b && !strcmp(text + a - b, end);
}

static void cell_bytes(char *cell, double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int unit = 0;

	while (bytes >= 1024 && unit < 4) {
		bytes /= 1024;
		unit++;
	}
	snprintf(cell, CELL_BYTES, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void cell_of(char *cell, const char *key, const json_t *value)
{
	double number = json_number_value(value);

	if (json_is_string(value))
		snprintf(cell, CELL_BYTES, "%s", json_string_value(value));
	else if (json_is_boolean(value))
		snprintf(cell, CELL_BYTES, "%s", json_is_true(value) ? "yes" : "no");
	else if (json_is_number(value) && (ends_in(key, "_bytes") || !strcmp(key, "bytes")))
		cell_bytes(cell, number);
	else if (json_is_integer(value))
		snprintf(cell, CELL_BYTES, "%lld", (long long)json_integer_value(value));
	else if (json_is_real(value))
		snprintf(cell, CELL_BYTES, number >= 1000 ? "%.0f" : number >= 10 ? "%.1f" : "%.3f", number);
	else
		snprintf(cell, CELL_BYTES, "-");
}

static const json_t *value_at(const json_t *row, const char *name)
{
	const char *dot = strchr(name, '.');
	char outer[NAME_BYTES];

	if (!dot)
		return json_object_get(row, name);
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - name), name);
	return json_object_get(json_object_get(row, outer), dot + 1);
}

static void column_add(struct columns *c, const char *prefix, const char *key)
{
	char name[NAME_BYTES];

	snprintf(name, sizeof(name), "%s%s%s", prefix, *prefix ? "." : "", key);
	for (int i = 0; i < c->count; i++)
		if (!strcmp(c->name[i], name))
			return;
	if (c->count == COLUMNS_MAX)
		return;
	memcpy(c->name[c->count], name, sizeof(name));
	c->width[c->count++] = (int)strlen(name);
}

static void columns_find(struct columns *c, const json_t *rows)
{
	const char *key, *inner;
	json_t *row, *value, *part;
	char cell[CELL_BYTES];
	size_t i;

	json_array_foreach(rows, i, row) json_object_foreach(row, key, value)
	{
		if (json_is_object(value))
			json_object_foreach(value, inner, part) column_add(c, key, inner);
		else
			column_add(c, "", key);
	}
	json_array_foreach(rows, i, row) for (int n = 0; n < c->count; n++)
	{
		cell_of(cell, c->name[n], value_at(row, c->name[n]));
		if ((int)strlen(cell) > c->width[n])
			c->width[n] = (int)strlen(cell);
	}
}

static int row_width(const struct columns *c, const json_t *row)
{
	char cell[CELL_BYTES];
	int width = 0;

	for (int n = 0; n < c->count; n++) {
		cell_of(cell, c->name[n], value_at(row, c->name[n]));
		if ((int)strlen(cell) > width)
			width = (int)strlen(cell);
	}
	return width;
}

/* Writes a table that is too wide with a line for each key, and as many rows beside each other as fit. */
static void table_turned_write(struct str *out, const struct columns *c, const json_t *rows)
{
	size_t count = json_array_size(rows), next;
	char cell[CELL_BYTES];
	int names = 0;

	for (int n = 0; n < c->count; n++)
		names = (int)strlen(c->name[n]) > names ? (int)strlen(c->name[n]) : names;
	for (size_t first = 0; first < count; first = next) {
		int width = 2 + names + 2 + row_width(c, json_array_get(rows, first));

		for (next = first + 1; next < count; next++) {
			width += 2 + row_width(c, json_array_get(rows, next));
			if (width > LINE_COLUMNS)
				break;
		}
		if (first)
			str_add_char(out, '\n');
		for (int n = 0; n < c->count; n++) {
			str_printf(out, "  %*s", -names, c->name[n]);
			for (size_t i = first; i < next; i++) {
				const json_t *row = json_array_get(rows, i);

				cell_of(cell, c->name[n], value_at(row, c->name[n]));
				str_printf(out, "  %*s", row_width(c, row), cell);
			}
			str_add_char(out, '\n');
		}
	}
}

static void table_write(struct str *out, const json_t *rows)
{
	struct columns c = {.count = 0};
	char cell[CELL_BYTES];
	int width = 0;
	json_t *row;
	size_t i;

	columns_find(&c, rows);
	for (int n = 0; n < c.count; n++)
		width += 2 + c.width[n];
	if (width > LINE_COLUMNS) {
		table_turned_write(out, &c, rows);
		return;
	}
	for (int n = 0; n < c.count; n++)
		str_printf(out, "  %*s", n ? c.width[n] : -c.width[n], c.name[n]);
	str_add_char(out, '\n');
	json_array_foreach(rows, i, row)
	{
		for (int n = 0; n < c.count; n++) {
			cell_of(cell, c.name[n], value_at(row, c.name[n]));
			str_printf(out, "  %*s", n ? c.width[n] : -c.width[n], cell);
		}
		str_add_char(out, '\n');
	}
}

void bench_table_write(struct str *out, const json_t *result)
{
	char cell[CELL_BYTES];
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)result, key, value)
	{
		if (json_is_array(value)) {
			str_printf(out, "%s\n", key);
			table_write(out, value);
		} else {
			cell_of(cell, key, value);
			str_printf(out, "%-20s %s\n", key, cell);
		}
	}
}
