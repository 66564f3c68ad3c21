/* links: objective */
/* Pairs of answers stay together: in splits, batches, mixes and files. */
#include "tests/pair_rows.h"

#include "data/batch.h"
#include "data/eval_split.h"
#include "objective/objective.h"

/* ---- pairs stay together ---- */

/* Pairs of different lengths. The prompt numbers the pair; the answer says which one it is. */
static struct dataset *many_pairs(int count)
{
	struct str rows = {0};
	struct dataset *d;

	for (int i = 0; i < count; i++)
		str_printf(&rows, "{\"prompt\":\"%d%.*s\",\"chosen\":\"+%.*s\",\"rejected\":\"-%.*s\"}\n", i,
		        i % 7, "???????", i % 5, "yyyyy", i % 11, "nnnnnnnnnnn");
	d = open_good(rows.data, (struct dataset_options){0});
	str_free(&rows);
	return d;
}

static void check_pair(const struct dataset *d, int64_t chosen)
{
	struct str texts[2] = {{0}, {0}};

	for (int i = 0; i < 2; i++)
		show(&texts[i], d, chosen + i);
	assert_non_null(strstr(texts[0].data, "{+"));
	assert_non_null(strstr(texts[1].data, "{-"));
	assert_int_equal(strcspn(texts[0].data, "{"), strcspn(texts[1].data, "{"));
	assert_memory_equal(texts[0].data, texts[1].data, strcspn(texts[0].data, "{"));
	str_free(&texts[0]);
	str_free(&texts[1]);
}

static void test_split(void **state)
{
	(void)state;
	for (int part = 1; part < 4; part++) {
		struct dataset *d = many_pairs(20), *eval = NULL;
		int64_t tokens = d->token_count;

		assert_int_equal(dataset_split(&eval, d, part == 1 ? 0.21 : part, 9), 0);
		assert_int_equal(eval->row_count, part == 1 ? 10 : 2 * part);
		assert_int_equal(eval->row_count + d->row_count, 40);
		assert_int_equal(eval->token_count + d->token_count, tokens);
		assert_int_equal(eval->is_paired, 1);
		assert_int_equal(d->is_paired, 1);
		for (int64_t row = 0; row < d->row_count; row += 2)
			check_pair(d, row);
		for (int64_t row = 0; row < eval->row_count; row += 2)
			check_pair(eval, row);
		dataset_close(eval);
		assert_int_equal(dataset_split(&eval, d, 20, 9), ERR_INPUT);
		assert_non_null(
		        strstr(err_text(), " pairs: set a fraction below 1 or a whole number of pairs"));
		dataset_close(d);
	}
}

static void test_packing(void **state)
{
	int64_t starts[] = {0, 6, 8}, torn[] = {0, 3, 8};
	struct packing *p = NULL;

	(void)state;
	assert_int_equal(packing_build_groups(&p, starts, 2, 2), 0);
	assert_int_equal(p->bin_count, 4);
	assert_int_equal(p->row_count, 8);
	for (int64_t b = 0; b < 4; b++) {
		assert_int_equal(p->bin_start[b], 2 * b);
		assert_int_equal(p->rows[2 * b], 2 * b);
		assert_int_equal(p->rows[2 * b + 1], 2 * b + 1);
	}
	assert_int_equal(p->bin_start[4], 8);
	assert_int_equal(starts[1], 3);
	assert_int_equal(starts[2], 4);
	packing_free(p);
	assert_int_equal(packing_build_groups(&p, torn, 2, 2), ERR_RANGE);
	assert_null(p);
}

