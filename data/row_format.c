/* The list of formats as a table. */
#include "data/row_formats.h"

#include "base/err.h"
#include "base/str.h"
#include "data/dataset_build.h"

#include <string.h>

static const struct {
	const char *name, *keys;
	int (*is_mine)(const struct dataset_builder *b, const json_t *record);
	int (*read)(struct dataset_builder *b, const json_t *record);
} formats[] = {[DATASET_FORMAT_AUTO] = {"auto", NULL, NULL, NULL},
#define ROW(id, name, function, keys)                                                                        \
	[DATASET_FORMAT_##id] = {name, keys, function##_is_mine, function##_read},
        ROW_FORMATS(ROW)};
enum { FORMAT_COUNT = sizeof(formats) / sizeof(formats[0]) };

const char *dataset_format_name(enum dataset_format format)
{
	return formats[format].name;
}

int row_format_find(enum dataset_format *format, const struct dataset_builder *b, const json_t *record)
{
	struct str known = {0};
	int rc;

	for (int i = DATASET_FORMAT_AUTO + 1; i < FORMAT_COUNT; i++)
		if (formats[i].is_mine(b, record)) {
			*format = (enum dataset_format)i;
			return 0;
		}
	for (int i = DATASET_FORMAT_AUTO + 1; i < FORMAT_COUNT; i++)
		str_printf(&known, "%s%s (%s)", i > DATASET_FORMAT_AUTO + 1 ? ", " : "",
		        formats[i].is_mine == row_text_is_mine ? b->text_field : formats[i].keys,
		        formats[i].name);
	rc = err_set(ERR_INPUT, "%s: the keys fit no known format: %s; set data_format or text_field",
	        b->where, known.data ? known.data : "");
	str_free(&known);
	return rc;
}

int row_format_read(struct dataset_builder *b, const json_t *record)
{
	return formats[b->d->format].read(b, record);
}
