/* links: base model model_families */
/* seeds: examples/models tests/fuzz/config_json */
/* A model's config.json: a valid one has a table of tensors, and each name in it is found again. */
#include "tests/fuzz/fuzz.h"

#include "model/families/open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct model *model = NULL;
	json_t *root = NULL;
	int err = json_parse(&root, "fuzz", (const char *)data, len);

	if (err)
		return 0;
	err = model_open(&model, root, "fuzz");
	if (err) {
		fuzz_refused(err);
		fuzz_require(!model);
	} else {
		fuzz_require(model->tensor_count > 0);
		for (int i = 0; i < model->tensor_count; i += 1 + model->tensor_count / 64)
			fuzz_require(model_find_tensor(model, model->tensors[i].name) == i);
	}
	model_close(model);
	json_decref(root);
	return 0;
}
