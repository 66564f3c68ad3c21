/* ferry data show: prints rows as they will be trained on, with counts. */
#include "cli/cli.h"
#include "cli/row_show.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "base/size.h"
#include "data/packing.h"
#include "model/families/open.h"
#include "train/inputs/data_cache.h"
#include "train/inputs/data_config.h"
#include "train/inputs/data_losses.h"
#include "train/inputs/labels.h"
#include "train/inputs/sentence.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct lengths {
	int64_t shortest, median, p95, longest;
	double mean;
};

static int compare_lengths(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int lengths_find(struct lengths *out, int64_t **row_tokens, const struct dataset *d)
{
	int64_t *sorted = mem_alloc((size_t)d->row_count, sizeof(*sorted));

	*row_tokens = mem_alloc((size_t)d->row_count, sizeof(**row_tokens));
	if (!sorted || !*row_tokens) {
		mem_free(sorted);
		return ERR_NOMEM;
	}
	for (int64_t row = 0; row < d->row_count; row++)
		sorted[row] = (*row_tokens)[row] = dataset_row_tokens(d, row);
	qsort(sorted, (size_t)d->row_count, sizeof(*sorted), compare_lengths);
	out->shortest = sorted[0];
	out->median = sorted[d->row_count / 2];
	out->p95 = sorted[(d->row_count * 95 + 99) / 100 - 1] /* 95 % of the rows are no longer */;
	out->longest = sorted[d->row_count - 1];
	out->mean = (double)d->token_count / (double)d->row_count;
	mem_free(sorted);
	return 0;
}

/* The objects to show. */
struct shown {
	const struct config *c;
	const struct dataset *d;
	const struct tokenizer *tokenizer;
	const struct packing *packing; /* NULL: no packing */
	const struct mix *mix;
	const struct lengths *lengths;
	const struct data_losses *losses;
};

/* ---- as text ---- */

static void show_sets(struct str *out, const struct shown *s)
{
	const struct dataset *d = s->d;

	for (int i = 0; d->set_count > 1 && i < d->set_count; i++) {
		str_printf(out, "set %s: %s, %" PRId64 " %s%s", d->sets[i].name,
		        dataset_format_name(d->sets[i].format), dataset_set_unit_count(d, i), dataset_unit(d),
		        plural_s(dataset_set_unit_count(d, i)));
		if (i < s->losses->count)
			str_printf(out, ", %s of embedding_loss=%s", s->losses->sets[i].name,
			        config_text(s->losses->sets[i].config, "embedding_loss"));
		str_add(out, "\n");
	}
	if (!s->mix->set_count)
		return;
	str_add(out, "mix: ");
	mix_show(out, s->mix, d,
	        data_config_drawn(d, s->c->packing == CONFIG_PACKING_BFD ? s->packing : NULL));
	str_add(out, "\n");
}

static void show_counts(struct str *out, const struct shown *s)
{
	const struct config *c = s->c;
	const struct dataset *d = s->d;
	const struct lengths *l = s->lengths;
	const struct packing *packing = s->packing;

	str_printf(out, "%s: %s, %" PRId64 " %s%s, %" PRId64 " tokens, %" PRId64 " target%s (%.1f%%)\n",
	        c->data, dataset_format_name(d->format), dataset_unit_count(d), dataset_unit(d),
	        plural_s(dataset_unit_count(d)), d->token_count, d->target_count, plural_s(d->target_count),
	        100.0 * (double)d->target_count / (double)d->token_count);
	show_sets(out, s);
	str_printf(out,
	        "lengths: shortest %" PRId64 ", median %" PRId64 ", mean %.1f, 95%% up to %" PRId64
	        ", longest %" PRId64 "\n",
	        l->shortest, l->median, l->mean, l->p95, l->longest);
	if (d->counts.truncated)
		str_printf(out,
		        "cut to max_length=%" PRId64 ": %" PRId64 " row%s; the longest had %s%" PRId64
		        " tokens\n",
		        c->max_length, d->counts.truncated, plural_s(d->counts.truncated),
		        d->counts.is_longest_cut ? "at least " : "", d->counts.longest_tokens);
	if (d->counts.split)
		str_printf(out,
		        "split into rows of max_length=%" PRId64 ": %" PRId64
		        " text%s; the longest had %" PRId64 " tokens\n",
		        c->max_length, d->counts.split, plural_s(d->counts.split), d->counts.longest_tokens);
	if (d->counts.dropped)
		str_printf(out, "dropped, longer than max_length=%" PRId64 ": %" PRId64 " %s%s\n",
		        c->max_length, d->counts.dropped, dataset_unit(d), plural_s(d->counts.dropped));
	if (d->counts.empty)
		str_printf(out, "dropped, without a token: %" PRId64 " record%s\n", d->counts.empty,
		        plural_s(d->counts.empty));
	if (d->counts.without_target)
		str_printf(out, "%s: %" PRId64 " %s%s, the first at %s\n",
		        d->is_paired ? "left out, an answer without a target" : "without a target",
		        d->counts.without_target, dataset_unit(d), plural_s(d->counts.without_target),
		        d->counts.without_target_first);
	if (d->counts.equal_pairs)
		str_printf(out, "with equal answers: %" PRId64 " pair%s, the first at %s\n",
		        d->counts.equal_pairs, plural_s(d->counts.equal_pairs), d->counts.equal_pairs_first);
	if (d->counts.empty_answers)
		str_printf(out, "with an empty answer: %" PRId64 " row%s, the first at %s\n",
		        d->counts.empty_answers, plural_s(d->counts.empty_answers),
		        d->counts.empty_answers_first);
	if (*d->counts.unread_columns)
		str_printf(out, "columns not read: %s\n", d->counts.unread_columns);
	if (d->counts.turn_ends || d->counts.turn_ends_cut)
		str_printf(out,
		        "chats: %" PRId64 " end-of-turn token%s trained, %" PRId64 " cut off by max_length\n",
		        d->counts.turn_ends, plural_s(d->counts.turn_ends), d->counts.turn_ends_cut);
	if (packing && !d->is_paired && !d->texts)
		str_printf(out,
		        "packing%s: %" PRId64 " row%s in %" PRId64 " bin%s of %" PRId64
		        " tokens, %.1f%% full\n",
		        c->packing == CONFIG_PACKING_OFF ? " (off) would put" : "", d->row_count,
		        plural_s(d->row_count), packing->bin_count, plural_s(packing->bin_count),
		        c->max_length,
		        100.0 * (double)d->token_count /
		                ((double)packing->bin_count * (double)c->max_length));
}

static int64_t rows_shown(const struct shown *s)
{
	const struct dataset *d = s->d;
	int64_t left = s->c->show_rows, rows = 0;

	for (int i = 0; i < d->set_count && left > 0; i++) {
		int64_t units = min_i64(dataset_set_unit_count(d, i), left);

		rows += units * dataset_set_unit_rows(d, i);
		left -= units;
	}
	return rows;
}

static int show_text(const struct shown *s)
{
	const struct config *c = s->c;
	const struct dataset *d = s->d;
	struct str out = {0};
	enum row_style style = isatty(STDOUT_FILENO) ? ROW_STYLE_TERMINAL : ROW_STYLE_PLAIN;
	int err = 0;

	show_counts(&out, s);
	for (int64_t row = 0; row < rows_shown(s) && !err; row++)
		err = c->show_tokens ? row_show_tokens(&out, d, s->tokenizer, row)
		                     : row_show(&out, d, s->tokenizer, row, style);
	if (!err)
		err = str_check(&out);
	if (!err)
		fputs(out.data, stdout);
	str_free(&out);
	return err;
}

/* ---- as JSON ---- */

static int row_json(json_t *list, const struct dataset *d, const struct tokenizer *tokenizer, int64_t row)
{
	json_t *ids = json_array(), *labels = json_array(), *object;
	struct row_buffer buffer = {0};
	struct row_view v;
	char *text = NULL;
	int rc = dataset_row_read(&v, &buffer, d, row);

	for (int64_t i = 0; !rc && i < v.token_count; i++) {
		json_array_append_new(ids, json_integer(v.ids[i]));
		json_array_append_new(labels, json_integer(dataset_label_id(d, &v, i)));
	}
	object = json_pack("{s:o, s:o, s:I}", "input_ids", ids, "labels", labels, "targets",
	        (json_int_t)dataset_row_targets(d, row));
	if (!rc && tokenizer &&
	        !tokenizer_decode(tokenizer, &text, NULL, v.ids, v.token_count, SKIP_SPECIAL_OFF))
		json_object_set_new(object, "text", json_string(text));
	if (d->is_paired) {
		json_object_set_new(object, "pair", json_integer(row / 2));
		json_object_set_new(object, "answer", json_string(row % 2 ? "rejected" : "chosen"));
	}
	json_array_append_new(list, object);
	row_buffer_free(&buffer);
	mem_free(text);
	return rc;
}

static json_t *sets_json(const struct shown *s)
{
	json_t *list = json_array();

	for (int i = 0; i < s->d->set_count; i++) {
		const struct dataset_set *set = &s->d->sets[i];
		json_t *one = json_pack("{s:o, s:s, s:I}", "data", json_of_text(set->name), "format",
		        dataset_format_name(set->format), "rows", (json_int_t)set->row_count);

		if (s->mix->set_count) {
			json_object_set_new(one, "weight", json_real(set->weight));
			json_object_set_new(one, "epoch_draws", json_integer(s->mix->sets[i].draws));
		}
		if (i < s->losses->count) {
			json_object_set_new(one, "name", json_of_text(s->losses->sets[i].name));
			json_object_set_new(one, "embedding_loss",
			        json_of_text(config_text(s->losses->sets[i].config, "embedding_loss")));
		}
		json_array_append_new(list, one);
	}
	return list;
}

static int show_json(const struct shown *s)
{
	const struct config *c = s->c;
	const struct dataset *d = s->d;
	const struct lengths *l = s->lengths;
	const struct packing *packing = s->packing;
	json_t *rows = json_array(), *object;
	int err = 0;

	for (int64_t row = 0; !err && row < rows_shown(s); row++)
		err = row_json(rows, d, s->tokenizer, row);
	if (err) {
		json_decref(rows);
		return err;
	}
	object = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:I, s:I, s:f, "
	                   "s:I, s:I}, s:o}",
	        "format", dataset_format_name(d->format), "rows", (json_int_t)d->row_count, "tokens",
	        (json_int_t)d->token_count, "target_tokens", (json_int_t)d->target_count, "records",
	        (json_int_t)d->counts.records, "truncated", (json_int_t)d->counts.truncated, "dropped",
	        (json_int_t)d->counts.dropped, "empty", (json_int_t)d->counts.empty, "without_target",
	        (json_int_t)d->counts.without_target, "longest_tokens", (json_int_t)d->counts.longest_tokens,
	        "turn_ends", (json_int_t)d->counts.turn_ends, "turn_ends_cut",
	        (json_int_t)d->counts.turn_ends_cut, "row_tokens", "min", (json_int_t)l->shortest, "median",
	        (json_int_t)l->median, "mean", l->mean, "p95", (json_int_t)l->p95, "max",
	        (json_int_t)l->longest, "examples", rows);
	if (object && json_object_set_new(object, "split", json_integer(d->counts.split))) {
		json_decref(object);
		object = NULL;
	}
	if (!object)
		return err_set(ERR_NOMEM, "out of memory for JSON");
	json_object_set_new(object, "sets", sets_json(s));
	if (d->is_paired) {
		json_object_set_new(object, "pairs", json_integer(dataset_unit_count(d)));
		json_object_set_new(object, "equal_pairs", json_integer(d->counts.equal_pairs));
	}
	json_object_set_new(object, "columns_not_read", json_of_text(d->counts.unread_columns));
	if (packing && !d->is_paired && !d->texts)
		json_object_set_new(object, "packing",
		        json_pack("{s:I, s:I, s:f}", "bins", (json_int_t)packing->bin_count, "max_tokens",
		                (json_int_t)c->max_length, "fill",
		                (double)d->token_count /
		                        ((double)packing->bin_count * (double)c->max_length)));
	err = cli_print_json(object);
	json_decref(object);
	return err;
}

