/* links: checkpoint model_families */
/* The commands init, export, inspect, verify and plan on models. */
#include "base/num.h"
#include "checkpoint/hf/hf_dtype.h"
#include "checkpoint/save.h"
#include "model/families/open.h"
#include "tests/cli_program.h"

/* init, export, verify and inspect, on a model that is made here. */

static const char config_json[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 16, \"intermediate_size\": 24,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,\n"
        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false,\n"
        " \"torch_dtype\": \"float32\"}\n";

static void test_init(void **state)
{
	json_t *first = run_json("$F init config.json output_dir=a seed=1 --json"), *listing;

	(void)state;
	assert_string_equal(text_of(first, "dtype"), "F32");
	assert_string_equal(text_of(first, "model_type"), "llama");
	listing = run_json("$F inspect a --json");
	assert_string_equal(text_of(listing, "kind"), "model");
	assert_int_equal(json_integer_value(json_object_get(listing, "parameters")),
	        json_integer_value(json_object_get(first, "parameters")));
	json_decref(listing);
	json_decref(first);

	json_decref(run_json("$F init config.json output_dir=b seed=1 --json"));
	json_decref(run_json("$F init config.json output_dir=c seed=2 --json"));
	json_decref(run_json("$F init config.json output_dir=d seed=1 export_dtype=bf16 --json"));
	assert_int_equal(system("cd \"$DIR\" && cmp -s a/model.safetensors b/model.safetensors"), 0);
	assert_int_not_equal(system("cd \"$DIR\" && cmp -s a/model.safetensors c/model.safetensors"), 0);
	assert_int_equal(system("cd \"$DIR\" && cmp -s config.json a/config.json"), 0);
	listing = run_json("$F inspect d --json");
	assert_string_equal(text_of(json_array_get(json_object_get(listing, "tensors"), 0), "dtype"), "BF16");
	json_decref(listing);
	/* transformers loads in the dtype that config.json names */
	assert_int_equal(
	        system("cd \"$DIR\" && sed s/float32/bfloat16/ config.json | cmp -s - d/config.json"), 0);
}

/* Whatever names the dtype, it names that of the tensors in the end; nothing else changes. */
static void test_stated_dtype(void **state)
{
	static const struct {
		const char *before, *after;
	} cases[] = {
	        {"\"torch_dtype\": \"float32\"", "\"torch_dtype\": \"bfloat16\""},
	        {"\"dtype\" : \"float16\", \"torch_dtype\":null",
	                "\"dtype\" : \"bfloat16\", \"torch_dtype\":\"bfloat16\""},
	        {"\"a\": \"torch_dtype\", \"b\": {\"dtype\": \"nf4\"}, \"c\": {\"dtype\": \"float32\"}",
	                "\"a\": \"torch_dtype\", \"b\": {\"dtype\": \"nf4\"}, \"c\": {\"dtype\": "
	                "\"bfloat16\"}"},
	        {" \"a\": 1e-5", "\n  \"torch_dtype\": \"bfloat16\", \"a\": 1e-5"},
	        {"", "\n  \"torch_dtype\": \"bfloat16\""},
	};
	char *path = mem_printf("%s/config.json", dir), *kept, *text;
	size_t len_bytes;

	(void)state;
	check_ok(file_read_all(path, 1 << 20, &kept, &len_bytes));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *before = mem_printf("{%s}\n", cases[i].before),
		     *after = mem_printf("{%s}\n", cases[i].after);

		put("config.json", before);
		check_ok(hf_dtype_write(SAFETENSORS_BF16, dir));
		check_ok(file_read_all(path, 1 << 20, &text, &len_bytes));
		assert_string_equal(text, after);
		mem_free(text);
		mem_free(before);
		mem_free(after);
	}
	put("config.json", kept);
	mem_free(kept);
	mem_free(path);
}

/* Whichever threads draw them, weights are what their seed and place say; no tensor is a whole number of
 * anything. */
