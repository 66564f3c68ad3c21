/* links: cli */
/* Models that also read images: a result replaces the model's directory, with all that it holds. The models,
 * their losses and adapters are those of transformers and PEFT (tests/golden/make_wholes.py). */
#include "tests/run_fixture.h"

#include "checkpoint/hf/hf_dir.h"

#include <math.h>

static const char *const models[] = {"gemma3", "qwen2_5_vl", "llava"};
enum { MODELS = sizeof(models) / sizeof(*models) };

static const char *const side_names[] = {"preprocessor_config.json", "processor_config.json",
        "video_preprocessor_config.json", "chat_template.jinja"};

static char golden[400];

#define COMMON                                                                                               \
	"data_format=tokens device=host threads=1 max_length=64 per_device_train_batch_size=2 "              \
	"lr_scheduler_type=constant "

/* Parts of names of what ferry does not train. */
static int is_other(const char *name)
{
	static const char *const parts[] = {"vision", "visual", "projector", "mtp."};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (strstr(name, parts[i]))
			return 1;
	return 0;
}

static const struct safetensors_tensor *find(
        const struct hf_dir *dir, const char *name, const struct safetensors **file)
{
	for (int f = 0; f < dir->file_count; f++) {
		const struct safetensors_tensor *t = safetensors_find(dir->files[f], name);

		*file = dir->files[f];
		if (t)
			return t;
	}
	fail_msg("%s has no %s", dir->path, name);
	return NULL;
}

static char *bytes_of(const struct safetensors *file, const struct safetensors_tensor *t)
{
	char *bytes = mem_alloc((size_t)t->len_bytes + 1, 1);

	assert_int_equal(safetensors_read(file, t, bytes, 0, t->len_bytes), 0);
	return bytes;
}

/* Compares two directories tensor by tensor. Returns how many of the text part differ; of others none may. */
static int tensors_differ(const char *a, const char *b)
{
	struct hf_dir *left, *right;
	int64_t count[2] = {0};
	int differ = 0;

	assert_int_equal(hf_dir_open(&left, a), 0);
	assert_int_equal(hf_dir_open(&right, b), 0);
	for (int f = 0; f < right->file_count; f++)
		count[1] += right->files[f]->tensor_count;
	for (int f = 0; f < left->file_count; f++)
		for (int64_t i = 0; i < left->files[f]->tensor_count; i++) {
			const struct safetensors_tensor *t = &left->files[f]->tensors[i];
			const struct safetensors *file;
			const struct safetensors_tensor *same = find(right, t->name, &file);
			char *one = bytes_of(left->files[f], t), *other = bytes_of(file, same);
			int is_same = t->len_bytes == same->len_bytes && t->dtype == same->dtype &&
			              !memcmp(one, other, (size_t)t->len_bytes);

			count[0]++;
			differ += !is_same;
			assert_int_equal(t->rank, same->rank);
			assert_memory_equal(t->shape, same->shape, (size_t)t->rank * sizeof(*t->shape));
			if (is_other(t->name) && !is_same)
				fail_msg("%s of %s changed in %s", t->name, a, b);
			mem_free(one);
			mem_free(other);
		}
	assert_int_equal(count[0], count[1]);
	hf_dir_close(left);
	hf_dir_close(right);
	return differ;
}

static void assert_side(const char *model, const char *result, int with_config)
{
	char a[900], b[900];

	for (size_t i = 0; i < sizeof(side_names) / sizeof(*side_names) + (size_t)with_config; i++) {
		const char *name =
		        i < sizeof(side_names) / sizeof(*side_names) ? side_names[i] : "config.json";

		snprintf(a, sizeof(a), "%s/%s/%s", golden, model, name);
		snprintf(b, sizeof(b), "%s/%s", result, name);
		assert_same_files(a, b, name);
	}
}

/* The token losses of a model's rows. */
static json_t *losses_of(const char *model, const char *words)
{
	json_t *report, *all = json_array(), *row;
	size_t i;

	assert_ferry_json(&report,
	        "eval %s data=%s/%s/rows.jsonl data_format=tokens device=host compute_dtype=fp32 "
	        "per_token=on "
	        "--json",
	        words, golden, model);
	json_array_foreach(json_object_get(report, "token_losses"), i, row) json_array_extend(all, row);
	json_decref(report);
	return all;
}

