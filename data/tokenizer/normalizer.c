/* The kinds of normalizer steps. */
#include "data/tokenizer/normalizer.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/normal_form.h"
#include "data/tokenizer/unicode.h"

enum { LARGE_BYTES = 1 << 20 };

enum { STRIP_LEFT = 1 << 0, STRIP_RIGHT = 1 << 1 };
enum { BERT_CLEAN = 1 << 0, BERT_CHINESE = 1 << 1, BERT_ACCENTS = 1 << 2, BERT_LOWER = 1 << 3 };

/* `run` rewrites in->text into *out. *head is where the part from in->head_bytes ends. It returns 1, 0 if the
 * text stays as it is (*out is ignored), or an error. */
struct normalizer_kind {
	const char *name, *keys;
	int (*load)(struct normalizer_step *step, const json_t *spec, const char *where);
	int (*run)(const struct normalizer_step *step, const struct normal_text *in, struct str *out,
	        size_t *head);
};

static size_t most_bytes(size_t len_bytes)
{
	if (len_bytes <= NORMALIZER_BYTES / NORMALIZER_GROWTH)
		return NORMALIZER_BYTES;
	return len_bytes < NORMALIZER_BYTES_MAX / NORMALIZER_GROWTH ? len_bytes * NORMALIZER_GROWTH
	                                                            : NORMALIZER_BYTES_MAX;
}

static int too_long(const struct normal_text *in)
{
	return err_set(ERR_UNSUPPORTED,
	        "the tokenizer's normalizer makes a text longer than %zu MiB, which is the limit for this "
	        "text; "
	        "take the tokenizer.json that belongs to the model",
	        in->most_bytes >> 20);
}

/* ---- character by character */

/* Maps a character to out[4]; returns the number of characters. */
typedef int (*char_map)(const struct normalizer_step *step, uint32_t c, uint32_t out[4]);

/* Maps each character; copies runs of unchanged characters at once. */
static int map_chars(const struct normalizer_step *step, const struct normal_text *in, struct str *out,
        size_t *head, char_map map)
{
	size_t done = 0; /* everything before is in *out */

	*head = in->head_bytes == 0 ? 0 : SIZE_MAX;
	for (size_t at = 0; at < in->len_bytes;) {
		uint32_t c, mapped[4];
		size_t len = (size_t)utf8_get(in->text + at, &c);
		int count = map(step, c, mapped);

		if (*head == SIZE_MAX && at >= in->head_bytes)
			*head = out->len_bytes + (at - done);
		if (count != 1 || mapped[0] != c) {
			char bytes[16];
			size_t put = 0;

			for (int i = 0; i < count; i++)
				put += (size_t)utf8_put(bytes + put, mapped[i]);
			str_add_bytes(out, in->text + done, at - done);
			str_add_bytes(out, bytes, put);
			done = at + len;
		}
		at += len;
	}
	if (done == 0)
		return 0;
	str_add_bytes(out, in->text + done, in->len_bytes - done);
	if (*head == SIZE_MAX)
		*head = out->len_bytes;
	return 1;
}

static int map_lower(const struct normalizer_step *step, uint32_t c, uint32_t out[4])
{
	(void)step;
	return unicode_lower(out, c);
}

static int map_combining(const struct normalizer_step *step, uint32_t c, uint32_t out[4])
{
	(void)step;
	out[0] = c;
	return !unicode_is(c, UNICODE_COMBINING);
}

static int map_nonspacing(const struct normalizer_step *step, uint32_t c, uint32_t out[4])
{
	(void)step;
	out[0] = c;
	return !unicode_is(c, UNICODE_NONSPACING);
}

/* Nmt: control characters vanish; characters that sentencepiece's nmt rules call white space become
 * spaces. */
static int map_nmt(const struct normalizer_step *step, uint32_t c, uint32_t out[4])
{
	static const uint32_t spaces[] = {9, 10, 12, 13, 0x1680, 0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd};

	(void)step;
	out[0] = c;
	if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
		return 0;
	if (c >= 0x200b && c <= 0x200f)
		out[0] = ' ';
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		if (c == spaces[i])
			out[0] = ' ';
	return 1;
}

