/* links: base data_tokenizer */
/* seeds: tests/golden/tokenizer */
/* seconds: 8 */
/* A tokenizer.model (sentencepiece). */
#include "tests/fuzz/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_tokenizer("tokenizer.model", data, len);
	return 0;
}
