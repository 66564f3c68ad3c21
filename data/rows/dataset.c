/* Opens data sets: finds formats and files, and checks the result. */
#include "data/rows/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/str.h"
#include "data/rows/dataset_build.h"
#include "data/source/records.h"
#include "data/tokenizer/tokenizer.h"

/* 1 once no later record of the set is wanted. */
static int is_enough(const struct dataset_builder *b)
{
	int64_t most = b->options->max_samples, taken = b->d->counts.records - b->records_before;

	return b->is_made || (most && taken >= most) || b->passed + taken >= b->part_end;
}

/* Reads records until the end of the file, of the part or max_samples. */
static int read_records(struct dataset_builder *b, struct records *records)
{
	json_t *record = NULL;
	int rc;

	while (!is_enough(b)) {
		rc = records_next(records, &record);
		if (rc <= 0)
			return rc;
		if (b->passed < b->part_first) {
			b->passed++;
			json_decref(record);
			continue;
		}
		b->where = records_where(records);
		b->read_bytes = records_position(records);
		rc = 0;
		if (!json_is_map(record))
			rc = err_set(
			        ERR_INPUT, "%s: %s; expected an object", b->where, json_kind_name(record));
		if (rc == 0 && !b->first_columns[0])
			row_columns(b->first_columns, record);
		if (rc == 0)
			rc = row_columns_parse_chat(b, record);
		if (rc == 0)
			rc = row_columns_note(b, record);
		if (rc == 0 && b->d->format == DATASET_FORMAT_AUTO)
			rc = row_format_find(&b->d->format, b, record);
		b->ids->count = b->targets->count = 0;
		if (rc == 0)
			rc = row_format_read(b, record);
		json_decref(record);
		if (rc < 0)
			return rc;
		b->d->counts.records++;
	}
	return 0;
}

/* Refuses data without pairs, and warns about pairs that are left out or train nothing. */
static int check_pairs(const struct dataset_builder *b)
{
	const struct dataset_counts *counts = &b->d->counts;
	const char *path = b->options->path, *advice = "";

	if (b->options->max_length_tokens && counts->longest_tokens > b->options->max_length_tokens)
		advice = "; a larger max_length may help";
	if (b->d->row_count == 0 && !counts->without_target)
		return err_set(ERR_INPUT,
		        "%s: no pair is left: %" PRId64 " longer than max_length were dropped", path,
		        counts->dropped);
	if (b->d->row_count == 0)
		return err_set(ERR_INPUT,
		        "%s: no pair is left: %" PRId64 " longer than max_length were dropped, %" PRId64
		        " had an answer without a token to train on (the first is %s)%s",
		        path, counts->dropped, counts->without_target, counts->without_target_first, advice);
	if (counts->without_target)
		log_warn("%s: %" PRId64 " of %" PRId64
		         " pairs are left out: an answer has no token to train on; the first is %s%s",
		        path, counts->without_target, counts->records, counts->without_target_first, advice);
	if (counts->equal_pairs)
		log_warn("%s: %" PRId64 " of %" PRId64
		         " pairs have equal answers and teach nothing; the first is %s%s",
		        path, counts->equal_pairs, dataset_unit_count(b->d), counts->equal_pairs_first,
		        advice);
	return 0;
}

/* Refuses data without targets, and warns about rows without any. */
static int check_result(const struct dataset_builder *b)
{
	const struct dataset *d = b->d;
	const char *path = b->options->path;

	if (d->is_paired)
		return check_pairs(b);
	if (d->is_judged)
		return row_judged_check(b);
	if (d->texts)
		return 0;
	if (d->row_count == 0)
		return err_set(ERR_INPUT,
		        "%s: no row is left: %" PRId64 " longer than max_length were dropped, %" PRId64
		        " had no tokens",
		        path, d->counts.dropped, d->counts.empty);
	if (d->target_count == 0 && b->options->labels.is_of_tokens)
		return err_set(ERR_INPUT,
		        "%s: no word has a label to train on (the first row is %s): every word is empty or "
		        "has "
		        "the label -100",
		        path, d->counts.without_target_first);
	if (d->target_count == 0 && d->counts.truncated)
		return err_set(ERR_INPUT,
		        "%s: no row has a token to train on; max_length=%" PRId64 " cut %" PRId64
		        " of them (the first is %s); raise max_length",
		        path, b->options->max_length_tokens, d->counts.truncated,
		        d->counts.without_target_first);
	if (d->target_count == 0 && d->counts.chats && !d->counts.answered_chats)
		return err_set(ERR_INPUT,
		        "%s: no chat has an assistant turn (the first row is %s); if a role stands for the "
		        "assistant, name it with role_assistant",
		        path, d->counts.without_target_first);
	if (d->target_count == 0)
		return err_set(ERR_INPUT,
		        "%s: no row has a token to train on (the first is %s): every answer is empty, every "
		        "label is -100, or every row has one token",
		        path, d->counts.without_target_first);
	if (d->counts.without_target)
		log_warn("%s: %" PRId64 " of %" PRId64 " rows %s no token to train on; the first is %s%s",
		        path, d->counts.without_target, d->row_count,
		        d->counts.without_target == 1 ? "has" : "have", d->counts.without_target_first,
		        d->counts.truncated ? "; a larger max_length may help" : "");
	return 0;
}

