/* links: host_cpu device_meta model_families objective */
/* Models that train on preference pairs, against TRL (tests/golden/make_preference.py). */
#include "tests/formula_cases.h"

#include "device/preference.h"
#include "model/families/open.h"
#include "objective/objective.h"

enum { PAIRS_MAX = 8 };

/* Pairs [first_pair, first_pair + pairs) of the file: a micro-batch, and where its texts begin in the
 * targets. */
struct micro {
	struct rig_batch rows;
	int64_t first_pair, pairs, first_target;
	int32_t first[2 * PAIRS_MAX + 1];
};

static json_t *golden;
static struct micro whole, parts[2]; /* all pairs, and the same in two */

static struct preference preference_of(const json_t *settings)
{
	static const char *const names[] = {"off",
#define NAME_OF(id, name, ...) name,
	        PREFERENCE_LOSSES(NAME_OF)};
	const char *name = json_string_value(json_object_get(settings, "loss"));
	struct preference p = {.beta = number(settings, "beta"),
	        .label_smoothing = number(settings, "label_smoothing"),
	        .gamma = number(settings, "gamma"),
	        .own = json_number_value(json_object_get(settings, "own"))};

	for (size_t i = 1; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(names[i], name))
			p.kind = (enum preference_kind)i;
	assert_int_not_equal(p.kind, PREFERENCE_OFF);
	return p;
}

static double at(const json_t *array, size_t index)
{
	return json_number_value(entry(array, index));
}

static void assert_near(double got, double want, double bound, const char *what)
{
	if (!(fabs(got - want) <= bound * fmax(fabs(want), 1)))
		fail_msg("%s: %.15g, wanted %.15g", what, got, want);
}

/* ---- single pairs ---- */

static void check_point(const struct preference *p, const json_t *point, const char *name)
{
	struct preference_pair pair;
	double grad[2], own_grad, loss;

	for (size_t i = 0; i < 2; i++) {
		pair.policy[i] = at(json_object_get(point, "policy"), i);
		pair.reference[i] = at(json_object_get(point, "reference"), i);
		pair.count[i] = (int64_t)at(json_object_get(point, "count"), i);
	}
	pair.own = pair.policy[0];
	pair.own_count = pair.count[0];
	loss = preference_loss(p, &pair, grad, &own_grad);
	grad[0] += own_grad;
	assert_near(loss, number(point, "mean"), 1e-12, name);
	for (size_t i = 0; i < 2; i++)
		assert_near(grad[i], at(json_object_get(point, "gradient"), i), 1e-12, name);
}

/* The formulas in double, also far from 0. No loss is left out. */
static void test_points(void **state)
{
	const json_t *all = json_object_get(golden, "points");
	uint64_t seen = 1 | (uint64_t)1 << PREFERENCE_KTO; /* not of pairs: tests/test_run_kto.c */

	(void)state;
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *settings = entry(all, i), *pairs = json_object_get(settings, "pairs");
		struct preference p = preference_of(settings);

		seen |= (uint64_t)1 << p.kind;
		assert_true(json_array_size(pairs) >= 5);
		for (size_t j = 0; j < json_array_size(pairs); j++)
			check_point(
			        &p, entry(pairs, j), json_string_value(json_object_get(settings, "loss")));
	}
#define COUNT_OF(...) +1
	assert_int_equal(seen, ((uint64_t)2 << (0 PREFERENCE_LOSSES(COUNT_OF))) - 1);
}

/* ---- models ---- */

static void add_ids(int32_t *ids, size_t *count, const json_t *list)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		ids[(*count)++] = (int32_t)json_integer_value(entry(list, i));
}

