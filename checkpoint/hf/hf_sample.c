/* Tells files of weights apart without reading all of them. */
#include "checkpoint/hf/hf_import_parts.h"

#include "base/file.h"
#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { SAMPLE_BYTES = 4096, SAMPLES = 32 };

/* Hashes the begin, the end and random places between; files of equal length have the same places. */
static int blocks_hash(uint64_t *hash, const struct safetensors *file)
{
	char block[SAMPLE_BYTES];
	int rc = 0;

	*hash = XXH3_64bits(&file->file_bytes, sizeof(file->file_bytes));
	for (uint64_t i = 0; i < SAMPLES && !rc; i++) {
		int64_t len = file->file_bytes < SAMPLE_BYTES ? file->file_bytes : SAMPLE_BYTES;
		int64_t rest = file->file_bytes - len, at = i == 0 ? 0 : rest;

		if (i > 1)
			at = (int64_t)rng_below(0, i, (uint64_t)file->file_bytes, (uint64_t)rest + 1);
		rc = file_read_at(file->fd, file->path, block, (size_t)len, at);
		*hash = XXH3_64bits_withSeed(block, (size_t)len, *hash);
	}
	return rc;
}

/* Hashes the first bytes of a tensor, so that a change of any layer shows. */
static int begin_hash(uint64_t *hash, const struct safetensors *file, const struct safetensors_tensor *t)
{
	char block[SAMPLE_BYTES];
	int64_t len = t->len_bytes < SAMPLE_BYTES ? t->len_bytes : SAMPLE_BYTES;
	int rc = file_read_at(file->fd, file->path, block, (size_t)len, t->begin_bytes);

	*hash = rc ? *hash : XXH3_64bits_withSeed(block, (size_t)len, *hash);
	return rc;
}

int hf_file_sample(uint64_t *hash, const struct safetensors *file)
{
	int rc = blocks_hash(hash, file);

	for (int64_t i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		*hash = XXH3_64bits_withSeed(t->name, strlen(t->name), *hash);
		*hash = XXH3_64bits_withSeed(&t->begin_bytes, sizeof(t->begin_bytes), *hash);
		rc = rc ? rc : begin_hash(hash, file, t);
	}
	return rc;
}

int hf_import_hash(char hash[HF_HASH_BYTES], const struct hf_import *import)
{
	uint64_t all = 0;
	int rc = 0;

	for (int f = 0; f < import->dir->file_count && !rc; f++) {
		uint64_t file = 0;

		rc = hf_file_sample(&file, import->dir->files[f]);
		all = XXH3_64bits_withSeed(&file, sizeof(file), all);
	}
	snprintf(hash, HF_HASH_BYTES, "%016" PRIx64, all);
	return rc;
}
