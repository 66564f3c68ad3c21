/* links: model_families model_blocks host_cpu device_meta */
/* also: usual */
/* Single stages: properties of attention, chunks of the head, bytes touched, sizes. */
#include "tests/model_rig.h"
#include "tests/model_text.h"

#include "base/json.h"

#include <math.h>

/* Cases that golden models are too small for: several chunks of the head, no target at all, the bytes that
 * a stage touches. */

#define LLAMA                                                                                                \
	"\"model_type\":\"llama\",\"vocab_size\":17,\"hidden_size\":8,\"intermediate_size\":12,"             \
	"\"num_hidden_layers\":1,\"num_attention_heads\":2,\"initializer_range\":0.5"

#define TINY(type)                                                                                           \
	"\"model_type\":\"" type "\",\"vocab_size\":17,\"hidden_size\":16,\"intermediate_size\":12,"         \
	"\"num_hidden_layers\":2,\"num_attention_heads\":4,\"pad_token_id\":null,\"initializer_range\":0.5"

static const char *const configs[] = {
        "{" LLAMA "}",
        "{" LLAMA ",\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true}",
        "{\"model_type\":\"qwen3\",\"vocab_size\":17,\"hidden_size\":8,\"intermediate_size\":12,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":6}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":17,\"n_embd\":8,\"n_head\":2,\"n_layer\":2,\"n_positions\":"
        "90}",
        "{\"model_type\":\"gpt2\",\"vocab_size\":17,\"n_embd\":8,\"n_head\":2,\"n_layer\":1,\"n_inner\":200}",
        "{\"model_type\":\"gpt_neox\",\"vocab_size\":17,\"hidden_size\":16,\"intermediate_size\":12,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"rotary_pct\":0.5}",
        "{\"model_type\":\"gpt_neox\",\"vocab_size\":17,\"hidden_size\":16,\"intermediate_size\":12,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"use_parallel_residual\":false}",
        "{" TINY("phi3") ",\"num_key_value_heads\":2,\"sliding_window\":7,\"partial_rotary_factor\":0.5}",
        "{" TINY("olmo2") ",\"num_key_value_heads\":2}",
        "{" TINY("exaone4") ",\"num_key_value_heads\":2,\"sliding_window\":7,\"sliding_window_pattern\":2}",
        "{" TINY("phi") "}",
        "{" TINY("hunyuan_v1_dense") ",\"num_key_value_heads\":2}",
        "{" TINY("ministral3") ",\"num_key_value_heads\":2,\"head_dim\":4,\"rope_parameters\":{"
                               "\"original_max_position_embeddings\":9,\"llama_4_scaling_beta\":0.5}}",
        "{" TINY("qwen3_5_text") ",\"num_key_value_heads\":2,\"head_dim\":8,\"full_attention_interval\":2,"
                                 "\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
                                 "\"linear_key_head_dim\":3,\"linear_value_head_dim\":5,"
                                 "\"linear_conv_kernel_dim\":3,\"rms_norm_eps\":0.01}",
        "{" TINY("muse_glimmer_text") ",\"num_key_value_heads\":2,\"head_dim\":6,\"sliding_window\":7}",
        "{" TINY("gemma4_text") ",\"num_key_value_heads\":2,\"head_dim\":4,\"global_head_dim\":6,\"sliding_"
                                "window\":7,\"hidden_size_per_layer_input\":3,\"vocab_size_per_layer_"
                                "input\":50,\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true,"
                                "\"layer_types\":[\"full_attention\",\"full_attention\"]}",
        "{" TINY("gemma4_unified_text") ",\"num_key_value_heads\":2,\"head_dim\":4,\"global_head_dim\":6,"
                                        "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":1}",
        "{" TINY(
                "lfm2") ",\"num_key_value_heads\":2,\"conv_bias\":true,\"conv_L_cache\":5,\"full_attn_idxs\":"
                        "[1],\"block_auto_adjust_ff_dim\":false}",
        "{" TINY("mixtral") ",\"num_key_value_heads\":2,\"num_local_experts\":5,\"num_experts_per_tok\":3}",
        "{" TINY("qwen2_moe") ",\"num_key_value_heads\":2,\"num_experts\":5,\"num_experts_per_tok\":2,"
                              "\"moe_intermediate_size\":6,\"shared_expert_intermediate_size\":7,"
                              "\"mlp_only_layers\":[0]}",
        "{" TINY("glm4_moe") ",\"num_key_value_heads\":2,\"n_routed_experts\":6,\"num_experts_per_tok\":2,"
                             "\"moe_intermediate_size\":6,\"first_k_dense_replace\":1,\"head_dim\":4}",
        "{" TINY("deepseek_v3") ",\"q_lora_rank\":5,\"kv_lora_rank\":6,\"qk_nope_head_dim\":3,"
                                "\"qk_rope_head_dim\":4,\"v_head_dim\":9,\"n_routed_experts\":6,"
                                "\"num_experts_per_tok\":2,\"moe_intermediate_size\":6,\"n_group\":2,"
                                "\"topk_group\":1,\"first_k_dense_replace\":1,\"attention_bias\":true}",
        "{" TINY("gemma4_text") ",\"num_key_value_heads\":2,\"head_dim\":4,\"global_head_dim\":6,"
                                "\"hidden_size_per_layer_input\":0,\"enable_moe_block\":true,\"num_experts\":"
                                "5,\"top_k_experts\":2,"
                                "\"moe_intermediate_size\":6}",
};
enum { CONFIG_COUNT = sizeof(configs) / sizeof(*configs) };

