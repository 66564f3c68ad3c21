/* Computes the reference of preference training, keeps it and reads it back. */
#include "train/reference.h"
#include "train/adapters.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "checkpoint/safetensors.h"
#include "comm/world.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int is_base(const struct session *s)
{
	return s->config->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE && s->config->lora_adapter;
}

static int reads_reference(const struct session *s)
{
	return preference_reads((enum preference_kind)s->config->preference_loss, PREFERENCE_REFERENCE);
}

/* ---- the sides of a run ---- */

enum { SIDE_TRAIN, SIDE_EVAL, SIDE_COUNT };
static const char *const side_names[SIDE_COUNT] = {"train", "eval"};

static struct session_rows *rows_of(struct session *s, int side)
{
	return side == SIDE_TRAIN ? &s->train : &s->eval;
}

/* The rows that an evaluation of the side runs through, each once. */
static struct session_rows *pass_of(struct session *s, int side)
{
	return side == SIDE_TRAIN ? &s->pass : &s->eval;
}

/* ---- computing ---- */

static int row_add(void *context, int64_t row, const float *losses, int64_t count)
{
	double *reference = context, sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += losses[i];
	reference[row] = -sum;
	return 0;
}

/* Each rank has its rows; those of others are zero. */
static int share(double *values, int64_t count)
{
	enum { PIECE = 1 << 20 };
	int rc = 0;

	for (int64_t at = 0; at < count && !rc; at += PIECE)
		rc = world_sum(values + at, (int)min_i64(PIECE, count - at));
	return rc;
}

static int64_t find_infinite(const struct session_rows *rows)
{
	int64_t row = 0;

	while (row < rows->data->row_count && isfinite(rows->reference[row]))
		row++;
	return row < rows->data->row_count ? row : -1;
}

static int check_finite(const struct session_rows *rows)
{
	int64_t row = find_infinite(rows);

	return row < 0 ? 0
	               : err_set(ERR_NONFINITE,
	                         "the log probability of the %s text of pair %" PRId64
	                         " is not finite before the first step",
	                         row % 2 ? "rejected" : "chosen", row / 2 + 1);
}

enum { PAIRS_MANY = 500 }; /* a pass over them takes time, and says so */

static int compute(struct session *s, int side)
{
	struct session_rows *rows = rows_of(s, side);
	struct evaluation e;
	int rc;

	if (!world_self()->rank && rows->data->row_count >= PAIRS_MANY * 2)
		log_info("reference: a pass over %" PRId64 " pairs before the first step",
		        rows->data->row_count / 2);
	rc = evaluate(s, pass_of(s, side), &e, row_add, rows->reference);
	if (!rc)
		rc = share(rows->reference, rows->data->row_count);
	if (!rc)
		rc = check_finite(rows);
	if (!rc && !world_self()->rank)
		log_info("reference: log probabilities of %" PRId64 " pair%s to %s on in %.1f s",
		        rows->data->row_count / 2, plural_s(rows->data->row_count / 2),
		        side == SIDE_TRAIN ? "train" : "evaluate", e.seconds);
	return rc;
}

/* With preference_reference=base the adapter that the run begins with does not count. */
static int compute_all(struct session *s)
{
	int rc = is_base(s) ? world_agree(adapters_switch(s, ADAPTERS_OFF)) : 0;

	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		if (rows_of(s, side)->data)
			rc = compute(s, side);
	if (!rc && is_base(s))
		rc = world_agree(adapters_switch(s, ADAPTERS_ON));
	return rc;
}

/* ---- keeping ---- */

enum { HASH_BYTES = 17 };

static int hash_of(char text[HASH_BYTES], const struct session_rows *rows)
{
	uint64_t hash = 0;
	int rc = dataset_hash(&hash, rows->data);

	snprintf(text, HASH_BYTES, "%016" PRIx64, hash);
	return rc;
}

