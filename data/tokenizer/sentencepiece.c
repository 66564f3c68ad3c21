/* Reads the protocol buffer of a sentencepiece model and writes a tokenizer.json. */
#include "data/tokenizer/sentencepiece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocab.h"

enum { PIECES_MAX = 1 << 21 };
enum piece_type {
	PIECE_NORMAL = 1,
	PIECE_UNKNOWN,
	PIECE_CONTROL,
	PIECE_USER_DEFINED,
	PIECE_UNUSED,
	PIECE_BYTE
};
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct piece {
	const char *text;
	size_t len_bytes;
	float score;
	int type;
};

struct sentencepiece {
	const char *where;
	struct piece *pieces;
	int64_t count, cap;
	int64_t model, byte_fallback, unk_id, bos_id, eos_id;
	const char *charsmap;
	size_t charsmap_bytes;
	int64_t dummy_prefix, remove_extra_spaces, suffix_space;
};

/* ---- the protocol buffer */

struct message {
	const unsigned char *at, *end;
};

/* One field: its number, and its value as a number or as bytes. */
struct field {
	uint64_t number, value;
	const unsigned char *bytes;
	size_t len_bytes;
};

static int read_varint(struct message *m, uint64_t *value)
{
	*value = 0;
	for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
		unsigned char byte = *m->at++;

		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return 1;
	}
	return -1;
}

/* Reads the next field: 1, 0 at the end, or -1 if the message is damaged. */
static int next_field(struct message *m, struct field *f)
{
	static const size_t fixed[] = {0, 8, 0, 0, 0, 4};
	uint64_t tag;

	*f = (struct field){0};
	if (m->at == m->end)
		return 0;
	if (read_varint(m, &tag) < 0)
		return -1;
	f->number = tag >> 3;
	switch (tag & 7) {
	case 0:
		return read_varint(m, &f->value);
	case 1:
	case 5:
		f->len_bytes = fixed[tag & 7];
		break;
	case 2:
		if (read_varint(m, &f->value) < 0)
			return -1;
		f->len_bytes = f->value;
		break;
	default:
		return -1;
	}
	if (f->len_bytes > (size_t)(m->end - m->at))
		return -1;
	f->bytes = m->at;
	m->at += f->len_bytes;
	return 1;
}

static int damaged(const struct sentencepiece *s)
{
	return err_set(ERR_INPUT, "%s: this is not a sentencepiece model, or it is damaged", s->where);
}

/* Reads a message's numbers: *targets[i] gets field numbers[i]. */
static int read_numbers(const struct sentencepiece *s, const struct field *message, const uint64_t *numbers,
        int64_t *const *targets, int count)
{
	struct message m = {message->bytes, message->bytes + message->len_bytes};
	struct field f;
	int rc = 1;

	while (rc > 0 && (rc = next_field(&m, &f)) > 0)
		for (int i = 0; i < count; i++)
			if (f.number == numbers[i] && !f.bytes)
				*targets[i] = (int64_t)(int32_t)f.value;
	return rc < 0 ? damaged(s) : 0;
}

static int read_piece(struct sentencepiece *s, const struct field *message)
{
	struct message m = {message->bytes, message->bytes + message->len_bytes};
	struct piece *p;
	struct field f;
	int rc = 1;

	if (s->count == s->cap) {
		int64_t cap = s->cap * 2 + 1024;

		p = cap < PIECES_MAX ? mem_resize(s->pieces, (size_t)cap, sizeof(*p)) : NULL;
		if (!p)
			return cap < PIECES_MAX ? ERR_NOMEM : damaged(s);
		s->pieces = p;
		s->cap = cap;
	}
	p = &s->pieces[s->count++];
	*p = (struct piece){.text = "", .type = PIECE_NORMAL};
	while (rc > 0 && (rc = next_field(&m, &f)) > 0) {
		if (f.number == 1 && f.bytes) {
			p->text = (const char *)f.bytes;
			p->len_bytes = f.len_bytes;
		}
		if (f.number == 2 && f.bytes && f.len_bytes == 4)
			memcpy(&p->score, f.bytes, 4);
		if (f.number == 3 && !f.bytes)
			p->type = (int)f.value;
	}
	if (rc == 0 && (p->len_bytes == 0 || utf8_check(p->text, p->len_bytes) != p->len_bytes ||
	                       !(p->score > -1e30f && p->score < 1e30f)))
		rc = -1;
	return rc < 0 ? damaged(s) : 0;
}

