/* links: objective */
/* Sampler, packing, batches and datasets of token rows, each against a simple reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "data/batch.h"
#include "data/eval_split.h"
#include "data/packing.h"
#include "data/rows/dataset.h"
#include "data/sampler.h"
#include "objective/objective.h"
#include "tests/dataset_rows.h"

static char file_path[] = "/tmp/ferry_test_data_XXXXXX.jsonl";

static int open_file_path(void **state)
{
	int fd = mkstemps(file_path, 6);

	(void)state;
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : -1;
}

static int remove_file_path(void **state)
{
	(void)state;
	return unlink(file_path);
}

static void write_text(const char *text)
{
	assert_int_equal(file_write_all(file_path, text, strlen(text)), 0);
}

static struct dataset *open_text(const char *text, struct dataset_options options)
{
	struct dataset *d = NULL;

	write_text(text);
	options.path = file_path;
	if (dataset_open(&d, &options) < 0)
		fail_msg("%s", err_text());
	return d;
}

/* ---- the sampler of the batches below (test_data_sampler.c is about it alone) */

static struct sampler make_sampler(int64_t rows, int64_t batch, int64_t accumulation, int world, int rank)
{
	struct sampler s = {.row_count = rows,
	        .order = SAMPLER_ORDER_SHUFFLE,
	        .seed = 7,
	        .batch_rows = batch,
	        .accumulation = accumulation,
	        .world_size = world,
	        .rank = rank};

	assert_int_equal(sampler_init(&s), 0);
	return s;
}

/* ---- packing */

/* Best-fit decreasing by looking at every bin. */
static int64_t naive_bins(const int64_t *tokens, int64_t count, int64_t max_tokens)
{
	int64_t *room = calloc((size_t)count + 1, sizeof(*room)), bins = 0;
	uint8_t *done = calloc((size_t)count + 1, 1);

	for (int64_t n = 0; n < count; n++) {
		int64_t row = -1, best = -1;

		for (int64_t i = 0; i < count; i++)
			if (!done[i] && (row < 0 || tokens[i] > tokens[row]))
				row = i;
		done[row] = 1;
		for (int64_t b = 0; b < bins; b++)
			if (room[b] >= tokens[row] && (best < 0 || room[b] < room[best]))
				best = b;
		if (best < 0) {
			best = bins++;
			room[best] = max_tokens;
		}
		room[best] -= tokens[row];
	}
	free(room);
	free(done);
	return bins;
}

static void test_packing(void **state)
{
	(void)state;
	for (uint64_t trial = 0; trial < 200; trial++) {
		int64_t tokens[64], max_tokens = 1 + (int64_t)rng_below(1, trial, 0, 40);
		int64_t count = 1 + (int64_t)rng_below(1, trial, 1, 64);
		uint8_t seen[64] = {0};
		struct packing *p = NULL;

		for (int64_t i = 0; i < count; i++)
			tokens[i] = 1 + (int64_t)rng_below(1, trial, 2 + (uint64_t)i, (uint64_t)max_tokens);
		assert_int_equal(packing_build(&p, tokens, count, max_tokens), 0);
		assert_int_equal(p->bin_start[0], 0);
		assert_int_equal(p->bin_start[p->bin_count], count);
		for (int64_t b = 0; b < p->bin_count; b++) {
			int64_t sum = 0;

			assert_true(p->bin_start[b] < p->bin_start[b + 1]);
			for (int64_t i = p->bin_start[b]; i < p->bin_start[b + 1]; i++) {
				assert_int_equal(seen[p->rows[i]], 0);
				seen[p->rows[i]] = 1;
				sum += tokens[p->rows[i]];
			}
			assert_in_range(sum, 1, max_tokens);
		}
		assert_int_equal(p->bin_count, naive_bins(tokens, count, max_tokens));
		packing_free(p);
	}
}

