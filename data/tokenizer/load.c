#include <inttypes.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/json_keys.h"
#include "data/tokenizer/nfc.h"

enum { SEQUENCE_DEPTH_MAX = 8 };

/* A normalizer: none, NFC, or a Sequence of those (NFC twice is NFC). */
static int load_normalizer(struct tokenizer *t, const json_t *spec, const char *where, int depth)
{
	const char *type;
	const json_t *list, *element;
	size_t i;
	int rc;

	if (!spec || json_is_null(spec))
		return 0;
	rc = json_type_of(spec, where, &type);
	if (rc < 0)
		return rc;
	if (strcmp(type, "NFC") == 0) {
		t->normalize_nfc = 1;
		return json_check_keys(spec, where, "type");
	}
	if (strcmp(type, "Sequence") != 0)
		return err_set(ERR_UNSUPPORTED,
		        "%s: the normalizer %.80s is not supported; byte-level BPE with NFC or without any "
		        "is",
		        where, type);
	rc = json_check_keys(spec, where, "type normalizers");
	list = json_object_get(spec, "normalizers");
	if (rc == 0 && !json_is_array(list))
		rc = err_set(ERR_INPUT, "%s: normalizer: Sequence wants an array \"normalizers\"", where);
	if (rc == 0 && depth == SEQUENCE_DEPTH_MAX)
		rc = err_set(ERR_UNSUPPORTED, "%s: normalizer: Sequences nested more than %d deep", where,
		        SEQUENCE_DEPTH_MAX);
	json_array_foreach(list, i, element) if (rc == 0) rc = load_normalizer(t, element, where, depth + 1);
	return rc;
}

/* The decoder must be ByteLevel, whose flags concern offsets only. */
static int check_decoder(const json_t *spec, const char *where)
{
	const char *type;
	const json_t *list;
	int rc;

	if (!spec || json_is_null(spec))
		return err_set(ERR_UNSUPPORTED,
		        "%s: there is no decoder; ByteLevel is the one that is supported", where);
	rc = json_type_of(spec, where, &type);
	if (rc < 0)
		return rc;
	if (strcmp(type, "ByteLevel") == 0)
		return json_check_keys(spec, where, "type add_prefix_space trim_offsets use_regex");
	list = json_object_get(spec, "decoders");
	if (strcmp(type, "Sequence") == 0 && json_array_size(list) == 1 &&
	        json_is_object(json_array_get(list, 0)) &&
	        !json_object_get(json_array_get(list, 0), "decoders"))
		return check_decoder(json_array_get(list, 0), where);
	return err_set(ERR_UNSUPPORTED, "%s: the decoder %.80s is not supported; ByteLevel is", where, type);
}

