/* links: offload model_families host_cpu device_meta */
/* also: tsan */
/* Divided experts on the engine: the same bits for any number of parts, policy and number of threads, in as
 * many bytes as planned. */
#include "tests/engine_steps.h"
#include "tests/model_text.h"
#include "tests/sparing.h"

#include "model/adapter.h"
#include "model/experts_parts.h"

#define SIZES                                                                                                \
	"\"vocab_size\":70,\"hidden_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"            \
	"\"num_key_value_heads\":2,\"head_dim\":16,\"max_position_embeddings\":64,\"initializer_range\":0."  \
	"2,"

/* Layers of experts with dense ones between; a shared expert, and the loss that keeps experts evenly used;
 * biases and matrices [in, out]. */
static const char *const configs[] = {
        "{\"model_type\":\"qwen3_moe\"," SIZES "\"num_experts\":32,\"num_experts_per_tok\":4,"
        "\"moe_intermediate_size\":64,\"intermediate_size\":96,\"mlp_only_layers\":[1],"
        "\"norm_topk_prob\":true,\"tie_word_embeddings\":false}",
        "{\"model_type\":\"qwen2_moe\"," SIZES "\"num_experts\":32,\"num_experts_per_tok\":3,"
        "\"moe_intermediate_size\":64,\"shared_expert_intermediate_size\":80,\"intermediate_size\":96,"
        "\"output_router_logits\":true,\"router_aux_loss_coef\":0.5,"
        "\"tie_word_embeddings\":true}",
        "{\"model_type\":\"gpt_oss\"," SIZES "\"num_local_experts\":32,\"num_experts_per_tok\":4,"
        "\"intermediate_size\":64,\"sliding_window\":4,\"tie_word_embeddings\":false}",
};

/* What trains. */
enum trained { ALL, ADAPTERS, ATTENTION, EXPERTS_DOWN, TRAINED_COUNT };

static int is_trained(const char *name, const char *other, void *arg)
{
	enum trained what = *(const enum trained *)arg;

	(void)other;
	return what == ALL || (what == ADAPTERS && strstr(name, "lora_")) ||
	       (what == ATTENTION && strstr(name, "self_attn")) ||
	       (what == EXPERTS_DOWN && strstr(name, "experts.down_proj"));
}

static struct model *setting_model(const struct setting *s)
{
	struct model *model = model_from(configs[s->config]);
	enum trained what = (enum trained)s->trained;
	int64_t count;

	if (what == ADAPTERS) {
		struct adapter_options options = {.rank = 4, .alpha = 8};
		json_t *targets;

		check_ok(adapter_targets(&targets, "q_proj,gate_proj,up_proj,down_proj"));
		options.targets = targets;
		check_ok(model_adapt(model, &options));
		json_decref(targets);
	}
	check_ok(model_set_trainable(model, &count, is_trained, &what));
	if (s->part) {
		int64_t step = model_experts_step(model);

		assert_true(step > 0 && s->part % step == 0);
		check_ok(model_experts_divide(model, s->part));
		assert_true(model->group_count > 5);
	}
	return model;
}

/* ---- tests ---- */

/* Parts of trained experts begin at multiples of 16 experts of these sizes; frozen ones anywhere. */
static int64_t part_of(const struct setting *s, int n)
{
	static const int64_t frozen[] = {1, 5, 8, 16, 31};

	return s->trained == ALL || s->trained == EXPERTS_DOWN ? 16 : frozen[n % 5];
}