static int check_options(const struct dataset_options *o)
{
	if (o->max_length_tokens < 0 || o->max_length_tokens == 1)
		return err_set(ERR_INPUT, "max_length is %" PRId64 ", but a row needs at least 2 tokens",
		        o->max_length_tokens);
	if (o->max_samples < 0)
		return err_set(
		        ERR_INPUT, "max_samples is %" PRId64 ", but must not be negative", o->max_samples);
	return 0;
}

/* The records of all files. */
static int count_records(int64_t *count, const struct files *files)
{
	int rc = 0;

	*count = 0;
	for (size_t i = 0; i < files->count && !rc; i++) {
		struct records *records = NULL;
		json_t *record;

		rc = records_open(&records, files->paths[i]);
		while (!rc && (rc = records_next(records, &record)) == 1) {
			json_decref(record);
			++*count;
			rc = 0;
		}
		records_close(records);
	}
	return rc;
}

static int part_begin(struct dataset_builder *b, const struct files *files)
{
	int64_t count = INT64_MAX;
	int rc = split_part_needs_count(&b->part) ? count_records(&count, files) : 0;

	b->passed = 0;
	split_part_range(&b->part_first, &b->part_end, &b->part, count);
	return rc;
}

static int read_file(struct dataset_builder *b, const char *path)
{
	struct records *records = NULL;
	int rc;

	if (b->is_made || is_enough(b))
		return 0;
	b->where = path;
	if (b->part.is_part && file_is_text(path))
		return err_set(ERR_INPUT, "%s: a text has no records, so it has no part %s", path,
		        b->options->split);
	if (file_is_text(path) && b->options->pairs >= DATASET_TEXTS_ONLY)
		return err_set(ERR_INPUT,
		        "%s: a text has no columns; write one JSON object a line, or a CSV file", path);
	if (file_is_text(path) &&
	        (b->d->format == DATASET_FORMAT_AUTO || b->d->format == DATASET_FORMAT_TEXT)) {
		b->d->format = DATASET_FORMAT_TEXT;
		return dataset_read_plain(b, path);
	}
	rc = records_open(&records, path);
	if (rc == 0)
		rc = read_records(b, records);
	b->where = path;
	b->read_done_bytes += b->read_bytes;
	b->read_bytes = 0;
	records_close(records);
	return rc;
}

/* A long name keeps its end, which tells sets apart. */
static void name_set(struct dataset_set *set, const char *path)
{
	size_t len = strlen(path), room = sizeof(set->name) - 1;

	if (len <= room)
		memcpy(set->name, path, len + 1);
	else
		snprintf(set->name, sizeof(set->name), "...%s", path + len - room + 3);
}

/* Begins a set that has texts and columns of its own. */
static void own_begin(struct dataset_builder *b, const struct dataset_own *own)
{
	b->texts = &own->texts;
	b->names = &own->names;
	b->d->texts = 0;
	b->d->is_apart = 1;
	b->seen = 0;
}