/* What the model says of rows of texts: prompts of an embedder, classes of a classifier. */
struct texts_of_model {
	struct model *model;
	struct sentence_dir sentence;
	struct labels labels;
	struct data_losses losses;
	struct dataset_own own[DATA_SETS_MAX];
};

static int texts_open(struct texts_of_model *t, struct dataset_options *o, const struct config *c)
{
	int err;

	if (!c->embedding_loss && !c->objective)
		return 0;
	if (!c->model)
		return err_set(ERR_INPUT, "model is not set; its directory says how texts of %s are read",
		        c->embedding_loss ? "embedding_loss" : "objective");
	err = model_open_path(&t->model, c->model);
	if (!err && c->embedding_loss)
		err = sentence_open(&t->sentence, c, t->model);
	if (!err && c->embedding_loss)
		sentence_rows(o, &t->sentence, c);
	if (!err)
		err = data_losses_open(&t->losses, c);
	if (!err)
		err = data_losses_rows(o, t->own, &t->losses, c, &t->sentence);
	if (!err && c->objective)
		err = labels_open(&t->labels, c, t->model);
	o->labels = t->labels.of;
	return err;
}

static void texts_close(struct texts_of_model *t)
{
	data_losses_free(&t->losses);
	labels_free(&t->labels);
	sentence_dir_free(&t->sentence);
	model_close(t->model);
}