static void micro_read(struct micro *m, int64_t first_pair, int64_t pairs)
{
	static const char *const texts[] = {"chosen", "rejected"};
	const json_t *all = json_object_get(golden, "pairs");
	int32_t ids[64], labels[64];

	assert_true(pairs <= PAIRS_MAX);
	m->first_pair = first_pair;
	m->pairs = pairs;
	for (int64_t i = 0; i < 2 * pairs; i++) {
		const json_t *pair = entry(all, (size_t)(first_pair + i / 2));
		size_t count = 0, prompt;

		add_ids(ids, &count, json_object_get(pair, "prompt"));
		prompt = count;
		add_ids(ids, &count, json_object_get(pair, texts[i % 2]));
		assert_true(count <= 64);
		for (size_t t = 0; t < count; t++)
			labels[t] = t < prompt ? -100 : ids[t];
		rig_batch_add(&m->rows, ids, labels, (int64_t)count);
		m->first[i + 1] = (int32_t)m->rows.targets;
	}
}

static const json_t *model_entry(const json_t *test)
{
	const json_t *models = json_object_get(golden, "models");
	const char *name = json_string_value(json_object_get(test, "model"));

	for (size_t i = 0; i < json_array_size(models); i++)
		if (!strcmp(json_string_value(json_object_get(entry(models, i), "name")), name))
			return entry(models, i);
	fail_msg("no model %s", name);
	return NULL;
}

/* One way to compute a case. */
struct way {
	struct bounds bounds;
	enum rig_acts acts;
	int64_t head_rows; /* rows of logits at once; 0: as many as usual */
	int is_split;      /* two micro-batches */
};

/* Weights everywhere. Gradients that the first micro-batch writes start as NaN. */
static void prepare(struct rig *r)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		const struct model_tensor *tensor = &r->model->tensors[t];
		float *values = mem_alloc((size_t)tensor->count, sizeof(*values));

		assert_non_null(values);
		weights_of(values, r->model, tensor);
		rig_set_weight(r, t, values);
		memset(values, 0xff, (size_t)tensor->count * sizeof(*values));
		if (model_gradient_is_product(r->model, t))
			rig_upload(r, r->grad[t], values, tensor->count * 4);
		mem_free(values);
	}
}

/* Runs a micro-batch, and adds the losses of its pairs, by its token losses, to *sum. */
static void micro_run(struct rig *r, const struct micro *m, const json_t *test, enum head_mode mode,
        const struct way *way, double *sum)
{
	const json_t *model = model_entry(test), *want = json_object_get(model, "losses");
	const json_t *reference = json_object_get(model, "reference");
	struct device_batch batch = rig_load(r, &m->rows);
	struct stage_memory memory = rig_memory(r, 1 / (float)whole.pairs);
	const struct preference p = preference_of(test);
	const double settings[] = {p.kind, p.beta, p.label_smoothing, p.gamma, p.own, 0};
	double references[2 * PAIRS_MAX], sums[OBJECTIVE_SUMS_MAX] = {0};
	struct host_batch host = {.documents = 2 * m->pairs, .own = {NULL, m->first, m->first, references}};
	float losses[256];

	assert_true(m->rows.targets <= 256);
	for (int64_t i = 0; i < 2 * m->pairs; i++)
		references[i] = at(reference, (size_t)(2 * m->first_pair + i));
	rig_upload(r, r->own[1], m->first, (2 * m->pairs + 1) * (int64_t)sizeof(*m->first));
	rig_upload(r, r->own[2], m->first, 2 * m->pairs * (int64_t)sizeof(*m->first));
	rig_upload(r, r->own[3], references, 2 * m->pairs * (int64_t)sizeof(*references));
	memory.settings = settings;
	rig_run_loaded(r, losses, &batch, memory, mode, way->acts);
	for (int64_t t = 0; t < m->rows.targets; t++)
		if (!(fabs(losses[t] - at(want, (size_t)(m->first_target + t))) <= way->bounds.loss))
			fail_msg("token loss %lld is %.9g", (long long)t, losses[t]);
	objective_pairs.sums_add(sums, settings, &host, losses);
	*sum += sums[0];
}

static double norm_of(const json_t *tensors)
{
	double sum = 0;

	for (size_t i = 0; i < json_array_size(tensors); i++)
		sum += pow(at(entry(tensors, i), 2), 2);
	return sqrt(sum);
}

