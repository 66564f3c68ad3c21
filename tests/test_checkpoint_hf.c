/* links: checkpoint */
/* HuggingFace directories: import, tied heads, refusals, links. */
#include "tests/checkpoint_hf_rig.h"

#include "checkpoint/hf/hf_dir.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/inspect.h"

#include <sys/stat.h>

/* ---- import ---- */

static void one_file_and_shards(void **state)
{
	char *in = fixture_sub_dir(dir, "good");
	struct model model = fixture_model(0);
	struct given bare[FIXTURE_TENSORS + 1];
	static const char *const map[][2] = {{"model.embed.weight", "b.safetensors"},
	        {"model.blocks.0.q.weight", "a.safetensors"}, {"model.blocks.0.q.bias", "b.safetensors"},
	        {"model.norm.weight", "a.safetensors"}, {"lm_head.weight", "b.safetensors"}};
	const struct given in_a[] = {all[3], all[1]}, in_b[] = {all[4], all[0], all[2]};

	(void)state;
	put_shard(in, "a.safetensors", in_a, 2);
	put_shard(in, "b.safetensors", in_b, 3);
	put_index(in, map, 5);
	check_loads(in, &model);
	/* a tensor that the index does not list counts as well */
	put_index(in, map, 4);
	check_loads(in, &model);
	/* one file wins over an index */
	put_shard(in, "model.safetensors", all, 5);
	fixture_put(in, "model.safetensors.index.json", "{");
	check_loads(in, &model);
	/* without prefix, with buffers, with a stranger */
	memcpy(bare, all, sizeof(all));
	for (int t = 0; t < 4; t++)
		bare[t].name += 6;
	bare[5] = (struct given){"blocks.0.rotary.inv_freq", 3, SAFETENSORS_I64, 1};
	put_shard(in, "model.safetensors", bare, 6);
	*last_warning = 0;
	check_loads(in, &model);
	assert_string_equal(last_warning, "");
	bare[5].name = "vision.patch.weight";
	put_shard(in, "model.safetensors", bare, 6);
	check_loads(in, &model);
	assert_non_null(strstr(last_warning,
	        "leaving 1 tensor unused and unchanged that a fixture model does not have: vision"));
	mem_free(in);
}

static void ranges(void **state)
{
	char *in = fixture_sub_dir(dir, "ranges");
	struct model model = fixture_model(0);
	struct fixture_planes planes = {.model = &model};
	struct plane_sink sink = fixture_sink(&planes);
	struct hf_import *import;
	float values[3];

	(void)state;
	put_shard(in, "model.safetensors", all, 5);
	check_ok(hf_import_open(&import, in, &model));
	check_ok(hf_import_read(import, values, 0, 7, 3));
	for (int i = 0; i < 3; i++)
		assert_true(values[i] == given_value(0, 7 + i));
	check_ok(hf_import_load(import, &sink, &(struct plane_range){4, 10, 20}, 1, NULL));
	for (int64_t i = 0; i < 65; i++) {
		uint16_t wanted = i >= 10 && i < 30 ? bf16_from_f32(given_value(4, i)) : 0;

		assert_int_equal(planes.value[PLANE_HI][4][i], wanted);
	}
	hf_import_close(import);
	hf_import_close(NULL);
	mem_free(in);
}

static int export(const char *to, enum safetensors_dtype dtype, int64_t shard_bytes, const char *files,
        struct fixture_planes *planes, enum hf_export_existing existing)
{
	struct plane_source source = fixture_source(planes);
	struct side_files side = {0};
	struct hf_export options = {
	        .dir = to, .existing = existing, .dtype = dtype, .shard_bytes = shard_bytes, .side = &side};
	int err = files ? side_files_read(&side, files, NULL) : 0;

	if (!err)
		err = hf_export_write(&options, planes->model, &source);
	side_files_free(&side);
	return err;
}

