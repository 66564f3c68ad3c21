/* Files of vectors: their forms, and how they appear whole. */
#include "cli/vectors_file.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/source/parquet_vectors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WRITE_BYTES = 256 << 10 };

struct vectors_file {
	const struct form *form;
	char *path, *part;
	int fd;
	int64_t width, at_bytes; /* in the file */
	struct str bytes;        /* not yet written */
	struct parquet_vectors *parquet;
};

/* How a form begins, adds a row and ends; NULL: nothing to do. */
struct form {
	const char *suffix;
	int (*begin)(struct vectors_file *f, int64_t rows);
	int (*add)(struct vectors_file *f, const float *row);
	int (*end)(struct vectors_file *f);
};

static int flush(struct vectors_file *f)
{
	int rc = str_check(&f->bytes);

	if (!rc)
		rc = file_write_at(f->fd, f->part, f->bytes.data, f->bytes.len_bytes, f->at_bytes);
	if (!rc) /* now, or all pages would wait for the sync at the end */
		rc = file_write_back(f->fd, f->part, f->at_bytes, (int64_t)f->bytes.len_bytes);
	f->at_bytes += (int64_t)f->bytes.len_bytes;
	f->bytes.len_bytes = 0;
	return rc;
}

static int put(void *context, const void *bytes, size_t len_bytes)
{
	struct vectors_file *f = context;

	str_add_bytes(&f->bytes, bytes, len_bytes);
	return f->bytes.len_bytes < WRITE_BYTES ? str_check(&f->bytes) : flush(f);
}

/* ---- forms ---- */

/* NumPy's format 1.0: fp32, rows one after the other. The header ends at a multiple of 64 bytes. */
static int npy_begin(struct vectors_file *f, int64_t rows)
{
	char text[128] = "\x93NUMPY\x01\x00\x76";
	int at = 10,
	    len = snprintf(text + at, sizeof(text) - (size_t)at,
	            "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", rows,
	            f->width);

	at += len;
	memset(text + at, ' ', sizeof(text) - (size_t)at);
	text[sizeof(text) - 1] = '\n';
	return put(f, text, sizeof(text));
}

static int npy_add(struct vectors_file *f, const float *row)
{
	return put(f, row, (size_t)f->width * sizeof(*row));
}

static int jsonl_add(struct vectors_file *f, const float *row)
{
	str_add(&f->bytes, "{\"embedding\":[");
	for (int64_t i = 0; i < f->width; i++)
		str_printf(&f->bytes, "%s%.9g", i ? "," : "", (double)row[i]);
	return put(f, "]}\n", 3);
}

static int parquet_begin(struct vectors_file *f, int64_t rows)
{
	(void)rows;
	return parquet_vectors_open(&f->parquet, f->width, put, f);
}

static int parquet_add(struct vectors_file *f, const float *row)
{
	return parquet_vectors_add(f->parquet, row);
}

static int parquet_end(struct vectors_file *f)
{
	return parquet_vectors_end(f->parquet);
}

static const struct form forms[] = {{".npy", npy_begin, npy_add, NULL}, {".jsonl", NULL, jsonl_add, NULL},
        {".parquet", parquet_begin, parquet_add, parquet_end}};

static const struct form *form_of(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		size_t end = strlen(forms[i].suffix);

		if (len >= end && !strcasecmp(path + len - end, forms[i].suffix))
			return &forms[i];
	}
	return NULL;
}

int vectors_file_is_known(const char *path)
{
	return form_of(path) != NULL;
}

/* ---- the file ---- */

int vectors_file_open(struct vectors_file **out, const char *path, int64_t rows, int64_t width)
{
	struct vectors_file *f = mem_alloc(1, sizeof(*f));
	int rc;

	*out = NULL;
	if (!f)
		return ERR_NOMEM;
	*f = (struct vectors_file){.form = form_of(path), .fd = -1, .width = width};
	file_clean_parts_of(path);
	f->path = mem_strdup(path);
	f->part = file_part_name(path);
	rc = f->path && f->part ? 0 : ERR_NOMEM;
	if (!rc) {
		f->fd = file_create(f->part);
		rc = f->fd < 0 ? f->fd : 0;
	}
	if (!rc && f->form->begin)
		rc = f->form->begin(f, rows);
	if (rc) {
		vectors_file_close(f);
		return rc;
	}
	*out = f;
	return 0;
}

int vectors_file_add(struct vectors_file *f, const float *row)
{
	return f->form->add(f, row);
}

int vectors_file_end(struct vectors_file *f)
{
	int rc = f->form->end ? f->form->end(f) : 0, fd = f->fd;

	if (!rc)
		rc = flush(f);
	if (!rc)
		rc = file_sync(fd, f->part);
	if (rc)
		return rc;
	f->fd = -1;
	rc = file_close(fd, f->part);
	if (rc)
		file_part_remove(f->part);
	else
		rc = file_part_place(f->part, f->path);
	mem_free(f->part);
	f->part = NULL;
	return rc;
}

void vectors_file_close(struct vectors_file *f)
{
	if (!f)
		return;
	if (f->fd >= 0) {
		file_abandon(f->fd, f->part);
		file_part_remove(f->part);
	}
	parquet_vectors_close(f->parquet);
	str_free(&f->bytes);
	mem_free(f->path);
	mem_free(f->part);
	mem_free(f);
}
