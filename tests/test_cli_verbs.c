/* links: base */
/* The program as a process: exit codes, stdout and stderr; bad input leaves no files. Everything runs in a
 * temporary directory. */
#include "tests/cli_program.h"

/* ---- usage ---- */

static const struct {
	const char *command, *text; /* text: part of stderr */
} bad[] = {
        {"$F trian", "ferry: unknown verb \"trian\" (did you mean train?)"},
        {"$F help trian", "ferry: unknown verb \"trian\" (did you mean train?)"},
        {"$F train", "ferry train: model, data, output_dir are not set"},
        {"$F train none.yaml", "none.yaml: no such file"},
        {"$F train model=m lrx=3", "unknown key \"lrx\"; did you mean learning_rate?"},
        {"$F eval model=m data=d --lr 3", "lr is not a key of ferry eval"},
        {"$F eval model=m data=d lora_rank=4", "lora_rank is not a key of ferry eval"},
        {"$F generate model=m prompt=a lora_r=4", "lora_r is not a key of ferry generate"},
        {"$F embed model=m data=d lora_target_modules=all-linear",
                "lora_target_modules is not a key of ferry embed"},
        {"$F eval model=m data=d prompt=a", "prompt is not a key of ferry eval"},
        {"$F inspect", "path is not set"},
        {"$F inspect none", "path=none: no such file or directory"},
        {"$F inspect broken.safetensors", "broken.safetensors: byte 5"},
        {"$F inspect empty", "empty: contains no weights"},
        {"$F inspect a b", "unexpected argument \"b\""},
        {"$F tokenize", "model or tokenizer is not set"},
        {"echo x | $F tokenize tokenizer=empty", "empty has no tokenizer.json or tokenizer.model"},
        {"$F data show data=none.jsonl", "no such file"},
        {"$F data show data=bad.jsonl", "bad.jsonl:2"},
        {"$F data show data=ids.jsonl model=vocab", "ids.jsonl:1"},
        {"$F data show data=empty.jsonl", "empty.jsonl"},
        {"$F data show data=lengths.jsonl", "lengths.jsonl:1"},
        {"$F data show data=rows.csv", "rows.csv: the file has no rows"},
        {"$F train model=m data=ids.jsonl output_dir=o", "these two commands fetch it"},
        {"$F train model=empty data=ids.jsonl output_dir=o", "empty has no config.json"},
        {"$F train model=vocab data=ids.jsonl output_dir=vocab", "is not empty"},
        {"$F train broken.yaml", "broken.yaml:3:1: "},
        {"$F train model=vocab data=ids.jsonl output_dir=o compute_dtype=fp16",
                "compute_dtype=fp16 is not supported yet"},
        {"$F train model=vocab data=ids.jsonl output_dir=$(printf 'o\\377')",
                "is not UTF-8 at byte 1; rename it"},
        {"$F train model=vocab data=ids.jsonl output_dir=o resume_from_checkpoint=empty",
                "resume_from_checkpoint=empty is not a ferry checkpoint: it has no manifest.json"},
};

static void test_bad_usage(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int before = entries();
		struct result r = run(bad[i].command);

		if (r.code != 2 || !strstr(r.err, bad[i].text) || *r.out)
			print_error("%s: code %d\nstdout: %s\nstderr: %s\n", bad[i].command, r.code, r.out,
			        r.err);
		assert_int_equal(r.code, 2);
		assert_non_null(strstr(r.err, bad[i].text));
		assert_string_equal(r.out, "");
		assert_int_equal(entries(), before); /* nothing was written */
		result_free(&r);
	}
}

