/* links: base data_tokenizer */
/* seeds: tests/golden/tokenizer */
/* A tokenizer.json. */
#include "tests/fuzz/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_tokenizer("tokenizer.json", data, len);
	return 0;
}
