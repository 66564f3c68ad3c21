/* links: checkpoint host_cpu device_meta model_families model_blocks */
/* Golden models: losses and gradients equal those of PyTorch. */
#include "tests/model_rig.h"

#include "base/json.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/hf/hf_import.h"
#include "model/families/open.h"

#include <math.h>

static const char *const golden_names[] = {
        "llama2", "llama3", "qwen2", "qwen3", "mistral", "gpt2", "gpt_neox"};

/* ---- a golden model: the checkpoint, its rows, what PyTorch computed ---- */

struct golden {
	char dir[512];
	struct model *model;
	float **weights; /* [tensor], fp32 */
	json_t *ref;
	struct safetensors *tensors;
};

static const char *shared_dir(void)
{
	const char *dir = getenv("FERRY_SHARED");

	return dir && file_kind_of(dir) == FILE_DIR ? dir : NULL;
}

static void golden_path(char *path, size_t path_bytes, const struct golden *g, const char *name)
{
	snprintf(path, path_bytes, "%s/%s", g->dir, name);
}

static void golden_open(struct golden *g, const char *name)
{
	char path[600];
	struct hf_import *import;

	*g = (struct golden){0};
	snprintf(g->dir, sizeof(g->dir), "%s/golden/%s", shared_dir(), name);
	golden_path(path, sizeof(path), g, "hf");
	check_ok(model_open_path(&g->model, path));
	check_ok(hf_import_open(&import, path, g->model));
	g->weights = mem_alloc((size_t)g->model->tensor_count, sizeof(*g->weights));
	for (int t = 0; t < g->model->tensor_count; t++) {
		int64_t count = g->model->tensors[t].count;

		g->weights[t] = mem_alloc((size_t)count, sizeof(float));
		for (int64_t i = 0; i < count; i += PLANE_PIECE_COUNT)
			check_ok(hf_import_read(import, g->weights[t] + i, t, i,
			        count - i < PLANE_PIECE_COUNT ? count - i : PLANE_PIECE_COUNT));
	}
	hf_import_close(import);
	golden_path(path, sizeof(path), g, "ref.json");
	check_ok(json_read_file(&g->ref, path, 64 << 20));
	golden_path(path, sizeof(path), g, "ref.safetensors");
	check_ok(safetensors_open(&g->tensors, path));
}

static void golden_close(struct golden *g)
{
	for (int t = 0; t < g->model->tensor_count; t++)
		mem_free(g->weights[t]);
	mem_free(g->weights);
	safetensors_close(g->tensors);
	json_decref(g->ref);
	model_close(g->model);
}

/* A tensor of ref.safetensors as doubles. */
static double *golden_tensor(const struct golden *g, const char *name, int64_t count)
{
	const struct safetensors_tensor *t = safetensors_find(g->tensors, name);
	double *values = mem_alloc((size_t)count, sizeof(*values));
	float *narrow = mem_alloc((size_t)count, sizeof(*narrow));

	if (!t || t->count != count) {
		print_error("%s: ref.safetensors has no %s of %lld\n", g->dir, name, (long long)count);
		fail();
	}
	if (t->dtype == SAFETENSORS_F64) {
		check_ok(safetensors_read(g->tensors, t, values, 0, count * 8));
	} else {
		assert_int_equal(t->dtype, SAFETENSORS_F32);
		check_ok(safetensors_read(g->tensors, t, narrow, 0, count * 4));
		for (int64_t i = 0; i < count; i++)
			values[i] = narrow[i];
	}
	mem_free(narrow);
	return values;
}