/* With --json, stdout is one object that contains the error. */
static void test_json_errors(void **state)
{
	static const struct {
		const char *command, *text;
	} rows[] = {
	        {"$F trian --json", "did you mean train?"},
	        {"$F train --json lrx=3", "did you mean learning_rate?"},
	        {"$F inspect json=on none", "path=none: no such file"},
	        {"$F inspect --json \"$(printf 'n\\377e')\"", "path=n?e: no such file"},
	        {"$F data show data=bad.jsonl --json", "bad.jsonl:2"},
	        {"$F plan --json vocab", "model_type"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct result r = run(rows[i].command);
		json_t *root = NULL;
		const char *error;

		assert_int_equal(r.code, 2);
		check_ok(json_parse(&root, rows[i].command, r.out, strlen(r.out)));
		error = json_string_value(json_object_get(root, "error"));
		assert_non_null(error);
		assert_non_null(strstr(error, rows[i].text));
		json_decref(root);
		result_free(&r);
	}
}

/* The object has the command to resume, too. */
static void test_json_stopped(void **state)
{
	struct result r = run("$F train model=$FERRY_SOURCE/examples/demo/model "
	                      "data=$FERRY_SOURCE/examples/demo/train.jsonl output_dir=stopped "
	                      "max_steps=100000 --json 2>/dev/null & "
	                      "pid=$!; while [ ! -s stopped/metrics.jsonl ]; do sleep 0.1; done; "
	                      "kill -TERM $pid; wait $pid");
	json_t *root = NULL;
	const char *error;

	(void)state;
	assert_int_equal(r.code, 3);
	check_ok(json_parse(&root, "stdout", r.out, strlen(r.out)));
	error = json_string_value(json_object_get(root, "error"));
	assert_non_null(error);
	assert_non_null(strstr(error, "with a checkpoint; to resume: "));
	assert_non_null(strstr(error, "stopped/config.yaml resume_from_checkpoint=auto"));
	json_decref(root);
	result_free(&r);
}

static void test_lists(void **state)
{
	static const struct {
		const char *yaml, *text;
	} rows[] = {
	        {"learning_rate: [1e-3]", "list.yaml:1: learning_rate takes one value, not a list"},
	        {"seed: [1, 2]", "list.yaml:1: seed takes one value, not a list"},
	        {"shuffle: [on]", "list.yaml:1: shuffle takes one value, not a list"},
	        {"sequence_len: [5]", "list.yaml:1: sequence_len takes one value, not a list"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char command[200];
		struct result r;

		snprintf(
		        command, sizeof(command), "echo '%s' > list.yaml; $F config list.yaml", rows[i].yaml);
		r = run(command);
		assert_int_equal(r.code, 2);
		assert_non_null(strstr(r.err, rows[i].text));
		result_free(&r);
	}
}

/* A list longer than any path is split as others are. A row is shown to its end, also beyond U+0000. */
static void test_long_list_and_nul(void **state)
{
	struct result r =
	        run("list=$(yes nowhere/abcdefghijklmnopqrstuvwxyz.jsonl | head -n 200 | paste -sd,); "
	            "$F data show model=$FERRY_SOURCE/examples/demo/model data=\"$list\"");

	(void)state;
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "more than 64 data sets in one list"));
	result_free(&r);
	r = run("printf '{\"text\":\"ab\\\\u0000cd\"}\\n' > nul.jsonl; $F data show "
	        "model=$FERRY_SOURCE/examples/demo/model data=nul.jsonl rows=1");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "ab\\x00cd"));
	result_free(&r);
}

static void test_help_and_version(void **state)
{
	static const char *const good[] = {"$F", "$F --help", "$F help", "$F train --help", "$F help inspect",
	        "$F train lr=nonsense --help", "$F --version", "$F help --markdown"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct result r = run(good[i]);

		assert_int_equal(r.code, 0);
		assert_true(*r.out);
		assert_string_equal(r.err, "");
		result_free(&r);
	}
}

static void test_full_stdout(void **state)
{
	static const char *const commands[] = {"$F train --help", "$F help", "$F", "$F --version",
	        "$F data show data=good.jsonl", "$F data show data=good.jsonl --json"};

	(void)state;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		char command[128];
		struct result r;

		snprintf(command, sizeof(command), "%s > /dev/full", commands[i]);
		r = run(command);
		assert_int_equal(r.code, 1);
		assert_non_null(strstr(r.err, "cannot write to stdout"));
		result_free(&r);
	}
}

/* ---- inspect ---- */

/* A file with one tensor, F32 [2]. */
static void put_safetensors(const char *name)
{
	static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
	char bytes[8 + sizeof(header) - 1 + 8] = {(char)(sizeof(header) - 1)};
	char *path = file_join(dir, name);

	memcpy(bytes + 8, header, sizeof(header) - 1);
	check_ok(file_write_all(path, bytes, sizeof(bytes)));
	mem_free(path);
}