static void check_run(const struct model *model, const json_t *test, const struct way *way)
{
	const json_t *tensors = json_object_get(test, "tensors");
	const struct micro *micros = way->is_split ? parts : &whole;
	struct rig r;

	assert_int_equal(model->tensor_count, json_array_size(tensors));
	rig_open_for(&r, "host", model, way->bounds.dtype, whole.rows.tokens, whole.rows.targets, RIG_FILLED,
	        objective_pairs.head);
	if (way->head_rows)
		r.head_rows = way->head_rows;
	prepare(&r);
	for (int n = 1; n <= 2; n++) {
		double sum = 0;

		for (int i = 0; i <= way->is_split; i++) {
			r.first_gradient = n == 1 && i == 0;
			micro_run(&r, &micros[i], test, HEAD_TRAIN, way, &sum);
		}
		if (way->bounds.dtype == DTYPE_F32)
			assert_near(sum / (double)whole.pairs, number(test, "mean"), 1e-5, "loss");
		for (size_t i = 0; i < json_array_size(tensors); i++) {
			const char *name = json_string_value(entry(entry(tensors, i), 0));
			int t = model_find_tensor(model, name);

			assert_true(t >= 0);
			check_gradient(&r, t, entry(tensors, i), n, norm_of(tensors), &way->bounds);
		}
	}
	rig_check_guards(&r);
	rig_close(&r);
}

static struct model *model_of(const json_t *test)
{
	struct model *model;

	check_ok(model_open(&model, json_object_get(model_entry(test), "config"), "config.json"));
	return model;
}

static void test_case(void **state)
{
	const struct bounds f32 = {DTYPE_F32, 2e-5, 2e-5, 0.01}, bf16 = {DTYPE_BF16, 0.3, 0.15, 0.2};
	const struct way ways[] = {
	        {f32, RIG_RECOMPUTE, 0, 0},
	        {f32, RIG_KEEP, 5, 0}, /* texts and pairs end within chunks */
	        {f32, RIG_KEEP, 1, 1},
	        {f32, RIG_RECOMPUTE, 7, 1},
	};
	const json_t *test = *state;
	struct model *model = model_of(test);

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
		check_run(model, test, &ways[i]);
	if (preference_of(test).kind == PREFERENCE_SIGMOID)
		check_run(model, test, &(struct way){bf16, RIG_RECOMPUTE, 5, 0});
	model_close(model);
}

/* Losses alone leave the gradients as they are. */
static void test_losses_alone(void **state)
{
	const json_t *test = entry(json_object_get(golden, "cases"), 0);
	const struct way way = {{DTYPE_F32, 2e-5, 0, 0}, RIG_KEEP, 0, 0};
	struct model *model = model_of(test);
	double sum = 0;
	struct rig r;

	(void)state;
	rig_open_for(&r, "host", model, DTYPE_F32, whole.rows.tokens, whole.rows.targets, RIG_FILLED,
	        objective_pairs.head);
	prepare(&r);
	for (int t = 0; t < model->tensor_count; t++)
		r.grad[t] = DEV_NONE;
	micro_run(&r, &whole, test, HEAD_LOSS, &way, &sum);
	assert_near(sum / (double)whole.pairs, number(test, "mean"), 1e-5, "loss");
	rig_check_guards(&r);
	rig_close(&r);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_points), cmocka_unit_test(test_losses_alone)};
	char path[4096];
	int failed;

	snprintf(path, sizeof(path), "%s/tests/golden/preference.json", getenv("FERRY_SOURCE"));
	if (json_read_file(&golden, path, 16 << 20)) {
		fprintf(stderr, "%s\n", err_text());
		return 1;
	}
	micro_read(&whole, 0, (int64_t)json_array_size(json_object_get(golden, "pairs")));
	micro_read(&parts[0], 0, 1);
	micro_read(&parts[1], 1, whole.pairs - 1);
	parts[1].first_target = parts[0].rows.targets;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	failed += formula_cases_run(golden, "preference", test_case);
	rig_batch_free(&whole.rows);
	rig_batch_free(&parts[0].rows);
	rig_batch_free(&parts[1].rows);
	json_decref(golden);
	return failed;
}
