/* The kinds of decoder steps. */
#include "data/tokenizer/decoder.h"

#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/pretokenizer.h"
#include "data/tokenizer/unicode.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* `run` reads `in` and appends to the empty `out`. */
struct decoder_kind {
	const char *name, *keys;
	int (*load)(struct decoder_step *step, const json_t *spec, const char *where);
	int (*run)(const struct decoder_step *step, const struct texts *in, struct texts *out);
};

int texts_end(struct texts *t)
{
	if (t->count == t->cap) {
		int64_t cap = t->cap * 2 + 64;
		size_t *grown = mem_resize(t->ends, (size_t)cap, sizeof(*grown));

		if (!grown)
			return ERR_NOMEM;
		t->ends = grown;
		t->cap = cap;
	}
	t->ends[t->count++] = t->bytes.len_bytes;
	return str_check(&t->bytes);
}

void texts_free(struct texts *t)
{
	str_free(&t->bytes);
	mem_free(t->ends);
	*t = (struct texts){0};
}

static const char *text_at(const struct texts *t, int64_t i, size_t *len_bytes)
{
	size_t start = i > 0 ? t->ends[i - 1] : 0;

	*len_bytes = t->ends[i] - start;
	return t->bytes.data ? t->bytes.data + start : "";
}

/* ---- bytes */

/* Length of a maximal part of an invalid sequence at u, as in Unicode's table 3-7 and Rust's
 * from_utf8_lossy. */
static size_t broken_length(const unsigned char *u, size_t left)
{
	size_t want = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2, len = 1;
	unsigned char low = 0x80, high = 0xbf;

	if (u[0] < 0xc2 || u[0] > 0xf4)
		return 1;
	if (u[0] == 0xe0)
		low = 0xa0;
	else if (u[0] == 0xed)
		high = 0x9f;
	else if (u[0] == 0xf0)
		low = 0x90;
	else if (u[0] == 0xf4)
		high = 0x8f;
	while (len < want && len < left && u[len] >= low && u[len] <= high) {
		len++;
		low = 0x80;
		high = 0xbf;
	}
	return len;
}

static void append_lossy(struct str *out, const char *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		size_t valid_bytes = utf8_check(bytes, len_bytes), broken;

		str_add_bytes(out, bytes, valid_bytes);
		bytes += valid_bytes;
		len_bytes -= valid_bytes;
		if (len_bytes == 0)
			break;
		str_add(out, REPLACEMENT);
		broken = broken_length((const unsigned char *)bytes, len_bytes);
		bytes += broken;
		len_bytes -= broken;
	}
}

