/* links: base data_source */
/* seeds: */
/* seconds: 8 */
/* A CSV file, also compressed with gzip or zstd. */
#include "tests/fuzz/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_records("rows.csv", data, len);
	return 0;
}
