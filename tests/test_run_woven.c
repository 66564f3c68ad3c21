/* links: checkpoint */
/* A new model of a family whose files weave rows has those files' tensors, and they are the new weights. */
#include "tests/cli_program.h"

#include "checkpoint/file/safetensors.h"

static const char config_json[] =
        "{\"model_type\":\"qwen3_next\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":24,"
        "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":16,"
        "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"linear_key_head_dim\":8,"
        "\"linear_value_head_dim\":8,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,"
        "\"moe_intermediate_size\":16,\"shared_expert_intermediate_size\":16,\"num_experts\":4,"
        "\"num_experts_per_tok\":2,\"tie_word_embeddings\":false,\"torch_dtype\":\"float32\"}";

#define TRAIN                                                                                                \
	"$F train data=rows.jsonl seed=3 device=host threads=2 compute_dtype=fp32 max_steps=1 "              \
	"max_length=32 "

static void run_ok(const char *command)
{
	struct result r = run(command);

	if (r.code)
		print_error("%s: code %d\n%s\n", command, r.code, r.err);
	assert_int_equal(r.code, 0);
	result_free(&r);
}

static int group_setup(void **state)
{
	static char path[] = "/tmp/ferry_test_run_woven_XXXXXX";

	(void)state;
	dir = mkdtemp(path);
	run_ok("mkdir m");
	put("m/config.json", config_json);
	put("rows.jsonl", "{\"input_ids\": [1,2,3,4,5,6,7,8,9,10,11,12,13]}\n");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	return file_remove_tree(dir);
}

/* The tensors of linear attention as transformers has them: `rows` of hidden_size, or none. */
static void check_rows(const struct safetensors *file, const char *end, int64_t rows)
{
	int found = 0;

	for (int i = 0; i < file->tensor_count; i++) {
		const struct safetensors_tensor *t = &file->tensors[i];

		if (!str_ends_with(t->name, end))
			continue;
		found++;
		assert_int_equal(t->shape[0], rows);
		assert_int_equal(t->shape[1], 32);
	}
	assert_int_equal(found, rows ? 3 : 0);
}

static void names_check(const char *name)
{
	char *path = file_join(dir, name);
	struct safetensors *file;

	check_ok(safetensors_open(&file, path));
	check_rows(file, "linear_attn.in_proj_qkvz.weight", 2 * 2 * 8 + 2 * 4 * 8);
	check_rows(file, "linear_attn.in_proj_ba.weight", 2 * 4);
	check_rows(file, "linear_attn.in_proj_qkv.weight", 0);
	check_rows(file, "linear_attn.in_proj_z.weight", 0);
	check_rows(file, "linear_attn.in_proj_b.weight", 0);
	check_rows(file, "linear_attn.in_proj_a.weight", 0);
	safetensors_close(file);
	mem_free(path);
}

/* A step from the new model's files is the step of a run that makes the weights itself. */
static void test_new_model(void **state)
{
	(void)state;
	run_ok("$F init m/config.json output_dir=r seed=3");
	names_check("r/model.safetensors");
	run_ok(TRAIN "model=m init_weights=random output_dir=a");
	names_check("a/model/model.safetensors");
	run_ok(TRAIN "model=r output_dir=b");
	run_ok("cmp a/model/model.safetensors b/model/model.safetensors");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_new_model),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