static int read_set(struct dataset_builder *b, const struct data_set *from)
{
	const struct dataset_options *o = b->options;
	struct dataset *d = b->d;
	struct dataset_set *set = &d->sets[d->set_count++];
	struct files files = {0};
	int rc = files_find(&files, from->path, b->split, o->split_want);

	if (rc == 0 && o->split_want == FILES_SPLIT_ASKED && strcmp(b->split, "train") &&
	        file_kind_of(from->path) == FILE_REGULAR)
		log_warn(
		        "%s is one file, so it has no split %s: all its rows are read", from->path, b->split);
	name_set(set, from->path);
	set->weight = from->weight;
	set->first_row = d->row_count;
	d->format = o->format;
	if (o->own)
		own_begin(b, &o->own[set - d->sets]);
	b->path = b->where = from->path;
	b->records_before = d->counts.records;
	b->first_columns[0] = 0;
	if (rc == 0)
		rc = part_begin(b, &files);
	for (size_t i = 0; rc == 0 && i < files.count; i++)
		rc = read_file(b, files.paths[i]);
	if (rc == 0 && d->counts.records == b->records_before)
		rc = b->part.is_part ? err_set(ERR_INPUT, "%s: no row lies in %s", from->path, o->split)
		                     : err_set(ERR_INPUT, "%s: the file has no rows", from->path);
	if (rc == 0 && o->pairs == DATASET_JUDGED_ONLY)
		rc = row_judged_flush(b);
	row_columns_end(b);
	if (rc == 0 && o->own)
		rc = dataset_builder_check_seen(b);
	set->format = d->format;
	set->texts = d->texts;
	d->is_judged = o->pairs == DATASET_JUDGED_ONLY;
	d->is_paired = d->format == DATASET_FORMAT_PREFERENCE;
	if (rc == 0 && d->is_paired != (d->sets[0].format == DATASET_FORMAT_PREFERENCE))
		rc = err_set(ERR_INPUT,
		        "%s holds pairs of answers and %s does not; all data sets must hold pairs, or none",
		        d->is_paired ? set->name : d->sets[0].name,
		        d->is_paired ? d->sets[0].name : set->name);
	set->row_count = d->row_count - set->first_row;
	files_free(&files);
	return rc;
}