static void test_packing_refuses(void **state)
{
	int64_t tokens[] = {3, 9, 2};
	struct packing *p = NULL;

	(void)state;
	assert_int_equal(packing_build(&p, tokens, 3, 8), ERR_RANGE);
	assert_non_null(strstr(err_text(), "row 1"));
	assert_null(p);
}

/* ---- datasets of token rows */

static void test_tokens_rows(void **state)
{
	/* masks that say nothing, or beside labels nothing new */
	struct dataset *d =
	        open_text("{\"input_ids\":[1,2,3],\"labels\":[-100,2,-100],\"loss_mask\":[0,1,0]}\n\n"
	                  "{\"input_ids\":[4,5],\"attention_mask\":[1,1],\"loss_mask\":[1,1]}\n{\"input_"
	                  "ids\":[6,7,8],\"labels\":[6,9,8]}",
	                (struct dataset_options){.vocab_count = 10});
	static const int32_t want[3][3] = {{-100, 2, -100}, {4, 5}, {6, 9, 8}};

	(void)state;
	assert_int_equal(d->format, DATASET_FORMAT_TOKENS);
	assert_int_equal(d->row_count, 3);
	assert_int_equal(d->token_count, 8);
	assert_int_equal(d->target_count, 1 + 1 + 2);
	for (int64_t row = 0; row < 3; row++)
		for (int64_t t = 0; t < dataset_row_tokens(d, row); t++)
			assert_int_equal(dataset_label(d, row, t), want[row][t]);
	assert_int_equal(dataset_row_ids(d, 2)[1], 7);
	dataset_close(d);
}

static void test_tokens_array(void **state)
{
	struct dataset *d = open_text("\n[ {\"input_ids\": [1,2], \"note\": \"a ] } , \\\" {\"},\n"
	                              "  {\"input_ids\": [3,4,5], \"x\": {\"y\": [[1]]}} ]\n",
	        (struct dataset_options){.vocab_count = 10});

	(void)state;
	assert_int_equal(d->row_count, 2);
	assert_int_equal(d->token_count, 5);
	dataset_close(d);
}

static void test_long_rows(void **state)
{
	const char *text = "{\"input_ids\":[1,2,3,4]}\n{\"input_ids\":[1,2]}\n"
	                   "{\"input_ids\":[1,2,3],\"labels\":[-100,-100,3]}\n";
	struct dataset_options options = {.vocab_count = 10, .max_length_tokens = 2};
	struct dataset *d = open_text(text, options);

	(void)state;
	assert_int_equal(d->counts.truncated, 2);
	assert_int_equal(d->counts.longest_tokens, 4);
	assert_int_equal(d->row_count, 3);
	assert_int_equal(d->counts.without_target, 1);
	assert_non_null(strstr(d->counts.without_target_first, ":3"));
	dataset_close(d);
	options.long_rows = DATASET_LONG_ROWS_DROP;
	d = open_text(text, options);
	assert_int_equal(d->counts.dropped, 2);
	assert_int_equal(d->row_count, 1);
	dataset_close(d);
	options.long_rows = DATASET_LONG_ROWS_ERROR;
	options.path = file_path;
	assert_int_equal(dataset_open(&d, &options), ERR_INPUT);
	assert_non_null(strstr(err_text(), ":1: the row has 4 tokens"));
	options.long_rows = DATASET_LONG_ROWS_TRUNCATE;
	options.max_samples = 2;
	d = open_text(text, options);
	assert_int_equal(d->row_count, 2);
	dataset_close(d);
}