/* Each format of weights: read, and written. */
static void each_format_of_weights(void **state)
{
	char *in = fixture_sub_dir(dir, "formats"), *to = file_join(dir, "formats-out");
	struct given given[FIXTURE_TENSORS];
	int seen = 0;

	(void)state;
	memcpy(given, all, sizeof(all));
	for (int f = 0; f < FORMAT_COUNT; f++) {
		struct model model = fixture_model(0);
		struct fixture_planes planes = {.model = &model};
		struct plane_sink sink = fixture_sink(&planes);
		struct hf_import *import;

		if (!format_facts[f].is_of_weights)
			continue;
		for (int g = 0; g < FIXTURE_TENSORS; g++)
			given[g].dtype = (enum safetensors_dtype)format_facts[f].element;
		put_shard(in, "model.safetensors", given, FIXTURE_TENSORS);
		check_loads(in, &model);
		for (int t = 0; t < model.tensor_count; t++)
			assert_int_equal(model.tensors[t].storage, f);
		check_ok(hf_import_open(&import, in, &model));
		check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
		hf_import_close(import);
		check_ok(export(to, given[0].dtype, 0, NULL, &planes, HF_EXPORT_REPLACE));
		check_loads(to, &model);
		assert_int_equal(model.tensors[0].storage, f);
		seen++;
	}
	assert_true(seen >= 3);
	mem_free(in);
	mem_free(to);
}

static void tied_heads(void **state)
{
	char *in = fixture_sub_dir(dir, "tied");
	struct given given[FIXTURE_TENSORS];
	struct model model = fixture_model(1);

	(void)state;
	put_shard(in, "model.safetensors", all, 4); /* no head */
	check_loads(in, &model);
	memcpy(given, all, sizeof(all));
	given[4].tensor = 0; /* the head is the embedding, written twice, in another dtype */
	given[4].dtype = SAFETENSORS_F32;
	put_shard(in, "model.safetensors", given, 5);
	check_loads(in, &model);
	assert_int_equal(model.config.tied, 1);
	given[0] = given[4]; /* only the head */
	put_shard(in, "model.safetensors", given, 4);
	check_loads(in, &model);
	assert_int_equal(model.config.tied, 1);
	put_shard(in, "model.safetensors", all, 5); /* two tensors */
	check_loads(in, &model);
	assert_int_equal(model.config.tied, 0);
	assert_non_null(strstr(last_warning, "differ"));
	put_shard(in, "model.safetensors", all, 4);
	refuses(in, 0, ERR_INPUT, "lm_head.weight is missing; if the head is the embedding");
	given[0] = all[0], given[4] = all[3], given[4].name = "lm_head.weight";
	put_shard(in, "model.safetensors", given, 5);
	refuses(in, 1, ERR_INPUT, "\"lm_head.weight\" has shape [5]; config.json gives [13, 5]");
	mem_free(in);
}

static void wrong_tensors(void **state)
{
	char *in = fixture_sub_dir(dir, "wrong");
	static const struct {
		struct given given;
		const char *part;
		int code;
	} cases[] = {
	        {{"model.norm.weight", 3, SAFETENSORS_I32, 1}, "\"model.norm.weight\" is I32",
	                ERR_UNSUPPORTED},
	        {{"model.norm.weight", 3, SAFETENSORS_F64, 1}, "\"model.norm.weight\" is F64",
	                ERR_UNSUPPORTED},
	        {{"model.norm.weight", 3, SAFETENSORS_BOOL, 1}, "is BOOL", ERR_UNSUPPORTED},
	        {{"model.norm.weight", 3, SAFETENSORS_C64, 1}, "is C64", ERR_UNSUPPORTED},
	        {{"model.norm.weight", 3, SAFETENSORS_F8_E4M3, 1}, "is F8_E4M3", ERR_UNSUPPORTED},
	        {{"model.norm.weight", 1, SAFETENSORS_F32, 1}, "has shape [5, 5]; config.json gives [5]",
	                ERR_INPUT},
	        {{"model.norm.weight", 3, SAFETENSORS_F32, INFINITY}, "holds -inf at element 0", ERR_INPUT},
	        {{"model.norm.weight", 3, SAFETENSORS_BF16, NAN}, "nan at element 0, byte", ERR_INPUT},
	        {{"model.norm.other", 3, SAFETENSORS_F32, 1},
	                "1 of 5 tensors are missing: model.norm.weight; the files contain: model.norm.other",
	                ERR_INPUT},
	        {{"embed.weight", 0, SAFETENSORS_F32, 1}, "two names of one tensor", ERR_INPUT},
	        {{"model.norm.qweight", 3, SAFETENSORS_I32, 1}, "quantized", ERR_UNSUPPORTED},
	        {{"model.norm.weight_scale_inv", 3, SAFETENSORS_F32, 1}, "needs one that ends in .weight",
	                ERR_INPUT},
	        {{"model.blocks.0.q.lora_A.default.weight", 3, SAFETENSORS_F32, 1}, "adapter",
	                ERR_UNSUPPORTED},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct model model = fixture_model(0);
		struct fixture_planes planes = {.model = &model};
		struct plane_sink sink = fixture_sink(&planes);
		struct given given[FIXTURE_TENSORS];
		struct hf_import *import;
		int err;

		memcpy(given, all, sizeof(all));
		given[3] = cases[i].given;
		put_shard(in, "model.safetensors", given, 5);
		err = hf_import_open(&import, in, &model);
		if (!err)
			err = hf_import_load(import, &sink, NULL, 0, NULL);
		check_fails(err, cases[i].code, cases[i].part);
		hf_import_close(import);
	}
	mem_free(in);
}

