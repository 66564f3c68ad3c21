/* links: cli */
/* Weighted data sets: number and choice of rows in an epoch, ranks, resuming, refusals. */
#include "tests/run_fixture.h"

#include <math.h>

#include "base/err.h"
#include "data/mix.h"
#include "data/sampler.h"
#include "data/source/sets.h"

static struct run_model tiny;

static struct mix make_mix(enum mix_end end, const int64_t *rows, const double *weights, int count)
{
	struct mix m = {.end = end, .set_count = count};
	int64_t first = 0;
	int bad;

	for (int i = 0; i < count; i++) {
		m.sets[i] = (struct mix_set){.first = first, .row_count = rows[i], .weight = weights[i]};
		first += rows[i];
	}
	if (mix_make(&m, &bad))
		fail_msg("%s", err_text());
	return m;
}

/* ---- how many ---- */

static void test_ratio(void **state)
{
	(void)state;
	for (uint64_t draw = 0; draw < 3000; draw++) {
		int count = 2 + (int)rng_below(1, draw, 0, 5);
		int64_t rows[8], most = 0;
		double weights[8];
		struct mix m;
		int limit = -1;

		for (int i = 0; i < count; i++) {
			rows[i] = 50 + (int64_t)rng_below(2, draw, (uint64_t)i, 5000);
			weights[i] = 0.1 + (double)rng_below(3, draw, (uint64_t)i, 1000) / 100;
		}
		m = make_mix(draw % 2 ? MIX_FIRST_EXHAUSTED : MIX_ALL_EXHAUSTED, rows, weights, count);
		for (int i = 0; i < count; i++) {
			if (m.sets[i].draws == rows[i])
				limit = i;
			most += m.sets[i].draws;
			assert_true(draw % 2 ? m.sets[i].draws <= rows[i] : m.sets[i].draws >= rows[i]);
		}
		assert_int_equal(most, m.epoch_rows);
		assert_true(limit >= 0); /* a set is used up exactly */
		for (int i = 0; i < count; i++) {
			double wanted = (double)m.epoch_rows * weights[i], all = 0;

			for (int k = 0; k < count; k++)
				all += weights[k];
			assert_true(fabs((double)m.sets[i].draws - wanted / all) <
			            1 + count / 2.0 * weights[i] / all);
		}
	}
}

static void test_no_rows_left(void **state)
{
	struct mix m = {.set_count = 2, .sets = {{0, 100, 1000, 0}, {100, 50, 1, 0}}};
	int bad = -1;

	(void)state;
	assert_int_equal(mix_make(&m, &bad), ERR_INPUT);
	assert_int_equal(bad, 1);
	assert_non_null(strstr(err_text(), "data_mix=all_exhausted"));
	m.end = MIX_ALL_EXHAUSTED;
	assert_int_equal(mix_make(&m, &bad), 0);
	assert_int_equal(m.sets[0].draws, 50000);
}

/* ---- which ---- */

static struct sampler make_sampler(const struct mix *m, enum sampler_order order, int world, int rank)
{
	struct sampler s = {.row_count = m->epoch_rows,
	        .mix = m,
	        .order = order,
	        .seed = 11,
	        .batch_rows = 2,
	        .accumulation = 12 / world / 2,
	        .world_size = world,
	        .rank = rank};

	assert_int_equal(sampler_init(&s), 0);
	return s;
}