int cli_data(const struct config *c)
{
	struct texts_of_model texts = {0};
	struct chat_template *chat_template = NULL;
	struct tokenizer *tokenizer = NULL;
	struct data_cache cache = {0};
	struct dataset *d = NULL;
	struct packing *packing = NULL;
	struct mix mix = {0};
	struct lengths lengths;
	struct dataset_options options;
	struct shown shown;
	int64_t vocab_count = 0, *row_tokens = NULL;
	int err = data_config_tokenizer(&tokenizer, c, TOKENIZER_OPTIONAL);

	if (!err)
		err = data_config_vocab_count(&vocab_count, c->model);
	if (!err)
		err = data_config_chat_template(&chat_template, c, NULL, tokenizer);
	options = data_config_options(c, c->data, tokenizer, chat_template, vocab_count);
	if (!err)
		err = texts_open(&texts, &options, c);
	if (!err)
		err = data_cache_set(&cache, &options, c, NULL, 0);
	if (!err)
		err = dataset_open(&d, &options);
	if (!err)
		data_config_report(c, d);
	if (!err && d->counts.chats)
		data_config_template_report(c, chat_template);
	if (!err)
		err = lengths_find(&lengths, &row_tokens, d);
	if (!err)
		err = data_config_pack(&packing, &mix, c, d);
	if (!err && !packing && c->max_length)
		err = packing_build(&packing, row_tokens, d->row_count, c->max_length);
	shown = (struct shown){c, d, tokenizer, packing, &mix, &lengths, &texts.losses};
	if (!err)
		err = c->json ? show_json(&shown) : show_text(&shown);
	data_cache_free(&cache);
	texts_close(&texts);
	mem_free(row_tokens);
	packing_free(packing);
	dataset_close(d);
	chat_template_close(chat_template);
	tokenizer_close(tokenizer);
	return err;
}