static void set_weights(struct rig *r)
{
	for (int t = 0; t < r->model->tensor_count; t++) {
		int64_t count = r->model->tensors[t].count;
		float *values = mem_alloc((size_t)count, sizeof(*values));

		for (int64_t i = 0; i < count; i++)
			values[i] = model_init_value(r->model, t, i, 3);
		rig_set_weight(r, t, values);
		mem_free(values);
	}
}

/* `documents` of 50 tokens; every `every`-th token is a target. */
static void make_batch(struct rig_batch *b, int64_t documents, int every, uint64_t seed)
{
	for (int64_t d = 0; d < documents; d++) {
		int32_t ids[50], labels[50];

		for (int i = 0; i < 50; i++) {
			ids[i] = (int32_t)rng_below(seed, (uint64_t)d, (uint64_t)i, 17);
			labels[i] = every && i % every == 0 ? ids[i] : -100;
		}
		rig_batch_add(b, ids, labels, 50);
	}
}

/* A state of the delta rule cannot go back to an earlier token. It is kept in fp32, the window of the
 * convolution in the compute dtype, for each text; each begins at a multiple of 256 bytes. */
static void test_delta_state(void **state)
{
	const struct cache_shape shape = {.rows = 60, .text_rows = 20, .pass_tokens = 8}, none = {0};
	struct model *model = model_from(
	        "{" TINY("qwen3_5_text") ",\"num_key_value_heads\":2,\"head_dim\":8,"
	                                 "\"full_attention_interval\":2,\"linear_num_key_heads\":2,"
	                                 "\"linear_num_value_heads\":4,\"linear_key_head_dim\":8,"
	                                 "\"linear_value_head_dim\":16,"
	                                 "\"linear_conv_kernel_dim\":3}");
	int delta = model->groups[1].first_stage;

	(void)state;
	assert_int_equal(model->stages[delta].kind, STAGE_DELTA);
	assert_int_equal(model_state_bytes(model, delta, DTYPE_BF16, &shape),
	        3 * 4 * 8 * 16 * 4 + 1280); /* 3 x 2 x 96 bf16 are 1152 bytes */
	assert_int_equal(model_state_bytes(model, delta, DTYPE_F32, &none), 0);
	assert_int_equal(model_state_goes_back(model, &shape, 10, 10), 1);
	assert_int_equal(model_state_goes_back(model, &shape, 10, 9), 0);
	model_close(model);
}

/* How many rows that is: of the host 512 in no more than 256 MiB, of a GPU 2048 in no more than 512 MiB. */
static void test_head_rows(void **state)
{
	static const struct {
		int64_t V, host, cuda;
	} rows[] = {{17, 4096, 4096}, {4096, 2048, 2048}, {32000, 512, 2048}, {50257, 512, 2048},
	        {65536, 512, 2048}, {128256, 512, 1024}, {151936, 384, 832}, {262144, 256, 512},
	        {1 << 30, 64, 64}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(
		        model_head_rows(rows[i].V, device_facts_of(DEVICE_HOST)->piece), rows[i].host);
		assert_int_equal(
		        model_head_rows(rows[i].V, device_facts_of(DEVICE_CUDA)->piece), rows[i].cuda);
	}
}

