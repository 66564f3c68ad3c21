/* Computes the reference of preference training, keeps it and reads it back. */
#include "train/reference.h"
#include "train/adapters.h"

#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "checkpoint/file/safetensors.h"
#include "comm/world.h"
#include "placement/options.h"
#include "train/evaluate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static int is_base(const struct session *s)
{
	return s->config->preference_reference == CONFIG_PREFERENCE_REFERENCE_BASE && s->config->lora_adapter;
}

/* preference_reference, as far as it changes anything. */
static const char *kind_of(const struct session *s)
{
	return is_base(s) ? "base" : "start";
}

static int reads_reference(const struct session *s)
{
	const struct objective_use use = objective_of_config(s->config);

	return objective_reads_values(&use);
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
	return side == SIDE_TRAIN ? &s->pass : s->eval_pass.data ? &s->eval_pass : &s->eval;
}

/* ---- computing ---- */

struct reference_rows {
	double *reference;
	double (*value)(const float *losses, int64_t count);
};

static int row_add(void *context, int64_t row, const float *losses, int64_t count)
{
	const struct reference_rows *rows = context;

	rows->reference[row] = rows->value(losses, count);
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

/* A row of the dataset, for messages. */
static const char *text_kind(const struct dataset *d, int64_t row)
{
	if (d->is_judged)
		return row % 2 ? "other row's answer to row" : "answer to row";
	return row % 2 ? "rejected text of pair" : "chosen text of pair";
}

static int check_finite(const struct session_rows *rows)
{
	int64_t row = find_infinite(rows);

	return row < 0 ? 0
	               : err_set(ERR_NONFINITE,
	                         "the log probability of the %s %" PRId64
	                         " is not finite before the first step",
	                         text_kind(rows->data, row), row / 2 + 1);
}

enum { UNITS_MANY = 500 }; /* a pass over them takes time, and says so */

static int compute(struct session *s, int side)
{
	struct session_rows *rows = rows_of(s, side);
	struct reference_rows to = {rows->reference, objective_of_config(s->config).type->row_value};
	int64_t count = dataset_unit_count(rows->data);
	const char *unit = dataset_unit(rows->data);
	struct evaluation e;
	int rc;

	if (!world_self()->rank && count >= UNITS_MANY)
		log_info("reference: a pass over %" PRId64 " %ss before the first step", count, unit);
	rc = evaluate(s, pass_of(s, side), &e, row_add, &to);
	if (!rc)
		rc = share(rows->reference, rows->data->row_count);
	if (!rc)
		rc = check_finite(rows);
	if (!rc && !world_self()->rank)
		log_info("reference: log probabilities of %" PRId64 " %s%s to %s on in %.1f s", count, unit,
		        plural_s(count), side == SIDE_TRAIN ? "train" : "evaluate", e.seconds);
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

/* ---- the file ---- */

enum { HASH_BYTES = REFERENCE_HASH_BYTES };

/* Its metadata, beside the checksum of all of it and of all values. */
enum fact { FACT_TRAIN, FACT_EVAL, FACT_DTYPE, FACT_KIND, FACT_COUNT };
static const char *const fact_names[FACT_COUNT] = {"train", "eval", "compute_dtype", "preference_reference"};
static const char checksum_name[] = "checksum";

static void hash_text(char text[HASH_BYTES], uint64_t hash)
{
	snprintf(text, HASH_BYTES, "%016" PRIx64, hash);
}

static int hash_of(char text[HASH_BYTES], const struct session_rows *rows)
{
	uint64_t hash = 0;
	int rc = dataset_hash(&hash, rows->data);

	hash_text(text, hash);
	return rc;
}

static int facts_hash(XXH3_state_t **state, const struct reference_facts *facts)
{
	*state = XXH3_createState();
	if (!*state)
		return ERR_NOMEM;
	XXH3_64bits_reset(*state);
	for (int f = 0; f < FACT_COUNT; f++)
		XXH3_64bits_update(*state, facts->text[f], strlen(facts->text[f]) + 1);
	return 0;
}

static void facts_seal(struct reference_facts *facts, XXH3_state_t *state)
{
	hash_text(facts->checksum, XXH3_64bits_digest(state));
	XXH3_freeState(state);
}

/* Describes the values in memory. Those of a resumed run keep what their file said of them. */
static int describe(struct session *s)
{
	struct reference_facts *facts = &s->reference;
	XXH3_state_t *state = NULL;
	int rc = 0;

	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		if (rows_of(s, side)->data)
			rc = hash_of(facts->text[side], rows_of(s, side));
	if (!*facts->text[FACT_DTYPE])
		snprintf(facts->text[FACT_DTYPE], HASH_BYTES, "%s", config_text(s->config, "compute_dtype"));
	if (!*facts->text[FACT_KIND])
		snprintf(facts->text[FACT_KIND], HASH_BYTES, "%s", kind_of(s));
	if (!rc)
		rc = facts_hash(&state, facts);
	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		if (rows_of(s, side)->data)
			XXH3_64bits_update(state, rows_of(s, side)->reference,
			        (size_t)rows_of(s, side)->data->row_count * sizeof(double));
	if (state)
		facts_seal(facts, state);
	return rc;
}

static int write_file(struct session *s, const char *dir)
{
	struct safetensors_decl decls[SIDE_COUNT];
	struct safetensors_text texts[FACT_COUNT + 1];
	struct safetensors_writer *writer = NULL;
	char *path = file_join(dir, REFERENCE_NAME);
	int count = 0, text_count = 0, rc = path ? 0 : ERR_NOMEM;

	for (int side = 0; side < SIDE_COUNT; side++)
		if (rows_of(s, side)->data)
			decls[count++] = (struct safetensors_decl){.name = side_names[side],
			        .dtype = SAFETENSORS_F64,
			        .rank = 1,
			        .shape = {rows_of(s, side)->data->row_count}};
	for (int f = 0; f < FACT_COUNT; f++)
		if (*s->reference.text[f])
			texts[text_count++] = (struct safetensors_text){fact_names[f], s->reference.text[f]};
	texts[text_count++] = (struct safetensors_text){checksum_name, s->reference.checksum};
	if (!rc)
		rc = safetensors_replace(&writer, path, decls, count, texts, text_count);
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

static void facts_read(struct reference_facts *facts, const struct safetensors *file)
{
	*facts = (struct reference_facts){0};
	for (int64_t i = 0; i < file->metadata_count; i++) {
		const struct safetensors_text *m = &file->metadata[i];

		for (int f = 0; f < FACT_COUNT; f++)
			if (!strcmp(m->key, fact_names[f]))
				snprintf(facts->text[f], HASH_BYTES, "%s", m->value);
		if (!strcmp(m->key, checksum_name))
			snprintf(facts->checksum, HASH_BYTES, "%s", m->value);
	}
}

/* Adds a tensor's values, and refuses those that no log probability has. */
static int values_check(XXH3_state_t *state, const struct safetensors *file, const char *name)
{
	enum { PIECE = 4096 };
	const struct safetensors_tensor *t = safetensors_find(file, name);
	double values[PIECE];
	int rc = 0;

	if (t && t->dtype != SAFETENSORS_F64)
		return err_set(
		        ERR_INPUT, "%s: \"%s\" is not F64: it is no reference of ferry's", file->path, name);
	for (int64_t at = 0, len; t && at < t->len_bytes && !rc; at += len) {
		len = min_i64((int64_t)sizeof(values), t->len_bytes - at);
		rc = safetensors_read(file, t, values, at, len);
		for (int64_t i = 0; i < len / (int64_t)sizeof(*values) && !rc; i++)
			if (!isfinite(values[i]) || values[i] > 0)
				rc = err_set(ERR_INPUT,
				        "%s: \"%s\" holds a value that is %s: the file is damaged",
				        file->path, name,
				        isfinite(values[i]) ? "no log probability" : "not finite");
		if (!rc)
			XXH3_64bits_update(state, values, (size_t)len);
	}
	return rc;
}

/* Opens a file whose values agree with its checksum; files of older versions have none. */
static int open_whole(struct safetensors **out, struct reference_facts *facts, const char *path)
{
	struct reference_facts now;
	XXH3_state_t *state = NULL;
	int rc = safetensors_open(out, path);

	if (!rc) {
		facts_read(facts, *out);
		now = *facts;
		rc = facts_hash(&state, facts);
	}
	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		rc = values_check(state, *out, side_names[side]);
	if (state)
		facts_seal(&now, state);
	if (!rc && *facts->checksum && strcmp(facts->checksum, now.checksum))
		rc = err_set(ERR_INPUT, "%s: its checksum does not match: the file is damaged", path);
	return rc;
}

/* Whether this file is the one that the checkpoint's run wrote. */
static int check_run(const struct reference_facts *facts, const json_t *training, const char *path)
{
	const char *then = json_string_value(json_object_get(training, "reference"));

	if (!then || !strcmp(then, facts->checksum))
		return 0;
	return err_set(ERR_INPUT, "%s belongs to another run than the checkpoint", path);
}

static const char remedy[] = "put the run's own file back there, or start a new run";

/* ---- resuming ---- */

static const char *setting_then(const json_t *training, const char *key)
{
	const char *text = json_string_value(json_object_get(json_object_get(training, "settings"), key));

	return text ? text : "";
}

static int is_missing(const char *path, const json_t *training)
{
	const char *loss = setting_then(training, "preference_loss");

	if (!json_object_get(training, "reference") && !strcmp(loss, "simpo"))
		return err_set(ERR_INPUT,
		        "the run began with preference_loss=%s, which has no reference; set it again, or "
		        "start a "
		        "new run",
		        loss);
	return err_set(ERR_INPUT,
	        "%s is missing: it has the log probabilities by the model before the first step; %s", path,
	        remedy);
}

/* The reference stays what it was, also where settings changed. */
static int check_settings(const struct session *s, const json_t *training)
{
	const char *kind = s->reference.text[FACT_KIND], *dtype = s->reference.text[FACT_DTYPE];
	const char *now = config_text(s->config, "compute_dtype");

	if (!*kind)
		kind = setting_then(training, "preference_reference");
	if (!*dtype)
		dtype = setting_then(training, "compute_dtype");
	if (*kind && strcmp(kind, kind_of(s)))
		return err_set(ERR_INPUT,
		        "%s=%s: this run's reference is preference_reference=%s, computed before its first "
		        "step; "
		        "set that, or start a new run",
		        config_where(s->config, "preference_reference"), kind_of(s), kind);
	if (*dtype && strcmp(dtype, now))
		log_warn("%s=%s, but the reference was computed in %s: rewards compare the two; to avoid "
		         "that set "
		         "compute_dtype=%s",
		        config_where(s->config, "compute_dtype"), now, dtype, dtype);
	return 0;
}

/* Rows to train on were compared with the checkpoint's before. */
static int other_rows(const struct session *s, int side, const json_t *training, const char *path)
{
	const json_t *then = json_object_get(json_object_get(training, "settings"), "eval_data_split");
	const char *was = json_string_value(then), *now = config_text(s->config, "eval_data_split");

	if (side != SIDE_TRAIN && was && strcmp(was, now))
		return err_set(ERR_INPUT,
		        "%s has the reference of other rows than those to evaluate on: eval_data_split was "
		        "%s and is %s; resume with the run's own",
		        path, *was ? was : "not set", *now ? now : "not set");
	return err_set(ERR_INPUT,
	        "%s has the reference of other rows than those to %s; resume with the run's own %s", path,
	        side == SIDE_TRAIN ? "train on" : "evaluate on", side == SIDE_TRAIN ? "data" : "eval_data");
}

static int read_side(struct session *s, int side, const struct safetensors *file, const json_t *training)
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
	if (!rc && (!t || t->len_bytes != len_bytes || strcmp(s->reference.text[side], now)))
		rc = other_rows(s, side, training, file->path);
	return rc ? rc : safetensors_read(file, t, rows->reference, 0, len_bytes);
}

static int read_file(struct session *s, const json_t *training, const char *dir)
{
	char *path = file_join(dir, REFERENCE_NAME);
	struct safetensors *file = NULL;
	int rc = path ? 0 : ERR_NOMEM;

	if (!rc && file_kind_of(path) == FILE_NONE)
		rc = is_missing(path, training);
	else if (!rc) {
		rc = open_whole(&file, &s->reference, path);
		if (!rc)
			rc = check_run(&s->reference, training, path);
		if (rc == ERR_INPUT)
			rc = err_reword(rc, "%s; %s", err_text(), remedy);
	}
	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		rc = read_side(s, side, file, training);
	if (!rc)
		rc = check_settings(s, training);
	safetensors_close(file);
	mem_free(path);
	return rc;
}

/* ---- calls ---- */

static int has_reference(const struct session *s)
{
	return s->train.reference && reads_reference(s);
}

int reference_compute(struct session *s)
{
	int rc = has_reference(s) ? compute_all(s) : 0;

	return rc || !has_reference(s) ? rc : world_agree(describe(s));
}

int reference_read(struct session *s, const json_t *training, const char *dir)
{
	int rc;

	if (!has_reference(s))
		return 0;
	rc = world_agree(world_self()->rank ? 0 : read_file(s, training, dir));
	for (int side = 0; side < SIDE_COUNT && !rc; side++)
		if (rows_of(s, side)->data)
			rc = share(rows_of(s, side)->reference, rows_of(s, side)->data->row_count);
	return rc ? rc : world_agree(describe(s));
}

int reference_write(struct session *s, const char *dir)
{
	return has_reference(s) ? write_file(s, dir) : 0;
}

int reference_verify(const char *dir, const json_t *training)
{
	char *path;
	struct safetensors *file = NULL;
	struct reference_facts facts;
	int rc;

	if (!json_object_get(training, "reference"))
		return 0;
	path = file_join(dir, REFERENCE_NAME);
	if (!path)
		return ERR_NOMEM;
	rc = file_kind_of(path) == FILE_NONE ? is_missing(path, training) : open_whole(&file, &facts, path);
	if (!rc)
		rc = check_run(&facts, training, path);
	safetensors_close(file);
	mem_free(path);
	return rc;
}