static double number_at(const json_t *object, const char *a, const char *b, const char *c)
{
	json_t *value = json_object_get(json_object_get(json_object_get(object, a), b), c);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static int64_t read_array(int32_t *out, const json_t *array, int64_t max)
{
	int64_t count = (int64_t)json_array_size(array);

	assert_true(json_is_array(array) && count <= max);
	for (int64_t i = 0; i < count; i++)
		out[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
	return count;
}

enum { ROW_MAX = 1024 };

/* The rows of a file, each a document. */
static void golden_rows(const struct golden *g, struct rig_batch *b, const char *file)
{
	char path[600], *text, *line, *next;
	int32_t ids[ROW_MAX], labels[ROW_MAX];
	size_t len_bytes;

	golden_path(path, sizeof(path), g, file);
	check_ok(file_read_all(path, 16 << 20, &text, &len_bytes));
	for (line = text; line < text + len_bytes; line = next) {
		json_t *row;
		int64_t count;

		next = strchr(line, '\n');
		next = next ? next + 1 : line + strlen(line);
		check_ok(json_parse(&row, path, line, (size_t)(next - line)));
		count = read_array(ids, json_object_get(row, "input_ids"), ROW_MAX);
		assert_int_equal(read_array(labels, json_object_get(row, "labels"), ROW_MAX), count);
		rig_batch_add(b, ids, labels, count);
		json_decref(row);
	}
	mem_free(text);
}

static void rig_open_golden(
        struct rig *r, const struct golden *g, enum dtype dtype, const struct rig_batch *b)
{
	rig_open(r, "host", g->model, dtype, b->tokens, b->targets);
	for (int t = 0; t < g->model->tensor_count; t++)
		rig_set_weight(r, t, g->weights[t]);
}

/* ---- comparisons ---- */

static void near(const char *what, const struct golden *g, double got, double want, double bound)
{
	if (!(fabs(got - want) <= bound)) {
		print_error("%s: %s is %.9g, wanted %.9g within %g\n", g->dir, what, got, want, bound);
		fail();
	}
}

static double mean_of(const float *losses, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += losses[i];
	return sum / (double)count;
}

static double norm_of(const double *a, const double *b, int64_t count)
{
	double sum = 0;

	for (int64_t i = 0; i < count; i++)
		sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
	return sqrt(sum);
}

static double *grad_of_rig(struct rig *r, int tensor)
{
	int64_t count = r->model->tensors[tensor].count;
	float *narrow = mem_alloc((size_t)count, sizeof(*narrow));
	double *values = mem_alloc((size_t)count, sizeof(*values));

	rig_get_grad(r, tensor, narrow);
	for (int64_t i = 0; i < count; i++)
		values[i] = narrow[i];
	mem_free(narrow);
	return values;
}

/* Each tensor's gradient within `relative` of its norm or, `floor`, a part of the norm of all; and that norm
 * itself. */
static void check_gradients(
        struct rig *r, const struct golden *g, double relative, double floor, double norm_bound)
{
	double all = number_at(g->ref, "eval", "float64", "grad_norm"), sum = 0;
	char name[256];

	for (int t = 0; t < r->model->tensor_count; t++) {
		int64_t count = r->model->tensors[t].count;
		double *got = grad_of_rig(r, t), *want, norm, distance;

		snprintf(name, sizeof(name), "grad.%s", r->model->tensors[t].name);
		want = golden_tensor(g, name, count);
		norm = norm_of(want, NULL, count);
		distance = norm_of(got, want, count);
		near(name, g, distance, 0, relative * (norm > floor * all ? norm : floor * all));
		sum += norm_of(got, NULL, count) * norm_of(got, NULL, count);
		mem_free(got);
		mem_free(want);
	}
	near("grad_norm", g, sqrt(sum), all, norm_bound * all);
}

static void check_losses(const struct golden *g, const char *part, const float *losses, int64_t targets,
        double mean_bound, double token_bound)
{
	const json_t *ref = json_object_get(json_object_get(g->ref, part), "float64");
	const json_t *row0 = json_object_get(ref, "row0_token_losses");
	double want = json_number_value(json_object_get(ref, "loss_mean"));
	int64_t next = 0;

	near(part, g, mean_of(losses, targets), want, mean_bound * want);
	for (size_t i = 0; i < json_array_size(row0); i++) {
		double token = json_number_value(json_array_get(row0, i));

		if (token != 0)
			near("token loss", g, losses[next++], token, token_bound);
	}
}

static void check_logits(struct rig *r, const struct golden *g, const char *part, const struct rig_batch *b)
{
	const json_t *at = json_object_get(json_object_get(g->ref, part), "logit_positions");
	int64_t V = r->model->config.V, count = (int64_t)json_array_size(at);
	int32_t rows[64];
	char name[64];
	float *got = mem_alloc((size_t)(count * V), sizeof(*got));
	double *want, largest = 0;

	read_array(rows, at, 64);
	snprintf(name, sizeof(name), "%s.logits.float64", part);
	want = golden_tensor(g, name, count * V);
	rig_logits(r, got, rows, count, b->tokens);
	for (int64_t i = 0; i < count * V; i++)
		largest = fmax(largest, fabs(want[i]));
	for (int64_t i = 0; i < count * V; i++)
		near("logit", g, got[i], want[i], 1e-5 * largest);
	mem_free(got);
	mem_free(want);
}

/* ---- tests ---- */

/* Eval rows, all as one micro-batch: losses, logits, all gradients. */
static void golden_eval_f32(struct golden *g)
{
	struct rig_batch b = {0};
	struct rig r;
	float *losses;

	golden_rows(g, &b, "eval.jsonl");
	losses = mem_alloc((size_t)b.targets, sizeof(*losses));
	rig_open_golden(&r, g, DTYPE_F32, &b);
	rig_run(&r, losses, &b, HEAD_TRAIN, RIG_KEEP, 1 / (float)b.targets);
	check_losses(g, "eval", losses, b.targets, 1e-6, 2e-5);
	check_gradients(&r, g, 2e-5, 0.01, 5e-6);
	check_logits(&r, g, "eval", &b);
	rig_check_guards(&r);
	rig_close(&r);
	rig_batch_free(&b);
	mem_free(losses);
}

static void golden_eval_bf16(struct golden *g)
{
	struct rig_batch b = {0};
	struct rig r;
	float *losses;

	golden_rows(g, &b, "eval.jsonl");
	losses = mem_alloc((size_t)b.targets, sizeof(*losses));
	rig_open_golden(&r, g, DTYPE_BF16, &b);
	rig_run(&r, losses, &b, HEAD_TRAIN, RIG_KEEP, 1 / (float)b.targets);
	check_losses(g, "eval", losses, b.targets, 2e-3, 0.2);
	check_gradients(&r, g, 0.06, 0.01, 0.02);
	rig_check_guards(&r);
	rig_close(&r);
	rig_batch_free(&b);
	mem_free(losses);
}

static void golden_single(struct golden *g)
{
	struct rig_batch b = {0};
	struct rig r;
	float *losses;

	golden_rows(g, &b, "single.jsonl");
	losses = mem_alloc((size_t)b.targets, sizeof(*losses));
	rig_open_golden(&r, g, DTYPE_F32, &b);
	rig_run(&r, losses, &b, HEAD_LOSS, RIG_RECOMPUTE, 1);
	check_losses(g, "single", losses, b.targets, 1e-6, 2e-5);
	check_logits(&r, g, "single", &b);
	rig_close(&r);
	rig_batch_free(&b);
	mem_free(losses);
}

/* Documents of one row, from ref.json. */
static void golden_packed(struct golden *g)
{
	const json_t *packed = json_object_get(g->ref, "packed");
	int32_t ids[ROW_MAX], labels[ROW_MAX], starts[16];
	int64_t count = read_array(ids, json_object_get(packed, "input_ids"), ROW_MAX);
	int64_t documents = read_array(starts, json_object_get(packed, "document_starts"), 16);
	struct rig_batch b = {0};
	struct rig r;
	float *losses;

	read_array(labels, json_object_get(packed, "labels"), ROW_MAX);
	for (int64_t d = 0; d < documents; d++) {
		int64_t stop = d + 1 < documents ? starts[d + 1] : count;

		rig_batch_add(&b, ids + starts[d], labels + starts[d], stop - starts[d]);
	}
	losses = mem_alloc((size_t)b.targets, sizeof(*losses));
	rig_open_golden(&r, g, DTYPE_F32, &b);
	rig_run(&r, losses, &b, HEAD_LOSS, RIG_KEEP, 1);
	near("packed", g, mean_of(losses, b.targets), number_at(g->ref, "packed", "float64", "loss_mean"),
	        1e-6 * number_at(g->ref, "packed", "float64", "loss_mean"));
	rig_close(&r);
	rig_batch_free(&b);
	mem_free(losses);
}

/* Gradients after recomputing each block are those after keeping it, to the bit. */
static void golden_recompute(struct golden *g, enum dtype dtype)
{
	struct rig_batch b = {0};
	struct rig keep, again;
	float *losses[2];

	golden_rows(g, &b, "eval.jsonl");
	losses[0] = mem_alloc((size_t)b.targets, sizeof(float));
	losses[1] = mem_alloc((size_t)b.targets, sizeof(float));
	rig_open_golden(&keep, g, dtype, &b);
	rig_open_golden(&again, g, dtype, &b);
	rig_run(&keep, losses[0], &b, HEAD_TRAIN, RIG_KEEP, 1);
	rig_run(&again, losses[1], &b, HEAD_TRAIN, RIG_RECOMPUTE, 1);
	assert_memory_equal(losses[0], losses[1], (size_t)b.targets * 4);
	for (int t = 0; t < g->model->tensor_count; t++) {
		size_t bytes = (size_t)g->model->tensors[t].count * 4;
		float *a = mem_alloc(bytes, 1), *c = mem_alloc(bytes, 1);

		rig_get_grad(&keep, t, a);
		rig_get_grad(&again, t, c);
		assert_memory_equal(a, c, bytes);
		mem_free(a);
		mem_free(c);
	}
	rig_check_guards(&again);
	rig_close(&keep);
	rig_close(&again);
	rig_batch_free(&b);
	mem_free(losses[0]);
	mem_free(losses[1]);
}

/* One row per micro-batch, gradients added up, is the batch of all rows. */
static void golden_micro_batches(struct golden *g)
{
	struct rig_batch all = {0};
	struct rig r;
	float *losses;

	golden_rows(g, &all, "eval.jsonl");
	losses = mem_alloc((size_t)all.targets, sizeof(*losses));
	rig_open_golden(&r, g, DTYPE_F32, &all);
	for (int64_t first = 0; first < all.tokens; first = all.doc_end[first]) {
		struct rig_batch b = {0};
		int64_t count = all.doc_end[first] - first;
		int32_t labels[ROW_MAX];

		for (int64_t i = 0; i < count; i++)
			labels[i] = -100;
		for (int64_t t = 0; t < all.targets; t++)
			if (all.target_row[t] >= first && all.target_row[t] < first + count)
				labels[all.target_row[t] + 1 - first] = all.target_label[t];
		rig_batch_add(&b, all.id + first, labels, count);
		rig_run(&r, losses, &b, HEAD_TRAIN, RIG_KEEP, 1 / (float)all.targets);
		rig_batch_free(&b);
	}
	check_gradients(&r, g, 2e-5, 0.01, 5e-6);
	rig_close(&r);
	rig_batch_free(&all);
	mem_free(losses);
}

static void test_golden(void **state)
{
	struct golden g;

	golden_open(&g, *state);
	golden_eval_f32(&g);
	golden_single(&g);
	golden_packed(&g);
	golden_micro_batches(&g);
	golden_recompute(&g, DTYPE_F32);
	golden_recompute(&g, DTYPE_BF16);
	golden_eval_bf16(&g);
	golden_close(&g);
}

static void test_golden_absent(void **state)
{
	(void)state;
	print_message("SKIPPED test_model: ../shared absent\n");
	skip();
}

int main(void)
{
	enum { COUNT = sizeof(golden_names) / sizeof(*golden_names) };
	struct CMUnitTest tests[COUNT] = {0};
	const struct CMUnitTest absent[] = {cmocka_unit_test(test_golden_absent)};

	for (int i = 0; i < COUNT; i++)
		tests[i] = (struct CMUnitTest){
		        golden_names[i], test_golden, NULL, NULL, (void *)golden_names[i]};
	return shared_dir() ? cmocka_run_group_tests(tests, NULL, NULL)
	                    : cmocka_run_group_tests(absent, NULL, NULL);
}
