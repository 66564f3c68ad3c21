/* Rows whose tokens are hidden in training: which may be, and what stands for them. */
#include "data/rows/dataset_build.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/tokenizer/tokenizer.h"

int row_hidden_begin(struct dataset_builder *b)
{
	const struct tokenizer *t = b->options->tokenizer;
	int64_t count = t ? tokenizer_vocab_count(t) : 0;

	if (!t)
		return b->options->no_tokenizer && b->options->no_tokenizer->code
		               ? err_give(b->options->no_tokenizer)
		               : err_set(ERR_INPUT, "objective=masked needs a tokenizer; set tokenizer");
	if (tokenizer_roles(t)->mask < 0)
		return err_set(ERR_INPUT,
		        "the tokenizer has no mask_token, which objective=masked puts in the place of hidden "
		        "tokens; name it in tokenizer_config.json");
	if (b->vocab_count && count > b->vocab_count)
		count = b->vocab_count;
	if (tokenizer_roles(t)->mask >= count)
		return err_set(ERR_INPUT, "the tokenizer's mask_token has no row in the model's embedding");
	b->d->has_words = b->options->has_words;
	b->d->mask_id = tokenizer_roles(t)->mask;
	b->d->mask_pad_id = tokenizer_roles(t)->pad < count ? tokenizer_roles(t)->pad : -1;
	b->d->hidden_ids = (int32_t)count;
	return 0;
}

int row_hidden_encode(struct dataset_builder *b, struct token_list *ids, struct token_list *labels,
        const char *text, size_t len_bytes, enum add_special add)
{
	int64_t first = ids->count, at = labels->count;
	int rc;

	if (!b->options->has_words)
		return tokenizer_encode(b->options->tokenizer, ids, text, len_bytes, add);
	rc = tokenizer_encode_words(b->options->tokenizer, ids, labels, text, len_bytes, add);
	for (int64_t i = 0; i < ids->count - first && !rc; i++)
		labels->ids[at + i] = ids->ids[first + i] + (labels->ids[at + i] ? 0 : DATASET_GOES_ON);
	return rc;
}

int row_hidden_labels(
        struct dataset_builder *b, const int32_t **labels, const int32_t *ids, int64_t count, int64_t masked)
{
	if (count > b->hidden_cap) {
		mem_free(b->hidden);
		b->hidden_cap = 0;
		b->hidden = mem_alloc((size_t)count, sizeof(*b->hidden));
		if (!b->hidden)
			return ERR_NOMEM;
		b->hidden_cap = count;
	}
	for (int64_t t = 0; t < count; t++) {
		int32_t own = *labels ? (*labels)[t] : t < masked ? DATASET_IGNORE : ids[t];

		b->hidden[t] = tokenizer_is_special(b->options->tokenizer, ids[t]) ? DATASET_IGNORE : own;
	}
	*labels = b->hidden;
	return 0;
}