static void wrong_directories(void **state)
{
	char *in = fixture_sub_dir(dir, "broken"), *path;
	const char *a = "a.safetensors", *b = "b.safetensors";
	const struct given first[] = {all[0], all[1]}, second[] = {all[2], all[3], all[4]};
	const char *map[5][2] = {
	        {all[0].name, a}, {all[1].name, a}, {all[2].name, b}, {all[3].name, b}, {all[4].name, b}};
	static const char *const names[] = {"../a.safetensors", "/etc/passwd", "x/../a.safetensors", "", ".",
	        "..", ".hidden", "sub/a.safetensors", "a.safetensors/"};
	static const char *const indices[][2] = {{"[]", "is an array"}, {"{}", "has no weight_map"},
	        {"{\"weight_map\":{}}", "lists no tensor"}, {"{\"weight_map\":[]}", "weight_map"},
	        {"{\"weight_map\":{\"a\":1}}", "is an integer; expected a file name"},
	        {"{\"weight_map\":{\"a\":null}}", "expected a file name"},
	        {"{\"weight_map\":{\"a\":\"a\\u0000b\"}}", "NUL"},
	        {"{\"weight_map\":{\"a\":\"x\",\"a\":\"x\"}}", "duplicate"}, {"{", "index.json:1:"},
	        {"", "index.json:1:"}};

	(void)state;
	refuses(in, 0, ERR_INPUT, "contains no weights");
	refuses("/does/not/exist", 0, ERR_INPUT, "no such directory");
	fixture_put(in, "x.gguf", "");
	refuses(in, 0, ERR_UNSUPPORTED, "GGUF");
	fixture_put(in, "pytorch_model.bin", "");
	refuses(in, 0, ERR_UNSUPPORTED, "convert them with: python3");
	path = file_join(in, "x.gguf");
	refuses(path, 0, ERR_INPUT, "is not a directory");
	mem_free(path);
	put_shard(in, a, first, 2);
	put_shard(in, b, second, 3);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		map[4][1] = names[i];
		put_index(in, map, 5);
		refuses(in, 0, ERR_INPUT, "expected a plain file name in this directory");
	}
	map[4][1] = "c.safetensors";
	put_index(in, map, 5);
	refuses(in, 0, ERR_INPUT, "shard c.safetensors, listed in model.safetensors.index.json, is missing");
	map[4][1] = a;
	put_index(in, map, 5);
	refuses(in, 0, ERR_INPUT,
	        "tensor \"lm_head.weight\" is in b.safetensors, but is listed for a.safetensors");
	map[4][0] = "absent", map[4][1] = b;
	put_index(in, map, 5);
	refuses(in, 0, ERR_INPUT, "\"absent\" is listed for b.safetensors, which does not hold it");
	put_index(in, map, 3);
	put_shard(in, a, second, 3); /* all of b's: q.bias is listed, for b */
	refuses(in, 0, ERR_INPUT, "is in a.safetensors, but is listed for b.safetensors");
	map[0][0] = "model.norm.weight";
	map[1][0] = "model.blocks.0.q.bias";
	put_index(in, map, 2);
	put_shard(in, b, second, 3);
	map[2][0] = "lm_head.weight"; /* norm.weight is listed for a and lies in both */
	put_index(in, map, 3);
	refuses(in, 0, ERR_INPUT, "is in");
	for (size_t i = 0; i < sizeof(indices) / sizeof(*indices); i++) {
		fixture_put(in, "model.safetensors.index.json", indices[i][0]);
		refuses(in, 0, ERR_INPUT, indices[i][1]);
	}
	mem_free(in);
}

