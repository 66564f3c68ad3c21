/* links: train */
/* Choosing the next token: the candidates after transformers' processors, and random draws from them. */
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "tests/check.h"
#include "train/generation/choose.h"

#include <math.h>
#include <stdlib.h>

static int64_t read_ids(int32_t *ids, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
	return (int64_t)json_array_size(list);
}

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static void check_case(const json_t *c, size_t index)
{
	const json_t *logits_json = json_object_get(c, "logits"),
	             *probabilities = json_object_get(c, "probabilities");
	int64_t vocab = (int64_t)json_array_size(logits_json), want_count, seen_count, count;
	struct choose_options o = {.temperature = number(c, "temperature"),
	        .top_k = (int64_t)number(c, "top_k"),
	        .top_p = number(c, "top_p"),
	        .min_p = number(c, "min_p"),
	        .repetition_penalty = number(c, "repetition_penalty")};
	struct choose_candidate list[256];
	int32_t want[256], seen[64];
	double total, probability[256];
	float logits[256];

	assert_true(vocab <= 256);
	for (int64_t i = 0; i < vocab; i++) {
		logits[i] = (float)json_number_value(json_array_get(logits_json, (size_t)i));
		probability[i] = 0;
	}
	want_count = read_ids(want, json_object_get(c, "ids"));
	seen_count = read_ids(seen, json_object_get(c, "seen"));
	check_ok(choose_candidates(list, &count, &total, logits, vocab, &o, seen, seen_count));
	if (count != want_count)
		fail_msg("case %zu: %d tokens are left, not %d", index, (int)count, (int)want_count);
	for (int64_t i = 0; i < count; i++)
		probability[list[i].id] = list[i].weight / total;
	for (int64_t i = 0; i < want_count; i++) {
		double expected = json_number_value(json_array_get(probabilities, (size_t)i));

		if (!(fabs(probability[want[i]] - expected) <= 2e-6))
			fail_msg("case %zu: id %d has %g, not %g", index, want[i], probability[want[i]],
			        expected);
	}
}

/* tests/golden/make_sampling_golden.py */
static void test_transformers(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char *path = mem_printf("%s/tests/golden/sampling.json", source ? source : ".");
	json_t *root = NULL, *c;
	size_t i;

	(void)state;
	check_ok(json_read_file(&root, path, 1 << 24));
	assert_int_equal(json_array_size(json_object_get(root, "cases")), 120);
	json_array_foreach(json_object_get(root, "cases"), i, c) check_case(c, i);
	json_decref(root);
	mem_free(path);
}

/* Draws follow the weights, and are a function of seed, text and position. */
static void test_draws(void **state)
{
	const float logits[4] = {0, 1, 2, -1};
	const struct choose_options o = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 7};
	double total = 0;
	int counts[4] = {0}, same = 0;
	enum { DRAWS = 20000 };

	(void)state;
	for (int i = 0; i < 4; i++)
		total += exp(logits[i]);
	for (int n = 0; n < DRAWS; n++) {
		float copy[4];
		int32_t id, again, other;

		memcpy(copy, logits, sizeof(copy));
		check_ok(choose_token(&id, copy, 4, &o, NULL, n, 0));
		check_ok(choose_token(&again, copy, 4, &o, NULL, n, 0));
		check_ok(choose_token(&other, copy, 4, &o, NULL, n, 1));
		assert_int_equal(id, again);
		same += id == other;
		counts[id]++;
	}
	for (int i = 0; i < 4; i++) {
		double p = exp(logits[i]) / total;

		assert_true(fabs(counts[i] - p * DRAWS) <= 5 * sqrt(p * DRAWS));
	}
	assert_true(same < DRAWS * 3 / 4);
}

/* Equals: the lowest id. Damaged weights are an error, not a choice. */
static void test_edges(void **state)
{
	const struct choose_options greedy = {.top_p = 1, .repetition_penalty = 1};
	const struct choose_options two = {.temperature = 1, .top_k = 2, .top_p = 1, .repetition_penalty = 1};
	float equal[3] = {1, 2, 2}, bad[2] = {0, NAN}, tied[5] = {3, 1, 2, 2, 2};
	struct choose_candidate list[5];
	int64_t count;
	double total;
	int32_t id;

	(void)state;
	check_ok(choose_token(&id, equal, 3, &greedy, NULL, 0, 0));
	assert_int_equal(id, 1);
	check_ok(choose_candidates(list, &count, &total, tied, 5, &two, NULL, 0)); /* as TopKLogitsWarper */
	assert_int_equal(count, 4);
	check_fails(choose_token(&id, bad, 2, &greedy, NULL, 0, 0), ERR_NONFINITE, "not finite");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_transformers),
	        cmocka_unit_test(test_draws),
	        cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