/* For each token: the bytes that it spells, or its own text. */
static int run_byte_level(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	struct str all = {0};
	int rc = 0;

	(void)step;
	for (int64_t i = 0; i < in->count; i++) {
		size_t len_bytes, start = all.len_bytes, spelled = 0;
		const char *text = text_at(in, i, &len_bytes);

		str_add_bytes(&all, text, len_bytes);
		if (str_check(&all) == 0 && len_bytes > 0 &&
		        byte_level_decode(all.data + start, &spelled, text, len_bytes))
			all.len_bytes = start + spelled;
		else if (str_check(&all) == 0)
			memcpy(all.data + start, text, len_bytes);
	}
	rc = str_check(&all);
	if (rc == 0)
		append_lossy(&out->bytes, all.data ? all.data : "", all.len_bytes);
	str_free(&all);
	return rc < 0 ? rc : texts_end(out);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of "<0xNN>", or -1. Rust also parses "+N" as a number. */
static int byte_token(const char *text, size_t len_bytes)
{
	int high, low;

	if (len_bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
		return -1;
	high = text[3] == '+' ? 0 : hex_value(text[3]);
	low = hex_value(text[4]);
	return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* Ends a run of byte tokens: one text if it is valid UTF-8, else U+FFFD for each byte. */
static int end_bytes(struct texts *out, struct str *bytes)
{
	int rc = str_check(bytes);
	size_t count = bytes->len_bytes;

	if (rc < 0 || count == 0)
		return rc;
	if (utf8_check(bytes->data, count) == count) {
		str_add_bytes(&out->bytes, bytes->data, count);
		count = 0;
		rc = texts_end(out);
	}
	for (; rc == 0 && count > 0; count--) {
		str_add(&out->bytes, REPLACEMENT);
		rc = texts_end(out);
	}
	bytes->len_bytes = 0;
	return rc;
}

static int run_byte_fallback(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	struct str bytes = {0};
	int rc = 0;

	(void)step;
	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes;
		const char *text = text_at(in, i, &len_bytes);
		int byte = byte_token(text, len_bytes);

		if (byte >= 0) {
			str_add_char(&bytes, (char)byte);
			continue;
		}
		rc = end_bytes(out, &bytes);
		str_add_bytes(&out->bytes, text, len_bytes);
		if (rc == 0)
			rc = texts_end(out);
	}
	if (rc == 0)
		rc = end_bytes(out, &bytes);
	str_free(&bytes);
	return rc;
}

/* ---- texts */

static int run_fuse(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	(void)step;
	str_add_bytes(&out->bytes, in->bytes.data, in->bytes.len_bytes);
	return texts_end(out);
}

static void append_replaced(struct str *out, const char *text, size_t len_bytes, const char *from,
        size_t from_bytes, const char *to)
{
	const char *end = text + len_bytes, *found;

	while (from_bytes > 0 && (found = memmem(text, (size_t)(end - text), from, from_bytes))) {
		str_add_bytes(out, text, (size_t)(found - text));
		str_add(out, to);
		text = found + from_bytes;
	}
	str_add_bytes(out, text, (size_t)(end - text));
}

static int run_replace(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	struct pattern_search search = {0};
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes, done = 0, start, end;
		const char *text = text_at(in, i, &len_bytes);

		search = (struct pattern_search){
		        .text = text, .len_bytes = len_bytes, .match_data = search.match_data};
		while ((rc = pattern_next(step->pattern, &search, &start, &end)) > 0) {
			str_add_bytes(&out->bytes, text + done, start - done);
			str_add_bytes(&out->bytes, step->content, step->content_bytes);
			done = end;
		}
		str_add_bytes(&out->bytes, text + done, len_bytes - done);
		if (rc == 0)
			rc = texts_end(out);
	}
	pattern_search_end(&search);
	return rc;
}

static int run_strip(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes, one = step->content_bytes, start = 0;
		const char *text = text_at(in, i, &len_bytes);

		for (int64_t n = 0; n < step->start && start + one <= len_bytes; n++, start += one)
			if (memcmp(text + start, step->content, one) != 0)
				break;
		for (int64_t n = 0; n < step->stop && start + one <= len_bytes; n++, len_bytes -= one)
			if (memcmp(text + len_bytes - one, step->content, one) != 0)
				break;
		str_add_bytes(&out->bytes, text + start, len_bytes - start);
		rc = texts_end(out);
	}
	return rc;
}

/* Replaces marks by spaces. In the first text they vanish, if Metaspace puts a mark in front. */
static int run_metaspace(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes;
		const char *text = text_at(in, i, &len_bytes);

		append_replaced(&out->bytes, text, len_bytes, step->content, step->content_bytes,
		        i == 0 && step->flag ? "" : " ");
		rc = texts_end(out);
	}
	return rc;
}

static int clean_up(struct str *out, const char *text, size_t len_bytes)
{
	static const char *const rules[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","},
	        {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"},
	        {" 've", "'ve"}, {" 're", "'re"}};
	struct str now = {0}, next = {0};
	int rc;

	str_add_bytes(&now, text, len_bytes);
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && str_check(&now) == 0; i++) {
		struct str old = now;

		next.len_bytes = 0;
		append_replaced(
		        &next, now.data, now.len_bytes, rules[i][0], strlen(rules[i][0]), rules[i][1]);
		now = next;
		next = old;
	}
	rc = str_check(&now);
	if (rc == 0)
		str_add_bytes(out, now.data, now.len_bytes);
	str_free(&now);
	str_free(&next);
	return rc;
}