static void unlisted_tensor_in_two_shards(void **state)
{
	char *in = fixture_sub_dir(dir, "twice");
	const struct given first[] = {all[0], all[1], all[2]}, second[] = {all[2], all[3], all[4]};
	const char *map[][2] = {{all[0].name, "a.safetensors"}, {all[4].name, "b.safetensors"}};

	(void)state;
	put_shard(in, "a.safetensors", first, 3);
	put_shard(in, "b.safetensors", second, 3);
	put_index(in, map, 2);
	refuses(in, 0, ERR_INPUT, "is in two shards, a.safetensors and b.safetensors");
	mem_free(in);
}

static void links(void **state)
{
	char *in = fixture_sub_dir(dir, "links"), *away = fixture_sub_dir(dir, "away");
	char *hub = fixture_sub_dir(dir, "hub"), *file = file_join(in, "model.safetensors");
	char *target = file_join(away, "x.safetensors"), *blobs = file_join(hub, "blobs");
	char *snapshot = file_join(hub, "snapshots/0123abc"),
	     *linked = file_join(snapshot, "model.safetensors");
	char *whole = file_join(dir, "link-to-directory");
	struct model model = fixture_model(0);

	(void)state;
	put_shard(away, "x.safetensors", all, 5);
	assert_int_equal(symlink(target, file), 0);
	refuses(in, 0, ERR_INPUT, "outside the directory");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(symlink("../away/x.safetensors", file), 0);
	refuses(in, 0, ERR_INPUT, "outside the directory");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(symlink("absent", file), 0);
	refuses(in, 0, ERR_INPUT, "link to a missing file");
	assert_int_equal(unlink(file), 0);
	put_shard(in, "real.safetensors", all, 5);
	assert_int_equal(symlink("real.safetensors", file), 0); /* inside: fine */
	check_loads(in, &model);
	assert_int_equal(symlink(in, whole), 0); /* the directory itself may be one */
	check_loads(whole, &model);
	/* a snapshot of the hub's cache */
	check_ok(file_make_dir(blobs));
	check_ok(file_make_dir(snapshot));
	put_shard(blobs, "deadbeef", all, 5);
	assert_int_equal(symlink("../../blobs/deadbeef", linked), 0);
	check_loads(snapshot, &model);
	assert_int_equal(unlink(linked), 0);
	assert_int_equal(symlink("../../../away/x.safetensors", linked), 0);
	refuses(snapshot, 0, ERR_INPUT, "outside the directory");
	assert_int_equal(unlink(file), 0);
	assert_int_equal(mkfifo(file, 0600), 0);
	refuses(in, 0, ERR_INPUT, "pipe");
	mem_free(in), mem_free(away), mem_free(hub), mem_free(file), mem_free(target), mem_free(blobs);
	mem_free(snapshot), mem_free(linked), mem_free(whole);
}

/* ---- export ---- */