static int write_file(struct session *s, const char *dir)
{
	struct safetensors_decl decls[SIDE_COUNT];
	struct safetensors_text texts[SIDE_COUNT];
	char hash[SIDE_COUNT][HASH_BYTES], *path = file_join(dir, REFERENCE_NAME);
	struct safetensors_writer *writer = NULL;
	int count = 0, rc = path ? 0 : ERR_NOMEM;

	for (int side = 0; side < SIDE_COUNT && !rc; side++) {
		struct session_rows *rows = rows_of(s, side);

		if (!rows->data)
			continue;
		rc = hash_of(hash[side], rows);
		texts[count] = (struct safetensors_text){side_names[side], hash[side]};
		decls[count++] = (struct safetensors_decl){.name = side_names[side],
		        .dtype = SAFETENSORS_F64,
		        .rank = 1,
		        .shape = {rows->data->row_count}};
	}
	if (!rc)
		rc = safetensors_create(&writer, path, decls, count, texts, count, SAFETENSORS_PLAIN);
	for (int side = 0; side < SIDE_COUNT && !rc; side++) {
		struct session_rows *rows = rows_of(s, side);

		if (rows->data)
			rc = safetensors_append(writer, rows->reference,
			        (size_t)rows->data->row_count * sizeof(*rows->reference));
	}
	if (!rc)
		rc = safetensors_finish(writer);
	safetensors_writer_free(writer);
	mem_free(path);
	return rc;
}

static const char *metadata_of(const struct safetensors *file, const char *key)
{
	for (int64_t i = 0; i < file->metadata_count; i++)
		if (!strcmp(file->metadata[i].key, key))
			return file->metadata[i].value;
	return "";
}

static int read_side(struct session *s, int side, const struct safetensors *file)
{
	struct session_rows *rows = rows_of(s, side);
	const struct safetensors_tensor *t = safetensors_find(file, side_names[side]);
	int64_t len_bytes;
	char now[HASH_BYTES];
	int rc;

	if (!rows->data)
		return 0;
	rc = hash_of(now, rows);
	len_bytes = rows->data->row_count * (int64_t)sizeof(*rows->reference);
	if (!rc && (!t || t->dtype != SAFETENSORS_F64 || t->len_bytes != len_bytes ||
	                   strcmp(metadata_of(file, side_names[side]), now)))
		rc = err_set(ERR_INPUT,
		        "%s has the reference of other rows than those to %s; resume with the run's own data",
		        file->path, side == SIDE_TRAIN ? "train on" : "evaluate on");
	if (!rc)
		rc = safetensors_read(file, t, rows->reference, 0, len_bytes);
	if (!rc && find_infinite(rows) >= 0)
		rc = err_set(ERR_INPUT, "%s: \"%s\" holds a value that is not finite: the file is damaged",
		        file->path, side_names[side]);
	return rc;
}

static int read_file(struct session *s, const char *dir)
{
	char *path = file_join(dir, REFERENCE_NAME);
	struct safetensors *file = NULL;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && file_kind_of(path) == FILE_NONE)
		rc = err_set(ERR_INPUT,
		        "%s is missing: it has the log probabilities by the model before the first step; "
		        "copy it back from the run's output_dir, or start a new run",
		        path);
	if (!rc)
		rc = safetensors_open(&file, path);
	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		rc = read_side(s, side, file);
	safetensors_close(file);
	mem_free(path);
	return rc;
}

static int read_shared(struct session *s, const char *dir)
{
	int rc = world_agree(world_self()->rank ? 0 : read_file(s, dir));

	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		if (rows_of(s, side)->data)
			rc = share(rows_of(s, side)->reference, rows_of(s, side)->data->row_count);
	return rc;
}

int reference_find(struct session *s, int is_resumed, const char *dir)
{
	if (!s->train.reference || !reads_reference(s))
		return 0;
	return is_resumed ? read_shared(s, dir) : compute_all(s);
}

int reference_write(struct session *s, const char *output_dir)
{
	if (!s->train.reference || !reads_reference(s))
		return 0;
	return world_agree(world_self()->rank ? 0 : write_file(s, output_dir));
}