/* Each epoch has the sets' draws; a set's rows are used evenly over epochs, to one. */
static void test_epochs(void **state)
{
	static const int64_t rows[] = {30, 100, 7};
	static const double weights[] = {0.5, 0.2, 0.3};

	(void)state;
	for (int end = MIX_FIRST_EXHAUSTED; end <= MIX_ALL_EXHAUSTED; end++)
		for (int order = SAMPLER_ORDER_FILE; order <= SAMPLER_ORDER_SHUFFLE; order++) {
			struct mix m = make_mix((enum mix_end)end, rows, weights, 3);
			struct sampler s = make_sampler(&m, (enum sampler_order)order, 1, 0);
			int used[137] = {0};

			for (int64_t epoch = 0; epoch < 40; epoch++) {
				int64_t of[3] = {0};
				int now[137] = {0};

				for (int64_t place = 0; place < m.epoch_rows; place++) {
					int64_t row = sampler_draw(&s, epoch, place);

					assert_in_range(row, 0, 136);
					of[row < 30 ? 0 : row < 130 ? 1 : 2]++;
					used[row]++;
					now[row]++;
					assert_true(end == MIX_ALL_EXHAUSTED || now[row] <= 2);
				}
				for (int i = 0; i < 3; i++) {
					int least = 1 << 30, most = 0;

					assert_int_equal(of[i], m.sets[i].draws);
					for (int64_t r = m.sets[i].first; r < m.sets[i].first + rows[i];
					        r++) {
						least = used[r] < least ? used[r] : least;
						most = used[r] > most ? used[r] : most;
					}
					assert_true(most - least <= 1);
				}
			}
		}
}

/* Over many seeds, any row of a set may stand at any place: chi-square of (place, row) of the first epoch. */
static void test_uniform(void **state)
{
	static const int64_t rows[] = {6, 12};
	static const double weights[] = {1, 1};
	enum { SEEDS = 40000 };
	struct mix m = make_mix(MIX_FIRST_EXHAUSTED, rows, weights, 2);
	static int counts[12][18];
	double chi = 0, freedom = 11 * 17;

	(void)state;
	assert_int_equal(m.epoch_rows, 12);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct sampler s = make_sampler(&m, SAMPLER_ORDER_SHUFFLE, 1, 0);

		s.seed = seed;
		for (int64_t place = 0; place < 12; place++)
			counts[place][sampler_draw(&s, 0, place)]++;
	}
	for (int place = 0; place < 12; place++)
		for (int row = 0; row < 18; row++) {
			/* a row of the small set is in every epoch, one of the large set in every second */
			double expected = SEEDS / 12.0 * (row < 6 ? 1 : 0.5),
			       off = counts[place][row] - expected;

			chi += off * off / expected;
		}
	if (!(fabs(chi - freedom) < 5 * sqrt(2 * freedom)))
		fail_msg("chi-square %g of %g", chi, freedom);
}

/* The rows of a step do not depend on how many ranks share it. */
static void test_ranks_draw_the_same(void **state)
{
	static const int64_t rows[] = {31, 100};
	static const double weights[] = {1, 2};
	struct mix m = make_mix(MIX_ALL_EXHAUSTED, rows, weights, 2);

	(void)state;
	for (int64_t step = 0; step < 40; step++) {
		int64_t alone[16], got[2];
		struct sampler one = make_sampler(&m, SAMPLER_ORDER_SHUFFLE, 1, 0);
		int64_t count = 0;

		for (int64_t micro = 0; micro < sampler_micro_count(&one, step); micro++)
			count += sampler_rows(&one, alone + count, step, micro);
		for (int world = 2; world <= 3; world++) {
			int64_t at = 0;

			for (int64_t micro = 0; micro < 6 / world; micro++)
				for (int rank = 0; rank < world; rank++) {
					struct sampler s =
					        make_sampler(&m, SAMPLER_ORDER_SHUFFLE, world, rank);
					int64_t n = micro < sampler_micro_count(&s, step)
					                    ? sampler_rows(&s, got, step, micro)
					                    : 0;

					for (int64_t i = 0; i < n; i++)
						assert_int_equal(got[i], alone[at++]);
				}
			assert_int_equal(at, count);
		}
	}
}

/* ---- the list ---- */

