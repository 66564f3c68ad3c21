/* Models of any size without disk space: the weights are zeros, in a file with a hole. */
#ifndef FERRY_TESTS_ZEROS_MODEL_H
#define FERRY_TESTS_ZEROS_MODEL_H

#include "tests/run_fixture.h"

#include "model/families/open.h"

/* Writes work_dir/NAME/model.safetensors: a header for the tensors of config.json there, then a hole.
 * Returns the number of parameters. */
static inline int64_t write_zeros(const char *name, const char *dtype, int bytes)
{
	struct str header = {0};
	struct model *model;
	char path[400];
	int64_t at = 0, parameters;
	uint64_t len;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(model_open_path(&model, path), 0);
	parameters = model->parameter_count;
	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *tensor = &model->tensors[t];

		str_printf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld", t ? "," : "{", tensor->name,
		        dtype, (long long)tensor->shape[0]);
		if (tensor->rank == 2)
			str_printf(&header, ",%lld", (long long)tensor->shape[1]);
		str_printf(&header, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
		        (long long)(at + tensor->count * bytes));
		at += tensor->count * bytes;
	}
	str_add(&header, "}");
	model_close(model);
	snprintf(path, sizeof(path), "%s/%s/model.safetensors", work_dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	len = header.len_bytes;
	assert_int_equal(fwrite(&len, 8, 1, f), 1);
	assert_int_equal(fwrite(header.data, len, 1, f), 1);
	fflush(f);
	assert_int_equal(ftruncate(fileno(f), (off_t)(8 + len) + at), 0);
	fclose(f);
	str_free(&header);
	return parameters;
}

/* Makes a model of about `bytes` bytes in bf16, in blocks; returns its bytes. */
static inline double zeros_model(const char *name, int64_t bytes)
{
	int hidden = bytes < 64 << 20 ? 512 : 2048, intermediate = 11 * hidden / 4, vocab = 8 * hidden;
	int64_t block = 2 * hidden * (int64_t)(4 * hidden + 3 * intermediate),
	        ends = 2 * 2 * hidden * (int64_t)vocab;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path, sizeof(path), "%s/config.json", name);
	write_file(path,
	        "{\"model_type\":\"llama\",\"vocab_size\":%d,\"hidden_size\":%d,\"intermediate_size\":%d,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"max_position_embeddings\":128,"
	        "\"tie_word_embeddings\":false}",
	        vocab, hidden, intermediate, (int)((bytes - ends + block - 1) / block), hidden / 128);
	return 2.0 * (double)write_zeros(name, "BF16", 2);
}

#endif