/* fp32 export and import give back every bit; bf16 gives hi; for one file and for shards of any size. */
static void export_round_trip(void **state)
{
	char *to = file_join(dir, "exported"), *files = fixture_model_files(dir);
	struct model model = fixture_model(0);
	struct fixture_planes planes, back = {.model = &model};
	struct plane_sink sink = fixture_sink(&back);
	struct hf_import *import;

	(void)state;
	fixture_fill(&planes, &model, 5);
	for (int64_t shard = 0; shard < 700; shard += 20) {
		for (int wide = 0; wide < 2; wide++) {
			check_ok(export(to, wide ? SAFETENSORS_F32 : SAFETENSORS_BF16, shard, files, &planes,
			        HF_EXPORT_REPLACE));
			check_ok(hf_import_open(&import, to, &model));
			check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
			hf_import_close(import);
			for (int t = 0; t < FIXTURE_TENSORS; t++) {
				for (int64_t i = 0; i < fixture_tensors[t].count; i++) {
					uint32_t hi = planes.value[PLANE_HI][t][i],
					         lo = planes.value[PLANE_LO][t][i];

					assert_int_equal(back.value[PLANE_HI][t][i], hi);
					assert_int_equal(back.value[PLANE_LO][t][i], wide ? lo : 0);
				}
			}
		}
		assert_int_equal(
		        fixture_names_with(to, "model.safetensors.index.json"), shard && shard < 660);
		assert_int_equal(fixture_names_with(to, "config.json"), 1);
		assert_int_equal(fixture_names_with(to, "tokenizer.json"), 1);
		assert_int_equal(fixture_names_with(to, "README"), 0);
	}
	assert_int_equal(fixture_names_with(dir, ".tmp"), 0);
	mem_free(to);
	mem_free(files);
}

static void export_tied_and_half(void **state)
{
	char *to = file_join(dir, "half/"); /* a slash at the end is nothing */
	struct model model = fixture_model(1);
	struct fixture_planes planes = {.model = &model}, back = {.model = &model};
	struct plane_sink sink = fixture_sink(&back);
	struct hf_import *import;
	json_t *seen;

	(void)state;
	for (int t = 0; t < model.tensor_count; t++) {
		for (int64_t i = 0; i < model.tensors[t].count; i++)
			planes.value[PLANE_HI][t][i] = plane_hi(f32_bits(given_value(t, i)));
	}
	check_ok(export(to, SAFETENSORS_F16, 0, NULL, &planes, HF_EXPORT_REFUSE));
	check_ok(hf_import_open(&import, to, &model));
	check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
	hf_import_close(import);
	assert_memory_equal(planes.value[PLANE_HI], back.value[PLANE_HI], sizeof(back.value[0]));
	check_ok(inspect_path(&seen, to));
	assert_int_equal(json_array_size(json_object_get(seen, "tensors")), 4);
	assert_int_equal(json_integer_value(json_object_get(seen, "parameters")), 100);
	json_decref(seen);
	check_fails(
	        export(to, SAFETENSORS_F16, 0, NULL, &planes, HF_EXPORT_REFUSE), ERR_INPUT, "is not empty");
	planes.value[PLANE_HI][3][2] = bf16_from_f32(70000);
	check_fails(export(to, SAFETENSORS_F16, 0, NULL, &planes, HF_EXPORT_REPLACE), ERR_INPUT,
	        "tensor model.norm.weight holds 70144 at element 2, beyond the range of fp16");
	assert_int_equal(fixture_names_with(dir, ".tmp"), 0);
	check_loads(to, &model); /* the old content is still there */
	mem_free(to);
}

