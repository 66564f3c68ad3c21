/* links: cli */
/* gpt-oss: experts in MXFP4, as they are published, have the numbers of a model with the same values in bf16;
 * what does not fit is refused by name. Sinks and biases of experts train and freeze like other tensors. */
#include "tests/files_made.h"
#include "tests/run_fixture.h"

#include "checkpoint/file/safetensors.h"

#include <math.h>

/* ---- as transformers expands them ---- */

static void train(const char *model, const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s data=%s/rows.jsonl output_dir=%s/%s learning_rate=1e-2 max_steps=3 "
	        "per_device_train_batch_size=2 threads=2 logging_steps=1 overwrite_output_dir=on %s",
	        model, work_dir, work_dir, out, more);
}

/* Bytes of weights in host memory beside an adapter. */
static int64_t plan_bytes(const char *model)
{
	int64_t bytes;
	json_t *plan;

	assert_ferry_json(
	        &plan, "plan model=%s device=host vram_budget=off cpu_offload=on lora_rank=2 --json", model);
	bytes = json_integer_value(
	        json_object_get(json_object_get(json_object_get(plan, "memory"), "host"), "weights_bytes"));
	json_decref(plan);
	return bytes;
}

static void test_published(void **state)
{
	static const char *const ways[] = {"trainable=.*q_proj.*", "trainable=.*down_proj.*",
	        "lora_rank=2 cpu_offload=on vram_budget=off",
	        "lora_rank=2 base_format=bf16 compute_dtype=fp32", "compute_dtype=fp32",
	        "cpu_offload=on vram_budget=off", "lora_rank=2", "lora_rank=2 base_format=nf4", "ranks=2",
	        "lora_rank=2 ranks=2", "lora_rank=2 ranks=2 load=rank0_only"};
	const char *source = getenv("FERRY_SOURCE");
	char plain[500], coded[500], path[400], other[400], *config;
	size_t len;

	(void)state;
	snprintf(plain, sizeof(plain), "%s/tests/golden/mxfp4/plain", source ? source : ".");
	snprintf(coded, sizeof(coded), "%s/tests/golden/mxfp4/coded", source ? source : ".");
	write_rows("rows.jsonl", 23, 7);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		train(plain, "a", ways[i]);
		train(coded, "b", ways[i]);
		assert_same_runs("a", "b", ways[i]);
	}
	assert_true(plan_bytes(plain) - plan_bytes(coded) > 50000); /* of 73728 for bf16 */
	train(coded, "c", "lora_rank=2 lr_scheduler_type=constant max_steps=2");
	assert_ferry(0, NULL,
	        "train model=%s data=%s/rows.jsonl output_dir=%s/c max_steps=3 lr_scheduler_type=constant "
	        "resume_from_checkpoint=auto "
	        "lora_rank=2 learning_rate=1e-2 per_device_train_batch_size=2 threads=2",
	        coded, work_dir, work_dir);
	train(coded, "b", "lora_rank=2 lr_scheduler_type=constant");
	path_of(path, "b/model/model.safetensors");
	path_of(other, "c/model/model.safetensors");
	assert_same_files(path, other, "resumed");
	assert_ferry(0, NULL, "export checkpoint=%s/b/checkpoint-000003 output_dir=%s/d", work_dir, work_dir);
	path_of(other, "d/model.safetensors");
	assert_same_files(path, other, "exported");
	path_of(path, "b/model/config.json");
	config = read_file(path, &len);
	assert_null(strstr(config, "quantization_config"));
	mem_free(config);
}

/* ---- files of other sizes, and damaged ones ---- */

/* A model whose experts are codes or their values. */
static void model_write(const struct files *f, const char *name)
{
	char command[1400];

	snprintf(command, sizeof(command), "rm -rf %s/%s && mkdir %s/%s && cp %s/made/config.json %s/%s",
	        work_dir, name, work_dir, name, work_dir, work_dir, name);
	assert_int_equal(system(command), 0);
	files_write(f, name);
}

/* Random codes of t, [E, in, out], and their values, bf16. */
static void experts_make(struct files *coded, struct files *plain, const struct safetensors_tensor *t)
{
	int64_t E = t->shape[0], in = t->shape[1], out = t->shape[2];
	uint8_t *blocks =
	        files_add(coded, t->name, "_blocks", SAFETENSORS_U8, 4, (int64_t[]){E, out, in / 32, 16});
	uint8_t *scales =
	        files_add(coded, t->name, "_scales", SAFETENSORS_U8, 3, (int64_t[]){E, out, in / 32});
	uint16_t *values = files_add(plain, t->name, "", SAFETENSORS_BF16, 3, t->shape);
	static const float magnitudes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

	for (int64_t i = 0; i < E * out * in / 2; i++)
		blocks[i] = (uint8_t)rng_below(3, 1, (uint64_t)i, 256);
	for (int64_t i = 0; i < E * out * in / 32; i++)
		scales[i] = (uint8_t)(118 + rng_below(3, 2, (uint64_t)i, 6));
	for (int64_t i = 0; i < E * out * in; i++) {
		int code = blocks[i / 2] >> (i % 2 ? 4 : 0) & 15;
		float value = ldexpf(magnitudes[code & 7], scales[i / 32] - 127);

		values[(i / in / out * in + i % in) * out + i / in % out] =
		        bf16_from_f32(code & 8 ? -value : value);
	}
}

