/* Rows of a dataset for tests: ids and labels of a row, in memory or in a file. */
#ifndef FERRY_TESTS_DATASET_ROWS_H
#define FERRY_TESTS_DATASET_ROWS_H

#include <stdlib.h>

#include "data/rows/dataset.h"

/* The view is valid until the next call. A row that cannot be read aborts the test. */
static inline const struct row_view *dataset_row_view(const struct dataset *d, int64_t row)
{
	static struct row_buffer buffer;
	static struct row_view v;

	row_buffer_free(&buffer);
	if (dataset_row_read(&v, &buffer, d, row))
		abort();
	return &v;
}

static inline const int32_t *dataset_row_ids(const struct dataset *d, int64_t row)
{
	return dataset_row_view(d, row)->ids;
}

static inline int32_t dataset_label(const struct dataset *d, int64_t row, int64_t position)
{
	return row_label(dataset_row_view(d, row), position);
}

#endif