/* Every micro-batch has whole pairs, chosen first; an epoch draws each pair once over all ranks. */
static void check_epoch(struct batch_source *src, int world, int64_t epoch, int times)
{
	int64_t steps = 0, pairs = src->packing->bin_count;
	int *drawn = mem_alloc((size_t)pairs, sizeof(*drawn));

	assert_non_null(drawn);
	for (int rank = 0; rank < world; rank++) {
		struct batch_limits limits;
		struct micro_batch *mb = NULL;

		src->sampler.rank = rank;
		src->sampler.world_size = world;
		assert_int_equal(sampler_init(&src->sampler), 0);
		steps = src->sampler.steps_per_epoch;
		assert_int_equal(batch_limits_find(&limits, src, steps * (epoch + 1)), 0);
		assert_int_equal(micro_batch_alloc(&mb, &limits, &objective_tokens.batch), 0);
		for (int64_t step = epoch * steps; step < (epoch + 1) * steps; step++)
			for (int64_t m = 0; m < sampler_micro_count(&src->sampler, step); m++) {
				assert_int_equal(batch_build(mb, src, step, m), 0);
				assert_int_equal(mb->doc_count, 2 * mb->row_count);
				for (int64_t i = 0; i < mb->row_count; i++) {
					assert_int_equal(mb->doc_row[2 * i] % 2, 0);
					assert_int_equal(mb->doc_row[2 * i + 1], mb->doc_row[2 * i] + 1);
					assert_int_equal(mb->row_start[i], mb->doc_offset[2 * i]);
					check_pair(src->data, mb->doc_row[2 * i]);
					drawn[mb->doc_row[2 * i] / 2]++;
				}
			}
		micro_batch_free(mb);
	}
	for (int64_t i = 0; times && i < pairs; i++)
		assert_int_equal(drawn[i], times);
	mem_free(drawn);
}

static void test_batches(void **state)
{
	struct dataset *d = many_pairs(23);
	int64_t starts[] = {0, d->row_count};
	struct batch_source src = {.data = d, .rule = &objective_tokens.batch};
	struct packing *p = NULL;

	(void)state;
	assert_int_equal(packing_build_groups(&p, starts, 1, 2), 0);
	src.packing = p;
	assert_int_equal(batch_source_rows(d, p), 23);
	for (int world = 1; world <= 3; world++)
		for (int order = SAMPLER_ORDER_FILE; order <= SAMPLER_ORDER_SHUFFLE; order++)
			for (int64_t rows = 1; rows <= 3; rows++) {
				src.sampler = (struct sampler){.row_count = 23,
				        .order = (enum sampler_order)order,
				        .seed = 5,
				        .batch_rows = rows,
				        .accumulation = 2};
				for (int64_t epoch = 0; epoch < 2; epoch++)
					check_epoch(&src, world, epoch, 1);
			}
	packing_free(p);
	dataset_close(d);
}

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

/* With the chosen text's own loss each of its tokens is a target, those of turns between answers too. */
static void test_own_prompt(void **state)
{
	struct dataset *d = open_good(
	        "{\"prompt\":[" SAYS("user", "q") "],\"chosen\":[" SAYS("assistant", "a") "," SAYS(
	                "user", "r") "," SAYS("assistant", "c") "],"
	                                                        "\"rejected\":[" SAYS("assistant", "b") "]}",
	        (struct dataset_options){0});
	int64_t starts[] = {0, d->row_count}, targets;
	struct batch_source src = {.data = d, .rule = &objective_pairs.batch, .draws.is_own_prompt = 1};
	struct batch_limits limits;
	struct micro_batch *mb = NULL;
	struct packing *p = NULL;

	(void)state;
	assert_int_equal(packing_build_groups(&p, starts, 1, 2), 0);
	src.packing = p;
	src.sampler = (struct sampler){.row_count = 1, .batch_rows = 1, .accumulation = 1, .world_size = 1};
	assert_int_equal(sampler_init(&src.sampler), 0);
	assert_int_equal(batch_limits_find(&limits, &src, 1), 0);
	assert_int_equal(micro_batch_alloc(&mb, &limits, &objective_pairs.batch), 0);
	assert_int_equal(batch_build(mb, &src, 0, 0), 0);
	assert_int_equal(batch_step_counts(&targets, NULL, &src, 0), 0);
	assert_int_equal(mb->target_count, targets);
	assert_int_equal(mb->doc_target[1], dataset_row_tokens(d, 0) - 1);
	for (int64_t at = 0, seen = 0; at < mb->doc_target[1]; at++) {
		const int32_t *label = mb->own[0];

		seen |= (int64_t)1 << mb->target_rows[at];
		assert_int_equal(label[at], mb->ids[mb->target_rows[at] + 1]);
		if (at + 1 == mb->doc_target[1]) /* each once */
			assert_int_equal(seen, ((int64_t)1 << mb->doc_target[1]) - 1);
	}
	micro_batch_free(mb);
	packing_free(p);
	dataset_close(d);
}

