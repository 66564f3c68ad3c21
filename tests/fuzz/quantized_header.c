/* links: base model model_families checkpoint */
/* seeds: */
/* The header of a safetensors file whose tensors may be codes and scales. What is taken for a matrix has as
 * many codes and scales as its format needs, and no tensor belongs to two. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/hf/hf_coded.h"

/* A file that is long enough for any tensor; it has no descriptor, so tables cannot be read. */
static uint64_t greatest(const uint8_t *data, size_t len)
{
	uint64_t most = 0, value = 0;

	for (size_t i = 0; i < len; i++) {
		value = data[i] >= '0' && data[i] <= '9' ? value * 10 + (uint64_t)(data[i] - '0') : 0;
		if (value < UINT64_MAX / 16 && value > most)
			most = value;
	}
	return most;
}

static void check(const struct hf_coded *c)
{
	int64_t scales = weight_format_scales(c->format, c->as.shape[0], c->as.shape[1]);

	fuzz_require(c->as.rank == 2 && c->as.count == c->as.shape[0] * c->as.shape[1]);
	fuzz_require(c->codes.tensor->len_bytes == code_bytes(c->format->code, c->as.count));
	fuzz_require(c->is_one || c->scales.tensor->count == scales);
	fuzz_require(c->format->code == CODE_NF4 || c->format->code == CODE_FP4 || !c->outer.tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct safetensors *file = NULL;
	char *header = mem_alloc(1, len + 1);
	struct hf_dir dir = {.path = (char *)(uintptr_t) "fuzz", .files = &file, .file_count = 1};
	struct hf_coded_set set;
	int err;

	fuzz_require(header);
	memcpy(header, data, len);
	err = safetensors_parse(&file, "fuzz", header, len, 8 + len + greatest(data, len));
	if (err)
		return 0;
	err = hf_coded_find(&set, &dir);
	if (err && err != ERR_IO)
		fuzz_refused(err);
	for (int64_t i = 0; i < set.count && !err; i++)
		check(&set.coded[i]);
	for (int64_t t = 0; t < file->tensor_count && !err; t++)
		fuzz_require(!hf_coded_of(&set, 0, t, 0) || !hf_coded_of(&set, 0, t, 1));
	hf_coded_free(&set);
	safetensors_close(file);
	return 0;
}