/* fp32 sums in another order than torch's: 1e-5 of the largest loss is 100 times what was seen. */
static void assert_losses(const json_t *want, const char *model, const char *words)
{
	json_t *got = losses_of(model, words);

	assert_true(json_array_size(want) > 10);
	assert_int_equal(json_array_size(got), json_array_size(want));
	for (size_t i = 0; i < json_array_size(want); i++)
		if (!(fabs(json_number_value(json_array_get(got, i)) -
		              json_number_value(json_array_get(want, i))) < 2e-4))
			fail_msg("%s, %s: loss %zu is %g, not %g", model, words, i,
			        json_number_value(json_array_get(got, i)),
			        json_number_value(json_array_get(want, i)));
	json_decref(got);
}

static json_t *golden_losses(const char *model)
{
	json_t *losses;
	char path[900];

	snprintf(path, sizeof(path), "%s/%s/losses.json", golden, model);
	assert_int_equal(json_read_file(&losses, path, 1 << 20), 0);
	return losses;
}

/* What transformers computes, of the model and with PEFT's adapter; merged too, which keeps all other
 * parts. */
static void test_as_transformers(void **state)
{
	char words[2000], from[900], to[900];

	(void)state;
	for (int m = 0; m < MODELS; m++) {
		json_t *losses = golden_losses(models[m]);

		snprintf(words, sizeof(words), "model=%s/%s", golden, models[m]);
		assert_losses(json_object_get(losses, "model"), models[m], words);
		snprintf(words, sizeof(words), "model=%s/%s lora_adapter=%s/%s/adapter", golden, models[m],
		        golden, models[m]);
		assert_losses(json_object_get(losses, "adapter"), models[m], words);
		remove_run("merged");
		assert_ferry(0, NULL, "merge %s output_dir=%s/merged export_dtype=fp32 max_shard_size=20KB",
		        words, work_dir);
		snprintf(from, sizeof(from), "%s/%s", golden, models[m]);
		snprintf(to, sizeof(to), "%s/merged", work_dir);
		assert_true(tensors_differ(from, to) > 0);
		assert_side(models[m], to, 0);
		snprintf(words, sizeof(words), "model=%s/merged", work_dir);
		assert_losses(json_object_get(losses, "adapter"), models[m], words);
		json_decref(losses);
	}
}

/* Training that changes nothing gives the same tensors, and the same files beside them. */
static void test_the_same(void **state)
{
	char from[900], to[900];

	(void)state;
	for (int m = 0; m < MODELS; m++) {
		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s/%s data=%s/%s/rows.jsonl output_dir=%s/out max_steps=1 "
		        "learning_rate=0 "
		        "compute_dtype=bf16 " COMMON,
		        golden, models[m], golden, models[m], work_dir);
		snprintf(from, sizeof(from), "%s/%s", golden, models[m]);
		snprintf(to, sizeof(to), "%s/out/model", work_dir);
		assert_int_equal(tensors_differ(from, to), 0);
		assert_side(models[m], to, 1);
	}
}

/* Trained, resumed, exported and with rank 0 alone that reads: always the same tensors; and the text part
 * alone. */