static void test_tokens_refused(void **state)
{
	static const struct {
		const char *text, *says;
		int code;
	} cases[] = {
	        {"", "no rows", ERR_INPUT},
	        {"[]", "no rows", ERR_INPUT},
	        {"\n\n", "no rows", ERR_INPUT},
	        {"{\"input_ids\":[1,2]}\n{\"input_ids\":[1,10]}", ":2: input_ids[1] is 10", ERR_INPUT},
	        {"{\"input_ids\":[1,-1]}", "input_ids[1] is -1", ERR_INPUT},
	        {"{\"input_ids\":[1,99999999999]}", "input_ids[1] is 99999999999", ERR_INPUT},
	        {"{\"input_ids\":[1,2.5]}", "input_ids[1] is", ERR_INPUT},
	        {"{\"input_ids\":\"1\"}", "input_ids", ERR_INPUT},
	        {"{\"input_ids\":[1,2],\"labels\":[1]}", "1 labels for 2", ERR_INPUT},
	        {"{\"input_ids\":[1,2],\"labels\":[1,10]}", "labels[1] is 10", ERR_INPUT},
	        {"{\"input_ids\":[1,2],\"labels\":[1,-1]}", "labels[1] is -1", ERR_INPUT},
	        {"{\"input_ids\":[1,2],\"labels\":[1,-100]}", "no row has a token to train on", ERR_INPUT},
	        {"{\"input_ids\":[1]}", "no row has a token to train on", ERR_INPUT},
	        {"{\"input_ids\":[]}", "no row is left", ERR_INPUT},
	        {"{\"input_ids\":[1,2]}\n{\"input_id\":[1,2]}",
	                ":2: \"input_ids\" is missing; the row has \"input_id\"; set field_input_ids",
	                ERR_INPUT},
	        {"{\"inputs\":[1,2]}", "(\"inputs\") fit no known format", ERR_INPUT},
	        {"{\"input_ids\":[1,2]}\n[1]", ":2: an array", ERR_INPUT},
	        {"{\"input_ids\":[1,2]}\n{\"input_ids\":[1,2]", ":2", ERR_INPUT},
	        {"{\"input_ids\":[1,2]} x", ":1", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]}", "ends inside the array", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]},", "ends inside the array", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]},]", "']'", ERR_INPUT},
	        {"[,{\"input_ids\":[1,2]}]", "','", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]}{\"input_ids\":[1,2]}]", "element 1", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]}] 1", "text after the end", ERR_INPUT},
	        {"[{\"input_ids\":[1,2]},\n 7]", "element 2 (line 2): an integer", ERR_INPUT},
	        {"[\"abc", "ends inside", ERR_INPUT},
	        {"{\"input_ids\":[1,2],\"attention_mask\":[1,0]}", "attention_mask[1]", ERR_UNSUPPORTED},
	        {"{\"input_ids\":[1,2],\"position_ids\":[0,1]}", "position_ids", ERR_UNSUPPORTED},
	        {"{\"input_ids\":[1,2],\"seq_lengths\":[1,1]}", "seq_lengths", ERR_UNSUPPORTED},
	        {"{\"input_ids\":[1,2],\"completion_mask\":[0,1]}", "completion_mask[0]", ERR_UNSUPPORTED},
	        {"{\"input_ids\":[1,2],\"assistant_masks\":[1,0]}", "assistant_masks[1]", ERR_UNSUPPORTED},
	        {"{\"input_ids\":[1,2],\"loss_mask\":[1]}", "1 entries for 2", ERR_INPUT},
	        {"{\"messages\":[]}", "needs a tokenizer", ERR_INPUT},
	        {"{\"conversations\":[]}", "needs a tokenizer", ERR_INPUT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dataset_options options = {.path = file_path, .vocab_count = 10};
		struct dataset *d = NULL;
		int rc;

		write_text(cases[i].text);
		rc = dataset_open(&d, &options);
		if (rc != cases[i].code || d || !strstr(err_text(), cases[i].says))
			fail_msg("%s gave %d: %s", cases[i].text, rc, err_text());
	}
	struct dataset_options options = {.path = "/nonexistent.jsonl"};
	struct dataset *d = NULL;

	assert_int_equal(dataset_open(&d, &options), ERR_INPUT);
}

