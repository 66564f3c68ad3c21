/* A row of a dataset, written out. */
#include "cli/row_show.h"

#include "base/err.h"
#include "base/mem.h"

#include <inttypes.h>

/* Text of a stretch of tokens; without a tokenizer their ids. */
static int stretch_text(char **text, const struct tokenizer *tokenizer, const int32_t *ids, int64_t count)
{
	struct str numbers = {0};

	if (tokenizer)
		return tokenizer_decode(tokenizer, text, NULL, ids, count, SKIP_SPECIAL_OFF);
	for (int64_t i = 0; i < count; i++)
		str_printf(&numbers, "%" PRId32 " ", ids[i]);
	*text = str_take(&numbers);
	return *text ? 0 : ERR_NOMEM;
}

/* Control characters of a text would act on the terminal. */
static void add_safe(struct str *out, const char *text, const char *line_start)
{
	for (; *text; text++) {
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

int row_show(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row,
        enum row_style style)
{
	int terminal = style == ROW_STYLE_TERMINAL;
	int64_t count = dataset_row_tokens(d, row), from = 0;
	const int32_t *ids = dataset_row_ids(d, row);

	str_printf(out, "\nrow %" PRId64 ": %" PRId64 " tokens, %" PRId32 " targets\n", row + 1, count,
	        d->row_targets[row]);
	while (from < count) {
		int masked = dataset_label(d, row, from) == DATASET_IGNORE;
		int64_t to = from + 1;
		char *text = NULL;
		int err;

		while (to < count && (dataset_label(d, row, to) == DATASET_IGNORE) == masked)
			to++;
		err = stretch_text(&text, tokenizer, ids + from, to - from);
		if (err)
			return err;
		if (terminal) {
			str_add(out, masked ? "\033[2m" : "");
			add_safe(out, text, "");
			str_add(out, masked ? "\033[0m" : "");
		} else {
			str_add(out, masked ? "- " : "+ ");
			add_safe(out, text, masked ? "- " : "+ ");
			str_add_char(out, '\n');
		}
		mem_free(text);
		from = to;
	}
	if (terminal)
		str_add_char(out, '\n');
	return str_check(out);
}

/* White space and control characters by their escapes, on one line. */
static void add_escaped(struct str *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			str_add(out, "\\n");
		else if ((unsigned char)*text < ' ' || *text == 127)
			str_printf(out, "\\x%02x", (unsigned char)*text);
		else
			str_add_char(out, *text);
	}
}

int row_show_tokens(struct str *out, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row)
{
	const int32_t *ids = dataset_row_ids(d, row);
	int64_t count = dataset_row_tokens(d, row);

	str_printf(out, "\nrow %" PRId64 ": %" PRId64 " tokens, %" PRId32 " targets\n", row + 1, count,
	        d->row_targets[row]);
	str_add(out, " token      id   label  text\n");
	for (int64_t i = 0; i < count; i++) {
		int32_t label = dataset_label(d, row, i);
		char *text = NULL;
		int err = tokenizer ? tokenizer_decode(tokenizer, &text, NULL, ids + i, 1, SKIP_SPECIAL_OFF)
		                    : 0;

		if (err)
			return err;
		str_printf(out, "%6" PRId64 " %7" PRId32, i, ids[i]);
		if (label == DATASET_IGNORE)
			str_add(out, "       -  ");
		else
			str_printf(out, " %7" PRId32 "  ", label);
		str_add(out, "\"");
		add_escaped(out, text ? text : "");
		str_add(out, "\"\n");
		mem_free(text);
	}
	return str_check(out);
}