static int read_normalizer(struct sentencepiece *s, const struct field *message)
{
	static const uint64_t numbers[] = {3, 4};
	int64_t *const targets[] = {&s->dummy_prefix, &s->remove_extra_spaces};
	struct message m = {message->bytes, message->bytes + message->len_bytes};
	struct field f;
	int rc = read_numbers(s, message, numbers, targets, 2);

	while (rc >= 0 && (rc = next_field(&m, &f)) > 0)
		if (f.number == 2 && f.bytes) {
			s->charsmap = (const char *)f.bytes;
			s->charsmap_bytes = f.len_bytes;
		}
	return rc;
}

static int read_model(struct sentencepiece *s, const char *bytes, size_t len_bytes)
{
	static const uint64_t numbers[] = {3, 35, 40, 41, 42, 24};
	int64_t *const targets[] = {
	        &s->model, &s->byte_fallback, &s->unk_id, &s->bos_id, &s->eos_id, &s->suffix_space};
	struct message m = {(const unsigned char *)bytes, (const unsigned char *)bytes + len_bytes};
	struct field f;
	int rc;

	while ((rc = next_field(&m, &f)) > 0) {
		if (!f.bytes && f.number >= 1 && f.number <= 3)
			return damaged(s);
		if (f.number == 1)
			rc = read_piece(s, &f);
		else if (f.number == 2)
			rc = read_numbers(s, &f, numbers, targets, 6);
		else if (f.number == 3)
			rc = read_normalizer(s, &f);
		if (rc < 0)
			return rc;
	}
	if (rc < 0 || s->count == 0 || s->unk_id < 0 || s->unk_id >= s->count || s->bos_id >= s->count ||
	        s->eos_id >= s->count)
		return damaged(s);
	return 0;
}

/* ---- merges */

struct merge {
	float score;
	int32_t left, right;             /* ids */
	int32_t left_chars, right_chars; /* their lengths */
	int32_t order;
};