/* Lines and elements longer than the read buffer, so that records straddle its refills. */
static void test_large_records(void **state)
{
	for (int is_array = 0; is_array < 2; is_array++) {
		FILE *f = fopen(file_path, "w");
		struct dataset_options options = {.path = file_path, .vocab_count = 1000};
		struct dataset *d = NULL;
		int64_t want = 0;

		assert_non_null(f);
		fputs(is_array ? "[" : "", f);
		for (int row = 0; row < 8; row++) {
			fprintf(f, "%s{\"input_ids\":[1", row == 0 ? "" : is_array ? ", " : "\n");
			for (int i = 0; i < row * 50000; i++)
				fprintf(f, ",%d", i % 1000);
			fputs("]}", f);
			want += row * 50000 + 1;
		}
		fputs(is_array ? "]\n" : "", f);
		fclose(f);
		assert_int_equal(dataset_open(&d, &options), 0);
		assert_int_equal(d->row_count, 8);
		assert_int_equal(d->token_count, want);
		assert_int_equal(dataset_row_ids(d, 7)[350000], 999);
		dataset_close(d);
	}
	(void)state;
}

/* ---- rows, splits, batches */

/* Rows of random lengths and labels, through a file. */
static struct dataset *random_dataset(uint64_t seed, int64_t rows, int64_t max_tokens)
{
	FILE *f = fopen(file_path, "w");
	struct dataset_options options = {.path = file_path, .vocab_count = 500};
	struct dataset *d = NULL;

	assert_non_null(f);
	for (int64_t row = 0; row < rows; row++) {
		int64_t count = 1 + (int64_t)rng_below(seed, (uint64_t)row, 0, (uint64_t)max_tokens);

		for (int labels = 0; labels < 2; labels++) {
			fputs(labels ? "],\"labels\":[" : "{\"input_ids\":[", f);
			for (int64_t t = 0; t < count; t++) {
				uint64_t draw = rng_below(seed, (uint64_t)row, 1 + (uint64_t)t, 500);
				int32_t value = (int32_t)draw;

				if (labels && draw % 3 == 0)
					value = -100;
				else if (labels && draw % 5 == 0)
					value = (int32_t)(draw * 7 % 500);
				fprintf(f, "%s%d", t ? "," : "", value);
			}
		}
		fputs("]}\n", f);
	}
	fclose(f);
	if (dataset_open(&d, &options) < 0)
		fail_msg("%s", err_text());
	return d;
}

static void test_split(void **state)
{
	struct dataset *whole = random_dataset(5, 50, 20), *d = random_dataset(5, 50, 20), *eval = NULL;
	int64_t next[2] = {0, 0};

	(void)state;
	assert_int_equal(dataset_split(&eval, d, 0.21, 9), 0);
	assert_int_equal(eval->row_count, 11);
	assert_int_equal(d->row_count, 39);
	assert_int_equal(eval->target_count + d->target_count, whole->target_count);
	for (int64_t row = 0; row < 50; row++) {
		int taken = 0;

		for (int64_t i = 0; i < 11; i++)
			taken |= permutation_at(9, PERMUTATION_STREAM_EVAL_SPLIT, 50, i) == row;
		struct dataset *from = taken ? eval : d;
		int64_t at = next[taken]++;

		assert_int_equal(dataset_row_tokens(from, at), dataset_row_tokens(whole, row));
		for (int64_t t = 0; t < dataset_row_tokens(whole, row); t++) {
			assert_int_equal(dataset_row_ids(from, at)[t], dataset_row_ids(whole, row)[t]);
			assert_int_equal(dataset_label(from, at, t), dataset_label(whole, row, t));
		}
	}
	dataset_close(eval);
	assert_int_equal(dataset_split(&eval, d, 39, 9), ERR_INPUT);
	assert_int_equal(dataset_split(&eval, d, 2.5, 9), ERR_INPUT);
	assert_int_equal(dataset_split(&eval, d, 3, 9), 0);
	assert_int_equal(d->row_count, 36);
	dataset_close(eval);
	dataset_close(d);
	dataset_close(whole);
}

