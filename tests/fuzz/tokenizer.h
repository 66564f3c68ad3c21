/* Loads a tokenizer file. If it is valid, it must encode a text to ids of its own vocabulary, and decode ids.
 */
#ifndef FERRY_TESTS_FUZZ_TOKENIZER_H
#define FERRY_TESTS_FUZZ_TOKENIZER_H

#include "tests/fuzz/fuzz.h"

#include "data/tokenizer/tokenizer.h"

/* path: as of tokenizer_open */
static inline void fuzz_tokenizer_at(const char *path)
{
	static const char text[] = "  Hello, wörld!\n\t123'll e\xcc\x81 \xef\xbf\xbd <s>\xf0\x9f\x98\x80";
	struct tokenizer *t = NULL;
	struct token_list ids = {0};
	char *back = NULL;
	size_t back_len = 0;
	int err = tokenizer_open(&t, path);

	if (err) {
		fuzz_refused(err);
		fuzz_require(!t);
		return;
	}
	err = tokenizer_encode(t, &ids, text, sizeof(text) - 1, ADD_SPECIAL_ALL);
	if (err)
		fuzz_refused(err);
	for (int64_t i = 0; i < ids.count; i++)
		fuzz_require(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_vocab_count(t));
	fuzz_require(!tokenizer_decode(t, &back, &back_len, ids.ids, ids.count, SKIP_SPECIAL_OFF));
	fuzz_require(strlen(back) <= back_len);
	mem_free(back);
	token_list_free(&ids);
	tokenizer_close(t);
}

static inline void fuzz_tokenizer(const char *name, const uint8_t *data, size_t len)
{
	fuzz_tokenizer_at(fuzz_file(name, data, len));
}

#endif