static void test_init_values(void **state)
{
	char *path = mem_printf("%s/v/model.safetensors", dir), *config = mem_printf("%s/wide.json", dir);
	struct model *model;
	json_t *header;
	size_t len_bytes;
	uint64_t header_bytes;
	char *file;

	(void)state;
	put("wide.json",
	        "{\"model_type\": \"llama\", \"vocab_size\": 45013, \"hidden_size\": 14, "
	        "\"intermediate_size\": 24,\n"
	        " \"num_hidden_layers\": 1, \"num_attention_heads\": 1, \"num_key_value_heads\": 1,\n"
	        " \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true,\n"
	        " \"torch_dtype\": \"float32\"}\n");
	json_decref(run_json("$F init wide.json output_dir=v seed=5 --json"));
	check_ok(model_open_path(&model, config));
	check_ok(file_read_all(path, 64 << 20, &file, &len_bytes));
	memcpy(&header_bytes, file, sizeof(header_bytes));
	assert_true(header_bytes < len_bytes);
	check_ok(json_parse(&header, path, file + 8, header_bytes));
	for (int t = 0; t < model->tensor_count; t++) {
		const json_t *of = json_object_get(header, model->tensors[t].name);
		int64_t at = json_integer_value(json_array_get(json_object_get(of, "data_offsets"), 0));

		assert_non_null(of);
		for (int64_t i = 0; i < model->tensors[t].count; i++) {
			float value;

			memcpy(&value, file + 8 + header_bytes + at + 4 * i, 4);
			assert_true(value == model_init_value(model, t, i, 5));
		}
	}
	json_decref(header);
	mem_free(file);
	model_close(model);
	mem_free(config);
	mem_free(path);
}

static void test_init_shards(void **state)
{
	json_t *whole, *shards;

	(void)state;
	json_decref(run_json("$F init config.json output_dir=w seed=1 --json"));
	json_decref(run_json("$F init config.json output_dir=s seed=1 max_shard_size=4KiB --json"));
	whole = run_json("$F inspect w --json");
	shards = run_json("$F inspect s --json");
	assert_int_equal(json_array_size(json_object_get(whole, "tensors")),
	        json_array_size(json_object_get(shards, "tensors")));
	assert_int_equal(system("test -f \"$DIR/s/model.safetensors.index.json\""), 0);
	json_decref(whole);
	json_decref(shards);
}

/* ---- a checkpoint ---- */

/* Every value of a tensor is its number plus one, exactly; moments are zero. */
static int pattern_read(
        void *context, int tensor, enum plane plane, int64_t first_element, int64_t count, void *dst)
{
	uint32_t bits = f32_bits((float)(tensor + 1));

	(void)context;
	(void)first_element;
	for (int64_t i = 0; i < count; i++) {
		if (plane == PLANE_HI)
			((uint16_t *)dst)[i] = plane_hi(bits);
		else if (plane == PLANE_LO)
			((int16_t *)dst)[i] = plane_lo(bits);
		else
			((float *)dst)[i] = 0;
	}
	return 0;
}

static void save(const char *output_dir, int64_t step)
{
	struct plane_source source = {.read = pattern_read};
	char *config = file_join(dir, "config.json"), *out = file_join(dir, output_dir);
	struct side_files side;
	struct checkpoint_save s = {.output_dir = out,
	        .step = step,
	        .source = &source,
	        .planes = PLANES_WEIGHT | PLANES_MOMENT,
	        .training = json_pack("{s:i}", "step", (int)step),
	        .side = &side,
	        .total_limit = 0,
	        .world = {.rank = 0, .size = 1}};
	struct model *model;

	check_ok(side_files_read(&side, dir, NULL));
	check_ok(file_make_dir(out));
	check_ok(model_open_path(&model, config));
	s.model = model;
	check_ok(checkpoint_save(&s, NULL));
	json_decref(s.training);
	side_files_free(&side);
	model_close(model);
	mem_free(config);
	mem_free(out);
}