static void test_list(void **state)
{
	static const struct {
		const char *spec, *says; /* NULL: joined again it is the same */
		int count;
	} rows[] = {
	        {"a.jsonl", NULL, 1},
	        {"a.jsonl,b", NULL, 2},
	        {"a.jsonl:0.7,b:3e-1,c/*.csv:2", NULL, 3},
	        {"a,b:1", "a has no weight, but other data sets have one", 0},
	        {"a:0,b:1", "must be a number above 0", 0},
	        {"a:nan,b:1", "a:nan has no weight", 0},
	        {"a:-1,b:1", "must be a number above 0", 0},
	        {"a:1e999,b:1", "must be a number above 0", 0},
	        {"a:1", "there is one", 0},
	        {"a,,b", "has no name", 0},
	        {"a,", "has no name", 0},
	        {":1,b:2", "has no name", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct data_sets s;
		int rc = data_sets_parse(&s, rows[i].spec);
		char *joined = data_sets_join(&s);

		if (rows[i].says ? rc != ERR_INPUT || !strstr(err_text(), rows[i].says)
		                 : rc || s.count != rows[i].count || strcmp(joined, rows[i].spec) != 0)
			fail_msg("%s gave %d: %s", rows[i].spec, rc, rc ? err_text() : joined);
		mem_free(joined);
		data_sets_free(&s);
	}
	write_file("odd,name:0.5", "x");
	{
		char path[400];
		struct data_sets s;

		snprintf(path, sizeof(path), "%s/odd,name:0.5", work_dir);
		assert_int_equal(data_sets_parse(&s, path), 0);
		assert_string_equal(s.sets[0].path, path);
		assert_int_equal(s.is_weighted, 0);
		data_sets_free(&s);
	}
}

/* ---- runs ---- */

static const char settings[] =
        "per_device_train_batch_size=2 gradient_accumulation_steps=2 num_train_epochs=3 "
        "learning_rate=0.01 save_total_limit=99";

static void train(struct str *said, const char *out, const char *more)
{
	assert_ferry(0, said, "train model=%s data=%s/x.jsonl:3,%s/y.jsonl:1 output_dir=%s/%s %s %s",
	        tiny.dir, work_dir, work_dir, work_dir, out, settings, more);
}

static void test_resumes(void **state)
{
	static const char *const kinds[] = {"", "packing=bfd max_length=64", "eval_split=0.2"};

	(void)state;
	write_rows("x.jsonl", 40, 5);
	write_rows("y.jsonl", 9, 6);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char more[200], *whole, *resumed;
		struct str said = {0};
		int step = 3;

		remove_run("whole");
		remove_run("half");
		train(&said, "whole", kinds[i]);
		assert_non_null(strstr(said.data, "mix      an epoch has "));
		str_free(&said);
		whole = run_numbers("whole");
		snprintf(more, sizeof(more), "%s save_steps=1", kinds[i]);
		train(NULL, "half", more);
		for (; step < 100; step++) {
			char name[64];

			snprintf(name, sizeof(name), "half/checkpoint-%06d", step);
			remove_run(name);
		}
		snprintf(more, sizeof(more), "%s save_steps=1 resume_from_checkpoint=auto", kinds[i]);
		train(NULL, "half", more);
		assert_non_null(strstr(ferry_said(), "at step 2"));
		resumed = run_numbers("half");
		assert_string_equal(resumed, whole);
		mem_free(whole);
		mem_free(resumed);
	}
	/* other weights are other rows */
	assert_ferry(2, NULL,
	        "train model=%s data=%s/x.jsonl:1,%s/y.jsonl:1 output_dir=%s/half "
	        "resume_from_checkpoint=auto %s %s",
	        tiny.dir, work_dir, work_dir, work_dir, settings, kinds[2]);
	assert_non_null(strstr(ferry_said(), "was trained on other rows"));
}

static void test_refused(void **state)
{
	(void)state;
	assert_ferry(2, NULL, "eval model=%s data=%s/x.jsonl:3,%s/y.jsonl:1 --per-token --json", tiny.dir,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "remove the weights"));
	write_file("empty.jsonl", "\n");
	assert_ferry(2, NULL, "train model=%s data=%s/x.jsonl,%s/empty.jsonl output_dir=%s/never", tiny.dir,
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "empty.jsonl: the file has no rows"));
}

static json_t *eval_json(const char *data)
{
	struct str out = {0};
	json_t *root = NULL;

	assert_ferry(0, &out, "eval model=%s %s --json", tiny.dir, data);
	assert_int_equal(json_parse(&root, "stdout", out.data, out.len_bytes), 0);
	str_free(&out);
	return root;
}

/* An epoch of weighted sets: one row of y for three of x, as the same rows in one file; also while training.
 */
