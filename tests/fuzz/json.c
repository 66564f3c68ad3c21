/* links: base */
/* seeds: examples/models */
/* seconds: 8 */
/* The JSON reader: valid documents are written, and read again as the same. */
#include "tests/fuzz/fuzz.h"

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	json_t *root = NULL, *again = NULL;
	char *text = NULL;
	int err = json_parse(&root, "fuzz", (const char *)data, len);

	if (err) {
		fuzz_refused(err);
		fuzz_require(!root);
		return 0;
	}
	fuzz_require(!json_write(&text, root, JSON_ENCODE_ANY));
	fuzz_require(!json_parse(&again, "again", text, strlen(text)) && json_equal(root, again));
	json_decref(root);
	json_decref(again);
	mem_free(text);
	return 0;
}