static void test_checkpoint(void **state)
{
	json_t *listing, *verified;
	struct result r;

	(void)state;
	save("run", 5);
	save("run", 10);
	put("run/config.yaml", "model: m\ncompute_dtype: fp32\n");

	listing = run_json("$F inspect run/checkpoint-000005 --json");
	assert_string_equal(text_of(listing, "kind"), "checkpoint");
	assert_int_equal(json_integer_value(json_object_get(listing, "step")), 5);
	assert_int_equal(json_array_size(json_object_get(listing, "planes")), 4);
	json_decref(listing);
	listing = run_json("$F inspect run --json");
	assert_string_equal(text_of(listing, "kind"), "output_dir");
	assert_int_equal(json_array_size(json_object_get(listing, "checkpoints")), 2);
	json_decref(listing);

	verified = run_json("$F verify run --json");
	assert_true(json_is_true(json_object_get(verified, "ok")));
	assert_int_equal(json_array_size(json_object_get(verified, "checkpoints")), 2);
	json_decref(verified);
	r = run("$F verify run/checkpoint-000005");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "step 5"));
	result_free(&r);

	/* a path that no JSON can hold */
	assert_int_equal(system("cd \"$DIR\" && ln -s run \"$(printf 'r\\377')\""), 0);
	verified = run_json("$F verify --json \"$(printf 'r\\377')\"");
	assert_true(json_is_true(json_object_get(verified, "ok")));
	json_decref(verified);
	listing = run_json("$F inspect --json \"$(printf 'r\\377')\"");
	assert_string_equal(text_of(listing, "newest"), "r?/checkpoint-000010");
	json_decref(listing);
	json_decref(run_json("$F export --json \"$(printf 'r\\377')\" output_dir=eb"));
}

static void test_export(void **state)
{
	json_t *first, *newest;
	struct result r;

	(void)state;
	first = run_json("$F export run/checkpoint-000005 output_dir=e5 --json");
	assert_string_equal(text_of(first, "dtype"), "F32"); /* as the run's config.yaml says */
	assert_int_equal(json_integer_value(json_object_get(first, "step")), 5);
	json_decref(first);
	newest = run_json("$F export run output_dir=e10 export_dtype=bf16 --json");
	assert_string_equal(text_of(newest, "dtype"), "BF16");
	assert_int_equal(json_integer_value(json_object_get(newest, "step")), 10);
	json_decref(newest);
	assert_int_equal(system("cd \"$DIR\" && cmp -s config.json e5/config.json"), 0);
	assert_int_equal(
	        system("cd \"$DIR\" && sed s/float32/bfloat16/ config.json | cmp -s - e10/config.json"), 0);

	r = run("$F export run/checkpoint-000005 output_dir=e5");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "overwrite_output_dir=on"));
	result_free(&r);
	json_decref(run_json("$F export run/checkpoint-000005 output_dir=e5 overwrite_output_dir=on --json"));
	/* a run, or a directory of other files, is not replaced by a model */
	r = run("$F export run output_dir=run overwrite_output_dir=on");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "output_dir=run would replace checkpoint=run"));
	result_free(&r);
	r = run("mkdir notes && echo x > notes/a.txt && $F init config.json output_dir=notes "
	        "overwrite_output_dir=on");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "output_dir=notes contains a.txt and is not a model directory"));
	result_free(&r);
	assert_int_equal(system("cd \"$DIR\" && test -f notes/a.txt && test -d run/checkpoint-000010"), 0);
	r = run("$F export w output_dir=e6");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "is not a ferry checkpoint"));
	result_free(&r);
}

/* One bit is turned in the middle of the shard. */
static void test_damage(void **state)
{
	json_t *report = NULL;
	struct result r;
	char byte;
	char *path = file_join(dir, "run/checkpoint-000005/rank-00000.safetensors");
	FILE *f = fopen(path, "r+b");

	(void)state;
	assert_non_null(f);
	fseek(f, 5000, SEEK_SET);
	byte = (char)fgetc(f);
	fseek(f, 5000, SEEK_SET);
	fputc(byte ^ 4, f);
	fclose(f);
	mem_free(path);

	r = run("$F verify run --json");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "rank-00000.safetensors"));
	check_ok(json_parse(&report, "stdout", r.out, strlen(r.out)));
	assert_true(json_is_false(json_object_get(report, "ok")));
	json_decref(report);
	result_free(&r);
	r = run("$F verify run/checkpoint-000010");
	assert_int_equal(r.code, 0);
	result_free(&r);
	r = run("$F export run/checkpoint-000005 output_dir=e7");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "rank-00000.safetensors"));
	result_free(&r);
	assert_int_not_equal(system("test -e \"$DIR/e7\""), 0); /* nothing is left */
}

/* ---- plan ---- */

static int64_t planned(const char *command, const char *key)
{
	json_t *plan = run_json(command);
	const json_t *value = json_object_get(plan, key);
	int64_t number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);

	assert_non_null(value);
	json_decref(plan);
	return number;
}

