/* links: base data_source */
/* seeds: */
/* seconds: 8 */
/* A Parquet file. */
#include "tests/fuzz/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_records("rows.parquet", data, len);
	return 0;
}
