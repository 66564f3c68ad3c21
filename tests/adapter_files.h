/* Adapters beside models: token losses, and files of adapters compared. */
#ifndef FERRY_TESTS_ADAPTER_FILES_H
#define FERRY_TESTS_ADAPTER_FILES_H

#include "tests/golden_reference.h"
#include "tests/run_fixture.h"

#include "checkpoint/file/safetensors.h"

#define ADAPTER_RUN "device=host compute_dtype=fp32 threads=1 "

/* Token losses of the rows in a folder, one after the other. */
static inline json_t *adapter_losses(const char *folder, const char *model, const char *adapter)
{
	json_t *got, *list = json_array(), *row, *loss;
	size_t i, j;

	assert_ferry_json(&got,
	        "eval model=%s%s%s data=%s/rows.jsonl data_format=tokens per_token=on " ADAPTER_RUN "--json",
	        model, *adapter ? " lora_adapter=" : "", adapter, folder);
	json_array_foreach(json_object_get(got, "token_losses"), i, row)
	{
		json_array_foreach(row, j, loss) json_array_append(list, loss);
	}
	json_decref(got);
	return list;
}

/* The most that two lists of numbers differ. */
static inline double list_distance(const json_t *a, const json_t *b)
{
	double most = 0;

	assert_true(json_array_size(a) > 0);
	assert_int_equal(json_array_size(a), json_array_size(b));
	for (size_t i = 0; i < json_array_size(a); i++)
		most = fmax(most, fabs(number_at(a, i) - number_at(b, i)));
	return most;
}

/* The second file has all tensors of the first, byte for byte, and no others. */
static inline void assert_same_tensors(const char *path, const char *other)
{
	struct safetensors *a, *b;

	assert_int_equal(safetensors_open(&a, path), 0);
	assert_int_equal(safetensors_open(&b, other), 0);
	assert_int_equal(a->tensor_count, b->tensor_count);
	for (int64_t i = 0; i < a->tensor_count; i++) {
		const struct safetensors_tensor *t = &a->tensors[i], *o = NULL;
		char *bytes[2];

		for (int64_t j = 0; j < b->tensor_count; j++)
			if (!strcmp(b->tensors[j].name, t->name))
				o = &b->tensors[j];
		if (!o || o->len_bytes != t->len_bytes)
			fail_msg("%s: %s is not in %s", path, t->name, other);
		for (int k = 0; k < 2; k++) {
			bytes[k] = mem_alloc((size_t)t->len_bytes, 1);
			assert_int_equal(
			        safetensors_read(k ? b : a, k ? o : t, bytes[k], 0, t->len_bytes), 0);
		}
		if (memcmp(bytes[0], bytes[1], (size_t)t->len_bytes))
			fail_msg("%s: %s differs", path, t->name);
		mem_free(bytes[0]);
		mem_free(bytes[1]);
	}
	safetensors_close(a);
	safetensors_close(b);
}

#endif