static void test_plan(void **state)
{
	struct result r;
	json_t *plan;

	(void)state;
	put("rows.jsonl", "{\"input_ids\": [1, 2, 3]}\n");
	assert_int_equal(planned("$F plan model=config.json --json", "fits"), 1);
	r = run("$F plan model=config.json ram_budget=1KiB --json");
	assert_int_equal(r.code, 5);
	assert_non_null(strstr(r.err, "ram_budget is 1.0 KiB"));
	check_ok(json_parse(&plan, "stdout", r.out, strlen(r.out)));
	assert_true(json_is_false(json_object_get(plan, "fits")));
	json_decref(plan);
	result_free(&r);
	assert_true(planned("$F plan model=config.json max_length=64 --json", "device_bytes") >
	            planned("$F plan model=config.json data=rows.jsonl --json", "device_bytes"));
	assert_int_equal(planned("$F plan model=config.json max_length=8 --json", "device_bytes"),
	        planned("$F plan model=config.json max_length=8 data=none.jsonl --json", "device_bytes"));
	/* with offload off no weights cross, only the batch does */
	assert_true(
	        planned("$F plan model=config.json max_length=8 cpu_offload=off --json", "h2d_bytes") < 5200);
}

/* Llama-3-8B by its published sizes; no weights anywhere. */
static void test_plan_large(void **state)
{
	(void)state;
	put("8b.json",
	        "{\"model_type\": \"llama\", \"vocab_size\": 128256, \"hidden_size\": 4096, "
	        "\"intermediate_size\": "
	        "14336, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
	        "\"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "
	        "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}");
	put("server.yaml", "name: server\ngpus: 0\nhost:\n  memory: 1TB\n  memory_gbps: 40\n  gflops: 140\n");
	assert_int_equal(
	        planned("$F plan model=8b.json machine=server.yaml vram_budget=off --json", "parameters"),
	        8030261248);
	assert_true(planned("$F plan model=8b.json machine=server.yaml vram_budget=off --json",
	                    "host_bytes") >= 14 * 8030261248);
}

static void test_bad(void **state)
{
	static const struct {
		const char *command, *text;
	} rows[] = {
	        {"$F init none.json output_dir=x", "config=none.json: no such file or directory"},
	        {"$F init wrong.json output_dir=x", "hidden_size"},
	        {"$F init type.json output_dir=x", "\"mamba\" is not supported"},
	        {"$F init config.json", "output_dir is not set"},
	        {"$F init config.json output_dir=w", "is not empty"},
	        {"$F init config.json output_dir=config.json", "is a file; expected a directory"},
	        {"$F export", "checkpoint, output_dir are not set"},
	        {"$F export none output_dir=x", "checkpoint=none: no such file or directory"},
	        {"$F verify none", "path=none: no such file or directory"},
	        {"$F verify config.json", "is a file; expected a checkpoint directory"},
	        {"$F verify w", "is not a ferry checkpoint and contains none"},
	};

	(void)state;
	put("wrong.json", "{\"model_type\": \"llama\", \"hidden_size\": \"big\"}");
	put("type.json", "{\"model_type\": \"mamba\"}");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int before = entries();
		struct result r = run(rows[i].command);

		if (r.code != 2 || !strstr(r.err, rows[i].text) || *r.out)
			print_error("%s: code %d\n%s\n", rows[i].command, r.code, r.err);
		assert_int_equal(r.code, 2);
		assert_non_null(strstr(r.err, rows[i].text));
		assert_int_equal(entries(), before);
		result_free(&r);
	}
}

static int setup(void **state)
{
	if (check_dir_make(state))
		return -1;
	dir = *state;
	setenv("DIR", dir, 1);
	put("config.json", config_json);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_init),
	        cmocka_unit_test(test_init_values),
	        cmocka_unit_test(test_stated_dtype),
	        cmocka_unit_test(test_init_shards),
	        cmocka_unit_test(test_checkpoint),
	        cmocka_unit_test(test_export),
	        cmocka_unit_test(test_damage),
	        cmocka_unit_test(test_plan),
	        cmocka_unit_test(test_plan_large),
	        cmocka_unit_test(test_bad),
	};

	if (!getenv("FERRY_BINARY")) {
		fprintf(stderr, "FERRY_BINARY is not set\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