static void test_mix(void **state)
{
	struct dataset *d = many_pairs(20);
	int64_t starts[] = {0, 24, 40};
	struct mix mix = {.set_count = 2, .end = MIX_ALL_EXHAUSTED};
	struct batch_source src = {.data = d, .rule = &objective_tokens.batch};
	struct packing *p = NULL;
	int bad;

	(void)state;
	assert_int_equal(packing_build_groups(&p, starts, 2, 2), 0);
	mix.sets[0] = (struct mix_set){.first = 0, .row_count = starts[1], .weight = 1};
	mix.sets[1] = (struct mix_set){.first = starts[1], .row_count = starts[2] - starts[1], .weight = 2};
	assert_int_equal(mix_make(&mix, &bad), 0);
	assert_int_equal(mix.epoch_rows, 36);
	src.packing = p;
	src.sampler = (struct sampler){.row_count = mix.epoch_rows,
	        .mix = &mix,
	        .order = SAMPLER_ORDER_SHUFFLE,
	        .seed = 5,
	        .batch_rows = 2,
	        .accumulation = 2};
	for (int world = 1; world <= 3; world++)
		for (int64_t epoch = 0; epoch < 3; epoch++)
			check_epoch(&src, world, epoch, 0);
	packing_free(p);
	dataset_close(d);
}

/* ---- rows in files ---- */

static void check_same(const struct dataset *a, const struct dataset *b)
{
	uint64_t hash[2] = {0, 1};

	assert_int_equal(a->is_paired, b->is_paired);
	assert_int_equal(a->row_count, b->row_count);
	assert_memory_equal(&a->counts, &b->counts, sizeof(a->counts));
	for (int64_t row = 0; row < a->row_count; row += 2)
		check_pair(b, row);
	assert_int_equal(dataset_hash(&hash[0], a), 0);
	assert_int_equal(dataset_hash(&hash[1], b), 0);
	assert_true(hash[0] == hash[1]);
}

static void test_cache(void **state)
{
	char *cache = file_join(temp_dir, "cache");
	struct dataset_options o = {.memory_bytes = 3000, .cache_dir = cache, .recipe = "letters"};
	struct dataset *memory = many_pairs(300), *made, *found, *d = NULL;
	char *path = file_join(temp_dir, "rows.jsonl");

	(void)state;
	o.path = path;
	o.tokenizer = letters;
	assert_int_equal(dataset_open(&made, &o), 0);
	assert_null(made->store->memory);
	check_same(memory, made);
	assert_int_equal(dataset_open(&found, &o), 0);
	assert_string_equal(found->store->path, made->store->path);
	check_same(memory, found);
	/* the rows of a run on pairs are not those of a run on anything else */
	o.pairs = DATASET_PAIRS_ONLY;
	assert_int_equal(dataset_open(&d, &o), 0);
	assert_string_not_equal(d->store->path, made->store->path);
	check_same(memory, d);
	dataset_close(d);
	o.pairs = DATASET_PAIRS_NONE;
	assert_int_equal(dataset_open(&d, &o), ERR_INPUT);
	dataset_close(found);
	dataset_close(made);
	dataset_close(memory);
	mem_free(path);
	mem_free(cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_split),
	        cmocka_unit_test(test_packing),
	        cmocka_unit_test(test_batches),
	        cmocka_unit_test(test_own_prompt),
	        cmocka_unit_test(test_mix),
	        cmocka_unit_test(test_cache),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