static void test_parts_change_no_bit(void **state)
{
	(void)state;
	for (int kind = THREADS_ONLY; kind < 3 * TRAINED_COUNT; kind += 1 + 4 * THREADS_ONLY) {
		struct setting s = plain;
		struct outcome base, other;

		s.config = kind % 3;
		s.trained = kind / 3;
		if (s.trained == ADAPTERS && s.config == 2)
			continue; /* its modules of experts have other names */
		s.policy.compute_dtype = s.policy.gradient_dtype = kind & 1 ? DTYPE_BF16 : DTYPE_F32;
		s.policy.state = kind % 2 ? ADAMW_STATE_8BIT : ADAMW_STATE_F32;
		s.empty_first = kind % 4 == 2;
		for (int order = 0; order < 2; order++) {
			if (sparing(2) > 1 && order != (kind >> 1 & 1))
				continue;
			s.policy.order = order ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
			policy_vary(&s, 7);
			s.part = 0;
			setting_run(&s, &base);
			assert_true(base.loss[0] > 3 && base.norm[0] > 0);
			for (int n = 1 + kind; n < 64 * 27; n += 389 * sparing(2)) {
				policy_vary(&s, n);
				s.threads = 1 + n % 3;
				s.part = part_of(&s, n);
				setting_run(&s, &other);
				assert_same(&other, &base, "policy", n + 1000 * kind);
			}
		}
	}
}

static void test_updates_inside_backward(void **state)
{
	struct setting s = plain;
	struct outcome late, inside;

	(void)state;
	s.max_grad_norm = 0;
	s.part = 16;
	for (int n = 0; n < 64 * 27; n += 283 * sparing(3)) {
		policy_vary(&s, n);
		s.skip_nonfinite = 1;
		s.policy.update_in_backward = 0;
		setting_run(&s, &late);
		s.skip_nonfinite = 0;
		s.policy.update_in_backward = 1;
		setting_run(&s, &inside);
		assert_same(&inside, &late, "policy", n);
	}
}

/* Random delays and poison, as in test_engine. */
static void test_schedules_change_no_bit(void **state)
{
	struct outcome base, other;

	(void)state;
	for (int n = 0; n < 12; n += sparing(2)) {
		struct setting s = plain;

		s.config = n % 3;
		s.policy.order = n >> 2 & 1 ? ORDER_MICRO_BATCH_MAJOR : ORDER_LAYER_MAJOR;
		setting_run(&s, &base);
		policy_vary(&s, 7 + 64 * (n * 5 % 27) + 8 * (n % 5));
		s.part = 16;
		s.policy.discard = 1;
		s.device_options.poison = 1;
		s.device_options.stream_delay_seed = 1 + (uint64_t)n;
		s.device_options.check_races = 1;
		setting_run(&s, &other);
		assert_same(&other, &base, "schedule", n);
	}
}

/* On the meta device too. */
static void test_planned_bytes_are_used(void **state)
{
	(void)state;
	for (int n = 0; n < 64 * 27; n += 241 * sparing(3)) {
		struct setting s = plain;
		struct outcome host, meta;

		policy_vary(&s, n);
		s.config = n % 3;
		s.part = 16;
		setting_run(&s, &host);
		assert_int_equal(host.touched_bytes, host.planned_bytes);
		s.device = "meta";
		setting_run(&s, &meta);
		assert_int_equal(meta.planned_bytes, host.planned_bytes);
		assert_int_equal(meta.touched_bytes, host.touched_bytes);
	}
}

/* Weights and gradients of a few parts are on the device, not those of a block. */
static void test_parts_save_memory(void **state)
{
	struct setting s = plain;
	struct outcome whole, parts;

	(void)state;
	s.policy.prefetch_units = 1;
	setting_run(&s, &whole);
	s.part = 16;
	setting_run(&s, &parts);
	assert_true(parts.planned_bytes < whole.planned_bytes * 3 / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_parts_change_no_bit),
	        cmocka_unit_test(test_updates_inside_backward),
	        cmocka_unit_test(test_schedules_change_no_bit),
	        cmocka_unit_test(test_planned_bytes_are_used),
	        cmocka_unit_test(test_parts_save_memory),
	};
	int rc = engine_rig_begin();

	device_register(&backend_meta);
	return rc ? rc : cmocka_run_group_tests(tests, NULL, NULL);
}