/* ---- inspect ---- */

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void inspecting(void **state)
{
	char *in = fixture_sub_dir(dir, "inspected"), *out = fixture_sub_dir(dir, "run"), *path;
	json_t *seen, *tensor, *list;

	(void)state;
	put_shard(in, "model.safetensors", all, 5);
	fixture_put(in, "config.json", "{\"model_type\":\"fixture\"}");
	check_ok(inspect_path(&seen, in));
	assert_string_equal(text_of(seen, "kind"), "model");
	assert_string_equal(text_of(seen, "model_type"), "fixture");
	assert_int_equal(json_integer_value(json_object_get(seen, "parameters")), 165);
	tensor = json_array_get(json_object_get(seen, "tensors"), 1);
	assert_string_equal(text_of(tensor, "name"), "model.blocks.0.q.weight");
	assert_string_equal(text_of(tensor, "dtype"), "F16");
	assert_string_equal(text_of(tensor, "file"), "model.safetensors");
	assert_int_equal(json_integer_value(json_object_get(tensor, "bytes")), 50);
	assert_int_equal(json_array_size(json_object_get(tensor, "shape")), 2);
	json_decref(seen);
	path = file_join(in, "model.safetensors");
	check_ok(inspect_path(&seen, path));
	assert_string_equal(text_of(seen, "kind"), "safetensors");
	json_decref(seen);
	mem_free(path);

	check_fails(inspect_path(&seen, out), ERR_INPUT, "contains no weights");
	check_ok(fixture_save(out, in, 3, 0));
	check_ok(fixture_save(out, in, 4, 0));
	path = file_join(out, "checkpoint-000004/manifest.json");
	check_ok(file_remove_tree(path));
	mem_free(path);
	check_ok(inspect_path(&seen, out));
	assert_string_equal(text_of(seen, "kind"), "output_dir");
	assert_non_null(strstr(text_of(seen, "newest"), "checkpoint-000003"));
	assert_true(json_is_null(json_object_get(seen, "model")));
	list = json_object_get(seen, "checkpoints");
	assert_int_equal(json_array_size(list), 2);
	assert_true(json_is_true(json_object_get(json_array_get(list, 0), "whole")));
	assert_non_null(strstr(text_of(json_array_get(list, 1), "error"), "manifest.json"));
	path = mem_strdup(text_of(seen, "newest"));
	json_decref(seen);
	check_ok(inspect_path(&seen, path));
	assert_string_equal(text_of(seen, "kind"), "checkpoint");
	assert_int_equal(json_integer_value(json_object_get(seen, "step")), 3);
	assert_int_equal(json_array_size(json_object_get(seen, "planes")), 4);
	assert_int_equal(json_array_size(json_object_get(seen, "files")), 2);
	tensor = json_array_get(json_object_get(seen, "tensors"), 0);
	assert_int_equal(json_integer_value(json_object_get(tensor, "bytes")), 65 * 12);
	assert_string_equal(text_of(tensor, "file"), "rank-00000.safetensors");
	json_decref(seen);
	mem_free(path);
	check_fails(inspect_path(&seen, "/does/not/exist"), ERR_INPUT, "no such file");
	mem_free(in);
	mem_free(out);
}

static void out_of_memory(void **state)
{
	char *in = fixture_sub_dir(dir, "memory"), *to = file_join(dir, "memory-out");
	const char *map[5][2];
	int code, opened = fixture_open_files();
	struct model model = fixture_model(0);
	struct fixture_planes planes = {.model = &model};
	struct plane_sink sink = fixture_sink(&planes);
	struct hf_import *import;

	(void)state;
	for (int t = 0; t < 5; t++) {
		map[t][0] = all[t].name;
		map[t][1] = t < 2 ? "a.safetensors" : "b.safetensors";
	}
	put_shard(in, "a.safetensors", all, 2);
	put_shard(in, "b.safetensors", all + 2, 3);
	put_index(in, map, 5);
	fixture_put(in, "config.json", "{}");
	for (int forever = 0; forever < 2; forever++) {
		int64_t n = 0;

		do {
			mem_fault_arm(++n, forever ? MEM_FAULT_FOREVER : MEM_FAULT_ONCE);
			code = hf_import_open(&import, in, &model);
			if (!code)
				code = hf_import_load(import, &sink, NULL, 0, NULL);
			hf_import_close(import);
			if (!code)
				code = export(to, SAFETENSORS_F32, 200, in, &planes, HF_EXPORT_REPLACE);
			mem_fault_arm(0, MEM_FAULT_ONCE);
			if (code)
				check_fails(code, ERR_NOMEM, "out of memory");
		} while (code);
		assert_true(n > 50);
		assert_int_equal(fixture_names_with(dir, ".tmp"), 0);
		check_loads(to, &model);
	}
	assert_int_equal(fixture_open_files(), opened);
	mem_free(in);
	mem_free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(one_file_and_shards),
	        cmocka_unit_test(ranges),
	        cmocka_unit_test(each_format_of_weights),
	        cmocka_unit_test(tied_heads),
	        cmocka_unit_test(wrong_tensors),
	        cmocka_unit_test(wrong_directories),
	        cmocka_unit_test(unlisted_tensor_in_two_shards),
	        cmocka_unit_test(links),
	        cmocka_unit_test(export_round_trip),
	        cmocka_unit_test(export_tied_and_half),
	        cmocka_unit_test(inspecting),
	        cmocka_unit_test(out_of_memory),
	};

	return cmocka_run_group_tests_name("checkpoint_hf", tests, make_dir, check_dir_remove);
}