static void test_trained(void **state)
{
	static const char *const keys[] = {"", "freeze='.*layers\\.0\\..*'", "state_dict_type=full"};
	char from[900], once[900], to[900], words[1500];

	(void)state;
	for (int m = 0; m < MODELS; m++) {
		const char *model = models[m], *more = keys[m];
		json_t *losses;

		snprintf(words, sizeof(words),
		        "train model=%s/%s data=%s/%s/rows.jsonl learning_rate=1e-2 save_steps=1 "
		        "export_dtype=bf16 " COMMON "%s",
		        golden, model, golden, model, more);
		remove_run("once");
		remove_run("out");
		remove_run("exported");
		remove_run("text");
		assert_ferry(0, NULL, "%s output_dir=%s/once max_steps=3", words, work_dir);
		assert_ferry(0, NULL, "%s output_dir=%s/out max_steps=3 load=rank0_only save_total_limit=all",
		        words, work_dir);
		snprintf(from, sizeof(from), "%s/%s", golden, model);
		snprintf(once, sizeof(once), "%s/once/model", work_dir);
		snprintf(to, sizeof(to), "%s/out/model", work_dir);
		assert_true(tensors_differ(from, once) > 5);
		assert_int_equal(tensors_differ(once, to), 0);
		assert_ferry(0, NULL,
		        "%s output_dir=%s/out max_steps=3 resume_from_checkpoint=%s/out/checkpoint-000001",
		        words, work_dir, work_dir);
		assert_int_equal(tensors_differ(once, to), 0);
		assert_side(model, to, 1);
		assert_ferry(0, NULL, "verify %s/out", work_dir);

		assert_ferry(0, NULL, "export checkpoint=%s/once output_dir=%s/exported", work_dir, work_dir);
		snprintf(to, sizeof(to), "%s/exported", work_dir);
		assert_int_equal(tensors_differ(once, to), 0);
		assert_ferry(0, NULL, "export checkpoint=%s/once output_dir=%s/text export_text_only=on",
		        work_dir, work_dir);
		assert_false(run_has("text/preprocessor_config.json"));
		assert_true(run_has("text/chat_template.jinja"));
		snprintf(words, sizeof(words), "model=%s/exported", work_dir);
		losses = losses_of(model, words);
		snprintf(words, sizeof(words), "model=%s/text", work_dir);
		assert_losses(losses, model, words);
		assert_null(strstr(ferry_said(), "tensor"));
		json_decref(losses);
	}
}

/* A text-only config.json beside names of the whole model, as transformers writes it, and a whole one beside
 * names of the text class: both are read, and a result has the names of the files. */
static void test_either_name(void **state)
{
	char command[2500], from[1600], to[900], words[1500];
	json_t *losses = golden_losses("qwen2_5_vl");

	(void)state;
	remove_run("text");
	remove_run("out");
	remove_run("mixed");
	assert_ferry(0, NULL,
	        "train model=%s/qwen2_5_vl data=%s/qwen2_5_vl/rows.jsonl output_dir=%s/out max_steps=1 "
	        "learning_rate=0 "
	        "export_text_only=on " COMMON,
	        golden, golden, work_dir);
	snprintf(command, sizeof(command),
	        "mkdir %s/mixed && cp %s/qwen2_5_vl/model.safetensors %s/out/model/config.json %s/mixed",
	        work_dir, golden, work_dir, work_dir);
	assert_int_equal(system(command), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(words, sizeof(words), "model=%s/%s", work_dir, i ? "out/model" : "mixed");
		if (i) {
			snprintf(command, sizeof(command), "cp %s/qwen2_5_vl/config.json %s/out/model",
			        golden, work_dir);
			assert_int_equal(system(command), 0);
		}
		assert_losses(json_object_get(losses, "model"), "qwen2_5_vl", words);
		remove_run("again");
		assert_ferry(0, NULL,
		        "train %s data=%s/qwen2_5_vl/rows.jsonl output_dir=%s/again max_steps=1 "
		        "learning_rate=0 " COMMON,
		        words, golden, work_dir);
		snprintf(from, sizeof(from), "%s", words + strlen("model="));
		snprintf(to, sizeof(to), "%s/again/model", work_dir);
		assert_int_equal(tensors_differ(from, to), 0);
	}
	json_decref(losses);
}

/* Layers beyond config.json's are the text's, not another part's, whether their names say so or not. */
static void test_layers_left(void **state)
{
	static const char *const wholes[] = {"llava", "qwen2_5_vl"};
	char command[2500];

	(void)state;
	for (int i = 0; i < 2; i++) {
		remove_run("short");
		snprintf(command, sizeof(command),
		        "cp -r %s/%s %s/short && chmod -R u+w %s/short && sed -i '/layer_types/,/]/d; "
		        "s/num_hidden_layers\": 2/num_hidden_layers\": 1/' %s/short/config.json",
		        golden, wholes[i], work_dir, work_dir, work_dir);
		assert_int_equal(system(command), 0);
		assert_ferry(0, NULL,
		        "eval model=%s/short data=%s/%s/rows.jsonl data_format=tokens device=host", work_dir,
		        golden, wholes[i]);
		assert_non_null(strstr(ferry_said(), "config.json has 1 layers, the files 2; leaving "));
		assert_non_null(strstr(ferry_said(), "of its other parts stay unchanged: "));
	}
}

/* ---- refused ---- */

/* Without the model's files a checkpoint of all weights is the text part alone; with other files nothing
 * is. */