static void test_inspect(void **state)
{
	struct result r;
	json_t *root = NULL;
	const json_t *tensor;

	(void)state;
	put_safetensors("one.safetensors");
	r = run("$F inspect one.safetensors --json");
	assert_int_equal(r.code, 0);
	assert_string_equal(r.err, "");
	check_ok(json_parse(&root, "stdout", r.out, strlen(r.out)));
	assert_string_equal(json_string_value(json_object_get(root, "kind")), "safetensors");
	assert_int_equal(json_integer_value(json_object_get(root, "parameters")), 2);
	assert_int_equal(json_integer_value(json_object_get(
	                         json_array_get(json_object_get(root, "tensors"), 0), "bytes")),
	        8);
	tensor = json_array_get(json_object_get(root, "tensors"), 0);
	assert_string_equal(json_string_value(json_object_get(tensor, "name")), "w");
	assert_string_equal(json_string_value(json_object_get(tensor, "dtype")), "F32");
	assert_string_equal(json_string_value(json_object_get(tensor, "file")), "one.safetensors");
	json_decref(root);
	result_free(&r);

	r = run("$F inspect one.safetensors");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "1 tensors, 2 parameters, "));
	result_free(&r);
}

/* ---- data ---- */

static void test_data_show(void **state)
{
	struct result r = run("$F data show data=good.jsonl --json");
	json_t *root = NULL;

	(void)state;
	assert_int_equal(r.code, 0);
	check_ok(json_parse(&root, "stdout", r.out, strlen(r.out)));
	assert_int_equal(json_integer_value(json_object_get(root, "rows")), 2);
	assert_int_equal(json_integer_value(json_object_get(root, "tokens")), 7);
	assert_int_equal(json_array_size(json_object_get(root, "examples")), 2);
	json_decref(root);
	result_free(&r);

	r = run("$F data show data=good.jsonl rows=1");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "row 1: 4 tokens, 2 targets\n- 1 2 \n+ 3 4 \n"));
	assert_null(strstr(r.out, "row 2"));
	result_free(&r);
}

/* ---- topo ---- */

/* Small caches: the memory that topo measures with is as small. */
#define SMALL "FERRY_TOPOLOGY='numa:1 core:2 pu:1' "

static void test_topo(void **state)
{
	json_t *root = run_json("$F topo --json");
	struct result r = run(SMALL "$F topo");

	(void)state;
	assert_true(json_integer_value(json_object_get(root, "threads")) >= 1);
	assert_true(json_integer_value(json_object_get(root, "ram_bytes")) > 1 << 20);
	assert_true(json_is_array(json_object_get(root, "gpus")));
	assert_non_null(json_string_value(json_object_get(root, "device")));
	assert_true(json_array_size(json_object_get(root, "gpus")) > 0 ||
	            json_string_value(json_object_get(json_object_get(root, "cuda"), "trouble")));
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "threads"));
	assert_non_null(strstr(r.out, "GPU"));
	assert_non_null(strstr(r.out, "products of fp32"));
	assert_non_null(strstr(r.out, "products of bf16"));
	json_decref(root);
	result_free(&r);
	root = run_json(SMALL "FERRY_MATMUL=openblas $F topo --json");
	assert_string_equal(
	        json_string_value(json_object_get(json_object_get(root, "products_fp32"), "library")),
	        "OpenBLAS");
	r = run(SMALL "OPENBLAS_CORETYPE=Prescott $F topo");
	assert_int_equal(
	        strstr(r.out,
	                "warning: OPENBLAS_CORETYPE=Prescott makes OpenBLAS use its Prescott kernels") !=
	                NULL,
	        json_object_get(root, "isa") &&
	                !strcmp(json_string_value(json_object_get(root, "isa")), "avx512"));
	json_decref(root);
	result_free(&r);
}

