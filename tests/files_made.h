/* Safetensors files that a test makes tensor by tensor. */
#ifndef FERRY_TESTS_FILES_MADE_H
#define FERRY_TESTS_FILES_MADE_H

#include "tests/ferry_run.h"

#include "checkpoint/file/safetensors.h"

#include <stdlib.h>

enum { FILES_MAX = 400 };

/* A file in the making. */
struct files {
	struct safetensors_decl decls[FILES_MAX];
	char names[FILES_MAX][120];
	void *data[FILES_MAX];
	int64_t bytes[FILES_MAX];
	int count;
};

/* Adds a tensor of zeros; its data ends in one more 0, for texts. */
static inline void *files_add(struct files *f, const char *prefix, const char *ending,
        enum safetensors_dtype dtype, int rank, const int64_t *shape)
{
	int n = f->count++;
	int64_t elements = 1;

	assert_true(n < FILES_MAX);
	snprintf(f->names[n], sizeof(f->names[n]), "%s%s", prefix, ending);
	f->decls[n] = (struct safetensors_decl){.name = f->names[n], .dtype = dtype, .rank = rank};
	for (int d = 0; d < rank; d++)
		elements *= f->decls[n].shape[d] = shape[d];
	f->bytes[n] = elements * safetensors_dtype_bits(dtype) / 8;
	f->data[n] = calloc((size_t)f->bytes[n] + 1, 1);
	assert_non_null(f->data[n]);
	return f->data[n];
}

/* The first tensor whose name ends so. */
static inline int files_find(const struct files *f, const char *ending)
{
	size_t length = strlen(ending);

	for (int i = 0; i < f->count; i++)
		if (strlen(f->names[i]) >= length &&
		        !strcmp(f->names[i] + strlen(f->names[i]) - length, ending))
			return i;
	fail_msg("no %s", ending);
	return -1;
}

/* Writes work_dir/DIR/model.safetensors. */
static inline void files_write(const struct files *f, const char *dir)
{
	struct safetensors_writer *writer;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s/model.safetensors", work_dir, dir);
	assert_int_equal(
	        safetensors_create(&writer, path, f->decls, f->count, NULL, 0, SAFETENSORS_PLAIN), 0);
	for (int i = 0; i < f->count; i++)
		assert_int_equal(safetensors_append(writer, f->data[i], (size_t)f->bytes[i]), 0);
	assert_int_equal(safetensors_finish(writer), 0);
	safetensors_writer_free(writer);
}

static inline void files_free(struct files *f)
{
	for (int i = 0; i < f->count; i++)
		free(f->data[i]);
	memset(f, 0, sizeof(*f));
}

#endif