static int read_added(const json_t *spec, const char *where, const char **content, size_t *len_bytes,
        int64_t *id, unsigned *flags)
{
	static const char *const names[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
	int rc = json_check_keys(spec, where, "id content single_word lstrip rstrip normalized special");

	*id = -1;
	*content = NULL;
	*flags = 0;
	if (rc == 0)
		rc = json_get_int(spec, where, "id", id);
	if (rc >= 0)
		rc = json_get_str(spec, where, "content", content);
	if (rc < 0)
		return rc;
	if (*id < 0 || !*content || !**content)
		return err_set(ERR_INPUT, "%s: added_tokens: an entry without id or content", where);
	*len_bytes = json_string_length(json_object_get(spec, "content"));
	for (int i = 0; i < 5; i++) {
		int flag = 0;

		rc = json_get_bool(spec, where, names[i], &flag);
		if (rc == 0)
			return err_set(ERR_INPUT, "%s: added_tokens: '%.80s' has no \"%s\"", where, *content,
			        names[i]);
		if (rc < 0)
			return rc;
		*flags |= flag ? 1u << i : 0;
	}
	return 0;
}

/* An added token that normalization changes decodes to the changed content. */
static int rename_added(struct tokenizer *t, int32_t id, const struct str *content)
{
	char decoded[VOCAB_CONTENT_BYTES];
	size_t start = t->renamed_bytes.len_bytes, decoded_len;

	if (content->len_bytes <= sizeof(decoded) &&
	        byte_level_decode(decoded, &decoded_len, content->data, content->len_bytes))
		str_add_bytes(&t->renamed_bytes, decoded, decoded_len);
	else
		str_add_bytes(&t->renamed_bytes, content->data, content->len_bytes);
	if (str_check(&t->renamed_bytes) < 0)
		return ERR_NOMEM;
	return piece_list_add(&t->renamed, start, t->renamed_bytes.len_bytes, id);
}

/* The content as it is searched for: normalized where that is done in normalized text. */
static int searched_content(
        const struct tokenizer *t, struct str *text, const char *content, size_t len_bytes, unsigned flags)
{
	text->len_bytes = 0;
	if (t->normalize_nfc && (flags & ADDED_NORMALIZED))
		return nfc_append(text, content, len_bytes);
	str_add_bytes(text, content, len_bytes);
	return str_check(text);
}

/* A content that normalization changes is special to skip_special where its changed form is another special
 * token. */
static uint8_t added_mark(const struct tokenizer *t, const struct str *text, int changed, unsigned flags)
{
	int32_t same;

	if (!changed)
		return flags & ADDED_SPECIAL ? TOKENIZER_ADDED_SPECIAL : TOKENIZER_ADDED_PLAIN;
	same = vocab_find_content(&t->bpe.vocab, text->data, text->len_bytes);
	return same >= 0 && t->added[same] == TOKENIZER_ADDED_SPECIAL ? TOKENIZER_ADDED_RENAMED_SPECIAL
	                                                              : TOKENIZER_ADDED_RENAMED;
}

/* Fills the tries and t->added; the ids are settled. Contents that normalization leaves alone go first,
 * because one that becomes equal to another gives way to it. */
static int fill_added_sets(struct tokenizer *t, const json_t *list, const char *where)
{
	struct str text = {0};
	const json_t *element;
	const char *content;
	size_t len_bytes, i;
	int64_t in_file;
	unsigned flags;
	int rc = 0;

	for (int pass = 0; pass < 2; pass++) {
		json_array_foreach(list, i, element)
		{
			if (rc == 0)
				rc = read_added(element, where, &content, &len_bytes, &in_file, &flags);
			if (rc == 0)
				rc = searched_content(t, &text, content, len_bytes, flags);
			if (rc < 0)
				goto out;
			int changed =
			        text.len_bytes != len_bytes || memcmp(text.data, content, len_bytes) != 0;
			int32_t id = vocab_find_content(&t->bpe.vocab, content, len_bytes);

			if (changed != pass)
				continue;
			if (t->added[id])
				rc = err_set(
				        ERR_INPUT, "%s: added_tokens: '%.80s' occurs twice", where, content);
			if (rc == 0)
				rc = added_set_add(flags & ADDED_NORMALIZED ? &t->normalized : &t->raw,
				        text.data, text.len_bytes, id, flags);
			if (rc == 0 && changed)
				rc = rename_added(t, id, &text);
			t->added[id] = added_mark(t, &text, changed, flags);
		}
	}
out:
	str_free(&text);
	return rc;
}

/* An added token's id is that of the same content in the vocabulary, else the next one behind all others. The
 * id in the file is what it was when the file was written, and HF tokenizers does not look at it. */
int tokenizer_load_added(struct tokenizer *t, const json_t *list, const char *where)
{
	struct vocab *vocab = &t->bpe.vocab;
	int64_t model_count = vocab->entry_count, top = -1, id, in_file;
	const char *content;
	size_t len_bytes, i;
	const json_t *element;
	unsigned flags;
	int rc, differs = 0;

	if (list && !json_is_null(list) && !json_is_array(list))
		return err_set(
		        ERR_INPUT, "%s: added_tokens is %s; expected an array", where, json_kind_name(list));
	json_array_foreach(list, i, element)
	{
		rc = read_added(element, where, &content, &len_bytes, &in_file, &flags);
		if (rc < 0)
			return rc;
		id = vocab_find_content(vocab, content, len_bytes);
		if (id < 0) {
			id = top >= model_count ? top + 1 : model_count;
			rc = vocab_add(vocab, content, len_bytes, id, VOCAB_KIND_ADDED);
			if (rc < 0)
				return err_note(rc, "%s: added_tokens", where);
		}
		if (id != in_file && !differs++)
			log_warn("%s: added_tokens: '%.80s' has id %" PRId64
			         " in the file and is used as %" PRId64 ", as HF tokenizers does",
			        where, content, in_file, id);
		if (id > top)
			top = id;
	}
	t->added = mem_alloc((size_t)vocab->id_end, 1);
	if (!t->added)
		return ERR_NOMEM;
	return fill_added_sets(t, list, where);
}

static int check_cut(const json_t *root, const char *key, const char *where)
{
	const json_t *value = json_object_get(root, key);

	if (value && !json_is_null(value) && !json_is_object(value))
		return err_set(ERR_INPUT, "%s: %s is %s; expected an object or null", where, key,
		        json_kind_name(value));
	return 0;
}

int tokenizer_load(struct tokenizer *t, const json_t *root, const char *where, enum pattern_engine engine)
{
	const json_t *model = json_object_get(root, "model");
	const char *version = "1.0";
	int rc;

	if (!json_is_object(root) || !json_is_object(model))
		return err_set(
		        ERR_INPUT, "%s: this is no tokenizer.json: there is no object \"model\"", where);
	rc = json_check_keys(root, where,
	        "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
	        "model");
	if (rc == 0)
		rc = json_get_str(root, where, "version", &version);
	if (rc >= 0 && strcmp(version, "1.0") != 0)
		rc = err_set(ERR_UNSUPPORTED, "%s: version '%.40s' is not supported; 1.0 is", where, version);
	if (rc >= 0)
		rc = check_cut(root, "truncation", where);
	if (rc >= 0)
		rc = check_cut(root, "padding", where);
	/* kinds of tokenizer first, so that another kind is refused by its name and not by a detail */
	if (rc >= 0)
		rc = tokenizer_check_model(model, where);
	if (rc >= 0)
		rc = load_normalizer(t, json_object_get(root, "normalizer"), where, 0);
	if (rc >= 0)
		rc = pretokenizer_load(
		        &t->pretokenizer, json_object_get(root, "pre_tokenizer"), where, engine);
	if (rc >= 0)
		rc = check_decoder(json_object_get(root, "decoder"), where);
	if (rc >= 0)
		rc = tokenizer_load_vocab(t, model, where);
	if (rc >= 0)
		rc = tokenizer_load_merges(t, model, where);
	if (rc >= 0)
		rc = tokenizer_load_added(t, json_object_get(root, "added_tokens"), where);
	if (rc >= 0)
		rc = tokenizer_load_template(t, json_object_get(root, "post_processor"), where);
	return rc;
}