static void test_files_gone(void **state)
{
	char command[2500];

	(void)state;
	remove_run("m");
	remove_run("out");
	remove_run("exported");
	snprintf(command, sizeof(command), "cp -r %s/llava %s/m", golden, work_dir);
	assert_int_equal(system(command), 0);
	assert_ferry(0, NULL,
	        "train model=%s/m data=%s/llava/rows.jsonl output_dir=%s/out max_steps=1 " COMMON, work_dir,
	        golden, work_dir);
	assert_ferry(2, NULL, "export checkpoint=%s/out model=%s/qwen2_5_vl output_dir=%s/exported", work_dir,
	        golden, work_dir);
	remove_run("m");
	assert_ferry(2, NULL, "export checkpoint=%s/out output_dir=%s/exported", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "has only the text part of its model; set model"));
	assert_false(run_has("exported"));
	assert_ferry(0, NULL, "export checkpoint=%s/out output_dir=%s/exported export_text_only=on", work_dir,
	        work_dir);
	remove_run("exported");
	assert_ferry(0, NULL, "export checkpoint=%s/out model=%s/llava output_dir=%s/exported", work_dir,
	        golden, work_dir);
}

/* Renames a module in the golden adapter's files. */
static void adapter_rename(const char *from, const char *to)
{
	char command[2500];

	remove_run("adapter");
	snprintf(command, sizeof(command),
	        "cp -r %s/llava/adapter %s/adapter && chmod -R u+w %s/adapter && sed -i 's/%s/%s/' "
	        "%s/adapter/adapter_model.safetensors %s/adapter/adapter_config.json",
	        golden, work_dir, work_dir, from, to, work_dir, work_dir);
	assert_int_equal(system(command), 0);
}

/* An adapter that fits nothing, or parts that ferry does not read, is refused by name. */
static void test_adapters_refused(void **state)
{
	(void)state;
	adapter_rename("layers.0.self_attn.q_proj", "layers.9.self_attn.q_proj");
	assert_ferry(2, NULL, "merge model=%s/llava lora_adapter=%s/adapter output_dir=%s/no", golden,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "layers.9.self_attn.q_proj"));
	adapter_rename("model.language_model.layers.0", "model.vision__tower_.layers.0");
	assert_ferry(2, NULL, "merge model=%s/llava lora_adapter=%s/adapter output_dir=%s/no", golden,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "vision__tower_"));
	adapter_rename("q_proj|down_proj", "x_proj|xxxx_proj");
	assert_ferry(2, NULL, "merge model=%s/llava lora_adapter=%s/adapter output_dir=%s/no", golden,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "x_proj"));
	assert_false(run_has("no"));
}

/* With export_text_only the adapter is for the class of the text part. */
static void test_adapter_names(void **state)
{
	static const char *const names[] = {
	        "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight",
	        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"};
	char path[900];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct safetensors *file;

		remove_run("out");
		assert_ferry(0, NULL,
		        "train model=%s/llava data=%s/llava/rows.jsonl output_dir=%s/out max_steps=1 "
		        "lora_rank=2 "
		        "lora_target_modules=q_proj export_text_only=%s " COMMON,
		        golden, golden, work_dir, i ? "on" : "off");
		snprintf(path, sizeof(path), "%s/out/adapter/adapter_model.safetensors", work_dir);
		assert_int_equal(safetensors_open(&file, path), 0);
		assert_non_null(safetensors_find(file, names[i]));
		assert_null(safetensors_find(file, names[!i]));
		safetensors_close(file);
		assert_int_equal(run_has("out/adapter/preprocessor_config.json"), !i);
		assert_ferry(0, NULL,
		        "eval model=%s/llava lora_adapter=%s/out/adapter data=%s/llava/rows.jsonl "
		        "data_format=tokens device=host",
		        golden, work_dir, golden);
	}
}

static int begin(void **state)
{
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	ferry_run_begin("run-wholes");
	snprintf(golden, sizeof(golden), "%s/tests/golden/wholes", source ? source : ".");
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
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_as_transformers),
	        cmocka_unit_test(test_the_same),
	        cmocka_unit_test(test_trained),
	        cmocka_unit_test(test_either_name),
	        cmocka_unit_test(test_layers_left),
	        cmocka_unit_test(test_files_gone),
	        cmocka_unit_test(test_adapters_refused),
	        cmocka_unit_test(test_adapter_names),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