/* A micro-batch with targets for several chunks of the head gives the same as its parts. */
static void test_chunks(void **state)
{
	struct model *model = model_from(configs[0]);
	struct rig_batch all = {0};
	struct rig whole, parts;
	float *losses, *part_losses;
	int64_t done = 0, rows;
	int head = model->group_count - 1;

	(void)state;
	make_batch(&all, 120, 1, 1);
	/* more than a chunk: scratch does not grow with the last of them */
	rows = model_head_rows(model->config.V, device_facts_of(DEVICE_HOST)->piece);
	assert_true(rows < all.targets);
	assert_true(model_scratch_bytes(model, head, DTYPE_F32, all.tokens, all.targets, rows) ==
	            model_scratch_bytes(model, head, DTYPE_F32, all.tokens, rows, rows));
	losses = mem_alloc((size_t)all.targets, sizeof(*losses));
	part_losses = mem_alloc((size_t)all.targets, sizeof(*losses));
	rig_open(&whole, "host", model, DTYPE_F32, all.tokens, all.targets);
	rig_open(&parts, "host", model, DTYPE_F32, all.tokens, all.targets);
	set_weights(&whole);
	set_weights(&parts);
	rig_run(&whole, losses, &all, HEAD_TRAIN, RIG_KEEP, 1e-3f);
	for (int64_t d = 0; d < 120; d += 40) {
		struct rig_batch b = {0};

		for (int64_t i = d; i < d + 40; i++)
			rig_batch_add(&b, all.id + 50 * i, all.id + 50 * i, 50);
		rig_run(&parts, part_losses + done, &b, HEAD_TRAIN, RIG_KEEP, 1e-3f);
		done += b.targets;
		rig_batch_free(&b);
	}
	assert_int_equal(done, all.targets);
	for (int64_t i = 0; i < done; i++)
		assert_true(fabs(losses[i] - part_losses[i]) <= 1e-5);
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t count = model->tensors[t].count;
		float *a = mem_alloc((size_t)count, sizeof(*a)), *b = mem_alloc((size_t)count, sizeof(*b));
		double apart = 0, norm = 0;

		rig_get_grad(&whole, t, a);
		rig_get_grad(&parts, t, b);
		for (int64_t i = 0; i < count; i++) {
			apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
			norm += (double)b[i] * b[i];
		}
		assert_true(norm > 0);
		assert_true(sqrt(apart) <= 1e-5 * sqrt(norm));
		mem_free(a);
		mem_free(b);
	}
	rig_check_guards(&whole);
	rig_close(&whole);
	rig_close(&parts);
	rig_batch_free(&all);
	mem_free(losses);
	mem_free(part_losses);
	model_close(model);
}

/* Nothing to learn from: the gradient of the stream is zero, so is every other. */
static void test_no_target(void **state)
{
	(void)state;
	for (int c = 0; c < CONFIG_COUNT; c++) {
		struct model *model = model_from(configs[c]);
		struct rig_batch b = {0};
		struct rig r;

		make_batch(&b, 1, 0, 2);
		assert_int_equal(b.targets, 0);
		rig_open(&r, "host", model, DTYPE_BF16, b.tokens, 1);
		set_weights(&r);
		rig_run(&r, NULL, &b, HEAD_TRAIN, RIG_KEEP, 1);
		for (int t = 0; t < model->tensor_count; t++) {
			int64_t count = model->tensors[t].count;
			float *grad = mem_alloc((size_t)count, sizeof(*grad));

			rig_get_grad(&r, t, grad);
			for (int64_t i = 0; i < count; i++)
				assert_true(grad[i] == 0);
			mem_free(grad);
		}
		rig_close(&r);
		rig_batch_free(&b);
		model_close(model);
	}
}

/* The first product of a gradient overwrites all old content, and later ones add to it. The result is the
 * same as with zeros and additions. */
static void test_first_gradient(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * CONFIG_COUNT; i++) {
		struct model *model = model_from(configs[i / 2]);
		enum dtype dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32;
		struct rig_batch b = {0};
		struct rig added, written;
		float *losses;
		int products = 0;

		make_batch(&b, i / 2 ? 2 : 120, 1, 2); /* of the first several chunks of the head */
		losses = mem_alloc((size_t)b.targets, sizeof(*losses));
		rig_open(&added, "host", model, dtype, b.tokens, b.targets);
		rig_open(&written, "host", model, dtype, b.tokens, b.targets);
		set_weights(&added);
		set_weights(&written);
		for (int t = 0; t < model->tensor_count; t++) {
			int64_t count = model->tensors[t].count;
			float *nan = mem_alloc((size_t)count, sizeof(*nan));

			for (int64_t j = 0; j < count; j++)
				nan[j] = NAN;
			if (model_gradient_is_product(model, t))
				rig_upload(&written, written.grad[t], nan, count * 4);
			products += model_gradient_is_product(model, t);
			mem_free(nan);
		}
		assert_true(products >= 4 * model->config.L + 1);
		for (int n = 0; n < 2; n++) {
			written.first_gradient = !n;
			rig_run(&added, losses, &b, HEAD_TRAIN, RIG_KEEP, 1e-3f);
			rig_run(&written, losses, &b, HEAD_TRAIN, RIG_KEEP, 1e-3f);
		}
		for (int t = 0; t < model->tensor_count; t++) {
			int64_t count = model->tensors[t].count;
			float *x = mem_alloc((size_t)count, sizeof(*x)),
			      *y = mem_alloc((size_t)count, sizeof(*y));

			rig_get_grad(&added, t, x);
			rig_get_grad(&written, t, y);
			for (int64_t j = 0; j < count; j++)
				if (!(x[j] == y[j]))
					fail_msg("config %d, %s, %lld: %g, not %g", i / 2,
					        model->tensors[t].name, (long long)j, y[j], x[j]);
			mem_free(x);
			mem_free(y);
		}
		rig_close(&added);
		rig_close(&written);
		rig_batch_free(&b);
		mem_free(losses);
		model_close(model);
	}
}