/* Compares one micro-batch with a token-by-token construction from the dataset. */
static void check_micro_batch(
        const struct micro_batch *mb, const struct batch_source *src, int64_t step, int64_t m)
{
	int64_t drawn[64], count = sampler_rows(&src->sampler, drawn, step, m), token = 0, target = 0,
	                   doc = 0;

	assert_int_equal(mb->row_count, count);
	for (int64_t i = 0; i < count; i++) {
		int64_t first = src->packing ? src->packing->bin_start[drawn[i]] : 0;
		int64_t docs = src->packing ? src->packing->bin_start[drawn[i] + 1] - first : 1;

		assert_int_equal(mb->row_start[i], token);
		assert_int_equal(mb->rows[i], drawn[i]);
		for (int64_t k = 0; k < docs; k++, doc++) {
			int64_t row = src->packing ? src->packing->rows[first + k] : drawn[i];
			int64_t tokens = dataset_row_tokens(src->data, row), start = token;

			assert_int_equal(mb->doc_row[doc], row);
			assert_int_equal(mb->doc_offset[doc], start);
			for (int64_t t = 0; t < tokens; t++, token++) {
				int32_t label = t + 1 < tokens ? dataset_label(src->data, row, t + 1) : -100;

				assert_int_equal(mb->ids[token], dataset_row_ids(src->data, row)[t]);
				assert_int_equal(mb->positions[token], t);
				assert_int_equal(mb->doc_start[token], start);
				assert_int_equal(mb->doc_end[token], start + tokens);
				if (label == -100)
					continue;
				assert_int_equal(mb->target_rows[target], token);
				assert_int_equal(((const int32_t *)mb->own[0])[target++], label);
			}
		}
	}
	assert_int_equal(mb->row_start[count], token);
	assert_int_equal(mb->doc_offset[doc], token);
	assert_int_equal(mb->token_count, token);
	assert_int_equal(mb->target_count, target);
	assert_int_equal(mb->doc_count, doc);
}

static void check_batches(const struct dataset *d, const struct packing *packing, int world)
{
	struct batch_source src = {.data = d, .rule = &objective_tokens.batch, .packing = packing};
	struct batch_limits limits, seen = {0};
	struct micro_batch *mb = NULL;

	src.sampler = make_sampler(batch_source_rows(d, packing), 3, 2, world, 0);
	assert_int_equal(batch_limits_find(&limits, &src, 3 * src.sampler.steps_per_epoch), 0);
	assert_int_equal(micro_batch_alloc(&mb, &limits, &objective_tokens.batch), 0);
	for (int64_t step = 0; step < 3 * src.sampler.steps_per_epoch; step++) {
		int64_t targets = 0, tokens = 0, want_targets, want_tokens;

		for (int64_t m = 0; m < sampler_micro_count(&src.sampler, step); m++)
			for (src.sampler.rank = 0; src.sampler.rank < world; src.sampler.rank++) {
				assert_int_equal(batch_build(mb, &src, step, m), 0);
				check_micro_batch(mb, &src, step, m);
				targets += mb->target_count;
				tokens += mb->token_count;
				seen.tokens = mb->token_count > seen.tokens ? mb->token_count : seen.tokens;
				seen.targets =
				        mb->target_count > seen.targets ? mb->target_count : seen.targets;
				seen.docs = mb->doc_count > seen.docs ? mb->doc_count : seen.docs;
			}
		src.sampler.rank = 0;
		assert_int_equal(batch_step_counts(&want_targets, &want_tokens, &src, step), 0);
		assert_int_equal(targets, want_targets);
		assert_int_equal(tokens, want_tokens);
	}
	assert_int_equal(seen.tokens, limits.tokens);
	assert_int_equal(seen.targets, limits.targets);
	assert_int_equal(seen.docs, limits.docs);
	micro_batch_free(mb);
}

static void test_batches(void **state)
{
	struct dataset *d = random_dataset(11, 41, 30);
	int64_t lengths[41];
	struct packing *packing = NULL;

	(void)state;
	for (int64_t row = 0; row < 41; row++)
		lengths[row] = dataset_row_tokens(d, row);
	assert_int_equal(packing_build(&packing, lengths, 41, 64), 0);
	for (int world = 1; world <= 3; world++) {
		check_batches(d, NULL, world);
		check_batches(d, packing, world);
	}
	packing_free(packing);
	dataset_close(d);
}

