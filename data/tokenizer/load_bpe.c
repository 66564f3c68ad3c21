#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "data/tokenizer/inside.h"
#include "data/tokenizer/json_keys.h"

int tokenizer_check_model(const json_t *model, const char *where)
{
	static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
	const char *type = "BPE", *affix;
	double dropout = 0;
	int rc = json_get_str(model, where, "type", &type), byte_fallback;

	if (rc < 0)
		return rc;
	if (strcmp(type, "BPE") != 0)
		return err_set(ERR_UNSUPPORTED, "%s: a %.80s tokenizer is not supported; byte-level BPE is",
		        where, type);
	rc = json_check_keys(model, where,
	        "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk byte_fallback "
	        "ignore_merges vocab merges");
	if (rc == 0)
		rc = json_flag(model, where, "byte_fallback", 0, &byte_fallback);
	if (rc == 0 && byte_fallback)
		rc = err_set(ERR_UNSUPPORTED,
		        "%s: byte_fallback (sentencepiece-style BPE) is not supported; byte-level BPE is",
		        where);
	if (rc == 0)
		rc = json_get_num(model, where, "dropout", &dropout);
	if (rc >= 0 && dropout != 0)
		rc = err_set(ERR_UNSUPPORTED, "%s: model: dropout %g is not supported", where, dropout);
	for (int i = 0; rc >= 0 && i < 2; i++) {
		affix = "";
		rc = json_get_str(model, where, affixes[i], &affix);
		if (rc >= 0 && *affix)
			rc = err_set(ERR_UNSUPPORTED, "%s: model: %s '%.40s' is not supported", where,
			        affixes[i], affix);
	}
	return rc < 0 ? rc : 0;
}

int tokenizer_load_vocab(struct tokenizer *t, const json_t *model, const char *where)
{
	struct bpe *b = &t->bpe;
	json_t *vocab = NULL, *value;
	const char *key, *unk = NULL;
	int rc = json_get_object(model, where, "vocab", &vocab);

	if (rc == 0)
		return err_set(ERR_INPUT, "%s: model: there is no vocab", where);
	if (rc < 0)
		return rc;
	json_object_foreach(vocab, key, value)
	{
		if (!json_is_integer(value))
			return err_set(ERR_INPUT, "%s: model: vocab: '%.80s' is %s; expected an id", where,
			        key, json_kind_name(value));
		rc = vocab_add(&b->vocab, key, strlen(key), json_integer_value(value), VOCAB_KIND_WORD);
		if (rc < 0)
			return err_note(rc, "%s: model: vocab", where);
	}
	b->unk_id = -1;
	rc = json_get_str(model, where, "unk_token", &unk);
	if (rc >= 0)
		rc = json_flag(model, where, "fuse_unk", 0, &b->fuse_unk);
	if (rc >= 0)
		rc = json_flag(model, where, "ignore_merges", 0, &b->ignore_merges);
	if (rc < 0 || !unk)
		return rc;
	b->unk_id = vocab_find_content(&b->vocab, unk, strlen(unk));
	if (b->unk_id < 0)
		return err_set(ERR_INPUT, "%s: model: unk_token '%.80s' is not in the vocab", where, unk);
	return 0;
}

/* "left right", parted by the only U+0020 (other spaces may be inside), or ["left", "right"]. */
static int read_merge(const struct vocab *v, const json_t *merge, int32_t *left, int32_t *right)
{
	const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
	const char *text = json_string_value(merge), *space;
	size_t len_bytes = json_string_length(merge);

	if (json_array_size(merge) == 2 && json_is_string(a) && json_is_string(b)) {
		*left = vocab_find_content(v, json_string_value(a), json_string_length(a));
		*right = vocab_find_content(v, json_string_value(b), json_string_length(b));
	} else {
		space = text ? memchr(text, ' ', len_bytes) : NULL;
		if (!space || memchr(space + 1, ' ', len_bytes - (size_t)(space + 1 - text)))
			return err_set(ERR_INPUT, "neither \"left right\" nor [\"left\", \"right\"]");
		*left = vocab_find_content(v, text, (size_t)(space - text));
		*right = vocab_find_content(v, space + 1, len_bytes - (size_t)(space + 1 - text));
	}
	if (*left < 0 || *right < 0)
		return err_set(ERR_INPUT, "the vocabulary lacks the %s part", *left < 0 ? "left" : "right");
	return 0;
}

int tokenizer_load_merges(struct tokenizer *t, const json_t *model, const char *where)
{
	json_t *merges = NULL;
	const json_t *merge;
	size_t i;
	int rc = json_get_array(model, where, "merges", &merges);

	if (rc == 0)
		return err_set(ERR_INPUT, "%s: model: there are no merges", where);
	if (rc > 0 && json_array_size(merges) > INT32_MAX)
		rc = err_set(ERR_INPUT, "%s: model: too many merges", where);
	if (rc < 0)
		return rc;
	rc = bpe_begin_merges(&t->bpe, (int64_t)json_array_size(merges));
	json_array_foreach(merges, i, merge)
	{
		int32_t left = -1, right = -1;

		if (rc == 0)
			rc = read_merge(&t->bpe.vocab, merge, &left, &right);
		if (rc == 0)
			rc = bpe_add_merge(&t->bpe, left, right, (int32_t)i);
		if (rc < 0)
			return err_note(rc, "%s: model: merges[%zu]", where, i);
	}
	return rc;
}