static int run_wordpiece(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	struct str one = {0};
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes;
		const char *text = text_at(in, i, &len_bytes);

		one.len_bytes = 0;
		if (i > 0 && len_bytes >= step->content_bytes &&
		        memcmp(text, step->content, step->content_bytes) == 0) {
			str_add_bytes(&one, text + step->content_bytes, len_bytes - step->content_bytes);
		} else {
			str_add(&one, i > 0 ? " " : "");
			str_add_bytes(&one, text, len_bytes);
		}
		rc = str_check(&one);
		if (rc == 0 && step->flag)
			rc = clean_up(&out->bytes, one.data, one.len_bytes);
		else if (rc == 0)
			str_add_bytes(&out->bytes, one.data, one.len_bytes);
		if (rc == 0)
			rc = texts_end(out);
	}
	str_free(&one);
	return rc;
}

static int run_bpe(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes;
		const char *text = text_at(in, i, &len_bytes);

		append_replaced(&out->bytes, text, len_bytes, step->content, step->content_bytes,
		        i + 1 == in->count ? "" : " ");
		rc = texts_end(out);
	}
	return rc;
}

/* CTC: drops repeated tokens and pad tokens. With cleanup, the word delimiter becomes a space. */
static int run_ctc(const struct decoder_step *step, const struct texts *in, struct texts *out)
{
	struct str one = {0}, clean = {0};
	const char *before = NULL;
	size_t before_bytes = 0;
	int rc = 0;

	for (int64_t i = 0; rc == 0 && i < in->count; i++) {
		size_t len_bytes, start = out->bytes.len_bytes;
		const char *text = text_at(in, i, &len_bytes);
		int same = before && before_bytes == len_bytes && memcmp(before, text, len_bytes) == 0;

		before = text;
		before_bytes = len_bytes;
		if (same)
			continue;
		one.len_bytes = clean.len_bytes = 0;
		append_replaced(&one, text, len_bytes, step->content, step->content_bytes, "");
		rc = str_check(&one);
		if (rc == 0 && step->flag) {
			rc = clean_up(&clean, one.data, one.len_bytes);
			append_replaced(&out->bytes, clean.data ? clean.data : "", clean.len_bytes,
			        step->other, strlen(step->other), " ");
		} else if (rc == 0) {
			str_add_bytes(&out->bytes, one.data, one.len_bytes);
		}
		if (rc == 0 && out->bytes.len_bytes > start)
			rc = texts_end(out);
	}
	str_free(&one);
	str_free(&clean);
	return rc;
}

/* ---- loading */

static int copy_text(char **copy, size_t *len_bytes, const json_t *spec, const char *where, const char *key,
        const char *fallback)
{
	const char *text = fallback;
	int rc = json_get_str(spec, where, key, &text);

	if (rc >= 0 && !text)
		rc = err_set(ERR_INPUT, "%s: decoder: there is no \"%s\"", where, key);
	if (rc < 0)
		return rc;
	*copy = mem_strdup(text);
	if (len_bytes)
		*len_bytes = strlen(text);
	return *copy ? 0 : ERR_NOMEM;
}

static int load_replace(struct decoder_step *step, const json_t *spec, const char *where)
{
	int rc = copy_text(&step->content, &step->content_bytes, spec, where, "content", NULL);

	return rc < 0 ? rc : pattern_load(&step->pattern, spec, where, "decoder", PATTERN_ENGINE_BEST);
}

static int load_strip(struct decoder_step *step, const json_t *spec, const char *where)
{
	int rc = copy_text(&step->content, &step->content_bytes, spec, where, "content", NULL);
	uint32_t c;

	if (rc == 0 &&
	        (step->content_bytes == 0 || (size_t)utf8_get(step->content, &c) != step->content_bytes))
		rc = err_set(ERR_INPUT, "%s: decoder: content of Strip is not one character", where);
	if (rc == 0)
		rc = json_get_int(spec, where, "start", &step->start);
	if (rc >= 0)
		rc = json_get_int(spec, where, "stop", &step->stop);
	return rc < 0 ? rc : 0;
}

static int load_metaspace(struct decoder_step *step, const json_t *spec, const char *where)
{
	enum metaspace_prepend prepend;
	int rc = metaspace_load(spec, where, &prepend);

	step->flag = prepend != METASPACE_NEVER;
	return rc < 0 ? rc
	              : copy_text(&step->content, &step->content_bytes, spec, where, "replacement", NULL);
}