/* Rows of one or two tokens, many without a target: steps without one are counted over all epochs. */
static void test_batch_untrained(void **state)
{
	struct dataset *d = random_dataset(13, 30, 2);

	(void)state;
	for (int tried = 0; tried < 6; tried++) {
		struct batch_source src = {.data = d, .rule = &objective_tokens.batch};
		int64_t untrained = 0, steps;
		struct batch_limits limits;

		src.sampler = make_sampler(30, 1, 1, 1 + tried / 2, 0);
		src.sampler.order = tried % 2 ? SAMPLER_ORDER_FILE : SAMPLER_ORDER_SHUFFLE;
		steps = 3 * src.sampler.steps_per_epoch - 4;
		for (int64_t step = 0; step < steps; step++) {
			int64_t targets;

			assert_int_equal(batch_step_counts(&targets, NULL, &src, step), 0);
			untrained += !targets;
		}
		assert_in_range(untrained, 1, steps - 1);
		assert_int_equal(batch_limits_find(&limits, &src, steps), 0);
		assert_int_equal(limits.untrained_steps, untrained);
	}
	dataset_close(d);
}

static void test_batch_room(void **state)
{
	struct dataset *d = random_dataset(12, 20, 30);
	struct batch_source src = {.data = d, .rule = &objective_tokens.batch};
	struct batch_limits limits = {.tokens = 5, .targets = 5, .docs = 4, .rows = 4};
	struct micro_batch *mb = NULL;

	(void)state;
	src.sampler = make_sampler(20, 4, 1, 1, 0);
	assert_int_equal(micro_batch_alloc(&mb, &limits, &objective_tokens.batch), 0);
	assert_int_equal(batch_build(mb, &src, 0, 0), ERR_RANGE);
	micro_batch_free(mb);
	limits.rows = 2;
	assert_int_equal(micro_batch_alloc(&mb, &limits, &objective_tokens.batch), 0);
	assert_int_equal(batch_build(mb, &src, 0, 0), ERR_RANGE);
	micro_batch_free(mb);
	dataset_close(d);
}

/* Every allocation on the way fails once, then all later ones: an error each time, nothing leaked. */
static void test_no_memory(void **state)
{
	(void)state;
	write_text("{\"input_ids\":[1,2,3],\"labels\":[-100,2,5]}\n{\"input_ids\":[4,5]}\n{\"input_ids\":[4,"
	           "5]}\n");
	for (int kind = 0; kind < 2; kind++)
		for (int64_t n = 1;; n++) {
			struct dataset_options options = {.path = file_path, .vocab_count = 10};
			struct dataset *d = NULL, *eval = NULL;
			int rc;

			mem_fault_arm(n, kind ? MEM_FAULT_FOREVER : MEM_FAULT_ONCE);
			rc = dataset_open(&d, &options);
			if (rc == 0)
				rc = dataset_split(&eval, d, 1, 3);
			mem_fault_arm(0, MEM_FAULT_ONCE);
			dataset_close(eval);
			dataset_close(d);
			if (rc == 0)
				break;
			assert_in_range(n, 1, 1000);
			assert_true(rc == ERR_NOMEM || rc == ERR_INPUT);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_packing),
	        cmocka_unit_test(test_packing_refuses),
	        cmocka_unit_test(test_tokens_rows),
	        cmocka_unit_test(test_tokens_array),
	        cmocka_unit_test(test_long_rows),
	        cmocka_unit_test(test_tokens_refused),
	        cmocka_unit_test(test_large_records),
	        cmocka_unit_test(test_split),
	        cmocka_unit_test(test_batches),
	        cmocka_unit_test(test_batch_untrained),
	        cmocka_unit_test(test_batch_room),
	        cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("data", tests, open_file_path, remove_file_path);
}