/* The host and the meta device see the same bytes touched; scratch, which lies last, is used to its end and
 * no further. */
static void test_touched(void **state)
{
	static const char *const devices[] = {"host", "meta"};
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};

	(void)state;
	for (int i = 0; i < 2 * CONFIG_COUNT; i++) {
		struct model *model = model_from(configs[i / 2]);
		struct device_stats stats[2];
		struct rig_batch b = {0};
		int64_t end;

		make_batch(&b, 2, 3, 2);
		for (int d = 0; d < 2; d++) {
			float *losses = mem_alloc((size_t)b.targets, sizeof(*losses));
			struct rig r;

			rig_open_as(&r, devices[d], model, dtypes[i % 2], b.tokens, b.targets, RIG_BARE);
			set_weights(&r);
			rig_run(&r, losses, &b, HEAD_TRAIN, RIG_RECOMPUTE, 1);
			device_get_stats(r.device, &stats[d]);
			end = 0;
			for (int g = 1; g < model->group_count - 1; g++)
				end = max_i64(end,
				        model_scratch_bytes(model, g, dtypes[i % 2], b.tokens, b.targets, 0));
			end += (int64_t)(r.scratch.value - r.base.value);
			rig_close(&r);
			mem_free(losses);
		}
		assert_int_equal(stats[0].arena_touched_bytes, stats[1].arena_touched_bytes);
		assert_true(stats[0].arena_touched_bytes <= end);
		assert_true(stats[0].arena_touched_bytes > end - RIG_ALIGN_BYTES);
		assert_true(stats[0].flops == stats[1].flops && stats[0].flops > 0);
		rig_batch_free(&b);
		model_close(model);
	}
}

/* Sizes grow with tokens and targets, and are whole alignments. */
static void test_sizes(void **state)
{
	(void)state;
	for (int c = 0; c < CONFIG_COUNT; c++) {
		struct model *model = model_from(configs[c]);
		int64_t before[4] = {0};

		for (int64_t n = 1; n < 300; n++) {
			int64_t now[4] = {model_acts_bytes(model, 1, DTYPE_BF16, n),
			        model_scratch_bytes(model, 1, DTYPE_BF16, n, n, 0),
			        model_scratch_bytes(model, model->group_count - 1, DTYPE_BF16, n, n, 128),
			        model_scratch_bytes(model, 0, DTYPE_BF16, n, n, 0)};

			for (int k = 0; k < 4; k++) {
				assert_true(now[k] >= before[k] && now[k] > 0);
				before[k] = now[k];
			}
			assert_true(now[0] <= model_acts_bytes(model, 1, DTYPE_F32, n));
		}
		model_close(model);
	}
}

/* A block's properties reach attention, forward and backward. */
static void test_attention_facts(void **state)
{
	struct model *model = model_from(configs[0]);
	struct block_config facts[4] = {model->config.block[0], model->config.block[0],
	        model->config.block[0], model->config.block[0]};
	int t = model_tensor_of(model, ROLE_Q_W, 0);
	struct rig_batch b = {0};
	float loss[64], grad[4][64];

	(void)state;
	facts[1].mask = MASK_BIDIRECTIONAL;
	facts[2].score_cap = 0.1;
	facts[3].window = 2;
	make_batch(&b, 1, 2, 5);
	for (int i = 0; i < 4; i++) {
		struct rig r;

		model->config.block[0] = facts[i];
		rig_open(&r, "host", model, DTYPE_F32, b.tokens, b.targets);
		set_weights(&r);
		rig_run(&r, loss, &b, HEAD_TRAIN, RIG_KEEP, 1);
		rig_get_grad(&r, t, grad[i]);
		rig_close(&r);
		for (int j = 0; j < i; j++)
			assert_true(memcmp(grad[i], grad[j], sizeof(grad[i])));
	}
	rig_batch_free(&b);
	model_close(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_attention_facts),
	        cmocka_unit_test(test_delta_state),
	        cmocka_unit_test(test_head_rows),
	        cmocka_unit_test(test_chunks),
	        cmocka_unit_test(test_no_target),
	        cmocka_unit_test(test_first_gradient),
	        cmocka_unit_test(test_touched),
	        cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