static int load_wordpiece(struct decoder_step *step, const json_t *spec, const char *where)
{
	int rc = copy_text(&step->content, &step->content_bytes, spec, where, "prefix", "##");

	return rc < 0 ? rc : json_flag(spec, where, "cleanup", 1, &step->flag);
}

static int load_bpe(struct decoder_step *step, const json_t *spec, const char *where)
{
	return copy_text(&step->content, &step->content_bytes, spec, where, "suffix", "</w>");
}

static int load_ctc(struct decoder_step *step, const json_t *spec, const char *where)
{
	int rc = copy_text(&step->content, &step->content_bytes, spec, where, "pad_token", "<pad>");

	if (rc == 0)
		rc = copy_text(&step->other, NULL, spec, where, "word_delimiter_token", "|");
	return rc < 0 ? rc : json_flag(spec, where, "cleanup", 1, &step->flag);
}

static const struct decoder_kind kinds[] = {
        {"ByteLevel", "type add_prefix_space trim_offsets use_regex", NULL, run_byte_level},
        {"ByteFallback", "type", NULL, run_byte_fallback},
        {"Fuse", "type", NULL, run_fuse},
        {"Replace", "type pattern content", load_replace, run_replace},
        {"Strip", "type content start stop", load_strip, run_strip},
        {"Metaspace", METASPACE_KEYS, load_metaspace, run_metaspace},
        {"WordPiece", "type prefix cleanup", load_wordpiece, run_wordpiece},
        {"BPEDecoder", "type suffix", load_bpe, run_bpe},
        {"CTC", "type pad_token word_delimiter_token cleanup", load_ctc, run_ctc},
};

static int add_step(struct decoder *d, const struct decoder_kind *kind, const json_t *spec, const char *where)
{
	int rc = json_check_keys(spec, where, kind->keys);

	if (rc == 0 && d->step_count == DECODER_STEPS_MAX)
		rc = err_set(ERR_UNSUPPORTED, "%s: decoder: more than %d steps", where, DECODER_STEPS_MAX);
	if (rc < 0)
		return rc;
	d->steps[d->step_count] = (struct decoder_step){.kind = kind};
	return kind->load ? kind->load(&d->steps[d->step_count++], spec, where) : (d->step_count++, 0);
}

static int load_one(struct decoder *d, const json_t *spec, const char *where, int depth)
{
	const json_t *list, *element;
	const char *type;
	size_t i;
	int rc = json_type_of(spec, where, &type);

	if (rc < 0)
		return err_note(rc, "decoder");
	if (strcmp(type, "Sequence") == 0) {
		rc = json_sequence(spec, where, "decoder", "decoders", depth, &list);
		json_array_foreach(list, i, element) if (rc == 0) rc = load_one(d, element, where, depth + 1);
		return rc;
	}
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, type) == 0)
			return add_step(d, &kinds[i], spec, where);
	return err_set(ERR_UNSUPPORTED, "%s: the decoder %.80s is not supported", where, type);
}

int decoder_load(struct decoder *d, const json_t *spec, const char *where)
{
	d->present = spec && !json_is_null(spec);
	return d->present ? load_one(d, spec, where, 0) : 0;
}

void decoder_free(struct decoder *d)
{
	for (int i = 0; i < d->step_count; i++) {
		pattern_close(d->steps[i].pattern);
		mem_free(d->steps[i].content);
		mem_free(d->steps[i].other);
	}
	*d = (struct decoder){0};
}

int decoder_run(const struct decoder *d, struct str *out, struct texts *texts)
{
	struct texts next = {0};
	int rc = 0;

	for (int i = 0; rc == 0 && i < d->step_count; i++) {
		struct texts old = *texts;

		next.bytes.len_bytes = 0;
		next.count = 0;
		rc = d->steps[i].kind->run(&d->steps[i], texts, &next);
		*texts = next;
		next = old;
	}
	for (int64_t i = 0; rc == 0 && i < texts->count; i++) {
		size_t len_bytes;
		const char *text = text_at(texts, i, &len_bytes);

		str_add(out, i > 0 && !d->present ? " " : "");
		str_add_bytes(out, text, len_bytes);
	}
	texts_free(&next);
	return rc < 0 ? rc : str_check(out);
}
