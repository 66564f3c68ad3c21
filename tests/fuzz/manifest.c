/* links: base checkpoint */
/* seeds: */
/* The manifest of a checkpoint. The target appends the right checksum line to each input, so that damage
 * gets past it. */
#include "tests/fuzz/fuzz.h"

#include "base/str.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct manifest *manifest = NULL;
	struct str sealed = {0};
	int err;

	str_add_bytes(&sealed, (const char *)data, len);
	str_printf(
	        &sealed, " \"checksum\": \"xxh3-64:%016" PRIx64 "\"\n}\n", (uint64_t)XXH3_64bits(data, len));
	fuzz_require(!str_check(&sealed));
	fuzz_file(manifest_name, (const uint8_t *)sealed.data, sealed.len_bytes);
	str_free(&sealed);
	err = manifest_read(&manifest, fuzz_dir());
	if (err) {
		fuzz_refused(err);
		fuzz_require(!manifest);
		return 0;
	}
	fuzz_require(manifest->model_type && manifest->file_count >= 0);
	manifest_free(manifest);
	return 0;
}