/* Makes "made", and in `coded` and `plain` its experts with other numbers. */
static void model_make(struct files *coded, struct files *plain, int hidden, int inner)
{
	struct safetensors *made;
	char path[400];

	write_file("made.json",
	        "{\"model_type\":\"gpt_oss\",\"vocab_size\":64,\"hidden_size\":%d,\"intermediate_size\":%d,"
	        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
	        "\"num_local_experts\":3,\"num_experts_per_tok\":2,\"sliding_window\":4,"
	        "\"max_position_embeddings\":128}",
	        hidden, inner);
	write_rows("rows.jsonl", 23, 7);
	assert_ferry(0, NULL, "init config=%s/made.json output_dir=%s/made overwrite_output_dir=on", work_dir,
	        work_dir);
	path_of(path, "made/model.safetensors");
	assert_int_equal(safetensors_open(&made, path), 0);
	for (int64_t i = 0; i < made->tensor_count; i++) {
		const struct safetensors_tensor *t = &made->tensors[i];

		if (t->rank == 3) {
			experts_make(coded, plain, t);
			continue;
		}
		for (int n = 0; n < 2; n++)
			assert_int_equal(safetensors_read(made, t,
			                         files_add(n ? plain : coded, t->name, "", t->dtype, t->rank,
			                                 t->shape),
			                         0, t->len_bytes),
			        0);
	}
	safetensors_close(made);
}

static double loss_of(const char *name)
{
	json_t *said;
	double loss;

	assert_ferry_json(&said, "eval model=%s/%s data=%s/rows.jsonl compute_dtype=fp32 --json", work_dir,
	        name, work_dir);
	loss = json_number_value(json_object_get(said, "loss"));
	json_decref(said);
	return loss;
}

/* Matrices of several pieces, and pieces that end within a matrix and within a row. */
static void test_pieces(void **state)
{
	static const int sizes[][2] = {{32, 32}, {2048, 160}, {96, 4096}};
	static const char *const ways[] = {"", "lora_rank=2", "trainable=.*o_proj.*"};
	static struct files coded, plain;
	char plain_dir[400], coded_dir[400];

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		model_make(&coded, &plain, sizes[i][0], sizes[i][1]);
		model_write(&coded, "coded");
		model_write(&plain, "plain");
		/* matrices of codes lie the other way round, so products have another order of sums */
		assert_true(fabs(loss_of("coded") - loss_of("plain")) < 1e-7);
		path_of(plain_dir, "plain");
		path_of(coded_dir, "coded");
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			train(plain_dir, "a", ways[w]);
			train(coded_dir, "b", ways[w]);
			assert_same_runs("a", "b", ways[w]);
		}
		files_free(&coded);
		files_free(&plain);
	}
}

static void assert_refused(const struct files *f, const char *said)
{
	model_write(f, "damaged");
	assert_ferry(2, NULL, "eval model=%s/damaged data=%s/rows.jsonl", work_dir, work_dir);
	if (!strstr(ferry_said(), said))
		fail_msg("wanted \"%s\": %s", said, ferry_said());
}

