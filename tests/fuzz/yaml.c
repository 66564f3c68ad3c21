/* links: base */
/* seeds: examples/machines */
/* The YAML reader: each item has its own path, a text, and a line of the document. */
#include "tests/fuzz/fuzz.h"

#include "base/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct yaml_doc doc;
	int err = yaml_parse(&doc, "fuzz", (const char *)data, len);

	if (err) {
		fuzz_refused(err);
		fuzz_require(!doc.count);
		return 0;
	}
	for (size_t i = 0; i < doc.count; i++) {
		const struct yaml_item *item = &doc.items[i];

		fuzz_require(*item->path && item->line >= 1 && (size_t)item->line <= len + 1);
		fuzz_require(!item->is_null || (!item->is_list && !item->quoted));
		for (size_t j = 0; j < i && doc.count < 100; j++)
			fuzz_require(strcmp(item->path, doc.items[j].path));
	}
	yaml_doc_free(&doc);
	return 0;
}