/* The blocks that BERT calls Chinese. Like HF tokenizers, with 2B920 where others have 2B820. */
static int is_chinese(uint32_t c)
{
	static const uint32_t blocks[][2] = {{0x3400, 0x4dbf}, {0x4e00, 0x9fff}, {0xf900, 0xfaff},
	        {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
	        {0x2f800, 0x2fa1f}};

	if (c < 0x3400)
		return 0;
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
		if (c >= blocks[i][0] && c <= blocks[i][1])
			return 1;
	return 0;
}

/* Applies clean_text and handle_chinese_chars. */
static int map_bert(const struct normalizer_step *step, uint32_t c, uint32_t out[4])
{
	out[0] = c;
	if (c > 0x20 && c < 0x7f)
		return 1;
	if (step->flags & BERT_CLEAN) {
		if (c == 0 || c == 0xfffd || unicode_is(c, UNICODE_OTHER))
			return 0;
		if (unicode_is(c, UNICODE_SPACE))
			out[0] = ' ';
	}
	if ((step->flags & BERT_CHINESE) && is_chinese(c)) {
		out[0] = out[2] = ' ';
		out[1] = c;
		return 3;
	}
	return 1;
}

static int run_lower(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	return map_chars(step, in, out, head, map_lower);
}

static int run_combining(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	return map_chars(step, in, out, head, map_combining);
}

static int run_nonspacing(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	return map_chars(step, in, out, head, map_nonspacing);
}

static int run_nmt(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	return map_chars(step, in, out, head, map_nmt);
}

static int run_bert(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	return map_chars(step, in, out, head, map_bert);
}

/* ---- the others */

static int run_form(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	enum normal_form form = (enum normal_form)step->flags;
	int rc;

	if (!normal_form_may_change(form, in->text, in->len_bytes))
		return 0;
	rc = normal_form_append(out, form, in->text, in->head_bytes);
	*head = out->len_bytes;
	if (rc == 0 && in->head_bytes < in->len_bytes) {
		out->len_bytes = 0;
		rc = normal_form_append(out, form, in->text, in->len_bytes);
	}
	return rc < 0 ? rc : 1;
}

static int run_strip(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	size_t start = 0, end = in->len_bytes;
	uint32_t c;

	while ((step->flags & STRIP_LEFT) && start < end) {
		size_t len = (size_t)utf8_get(in->text + start, &c);

		if (!unicode_is(c, UNICODE_SPACE))
			break;
		start += len;
	}
	while ((step->flags & STRIP_RIGHT) && end > start) {
		size_t len = (size_t)utf8_get_before(in->text + end, &c);

		if (!unicode_is(c, UNICODE_SPACE))
			break;
		end -= len;
	}
	if (end - start == in->len_bytes)
		return 0;
	*head = in->head_bytes > start ? in->head_bytes - start : 0;
	if (*head > end - start)
		*head = end - start;
	str_add_bytes(out, in->text + start, end - start);
	return str_check(out) < 0 ? ERR_NOMEM : 1;
}

static int run_replace(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	struct pattern_search search = {.text = in->text, .len_bytes = in->len_bytes};
	size_t done = 0, start, end;
	int rc;

	*head = in->head_bytes;
	while ((rc = pattern_next(step->pattern, &search, &start, &end)) > 0 &&
	        out->len_bytes <= in->most_bytes) {
		str_add_bytes(out, in->text + done, start - done);
		str_add_bytes(out, step->content, step->content_bytes);
		done = end;
		if (end <= in->head_bytes)
			*head = out->len_bytes + (in->head_bytes - end);
	}
	pattern_search_end(&search);
	if (rc < 0)
		return rc;
	if (done == 0 && out->len_bytes == 0)
		return 0;
	str_add_bytes(out, in->text + done, in->len_bytes - done);
	if (*head > out->len_bytes)
		*head = out->len_bytes;
	return str_check(out) < 0 ? ERR_NOMEM : 1;
}

static int run_prepend(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	int has_space =
	        in->len_bytes > 0 &&
	        (in->text[0] == ' ' || (in->len_bytes >= step->content_bytes &&
	                                       memcmp(in->text, step->content, step->content_bytes) == 0));

	if (in->len_bytes == 0 || in->front == NORMAL_FRONT_JOINED ||
	        (in->front == NORMAL_FRONT_SPACE && has_space))
		return 0;
	if (step->content_bytes > in->most_bytes)
		return too_long(in);
	*head = in->head_bytes ? in->head_bytes + step->content_bytes : 0;
	str_add_bytes(out, step->content, step->content_bytes);
	str_add_bytes(out, in->text, in->len_bytes);
	return str_check(out) < 0 ? ERR_NOMEM : 1;
}

static int run_precompiled(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	int rc = charsmap_append(&step->map, out, in->text, in->head_bytes);

	*head = out->len_bytes;
	if (rc == 0 && in->head_bytes < in->len_bytes) {
		out->len_bytes = 0;
		rc = charsmap_append(&step->map, out, in->text, in->len_bytes);
	}
	return rc < 0 ? rc : out->len_bytes != in->len_bytes || memcmp(out->data, in->text, in->len_bytes);
}

static int run_byte_level(
        const struct normalizer_step *step, const struct normal_text *in, struct str *out, size_t *head)
{
	(void)step;
	*head = 0;
	for (size_t at = 0; at < in->len_bytes; at++) {
		char bytes[4];

		if (at == in->head_bytes)
			*head = out->len_bytes;
		str_add_bytes(
		        out, bytes, (size_t)utf8_put(bytes, byte_level_char((unsigned char)in->text[at])));
	}
	if (in->head_bytes == in->len_bytes)
		*head = out->len_bytes;
	return str_check(out) < 0 ? ERR_NOMEM : in->len_bytes > 0;
}

/* ---- loading */

static int load_flag(struct normalizer_step *step, const json_t *spec, const char *where, const char *key,
        int fallback, unsigned bit)
{
	int flag, rc = json_flag(spec, where, key, fallback, &flag);

	if (rc == 0 && flag)
		step->flags |= bit;
	return rc;
}

static int load_strip(struct normalizer_step *step, const json_t *spec, const char *where)
{
	int rc = load_flag(step, spec, where, "strip_left", 0, STRIP_LEFT);

	return rc < 0 ? rc : load_flag(step, spec, where, "strip_right", 0, STRIP_RIGHT);
}

static int load_content(struct normalizer_step *step, const json_t *spec, const char *where, const char *key)
{
	const json_t *value = json_object_get(spec, key);

	if (!json_is_string(value))
		return err_set(ERR_INPUT, "%s: normalizer: \"%s\" is %s; expected a string", where, key,
		        value ? json_kind_name(value) : "missing");
	step->content_bytes = json_string_length(value);
	step->content = mem_strndup(json_string_value(value), step->content_bytes);
	return step->content ? 0 : ERR_NOMEM;
}

static int load_prepend(struct normalizer_step *step, const json_t *spec, const char *where)
{
	return load_content(step, spec, where, "prepend");
}

static int load_replace(struct normalizer_step *step, const json_t *spec, const char *where)
{
	int rc = load_content(step, spec, where, "content");

	return rc < 0 ? rc : pattern_load(&step->pattern, spec, where, "normalizer", PATTERN_ENGINE_BEST);
}

static int load_precompiled(struct normalizer_step *step, const json_t *spec, const char *where)
{
	const json_t *value = json_object_get(spec, "precompiled_charsmap");
	int rc;

	if (!json_is_string(value))
		return err_set(ERR_INPUT, "%s: normalizer: \"precompiled_charsmap\" is %s; expected a string",
		        where, value ? json_kind_name(value) : "missing");
	rc = charsmap_load(&step->map, json_string_value(value), json_string_length(value));
	return rc < 0 ? err_note(rc, "%s: normalizer", where) : 0;
}

static const struct normalizer_kind bert_kind;

static int load_bert(struct normalizer_step *step, const json_t *spec, const char *where)
{
	int rc = load_flag(step, spec, where, "clean_text", 1, BERT_CLEAN), lower = 0;

	if (rc == 0)
		rc = load_flag(step, spec, where, "handle_chinese_chars", 1, BERT_CHINESE);
	if (rc == 0)
		rc = load_flag(step, spec, where, "lowercase", 1, BERT_LOWER);
	lower = (step->flags & BERT_LOWER) != 0;
	if (rc == 0)
		rc = load_flag(step, spec, where, "strip_accents", lower, BERT_ACCENTS);
	return rc;
}

/* Rows of kinds that only load a number. */
/* clang-format off */
#define PLAIN(row_name, row_run) {.name = row_name, .keys = "type", .run = row_run}
/* clang-format on */

static const struct normalizer_kind form_kinds[] = {[NORMAL_FORM_C] = PLAIN("NFC", run_form),
        [NORMAL_FORM_D] = PLAIN("NFD", run_form),
        [NORMAL_FORM_KC] = PLAIN("NFKC", run_form),
        [NORMAL_FORM_KD] = PLAIN("NFKD", run_form)};
static const struct normalizer_kind nonspacing_kind = PLAIN(NULL, run_nonspacing);
static const struct normalizer_kind lower_kind = PLAIN("Lowercase", run_lower);
static const struct normalizer_kind bert_kind = {.name = "BertNormalizer",
        .keys = "type clean_text handle_chinese_chars strip_accents lowercase",
        .load = load_bert,
        .run = run_bert};
static const struct normalizer_kind other_kinds[] = {
        PLAIN("StripAccents", run_combining),
        PLAIN("Nmt", run_nmt),
        PLAIN("ByteLevel", run_byte_level),
        {.name = "Strip", .keys = "type strip_left strip_right", .load = load_strip, .run = run_strip},
        {.name = "Prepend", .keys = "type prepend", .load = load_prepend, .run = run_prepend},
        {.name = "Replace", .keys = "type pattern content", .load = load_replace, .run = run_replace},
        {.name = "Precompiled",
                .keys = "type precompiled_charsmap",
                .load = load_precompiled,
                .run = run_precompiled},
};

static const struct normalizer_kind *kind_of(const char *name, unsigned *flags)
{
	*flags = 0;
	for (unsigned i = 0; i < sizeof(form_kinds) / sizeof(form_kinds[0]); i++)
		if (strcmp(form_kinds[i].name, name) == 0) {
			*flags = i;
			return &form_kinds[i];
		}
	for (size_t i = 0; i < sizeof(other_kinds) / sizeof(other_kinds[0]); i++)
		if (strcmp(other_kinds[i].name, name) == 0)
			return &other_kinds[i];
	if (strcmp(lower_kind.name, name) == 0)
		return &lower_kind;
	return strcmp(bert_kind.name, name) == 0 ? &bert_kind : NULL;
}

static int add_step(
        struct normalizer *n, const struct normalizer_kind *kind, unsigned flags, const char *where)
{
	if (n->step_count == NORMALIZER_STEPS_MAX)
		return err_set(
		        ERR_UNSUPPORTED, "%s: normalizer: more than %d steps", where, NORMALIZER_STEPS_MAX);
	n->steps[n->step_count++] = (struct normalizer_step){.kind = kind, .flags = flags};
	return 0;
}

/* BertNormalizer becomes four steps; the first one does two jobs. */
static int add_bert_rest(struct normalizer *n, const char *where)
{
	unsigned flags = n->steps[n->step_count - 1].flags;
	int rc = 0;

	if (flags & BERT_ACCENTS)
		rc = add_step(n, &form_kinds[NORMAL_FORM_D], NORMAL_FORM_D, where);
	if (rc == 0 && (flags & BERT_ACCENTS))
		rc = add_step(n, &nonspacing_kind, 0, where);
	if (rc == 0 && (flags & BERT_LOWER))
		rc = add_step(n, &lower_kind, 0, where);
	return rc;
}

static int load_one(struct normalizer *n, const json_t *spec, const char *where, int depth)
{
	const struct normalizer_kind *kind;
	const json_t *list, *element;
	const char *type;
	unsigned flags;
	size_t i;
	int rc = json_type_of(spec, where, &type);

	if (rc < 0)
		return err_note(rc, "normalizer");
	if (strcmp(type, "Sequence") == 0) {
		rc = json_sequence(spec, where, "normalizer", "normalizers", depth, &list);
		json_array_foreach(list, i, element) if (rc == 0) rc = load_one(n, element, where, depth + 1);
		return rc;
	}
	kind = kind_of(type, &flags);
	if (!kind)
		return err_set(ERR_UNSUPPORTED, "%s: the normalizer %.80s is not supported", where, type);
	rc = json_check_keys(spec, where, kind->keys);
	if (rc == 0)
		rc = add_step(n, kind, flags, where);
	if (rc == 0 && kind->load)
		rc = kind->load(&n->steps[n->step_count - 1], spec, where);
	if (rc == 0 && kind == &bert_kind)
		rc = add_bert_rest(n, where);
	return rc;
}

int normalizer_load(struct normalizer *n, const json_t *spec, const char *where)
{
	return !spec || json_is_null(spec) ? 0 : load_one(n, spec, where, 0);
}

void normalizer_free(struct normalizer *n)
{
	for (int i = 0; i < n->step_count; i++) {
		pattern_close(n->steps[i].pattern);
		mem_free(n->steps[i].content);
		charsmap_free(&n->steps[i].map);
	}
	*n = (struct normalizer){0};
}

int normalizer_run(const struct normalizer *n, struct normal_text *out, const char *text, size_t len_bytes,
        enum normal_front front)
{
	uint32_t c;
	int now = 0; /* the free buffer */

	out->text = text;
	out->len_bytes = len_bytes;
	out->front = front;
	out->most_bytes = most_bytes(len_bytes);
	out->head_bytes = len_bytes > 0 ? (size_t)utf8_get(text, &c) : 0;
	for (int i = 0; i < n->step_count; i++) {
		const struct normalizer_step *step = &n->steps[i];
		struct str *buffer = &out->buffers[now];
		size_t head = 0;
		int rc;

		buffer->len_bytes = 0;
		rc = step->kind->run(step, out, buffer, &head);
		if (rc < 0)
			return rc;
		if (rc > 0) {
			if (str_check(buffer) < 0)
				return ERR_NOMEM;
			if (buffer->len_bytes > out->most_bytes)
				return too_long(out);
			out->text = buffer->data ? buffer->data : "";
			out->len_bytes = buffer->len_bytes;
			out->head_bytes = head;
			now = 1 - now;
		}
		if (out->buffers[now].cap_bytes > LARGE_BYTES) /* frees the other copy of a large text */
			str_free(&out->buffers[now]);
	}
	return 0;
}

void normal_text_free(struct normal_text *t)
{
	str_free(&t->buffers[0]);
	str_free(&t->buffers[1]);
}