static void test_damaged(void **state)
{
	static struct files f, plain;
	struct safetensors_decl was;
	int at;

	(void)state;
	model_make(&f, &plain, 32, 32);
	at = files_find(&f, "down_proj_scales");
	((uint8_t *)f.data[at])[5] = 255;
	assert_refused(&f, "down_proj_scales\" holds nan at element 5; the file is damaged");
	((uint8_t *)f.data[at])[5] = 120;
	was = f.decls[at];
	f.decls[at].dtype = SAFETENSORS_I8;
	assert_refused(&f, "down_proj_scales\" is not U8");
	f.decls[at] = was;
	f.decls[at].rank = 2;
	f.decls[at].shape[1] *= f.decls[at].shape[2];
	assert_refused(&f, "down_proj_scales\" has shape [3, 32]");
	f.decls[at] = was;
	strcpy(f.names[at], "model.layers.0.mlp.experts.other_proj_scales");
	assert_refused(&f, "needs one that ends in _blocks, and none is there");
	strcpy(f.names[at], "model.layers.0.mlp.experts.down_proj_others");
	assert_refused(
	        &f, "down_proj_blocks\" belongs to quantized weights of a kind that ferry does not read");
	strcpy(f.names[at], "model.layers.0.mlp.experts.down_proj_scales");
	at = files_find(&f, "down_proj_blocks");
	f.decls[at].shape[2] *= 2;
	f.decls[at].shape[3] /= 2;
	assert_refused(&f, "down_proj_blocks\" has not the shape [experts, rows, blocks, 16]");
	f.decls[at].shape[2] /= 2;
	f.decls[at].shape[3] *= 2;
	at = files_find(&f, "gate_up_proj_blocks");
	strcpy(f.names[at], "model.layers.0.mlp.experts.up_gate_proj_blocks");
	strcpy(f.names[files_find(&f, "gate_up_proj_scales")],
	        "model.layers.0.mlp.experts.up_gate_proj_scales");
	assert_refused(
	        &f, "up_gate_proj_blocks\" belongs to quantized weights of a kind that ferry does not read");
	files_free(&f);
	files_free(&plain);
}

/* ---- what trains ---- */

/* Whether a run changed the tensors whose names have this part, all of them, and no others. */
static void assert_only_moved(const char *was_dir, const char *run, const char *part)
{
	struct safetensors *was, *now;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s/model.safetensors", work_dir, was_dir);
	assert_int_equal(safetensors_open(&was, path), 0);
	snprintf(path, sizeof(path), "%s/%s/model/model.safetensors", work_dir, run);
	assert_int_equal(safetensors_open(&now, path), 0);
	assert_int_equal(was->tensor_count, now->tensor_count);
	for (int64_t i = 0; i < was->tensor_count; i++) {
		const struct safetensors_tensor *a = &was->tensors[i], *b = safetensors_find(now, a->name);
		char *one = malloc((size_t)a->len_bytes), *other = malloc((size_t)a->len_bytes);

		assert_non_null(b);
		assert_int_equal(a->len_bytes, b->len_bytes);
		assert_int_equal(safetensors_read(was, a, one, 0, a->len_bytes), 0);
		assert_int_equal(safetensors_read(now, b, other, 0, a->len_bytes), 0);
		if (!memcmp(one, other, (size_t)a->len_bytes) != !strstr(a->name, part))
			fail_msg("trainable %s: %s %s", part, a->name,
			        strstr(a->name, part) ? "stayed" : "moved");
		free(one);
		free(other);
	}
	safetensors_close(was);
	safetensors_close(now);
}

static void test_frozen(void **state)
{
	static const char *const parts[] = {
	        "sinks", "gate_up_proj_bias", "down_proj_bias", "router", "experts.down_proj"};
	static struct files coded, plain;

	(void)state;
	model_make(&coded, &plain, 32, 32);
	model_write(&plain, "plain");
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		assert_ferry(0, NULL,
		        "train model=%s/plain data=%s/rows.jsonl output_dir=%s/a trainable=.*%s.* "
		        "max_steps=3 "
		        "learning_rate=1e-1 overwrite_output_dir=on",
		        work_dir, work_dir, work_dir, parts[i]);
		assert_only_moved("plain", "a", parts[i]);
	}
	files_free(&coded);
	files_free(&plain);
}

/* Names of experts are refused, and all-linear leaves them out; a router is adapted by its weight. */
static void test_adapters(void **state)
{
	static const char *const names[][2] = {{"gate_up_proj", "q_proj, k_proj, v_proj, o_proj"},
	        {"down_proj", "q_proj, k_proj, v_proj, o_proj"},
	        {"experts", "q_proj, k_proj, v_proj, o_proj"},
	        {"router", "lora_target_parameters, as model.layers.0.mlp.router.weight"},
	        {"sinks", "q_proj, k_proj, v_proj, o_proj"}};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		assert_ferry(2, NULL,
		        "train model=%s/plain data=%s/rows.jsonl output_dir=%s/no lora_rank=2 "
		        "lora_target_modules=%s",
		        work_dir, work_dir, work_dir, names[i][0]);
		assert_non_null(strstr(ferry_said(), names[i][1]));
	}
}

static int begin(void **state)
{
	(void)state;
	ferry_run_begin("gpt_oss");
	return 0;
}

static int end(void **state)
{
	(void)state;
	ferry_run_end();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_pieces),
	        cmocka_unit_test(test_damaged), cmocka_unit_test(test_frozen),
	        cmocka_unit_test(test_adapters)};

	return cmocka_run_group_tests(tests, begin, end);
}
