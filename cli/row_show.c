/* Prints a row of a dataset. */
#include "cli/row_show.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"

#include <inttypes.h>
#include <string.h>

/* Text of the tokens [from, to) of a row; without a tokenizer their ids. */
static int stretch_text(char **text, size_t *len_bytes, const struct tokenizer *tokenizer, const int32_t *ids,
        int64_t from, int64_t to)
{
	struct str numbers = {0};

	if (tokenizer)
		return tokenizer_decode_more(tokenizer, text, len_bytes, ids, from, to, SKIP_SPECIAL_OFF);
	for (int64_t i = from; i < to; i++)
		str_printf(&numbers, "%" PRId32 " ", ids[i]);
	*len_bytes = numbers.len_bytes;
	*text = str_take(&numbers);
	return *text ? 0 : ERR_NOMEM;
}

/* Appends text with control characters escaped, because they would act on the terminal. */
static void add_safe(struct str *out, const char *text, size_t len_bytes, const char *line_start)
{
	for (const char *end = text + len_bytes; text < end; text++) {
		if (*text == '\n')
			str_printf(out, "\n%s", line_start);
		else if ((unsigned char)*text < ' ' && *text != '\t')
			str_printf(out, "\\x%02x", (unsigned char)*text);
		else if (*text == 127)
			str_add(out, "\\x7f");
		else
			str_add_char(out, *text);
	}
}

/* Drops the last newline, because the line ends anyway and a second one would look like an empty line of the
 * text. */
static void drop_last_newline(const char *text, size_t *len_bytes)
{
	if (*len_bytes && text[*len_bytes - 1] == '\n')
		--*len_bytes;
}

static void add_title(struct str *out, const struct dataset *d, int64_t row)
{
	int set = dataset_set_of(d, row);
	int64_t each = dataset_set_unit_rows(d, set), unit = (row - d->sets[set].first_row) / each;

	for (int i = 0; i < set; i++)
		unit += dataset_set_unit_count(d, i);
	str_printf(out, "\n%s %" PRId64 "%s: %" PRId64 " token%s, %" PRId64 " target%s\n", dataset_unit(d),
	        unit + 1,
	        !d->is_paired  ? ""
	        : row % 2 == 0 ? ", chosen"
	                       : ", rejected",
	        dataset_row_tokens(d, row), plural_s(dataset_row_tokens(d, row)), dataset_row_targets(d, row),
	        plural_s(dataset_row_targets(d, row)));
}

static int add_text(
        struct str *out, const struct row_view *v, const struct tokenizer *tokenizer, enum row_style style)
{
	int terminal = style == ROW_STYLE_TERMINAL;
	int64_t count = v->token_count, from = 0;
	const int32_t *ids = v->ids;

	while (from < count) {
		int masked = row_label(v, from) == DATASET_IGNORE;
		int64_t to = from + 1;
		size_t len_bytes = 0;
		char *text = NULL;
		int err;

		while (to < count && (row_label(v, to) == DATASET_IGNORE) == masked)
			to++;
		err = stretch_text(&text, &len_bytes, tokenizer, ids, from, to);
		if (err)
			return err;
		if (terminal) {
			str_add(out, masked ? "\033[2m" : "");
			add_safe(out, text, len_bytes, "");
			str_add(out, masked ? "\033[0m" : "");
		} else {
			str_add(out, masked ? "- " : "+ ");
			drop_last_newline(text, &len_bytes);
			add_safe(out, text, len_bytes, masked ? "- " : "+ ");
			str_add_char(out, '\n');
		}
		mem_free(text);
		from = to;
	}
	if (terminal)
		str_add_char(out, '\n');
	return str_check(out);
}

/* Appends text on one line, with white space and control characters escaped. */
static void add_escaped(struct str *out, const char *text, size_t len_bytes)
{
	for (const char *end = text + len_bytes; text < end; text++) {
		if (*text == '\n')
			str_add(out, "\\n");
		else if ((unsigned char)*text < ' ' || *text == 127)
			str_printf(out, "\\x%02x", (unsigned char)*text);
		else
			str_add_char(out, *text);
	}
}

static int add_tokens(
        struct str *out, const struct row_view *v, const struct tokenizer *tokenizer, const struct dataset *d)
{
	const int32_t *ids = v->ids;
	int64_t count = v->token_count;

	str_add(out, " token      id   label  text\n");
	for (int64_t i = 0; i < count; i++) {
		int32_t label = dataset_label_id(d, v, i);
		size_t len_bytes = 0;
		char *text = NULL;
		int err = tokenizer ? tokenizer_decode_more(
		                              tokenizer, &text, &len_bytes, ids, i, i + 1, SKIP_SPECIAL_OFF)
		                    : 0;

		if (err)
			return err;
		str_printf(out, "%6" PRId64 " %7" PRId32, i, ids[i]);
		if (label == DATASET_IGNORE)
			str_add(out, "       -  ");
		else
			str_printf(out, " %7" PRId32 "  ", label);
		str_add(out, "\"");
		add_escaped(out, text ? text : "", len_bytes);
		str_add(out, "\"\n");
		mem_free(text);
	}
	return str_check(out);
}

int row_show(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row,
        enum row_style style)
{
	struct row_buffer buffer = {0};
	struct row_view v;
	int rc = dataset_row_read(&v, &buffer, d, row);

	add_title(out, d, row);
	if (!rc)
		rc = add_text(out, &v, tokenizer, style);
	row_buffer_free(&buffer);
	return rc;
}

int row_show_tokens(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row)
{
	struct row_buffer buffer = {0};
	struct row_view v;
	int rc = dataset_row_read(&v, &buffer, d, row);

	add_title(out, d, row);
	if (!rc)
		rc = add_tokens(out, &v, tokenizer, d);
	row_buffer_free(&buffer);
	return rc;
}

void mix_show(struct str *out, const struct mix *m, const struct dataset *d, const char *rows)
{
	str_printf(out, "an epoch has %" PRId64 " %s: ", m->epoch_rows, rows);
	for (int i = 0; i < m->set_count; i++)
		str_printf(out, "%s%" PRId64 " of %s (of %" PRId64 ")", i ? ", " : "", m->sets[i].draws,
		        d->sets[i].name, m->sets[i].row_count);
}