static int add_file(struct str *text, int *is_pipe, int64_t *all_bytes, const char *path)
{
	struct stat st;
	char *whole;

	if (strcmp(path, "-") == 0 || stat(path, &st) || !S_ISREG(st.st_mode)) {
		*is_pipe = 1; /* or a missing file: opening it will fail */
		return 0;
	}
	*all_bytes += st.st_size;
	whole = realpath(path, NULL);
	str_printf(text, "file %s %lld %lld.%09ld\n", whole ? whole : path, (long long)st.st_size,
	        (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	free(whole);
	return 0;
}

static void recipe_add_own(struct str *text, const struct dataset_texts *texts, const struct row_names *names)
{
	str_printf(text, "texts %d %d %d %" PRId64 "\n%s\n%s\n", texts->least,
	        texts->needs_score + 2 * texts->scores_negatives + 4 * texts->scores_sides +
	                8 * texts->is_alone + 16 * texts->has_vectors,
	        texts->may_lack_score, texts->vector_count, texts->prompt[0] ? texts->prompt[0] : "",
	        texts->prompt[1] ? texts->prompt[1] : "");
	for (int i = 0; i < ROW_FIELD_COUNT; i++)
		str_printf(text, "%s=%s\n", row_field_key((enum row_field)i),
		        names->fields[i] ? names->fields[i] : "");
	for (int i = 0; i < ROW_ROLE_COUNT; i++)
		str_printf(text, "%s=%s\n", row_role_name((enum row_role)i),
		        names->roles[i] ? names->roles[i] : "");
}

/* The recipe of the rows: the input files with their size and time, and every option. b->recipe stays NULL if
 * one input is a pipe, or if no cache is wanted. */
static int make_recipe(struct dataset_builder *b, const struct data_sets *sets)
{
	const struct dataset_options *o = b->options;
	struct str text = {0};
	int rc, is_pipe = 0;

	if (!o->memory_bytes || !o->cache_dir || !o->recipe)
		return 0;
	if (b->part.is_part)
		str_printf(&text, "part %s\n", o->split);
	str_printf(&text, "rows %zu %d %d %" PRId64 " %" PRId64 " %d %d %d %d %" PRId64 "\n%s\n",
	        sizeof(*b->d), (int)o->format, (int)o->pairs, b->vocab_count, o->max_length_tokens,
	        (int)o->long_rows, (int)o->inputs, (int)o->turns, (int)o->alpaca, o->max_samples, o->recipe);
	str_printf(&text, "labels %" PRId64 " %d\n", o->labels.count,
	        o->labels.is_regression + 2 * o->labels.is_of_tokens + 4 * o->labels.is_share);
	if (o->has_words)
		str_add(&text, "words\n");
	if (o->pairs == DATASET_JUDGED_ONLY)
		str_printf(&text, "judged %" PRId64 "\n", o->judged_group);
	for (int64_t i = 0; i < o->labels.count && o->labels.names; i++)
		str_printf(&text, "%s\n", o->labels.names[i] ? o->labels.names[i] : "");
	recipe_add_own(&text, &o->texts, &o->names);
	for (int i = 0; o->own && i < o->own_count; i++)
		recipe_add_own(&text, &o->own[i].texts, &o->own[i].names);
	rc = 0;
	for (int i = 0; rc == 0 && i < sets->count; i++) {
		struct files files = {0};

		str_printf(&text, "set %s %.17g\n", sets->sets[i].path, sets->sets[i].weight);
		rc = files_find(&files, sets->sets[i].path, b->split, o->split_want);
		for (size_t f = 0; rc == 0 && f < files.count; f++)
			rc = add_file(&text, &is_pipe, &b->all_bytes, files.paths[f]);
		files_free(&files);
	}
	if (rc == 0)
		rc = str_check(&text);
	if (rc == 0 && !is_pipe)
		b->recipe = str_take(&text);
	str_free(&text);
	return rc;
}

static int read_sets(struct dataset_builder *b, const struct data_sets *sets)
{
	int rc = 0;

	b->set_count = sets->count;
	if (b->options->own && b->options->own_count != sets->count)
		return err_set(ERR_INPUT, "%s: there are %d data sets and settings for %d", b->options->path,
		        sets->count, b->options->own_count);
	for (int i = 0; rc == 0 && i < sets->count; i++)
		rc = read_set(b, &sets->sets[i]);
	if (rc || b->is_made)
		return rc;
	rc = dataset_builder_check_seen(b);
	if (rc == 0)
		rc = check_result(b);
	if (rc == 0) {
		b->d->format = b->d->sets[0].format;
		b->d->texts = b->d->sets[0].texts;
		b->d->is_weighted = sets->is_weighted;
		rc = dataset_builder_end(b);
	}
	return rc;
}

static int find_or_read(struct dataset_builder *b, const struct data_sets *sets)
{
	int rc = dataset_builder_find(b);

	if (rc)
		return rc < 0 ? rc : check_result(b);
	rc = read_sets(b, sets);
	if (rc || !b->is_made)
		return rc;
	rc = dataset_builder_find(b); /* another process made it */
	if (rc == 0)
		return err_set(ERR_INPUT, "%s: its rows in data_cache=%s are gone; start ferry again",
		        b->options->path, b->options->cache_dir);
	return rc < 0 ? rc : check_result(b);
}

int dataset_open(struct dataset **out, const struct dataset_options *options)
{
	struct dataset_builder b = {.options = options, .path = options->path, .where = options->path};
	struct data_sets sets = {0};
	int rc;

	*out = NULL;
	rc = check_options(options);
	if (rc == 0)
		rc = split_part_parse(b.split, &b.part, options->split ? options->split : "train");
	if (rc < 0)
		return rc;
	b.names = &options->names;
	b.texts = &options->texts;
	b.vocab_count = options->vocab_count;
	if (b.vocab_count == 0 && options->tokenizer)
		b.vocab_count = tokenizer_vocab_count(options->tokenizer);
	rc = dataset_builder_begin(&b);
	if (!rc && options->pairs == DATASET_HIDDEN_ONLY)
		rc = row_hidden_begin(&b);
	for (int i = 0; rc == 0 && options->own && i < options->own_count; i++)
		b.d->vector_count = max_i64(b.d->vector_count, options->own[i].texts.vector_count);
	if (rc == 0)
		rc = data_sets_parse(&sets, options->path);
	if (rc == 0)
		rc = make_recipe(&b, &sets);
	if (rc == 0)
		rc = find_or_read(&b, &sets);
	if (rc == 0) {
		*out = b.d;
		b.d = NULL;
	}
	data_sets_free(&sets);
	dataset_builder_free(&b);
	return rc;
}

void dataset_close(struct dataset *d)
{
	if (!d)
		return;
	mem_free(d->own_rows);
	row_store_release(d->store);
	mem_free(d);
}

int64_t dataset_store_bytes(const struct dataset *d)
{
	return d->store->memory ? d->store->len_bytes : (int64_t)d->store->index_bytes;
}

int64_t dataset_memory_bytes(const struct dataset *d)
{
	return dataset_store_bytes(d) + (d->own_rows ? d->row_count * (int64_t)sizeof(*d->own_rows) : 0);
}