/* A machine of two nodes, as two ranks see it; nothing of it is bound for real. */
static void test_topo_nodes(void **state)
{
	static const char machine[] =
	        "FERRY_TOPOLOGY='pack:2 [numa(memory=8GB)] core:4 pu:2' OMP_NUM_THREADS=1 "
	        "LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 ";
	char command[512];
	struct result r;
	json_t *root, *ranks, *rows;

	(void)state;
	snprintf(command, sizeof(command), "%s$F topo --json", machine);
	root = run_json(command);
	ranks = json_object_get(root, "ranks");
	assert_int_equal(json_integer_value(json_object_get(ranks, "local_rank")), 1);
	assert_string_equal(json_string_value(json_object_get(ranks, "share")), "cut");
	assert_int_equal(json_integer_value(json_object_get(root, "threads")), 2);
	assert_string_equal(json_string_value(json_object_get(root, "omp_num_threads")), "1");
	assert_string_equal(json_string_value(json_object_get(root, "pinning")), "off");
	assert_int_equal(json_array_size(json_object_get(root, "numa_nodes")), 2);
	json_decref(root);
	snprintf(command, sizeof(command), "%s$F topo", machine);
	r = run(command);
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "+- package 1\n   `-- NUMA node 1: "));
	assert_non_null(strstr(r.out, "4 cores with 8 hardware threads, 2 for this rank"));
	assert_non_null(strstr(r.out, "4 cores with 8 hardware threads, 0 for this rank"));
	assert_non_null(strstr(r.out, "ignoring OMP_NUM_THREADS=1"));
	result_free(&r);
	root = run_json("FERRY_TOPOLOGY='numa:2 core:1 pu:1' $F bench topo --json count=1");
	rows = json_object_get(root, "between_nodes");
	assert_int_equal(json_array_size(rows), 2);
	for (size_t i = 0; i < 2; i++) {
		assert_true(json_real_value(json_object_get(json_array_get(rows, i), "memory_0_gbps")) > 0);
		assert_true(json_real_value(json_object_get(json_array_get(rows, i), "memory_1_gbps")) > 0);
	}
	assert_true(json_real_value(json_object_get(root, "rmw3_gbps")) > 0);
	json_decref(root);
	/* hwloc without libxml2 reads double quotes alone */
	r = run("tr \\' '\"' > half.xml <<'X'\n"
	        "<topology version='2.0'><object type='Machine' os_index='0' cpuset='0x3' "
	        "complete_cpuset='0x3' "
	        "allowed_cpuset='0x2' nodeset='0x1' complete_nodeset='0x1' allowed_nodeset='0x1' "
	        "gp_index='1'>"
	        "<object type='NUMANode' os_index='0' cpuset='0x3' complete_cpuset='0x3' nodeset='0x1' "
	        "complete_nodeset='0x1' gp_index='2' local_memory='8589934592'/>"
	        "<object type='Core' os_index='0' cpuset='0x1' complete_cpuset='0x1' nodeset='0x1' "
	        "complete_nodeset='0x1' gp_index='3'><object type='PU' os_index='0' cpuset='0x1' "
	        "complete_cpuset='0x1' nodeset='0x1' complete_nodeset='0x1' gp_index='4'/></object>"
	        "<object type='Core' os_index='1' cpuset='0x2' complete_cpuset='0x2' nodeset='0x1' "
	        "complete_nodeset='0x1' gp_index='5'><object type='PU' os_index='1' cpuset='0x2' "
	        "complete_cpuset='0x2' nodeset='0x1' complete_nodeset='0x1' gp_index='6'/></object>"
	        "</object></topology>\nX\nFERRY_TOPOLOGY=./half.xml $F topo");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "1 of 2 cores, 1 hardware threads, by the cpuset\n"));
	result_free(&r);
	r = run("FERRY_TOPOLOGY=rubbish $F topo");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "FERRY_TOPOLOGY=rubbish"));
	result_free(&r);
}

/* Without CUDA, device=cuda fails with the reason before anything is written; auto continues. */
static void test_device_is_missing(void **state)
{
	struct result r;

	(void)state;
	r = run("CUDA_VISIBLE_DEVICES= $F bench copy device=cuda");
	assert_int_equal(r.code, 2);
	assert_non_null(strstr(r.err, "device=host"));
	assert_string_equal(r.out, "");
	result_free(&r);
	r = run(SMALL "CUDA_VISIBLE_DEVICES= $F topo");
	assert_int_equal(r.code, 0);
	assert_non_null(strstr(r.out, "GPUs                   none: "));
	assert_non_null(strstr(r.out, "device                 host: "));
	result_free(&r);
}

/* ---- tokenize, if there are tokenizers ---- */

static int has_shared(void)
{
	const char *shared = getenv("FERRY_SHARED");

	return shared && file_kind_of(shared) == FILE_DIR;
}