static void test_evaluates(void **state)
{
	char path[400], data[900];
	struct str rows = {0}, said = {0};
	json_t *mixed, *plain;
	FILE *f;

	(void)state;
	write_rows("p.jsonl", 12, 5);
	write_rows("q.jsonl", 9, 6);
	for (int i = 0; i < 2; i++) { /* all of p, and the first 4 rows of q */
		char line[4096];

		snprintf(path, sizeof(path), "%s/%s.jsonl", work_dir, i ? "q" : "p");
		f = fopen(path, "r");
		assert_non_null(f);
		for (int row = 0; row < (i ? 4 : 12) && fgets(line, sizeof(line), f); row++)
			str_add(&rows, line);
		fclose(f);
	}
	write_file("pq.jsonl", "%s", rows.data);
	snprintf(data, sizeof(data), "data=%s/p.jsonl:3,%s/q.jsonl:1", work_dir, work_dir);
	mixed = eval_json(data);
	snprintf(data, sizeof(data), "data=%s/pq.jsonl", work_dir);
	plain = eval_json(data);
	assert_int_equal(json_integer_value(json_object_get(mixed, "rows")), 16);
	assert_int_equal(json_integer_value(json_object_get(plain, "rows")), 16);
	assert_int_equal(json_integer_value(json_object_get(mixed, "target_tokens")),
	        json_integer_value(json_object_get(plain, "target_tokens")));
	assert_true(fabs(json_real_value(json_object_get(mixed, "loss")) -
	                    json_real_value(json_object_get(plain, "loss"))) < 1e-6);
	json_decref(mixed);
	json_decref(plain);
	assert_ferry(0, &said,
	        "train model=%s data=%s/pq.jsonl eval_data=%s/p.jsonl:3,%s/q.jsonl:1 eval_steps=1 "
	        "max_steps=1 "
	        "output_dir=%s/eval_mix %s",
	        tiny.dir, work_dir, work_dir, work_dir, work_dir, settings);
	assert_non_null(strstr(said.data, "mix      an epoch has 16 rows: 12 of "));
	str_free(&said);
	str_free(&rows);
}

/* Lists of sets in files of other tools and in ferry's own. */
static void test_yaml(void **state)
{
	static const struct {
		const char *yaml, *words;
	} rows[] = {
	        {"data:\n  - path: x.jsonl\n    weight: 3\n  - path: y.jsonl\n    weight: 1\n",
	                "mix      an epoch has 36 rows: 27 of |9 of "},
	        {"datasets:\n  - path: x.jsonl\n    weight: 1\n    type: alpaca\n  - path: y.jsonl\n    "
	         "weight: 1\n"
	         "    type: completion\nsequence_len: 128\n",
	                "mix      an epoch has 18 rows"},
	        {"dataset: x.jsonl,y.jsonl\ninterleave_probs: 0.5,0.5\nmix_strategy: interleave_over\n"
	         "finetuning_type: full\nstage: sft\n",
	                "mix      an epoch has 80 rows"},
	        {"data: [x.jsonl, y.jsonl]\n", "49 rows"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char list[200], *word, *rest = list;
		struct str said = {0};

		write_file(
		        "sets.yaml", "model: %s\noutput_dir: %s/yaml\n%s", tiny.dir, work_dir, rows[i].yaml);
		assert_ferry(0, &said, "train %s/sets.yaml --dry-run", work_dir);
		snprintf(list, sizeof(list), "%s", rows[i].words);
		while ((word = strsep(&rest, "|")))
			if (!strstr(said.data, word))
				fail_msg("%s: no \"%s\" in: %s", rows[i].yaml, word, said.data);
		str_free(&said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_ratio),
	        cmocka_unit_test(test_no_rows_left),
	        cmocka_unit_test(test_epochs),
	        cmocka_unit_test(test_uniform),
	        cmocka_unit_test(test_ranks_draw_the_same),
	        cmocka_unit_test(test_list),
	        cmocka_unit_test(test_resumes),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_evaluates),
	        cmocka_unit_test(test_yaml),
	};
	int failed;

	ferry_run_begin("mix");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
