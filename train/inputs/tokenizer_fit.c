/* Compares a tokenizer's ids with a model's vocabulary. */
#include "train/inputs/tokenizer_fit.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/tokenizer/tokenizer.h"

#include <inttypes.h>

void tokenizer_fit_warn(const struct tokenizer *t, int64_t vocab_count, const char *where)
{
	int64_t top = tokenizer_vocab_count(t) - 1;
	int32_t id = (int32_t)top;
	char *text = NULL;

	if (top < vocab_count)
		return;
	if (tokenizer_decode(t, &text, NULL, &id, 1, SKIP_SPECIAL_OFF))
		text = NULL;
	log_warn("%s: the tokenizer's largest id is %" PRId64 " ('%.60s'); the model's vocabulary of %" PRId64
	         " ends before. A text with such a token fails; resize the model's embedding with "
	         "transformers, "
	         "or remove the token",
	        where, top, text ? text : "", vocab_count);
	mem_free(text);
}

int tokenizer_fit_check(const char *path, int64_t vocab_count)
{
	struct tokenizer *t = NULL;
	int rc = file_kind_of(path) == FILE_DIR ? tokenizer_exists(path) : 1;

	if (rc > 0)
		rc = tokenizer_open(&t, path);
	if (t)
		tokenizer_fit_warn(t, vocab_count, path);
	tokenizer_close(t);
	return rc == ERR_NOMEM ? rc : 0;
}