static void test_tokenize(void **state)
{
	struct result r;

	(void)state;
	if (!has_shared()) {
		printf("SKIPPED test_tokenize: ../shared absent\n");
		skip();
	}
	r = run("printf 'hello world\\n\\nhello world' | $F tokenize --json model=$S/tokenizers/gpt2");
	assert_int_equal(r.code, 0);
	assert_string_equal(r.out, "{\"ids\": [31373, 995]}\n{\"ids\": []}\n{\"ids\": [31373, 995]}\n");
	result_free(&r);
	r = run("printf 'hello world' > t.txt; $F tokenize model=$S/tokenizers/gpt2 t.txt; rm t.txt");
	assert_string_equal(r.out, "[31373, 995]\n");
	result_free(&r);
	r = run("printf '%s\\n' '\"a\\n\\u0000b\"' | $F tokenize --json model=$S/tokenizers/gpt2 "
	        "input_format=json | "
	        "$F tokenize --json model=$S/tokenizers/gpt2 --decode");
	assert_string_equal(r.out, "{\"text\": \"a\\n\\u0000b\"}\n");
	result_free(&r);
	r = run("printf 'a\\nb' | $F tokenize model=$S/tokenizers/gpt2 input_format=whole");
	assert_string_equal(r.out, "[64, 198, 65]\n");
	result_free(&r);
	/* a template that puts something around a text */
	r = run("export T=$S/tokenizers/standin-bos-eos; echo hello | $F tokenize model=$T > with; "
	        "echo hello | $F tokenize model=$T add_special_tokens=off > without; "
	        "cat with without | $F tokenize model=$T --decode --skip-special-tokens; "
	        "cmp -s with without && echo same; rm with without");
	assert_string_equal(r.out, "hello\nhello\n");
	result_free(&r);
}

static void test_tokenize_bad(void **state)
{
	static const struct {
		const char *command, *text;
	} rows[] = {
	        {"printf 'ok\\na\\377' | $F tokenize model=$S/tokenizers/gpt2", "stdin:2: "},
	        {"echo '[1, \"a\"]' | $F tokenize model=$S/tokenizers/gpt2 --decode",
	                "stdin:1: element 1 is not an id"},
	        {"echo '[1, -1]' | $F tokenize model=$S/tokenizers/gpt2 --decode",
	                "stdin:1: element 1 is not an id"},
	        {"echo 3 | $F tokenize model=$S/tokenizers/gpt2 --decode",
	                "stdin:1: expected a JSON array of ids"},
	        {"echo hi | $F tokenize model=$S/tokenizers/gpt2 input_format=json", "stdin:1: "},
	        {"echo hi | $F tokenize model=$S/tokenizers/chat-templates", "no tokenizer.json"},
	};

	(void)state;
	if (!has_shared()) {
		printf("SKIPPED test_tokenize_bad: ../shared absent\n");
		skip();
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct result r = run(rows[i].command);

		if (r.code != 2 || !strstr(r.err, rows[i].text))
			print_error("%s: code %d: %s\n", rows[i].command, r.code, r.err);
		assert_int_equal(r.code, 2);
		assert_non_null(strstr(r.err, rows[i].text));
		result_free(&r);
	}
}

static int setup(void **state)
{
	char *sub;

	if (check_dir_make(state))
		return -1;
	dir = *state;
	put("broken.safetensors", "short");
	put("broken.yaml", "lr: 1\nmodel: [\n");
	put("bad.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n{\"input_ids\": [1,\n");
	put("good.jsonl", "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, 3, 4]}\n{\"input_ids\": "
	                  "[1, 2, 3]}\n");
	put("ids.jsonl", "{\"input_ids\": [1, 2, 99]}\n");
	put("lengths.jsonl", "{\"input_ids\": [1, 2, 3], \"labels\": [1, 2]}\n");
	put("empty.jsonl", "");
	put("rows.csv", "\ninstruction,output\n");
	sub = file_join(dir, "empty");
	check_ok(file_make_dir(sub));
	mem_free(sub);
	sub = file_join(dir, "vocab");
	check_ok(file_make_dir(sub));
	mem_free(sub);
	put("vocab/config.json", "{\"vocab_size\": 10}");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_bad_usage),
	        cmocka_unit_test(test_json_errors),
	        cmocka_unit_test(test_json_stopped),
	        cmocka_unit_test(test_lists),
	        cmocka_unit_test(test_long_list_and_nul),
	        cmocka_unit_test(test_help_and_version),
	        cmocka_unit_test(test_full_stdout),
	        cmocka_unit_test(test_inspect),
	        cmocka_unit_test(test_data_show),
	        cmocka_unit_test(test_topo),
	        cmocka_unit_test(test_topo_nodes),
	        cmocka_unit_test(test_device_is_missing),
	        cmocka_unit_test(test_tokenize),
	        cmocka_unit_test(test_tokenize_bad),
	};

	if (!getenv("FERRY_BINARY")) {
		fprintf(stderr, "FERRY_BINARY is not set\n");
		return 1;
	}
	return cmocka_run_group_tests(tests, setup, check_dir_remove);
}
