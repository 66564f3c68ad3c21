/* links: base checkpoint */
/* seeds: */
/* The header of a safetensors file with as many bytes as its last tensor needs. The ranges of a valid one
 * must tile the data, and each name must be found again. */
#include "tests/fuzz/fuzz.h"

#include "checkpoint/file/safetensors.h"

/* The greatest number in the text: where the last tensor ends, if the header is right. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct safetensors *file = NULL;
	char *header = mem_alloc(1, len + 1);
	uint64_t end = 0;
	int err;

	fuzz_require(header);
	memcpy(header, data, len);
	err = safetensors_parse(&file, "fuzz", header, len, 8 + len + greatest(data, len));
	if (err) {
		fuzz_refused(err);
		fuzz_require(!file);
		return 0;
	}
	for (int i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *tensor = &file->tensors[i];

		fuzz_require(safetensors_find(file, tensor->name) == tensor);
		end += (uint64_t)tensor->len_bytes;
	}
	fuzz_require(end <= greatest(data, len));
	safetensors_close(file);
	return 0;
}