/* Order: higher scores, then longer parts, then the order in the file. */
static int compare_merges(const void *a, const void *b)
{
	const struct merge *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (x->left_chars != y->left_chars)
		return x->left_chars > y->left_chars ? -1 : 1;
	if (x->right_chars != y->right_chars)
		return x->right_chars > y->right_chars ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

struct merge_list {
	struct merge *merges;
	int64_t count, cap;
};

static int add_merge(struct merge_list *list, struct merge m)
{
	if (list->count == list->cap) {
		int64_t cap = list->cap * 2 + 4096;
		struct merge *grown =
		        cap < INT32_MAX ? mem_resize(list->merges, (size_t)cap, sizeof(*grown)) : NULL;

		if (!grown)
			return ERR_NOMEM;
		list->merges = grown;
		list->cap = cap;
	}
	m.order = (int32_t)list->count;
	list->merges[list->count++] = m;
	return 0;
}

static int32_t count_chars(const char *text, size_t len_bytes)
{
	int32_t count = 0;

	for (size_t i = 0; i < len_bytes; i++)
		count += ((unsigned char)text[i] & 0xc0) != 0x80;
	return count;
}

/* Finds every pair of pieces that joins to a piece. */
static int find_merges(const struct sentencepiece *s, const struct vocab *v, struct merge_list *list)
{
	int rc = 0;

	for (int64_t id = 0; rc == 0 && id < s->count; id++) {
		const struct piece *p = &s->pieces[id];
		uint32_t c;

		if (p->type != PIECE_NORMAL || p->len_bytes > v->longest_bytes)
			continue;
		for (size_t at = (size_t)utf8_get(p->text, &c); rc == 0 && at < p->len_bytes;
		        at += (size_t)utf8_get(p->text + at, &c)) {
			struct merge m = {.score = p->score,
			        .left = vocab_find(v, p->text, at),
			        .right = vocab_find(v, p->text + at, p->len_bytes - at),
			        .left_chars = count_chars(p->text, at),
			        .right_chars = count_chars(p->text + at, p->len_bytes - at)};

			if (m.left >= 0 && m.right >= 0)
				rc = add_merge(list, m);
		}
	}
	if (rc == 0 && list->count > 0)
		qsort(list->merges, (size_t)list->count, sizeof(*list->merges), compare_merges);
	return rc;
}

/* ---- tokenizer.json */

static void put_string(struct str *out, const char *text, size_t len_bytes)
{
	str_add_char(out, '"');
	for (size_t i = 0; i < len_bytes; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\' || c < 0x20)
			str_printf(out, "\\u%04x", c);
		else
			str_add_char(out, (char)c);
	}
	str_add_char(out, '"');
}

static void put_base64(struct str *out, const char *bytes, size_t len_bytes)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)bytes;

	for (size_t i = 0; i < len_bytes; i += 3) {
		size_t have = len_bytes - i < 3 ? len_bytes - i : 3;
		uint32_t bits = (uint32_t)p[i] << 16 | (have > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
		                (have > 2 ? p[i + 2] : 0);

		for (size_t k = 0; k < 4; k++)
			str_add_char(out, k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=');
	}
}

static void put_added(struct str *out, const struct sentencepiece *s)
{
	const char *comma = "";

	str_add(out, "\"added_tokens\":[");
	for (int64_t id = 0; id < s->count; id++) {
		const struct piece *p = &s->pieces[id];

		if (p->type != PIECE_UNKNOWN && p->type != PIECE_CONTROL && p->type != PIECE_USER_DEFINED)
			continue;
		str_printf(out, "%s{\"id\":%" PRId64 ",\"content\":", comma, id);
		put_string(out, p->text, p->len_bytes);
		str_printf(out,
		        ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
		        "\"special\":%s}",
		        p->type == PIECE_USER_DEFINED ? "false" : "true");
		comma = ",";
	}
	str_add(out, "],");
}

/* Applies the map, removes extra spaces, puts a mark in front, and replaces spaces by marks. */
static void put_normalizer(struct str *out, const struct sentencepiece *s)
{
	str_add(out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
	if (s->charsmap_bytes > 0) {
		str_add(out, "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
		put_base64(out, s->charsmap, s->charsmap_bytes);
		str_add(out, "\"},");
	}
	if (s->remove_extra_spaces) /* not ^ and $: these match at lines */
		str_add(out, "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},"
		             "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(?<![\\\\s\\\\S]) | "
		             "(?![\\\\s\\\\S])\"},"
		             "\"content\":\"\"},");
	if (s->dummy_prefix)
		str_add(out, "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"},");
	str_add(out, "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}]},");
	str_add(out, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
	             "\"String\":"
	             "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
	if (s->dummy_prefix)
		str_add(out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
	str_add(out, "]},");
}

static void put_special(struct str *out, const char *name, const char *comma)
{
	str_printf(out, "%s{\"SpecialToken\":{\"id\":\"%s\",\"type_id\":0}}", comma, name);
}

static void put_special_ids(struct str *out, const char *name, int64_t id, const char *comma)
{
	str_printf(
	        out, "%s\"%s\":{\"id\":\"%s\",\"ids\":[%" PRId64 "],\"tokens\":[]}", comma, name, name, id);
}

/* Its tokens are called "bos" and "eos", also those that it does not use: tokenizer_config.json can say which
 * they are, and they are the tokenizer's roles. */
static void put_template(struct str *out, const struct sentencepiece *s, int bos, int eos)
{
	str_add(out, "\"post_processor\":{\"type\":\"TemplateProcessing\"");
	for (int texts = 1; texts <= 2; texts++) {
		str_add(out, texts == 1 ? ",\"single\":[" : ",\"pair\":[");
		for (int i = 0; i < texts; i++) {
			if (bos)
				put_special(out, "bos", i ? "," : "");
			str_printf(out, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":0}}", i || bos ? "," : "",
			        'A' + i);
			if (eos)
				put_special(out, "eos", ",");
		}
		str_add(out, "]");
	}
	str_add(out, ",\"special_tokens\":{");
	if (s->bos_id >= 0)
		put_special_ids(out, "bos", s->bos_id, "");
	if (s->eos_id >= 0)
		put_special_ids(out, "eos", s->eos_id, s->bos_id >= 0 ? "," : "");
	str_add(out, "}},");
}

static void put_unigram(struct str *out, const struct sentencepiece *s)
{
	str_printf(out,
	        "\"model\":{\"type\":\"Unigram\",\"unk_id\":%" PRId64 ",\"byte_fallback\":%s,\"vocab\":[",
	        s->unk_id, s->byte_fallback ? "true" : "false");
	for (int64_t id = 0; id < s->count; id++) {
		str_add(out, id ? ",[" : "[");
		put_string(out, s->pieces[id].text, s->pieces[id].len_bytes);
		str_printf(out, ",%.9g]", (double)s->pieces[id].score);
	}
	str_add(out, "]}}");
}

static int put_bpe(struct str *out, const struct sentencepiece *s)
{
	struct merge_list list = {0};
	struct vocab v = {0};
	int rc = 0;

	str_printf(out, "\"model\":{\"type\":\"BPE\",\"fuse_unk\":true,\"byte_fallback\":%s,\"unk_token\":",
	        s->byte_fallback ? "true" : "false");
	put_string(out, s->pieces[s->unk_id].text, s->pieces[s->unk_id].len_bytes);
	str_add(out, ",\"vocab\":{");
	for (int64_t id = 0; rc == 0 && id < s->count; id++) {
		const struct piece *p = &s->pieces[id];

		rc = vocab_add(&v, p->text, p->len_bytes, id, VOCAB_KIND_WORD);
		str_add(out, id ? "," : "");
		put_string(out, p->text, p->len_bytes);
		str_printf(out, ":%" PRId64, id);
	}
	if (rc < 0)
		rc = err_note(rc, "%s", s->where);
	if (rc == 0)
		rc = find_merges(s, &v, &list);
	str_add(out, "},\"merges\":[");
	for (int64_t i = 0; rc == 0 && i < list.count; i++) {
		const struct piece *left = &s->pieces[list.merges[i].left],
		                   *right = &s->pieces[list.merges[i].right];

		str_add(out, i ? ",[" : "[");
		put_string(out, left->text, left->len_bytes);
		str_add(out, ",");
		put_string(out, right->text, right->len_bytes);
		str_add(out, "]");
	}
	str_add(out, "]}}");
	vocab_free(&v);
	mem_free(list.merges);
	return rc;
}

/* Refuses tokenizers with other ids than the file's: transformers moves them. */
static int check_class(const struct sentencepiece *s, const json_t *config)
{
	static const char *const moved[] = {"XLMRoberta", "MBart", "MBart50", "Camembert", "Barthez",
	        "M2M100", "Nllb", "Pegasus", "BigBird", "Reformer", "Marian", "XGLM", "Speech2Text",
	        "DebertaV2", "XLNet", "Albert", "RemBert", "Fnet"};
	const char *class = json_string_value(json_object_get(config, "tokenizer_class"));

	for (size_t i = 0; class && i < sizeof(moved) / sizeof(moved[0]); i++)
		if (strncmp(class, moved[i], strlen(moved[i])) == 0)
			return err_set(ERR_UNSUPPORTED,
			        "%s: a %.40s does not use the ids of this file; write a tokenizer.json with "
			        "transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
			        s->where, class);
	if (s->suffix_space || (s->model != MODEL_UNIGRAM && s->model != MODEL_BPE))
		return err_set(ERR_UNSUPPORTED,
		        "%s: a sentencepiece model of %s is not supported; supported: BPE and Unigram with "
		        "spaces in front",
		        s->where, s->suffix_space ? "spaces after words" : "characters or words");
	return 0;
}

int sentencepiece_to_json(
        struct str *out, const char *bytes, size_t len_bytes, const json_t *config, const char *where)
{
	struct sentencepiece s = {.where = where,
	        .model = MODEL_UNIGRAM,
	        .bos_id = 1,
	        .eos_id = 2,
	        .dummy_prefix = 1,
	        .remove_extra_spaces = 1};
	int rc = read_model(&s, bytes, len_bytes), bos = s.model == MODEL_BPE, eos = s.model == MODEL_UNIGRAM;

	if (rc == 0)
		rc = check_class(&s, config);
	if (rc == 0 && config)
		rc = json_flag(config, where, "add_bos_token", bos, &bos);
	if (rc == 0 && config)
		rc = json_flag(config, where, "add_eos_token", eos, &eos);
	if (rc == 0) {
		str_add(out, "{\"version\":\"1.0\",");
		put_added(out, &s);
		put_normalizer(out, &s);
		put_template(out, &s, bos && s.bos_id >= 0, eos && s.eos_id >= 0);
		if (s.model == MODEL_UNIGRAM)
			put_unigram(out, &s);
		else
			rc = put_bpe(out, &s);
	}
	mem_free(s.pieces);
	return rc < 0 ? rc : str_check(out);
}
