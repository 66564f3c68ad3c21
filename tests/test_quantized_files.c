/* links: cli */
/* Quantized models as they are published: runs over them have the numbers of a plain model with the same
 * values, whether the codes stay or not. What does not fit is refused by name. */
#include "tests/files_made.h"
#include "tests/run_fixture.h"

#include "base/codes.h"
#include "checkpoint/file/safetensors.h"
#include "optim/weight_format.h"

#include <math.h>

/* ---- files ---- */

static void entry_add(struct files *f, const char *prefix, const char *ending, enum safetensors_dtype dtype,
        int rank, int64_t rows, int64_t cols, const void *data)
{
	void *to = files_add(f, prefix, ending, dtype, rank, (int64_t[]){rows, cols});

	memcpy(to, data, (size_t)f->bytes[f->count - 1]);
}

/* A model like work_dir/plain with these tensors. */
static void model_write(const struct files *f, const char *dir, const char *quantization)
{
	char command[1300];

	snprintf(command, sizeof(command), "rm -rf %s/%s && cp -r %s/plain %s/%s && rm %s/%s/*.safetensors",
	        work_dir, dir, work_dir, work_dir, dir, work_dir, dir);
	assert_int_equal(system(command), 0);
	files_write(f, dir);
	if (quantization) {
		snprintf(command, sizeof(command),
		        "sed -i '0,/{/s//{\"quantization_config\": %s,/' %s/%s/config.json", quantization,
		        work_dir, dir);
		assert_int_equal(system(command), 0);
	}
}

/* ---- a matrix in codes ---- */

struct matrix {
	int64_t rows, cols, scale_count;
	uint8_t *codes, *nested;
	float *scales, *outer, *value;
};

/* Codes of a matrix, and, in `value`, what they stand for. */
static void matrix_make(
        struct matrix *m, const struct weight_format *f, const float *src, int64_t rows, int64_t cols)
{
	int64_t across, r = rows, c = cols;

	*m = (struct matrix){.rows = rows, .cols = cols, .scale_count = weight_format_scales(f, rows, cols)};
	m->codes = calloc((size_t)(rows * cols), 1);
	m->nested = calloc((size_t)m->scale_count, 1);
	m->scales = calloc((size_t)m->scale_count + 1, sizeof(float));
	m->outer = calloc((size_t)nested_outer_count(m->scale_count), sizeof(float));
	m->value = calloc((size_t)(rows * cols), sizeof(float));
	weight_format_shape(f, &r, &c);
	across = f->block_cols ? (c + f->block_cols - 1) / f->block_cols : 1;
	f->put(f, m->codes, m->scales, src, r, c);
	if (f->code == CODE_I8) /* as bitsandbytes has them: 127 times as large */
		for (int64_t i = 0; i < m->scale_count; i++) {
			m->scales[i] *= 127;
		}
	if (f->scale == CODE_SCALE_NESTED) {
		nested_make(m->outer, m->nested, m->scales, m->scale_count);
		code_scales_read(CODE_SCALE_NESTED, m->scales, m->nested, m->outer, 0, m->scale_count);
	}
	for (int64_t i = 0; i < rows * cols; i++) {
		float scale = m->scales[i / c / f->block_rows * across +
		                        (f->block_cols ? i % c / f->block_cols : 0)];

		if (f->code == CODE_I8)
			scale *= 7.874016e-03F;
		m->value[i] = code_values(f->code)[code_at(f->code, m->codes, i)] * scale;
	}
}

static void matrix_free(struct matrix *m)
{
	free(m->codes);
	free(m->nested);
	free(m->scales);
	free(m->outer);
	free(m->value);
}

/* ---- forms ---- */

enum form {
	NF4,
	NF4_TWICE,
	FP4,
	INT8,
	FP8,
	FP8_BF16,
	FP8_POWERS,
	FP8_ROWS,
	FP8_ONE,
	MXFP4,
	MXFP4_E8M0,
	FORM_COUNT
};

static const struct {
	const char *name, *config;
	enum code code;
	enum code_scale scale;
	int64_t block;
} forms[FORM_COUNT] = {
        {"nf4", "{\"quant_method\": \"bitsandbytes\"}", CODE_NF4, CODE_SCALE_F32, 64},
        {"nf4_twice", "{\"quant_method\": \"bitsandbytes\"}", CODE_NF4, CODE_SCALE_NESTED, 128},
        {"fp4", "{\"quant_method\": \"bitsandbytes\"}", CODE_FP4, CODE_SCALE_F32, 32},
        {"int8", "{\"quant_method\": \"bitsandbytes\"}", CODE_I8, CODE_SCALE_F32, 0},
        {"fp8", "{\"quant_method\": \"fp8\"}", CODE_E4M3, CODE_SCALE_F32, 128},
        {"fp8_bf16", "{\"quant_method\": \"fp8\"}", CODE_E4M3, CODE_SCALE_F32, 128},
        {"fp8_powers", "{\"quant_method\": \"fp8\"}", CODE_E4M3, CODE_SCALE_F32, 128},
        {"fp8_rows", "{\"quant_method\": \"compressed-tensors\"}", CODE_E4M3, CODE_SCALE_F32,
                WEIGHT_BLOCK_ROW},
        {"fp8_one", "{\"quant_method\": \"compressed-tensors\"}", CODE_E4M3, CODE_SCALE_F32,
                WEIGHT_BLOCK_ROW},
        {"mxfp4", "{\"quant_method\": \"compressed-tensors\"}", CODE_E2M1, CODE_SCALE_E8M0, 32},
        {"mxfp4_e8m0", "{\"quant_method\": \"compressed-tensors\"}", CODE_E2M1, CODE_SCALE_E8M0, 32},
};

/* The tensors of a matrix as bitsandbytes writes them. */
static void add_4bit(struct files *f, const char *name, const struct matrix *m, enum form form)
{
	int is_twice = forms[form].scale == CODE_SCALE_NESTED;
	char state[300], ending[60];

	snprintf(state, sizeof(state),
	        "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"bfloat16\", \"shape\": [%d, %d]%s",
	        forms[form].code == CODE_NF4 ? "nf4" : "fp4", (int)forms[form].block, (int)m->rows,
	        (int)m->cols, is_twice ? "" : "}");
	if (is_twice)
		snprintf(state + strlen(state), sizeof(state) - strlen(state),
		        ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": "
		        "%.17g}",
		        (double)m->outer[0]);
	entry_add(f, name, "", SAFETENSORS_U8, 2, m->rows * m->cols / 2, 1, m->codes);
	if (is_twice) {
		entry_add(f, name, ".absmax", SAFETENSORS_U8, 1, m->scale_count, 1, m->nested);
		entry_add(f, name, ".nested_absmax", SAFETENSORS_F32, 1,
		        nested_outer_count(m->scale_count) - 1, 1, m->outer + 1);
		entry_add(f, name, ".nested_quant_map", SAFETENSORS_F32, 1, 256, 1, nested_map());
	} else {
		entry_add(f, name, ".absmax", SAFETENSORS_F32, 1, m->scale_count, 1, m->scales);
	}
	entry_add(f, name, ".quant_map", SAFETENSORS_F32, 1, 16, 1, code_values(forms[form].code));
	snprintf(ending, sizeof(ending), ".quant_state.bitsandbytes__%s",
	        forms[form].code == CODE_NF4 ? "nf4" : "fp4");
	entry_add(f, name, ending, SAFETENSORS_U8, 1, (int64_t)strlen(state), 1, state);
}

static void add_coded(struct files *f, const char *name, const struct matrix *m, enum form form)
{
	int64_t across = (m->cols + 127) / 128;
	uint16_t half[2000];
	static uint8_t powers[100000];
	char prefix[120];

	snprintf(prefix, sizeof(prefix), "%.*s", (int)(strlen(name) - strlen(".weight")), name);
	assert_true(m->scale_count <= 100000);
	for (int64_t i = 0; i < m->scale_count; i++) {
		powers[i] = (uint8_t)(f32_bits(m->scales[i]) >> 23);
		half[i % 2000] = bf16_from_f32(m->scales[i]);
	}
	switch (form) {
	case INT8:
		entry_add(f, name, "", SAFETENSORS_I8, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".SCB", SAFETENSORS_F32, 1, m->rows, 1, m->scales);
		entry_add(f, prefix, ".weight_format", SAFETENSORS_U8, 1, 1, 1, "");
		return;
	case FP8:
		entry_add(f, name, "", SAFETENSORS_F8_E4M3, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".weight_scale_inv", SAFETENSORS_F32, 2, (m->rows + 127) / 128, across,
		        m->scales);
		return;
	case FP8_BF16:
		entry_add(f, name, "", SAFETENSORS_F8_E4M3, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".weight_scale_inv", SAFETENSORS_BF16, 2, (m->rows + 127) / 128, across,
		        half);
		return;
	case FP8_POWERS:
		entry_add(f, name, "", SAFETENSORS_F8_E4M3, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".weight_scale_inv", SAFETENSORS_F8_E8M0, 2, (m->rows + 127) / 128,
		        across, powers);
		return;
	case FP8_ROWS:
		entry_add(f, name, "", SAFETENSORS_F8_E4M3, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".weight_scale", SAFETENSORS_F32, 2, m->rows, 1, m->scales);
		entry_add(f, prefix, ".input_scale", SAFETENSORS_F32, 1, 1, 1, m->scales);
		return;
	case FP8_ONE:
		entry_add(f, name, "", SAFETENSORS_F8_E4M3, 2, m->rows, m->cols, m->codes);
		entry_add(f, prefix, ".weight_scale", SAFETENSORS_F32, 1, 1, 1, m->scales);
		return;
	case MXFP4:
	case MXFP4_E8M0:
		entry_add(f, prefix, ".weight_packed", SAFETENSORS_U8, 2, m->rows, m->cols / 2, m->codes);
		entry_add(f, prefix, ".weight_scale", form == MXFP4 ? SAFETENSORS_U8 : SAFETENSORS_F8_E8M0, 2,
		        m->rows, m->cols / 32, powers);
		return;
	default:
		add_4bit(f, name, m, form);
	}
}

/* Makes a model in this form, and "same", the plain model of its values. */
static void model_make(struct files *coded, enum form form)
{
	static struct files same;
	const struct weight_format *f =
	        weight_format_coded(forms[form].code, forms[form].scale, forms[form].block);
	struct safetensors *plain;
	char path[400];

	assert_non_null(f);
	snprintf(path, sizeof(path), "%s/plain/model.safetensors", work_dir);
	assert_int_equal(safetensors_open(&plain, path), 0);
	for (int64_t i = 0; i < plain->tensor_count; i++) {
		const struct safetensors_tensor *t = &plain->tensors[i];
		float *value = malloc((size_t)t->len_bytes);
		struct matrix m;

		assert_int_equal(t->dtype, SAFETENSORS_F32);
		assert_int_equal(safetensors_read(plain, t, value, 0, t->len_bytes), 0);
		if (!strstr(t->name, "_proj")) {
			entry_add(coded, t->name, "", t->dtype, t->rank, t->shape[0], t->shape[1], value);
			entry_add(&same, t->name, "", t->dtype, t->rank, t->shape[0], t->shape[1], value);
			free(value);
			continue;
		}
		matrix_make(&m, f, value, t->shape[0], t->shape[1]);
		if (form == FP8_BF16 || form == FP8_POWERS ||
		        form == FP8_ONE) { /* other scales, other values */
			int64_t across = f->block_cols ? (m.cols + 127) / 128 : 1;

			for (int64_t s = 0; s < m.scale_count; s++)
				m.scales[s] = form == FP8_ONE ? m.scales[0]
				              : form == FP8_POWERS
				                      ? code_e8m0((uint8_t)(f32_bits(m.scales[s]) >> 23))
				                      : bf16_to_f32(bf16_from_f32(m.scales[s]));
			for (int64_t e = 0; e < m.rows * m.cols; e++)
				m.value[e] = code_values(CODE_E4M3)[m.codes[e]] *
				             m.scales[e / m.cols / f->block_rows * across +
				                      (f->block_cols ? e % m.cols / 128 : 0)];
		}
		add_coded(coded, t->name, &m, form);
		entry_add(&same, t->name, "", t->dtype, 2, m.rows, m.cols, m.value);
		matrix_free(&m);
		free(value);
	}
	model_write(&same, "same", NULL);
	model_write(coded, forms[form].name, forms[form].config);
	files_free(&same);
	safetensors_close(plain);
}

/* ---- runs ---- */

static void train(const char *model, const char *out, const char *more)
{
	assert_ferry(0, NULL,
	        "train model=%s/%s data=%s/rows.jsonl output_dir=%s/%s lora_rank=2 lora_alpha=4 "
	        "learning_rate=1e-2 "
	        "per_device_train_batch_size=2 max_steps=3 threads=2 logging_steps=1 overwrite_output_dir=on "
	        "export_dtype=fp32 %s",
	        work_dir, model, work_dir, work_dir, out, more);
}

static void assert_same_numbers(const char *a, const char *b)
{
	char *of_a = run_numbers(a), *of_b = run_numbers(b);

	if (strcmp(of_a, of_b))
		fail_msg("other numbers:\n%s\n%s", of_a, of_b);
	mem_free(of_a);
	mem_free(of_b);
}

static int64_t plan_bytes(const char *model, const char *keys)
{
	int64_t bytes;
	json_t *plan;

	assert_ferry_json(&plan,
	        "plan model=%s/%s device=host vram_budget=off cpu_offload=on lora_rank=2 %s --json", work_dir,
	        model, keys);
	bytes = json_integer_value(
	        json_object_get(json_object_get(json_object_get(plan, "memory"), "host"), "weights_bytes"));
	json_decref(plan);
	return bytes;
}

static double eval_loss(const char *model, const char *keys)
{
	json_t *got;
	double loss;

	assert_ferry_json(
	        &got, "eval model=%s/%s data=%s/rows.jsonl --json %s", work_dir, model, work_dir, keys);
	loss = json_number_value(json_object_get(got, "loss"));
	json_decref(got);
	return loss;
}

/* Without training the codes stay too, and give the same bits; also where other ranks have no files. */
static void check_eval(const char *name)
{
	static const char *const ways[] = {"compute_dtype=fp32",
	        "compute_dtype=fp32 cpu_offload=on vram_budget=off", "compute_dtype=fp32 base_format=bf16"};
	double want = eval_loss("same", ways[0]);

	for (int w = 0; w < 3; w++) {
		int stays;

		if (eval_loss(name, ways[w]) != want)
			fail_msg("%s: other numbers with %s", name, ways[w]);
		stays = strstr(ferry_said(), "the matrices of the blocks stay quantized") != NULL;
		assert_int_equal(stays, w < 2);
	}
	if (!(fabs(eval_loss(name, "compute_dtype=fp32 ranks=2 load=rank0_only") - want) <= 1e-6))
		fail_msg("%s: other numbers on two ranks", name);
	assert_ferry(0, NULL, "generate model=%s/%s prompt_ids=1,2,3 max_new_tokens=2", work_dir, name);
	assert_non_null(strstr(ferry_said(), "the matrices of the blocks stay quantized"));
}

static void test_forms(void **state)
{
	static const char *const ways[] = {"compute_dtype=fp32", "cpu_offload=on vram_budget=off",
	        "base_format=bf16", "base_format=nf4 compute_dtype=fp32"};

	(void)state;
	for (int form = 0; form < FORM_COUNT; form++) {
		struct files *coded = calloc(1, sizeof(*coded));
		int64_t plain, codes;

		model_make(coded, (enum form)form);
		for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
			if (form == FP8_BF16 &&
			        w == 1) /* products halfway between bf16 numbers: planes round away */
				continue;
			train("same", "a", ways[w]);
			train(forms[form].name, "b", ways[w]);
			assert_same_runs("a", "b", forms[form].name);
		}
		check_eval(forms[form].name);
		plain = plan_bytes("same", "");
		codes = plan_bytes(forms[form].name, "");
		assert_true(codes < plain * (code_bits(forms[form].code) == 4 ? 50 : 75) / 100);
		assert_true(plan_bytes(forms[form].name, "base_format=bf16") == plain);
		files_free(coded);
		free(coded);
	}
}

/* ---- what does not fit ---- */

static void assert_refused(const struct files *f, const char *said)
{
	model_write(f, "damaged", "{\"quant_method\": \"bitsandbytes\"}");
	assert_ferry(2, NULL, "train model=%s/damaged data=%s/rows.jsonl output_dir=%s/no lora_rank=2",
	        work_dir, work_dir, work_dir);
	if (!strstr(ferry_said(), said))
		fail_msg("wanted \"%s\": %s", said, ferry_said());
}

#define Q "model.layers.1.self_attn.q_proj"

/* The mean of scales becomes 3e38. */
static void offset_raise(char *state)
{
	char *number = strstr(state, "offset\": ") + strlen("offset\": ");

	memset(number, ' ', strcspn(number, "}"));
	memcpy(number, "3e38", 4);
}

static void test_damaged(void **state)
{
	struct files *f = calloc(1, sizeof(*f));
	struct safetensors_decl was;
	char name[120];
	void *data;
	float *outer, kept;
	int at;

	(void)state;
	model_make(f, NF4_TWICE);
#define WITH(entry, change, said)                                                                            \
	do {                                                                                                 \
		at = files_find(f, Q entry);                                                                 \
		was = f->decls[at];                                                                          \
		data = malloc((size_t)f->bytes[at]);                                                         \
		memcpy(data, f->data[at], (size_t)f->bytes[at]);                                             \
		memcpy(name, f->names[at], sizeof(name));                                                    \
		change;                                                                                      \
		assert_refused(f, said);                                                                     \
		f->decls[at] = was;                                                                          \
		memcpy(f->data[at], data, (size_t)f->bytes[at]);                                             \
		memcpy(f->names[at], name, sizeof(name));                                                    \
		free(data);                                                                                  \
	} while (0)
	WITH(".weight.quant_map", ((float *)f->data[at])[3] = 0.5F,
	        "q_proj.weight.quant_map\" is not the table");
	WITH(".weight.nested_quant_map", ((float *)f->data[at])[3] = NAN, "values that are no numbers");
	WITH(".weight.nested_absmax", ((float *)f->data[at])[0] = INFINITY,
	        "nested_absmax\" holds inf at element 0");
	WITH(".weight.nested_quant_map", ((float *)f->data[at])[3] = 0.1F, "is not the map of bitsandbytes");
	WITH(".weight.nested_absmax", ((float *)f->data[at])[0] = -1,
	        "nested_absmax\" holds -1 at element 0");
	WITH(".weight.quant_state.bitsandbytes__nf4",
	        memcpy(strstr(f->data[at], "offset\": 0"), "offset\":-0", 10), "nested_offset is -");
	outer = f->data[files_find(f, Q ".weight.nested_absmax")];
	kept = *outer;
	*outer = 1e38F;
	WITH(".weight.quant_state.bitsandbytes__nf4", offset_raise(f->data[at]),
	        "nested_absmax\" holds 1e+38 at element 0");
	*outer = kept;
	WITH(".weight.quant_map", strcpy(f->names[at], Q ".x"), "needs one that ends in .quant_map");
	WITH(".weight.absmax", strcpy(f->names[at], Q ".x"), "needs one that ends in .absmax");
	WITH(".weight.nested_absmax", strcpy(f->names[at], Q ".x"), "needs one that ends in .nested_absmax");
	WITH(".weight.quant_state.bitsandbytes__nf4", memcpy(strstr(f->data[at], "128"), "100", 3),
	        "blocksize is 100");
	WITH(".weight.quant_state.bitsandbytes__nf4", memcpy(strstr(f->data[at], "128"), " 64", 3),
	        "its quant_state, by blocks, has");
	WITH(".weight.quant_state.bitsandbytes__nf4",
	        memcpy(strstr(f->data[at], "shape\": [1"), "shape\": [2", 10),
	        "its quant_state, with two to a byte, has");
	WITH(".weight.quant_state.bitsandbytes__nf4", ((char *)f->data[at])[0] = '[', "q_proj");
	WITH(".weight.quant_state.bitsandbytes__nf4", memcpy(strstr(f->data[at], "nf4"), "nf3", 3),
	        "quant_type is nf3");
	files_free(f);
	model_make(f, FP8);
	WITH(".weight_scale_inv", ((float *)f->data[at])[0] = -2, "weight_scale_inv\" holds -2 at element 0");
	WITH(".weight_scale_inv", ((float *)f->data[at])[0] = NAN,
	        "weight_scale_inv\" holds nan at element 0");
	WITH(".weight_scale_inv", ((float *)f->data[at])[0] = 3e37F,
	        "weight_scale_inv\" holds 3e+37 at element 0");
	WITH(".weight", ((uint8_t *)f->data[at])[5] = 0x7f, "q_proj.weight\" holds nan at element 5");
	WITH(".weight_scale_inv", (f->decls[at].shape[0] = 1, f->decls[at].shape[1] = 4),
	        "weight_scale_inv\" has shape [1, 4]");
	WITH(".weight_scale_inv", f->decls[at].dtype = SAFETENSORS_I32,
	        "scales of a dtype that ferry does not read");
	WITH(".weight", f->decls[at].dtype = SAFETENSORS_I8, "is not F8_E4M3");
	WITH(".weight_scale_inv", strcpy(f->names[at], Q ".other"), "is F8_E4M3");
	files_free(f);
	model_make(f, MXFP4);
	WITH(".weight_packed", f->decls[at].dtype = SAFETENSORS_I8,
	        "is packed in a way that ferry does not read");
	WITH(".weight_scale", ((uint8_t *)f->data[at])[7] = 255, "weight_scale\" holds nan at element 7");
	files_free(f);
	free(f);
}

static void assert_same_model(const char *a, const char *b)
{
	char of_a[400], of_b[400];

	snprintf(of_a, sizeof(of_a), "%s/%s/model.safetensors", work_dir, a);
	snprintf(of_b, sizeof(of_b), "%s/%s/model.safetensors", work_dir, b);
	assert_same_files(of_a, of_b, b);
}

/* Into the values of the codes, or into the model in full precision. */
static void test_merge(void **state)
{
	struct files *f = calloc(1, sizeof(*f));
	char path[400], *config;
	size_t len;

	(void)state;
	model_make(f, NF4_TWICE);
	train("nf4_twice", "run", "");
	assert_non_null(
	        strstr(ferry_said(), "is quantized (nf4, double quantized): the result has the values"));
#define MERGE                                                                                                \
	"merge lora_adapter=%s/run/adapter model=%s/%s output_dir=%s/%s export_dtype=fp32 "                  \
	"overwrite_output_dir=on "
	assert_ferry(0, NULL, MERGE, work_dir, work_dir, "nf4_twice", work_dir, "merged");
	assert_non_null(
	        strstr(ferry_said(), "is quantized (nf4, double quantized): merging into the values"));
	assert_same_model("run/model", "merged");
	assert_ferry(0, NULL, MERGE, work_dir, work_dir, "same", work_dir, "other");
	assert_same_model("merged", "other");
	snprintf(path, sizeof(path), "%s/merged/config.json", work_dir);
	config = read_file(path, &len);
	assert_null(strstr(config, "quant"));
	mem_free(config);
	/* full precision */
	assert_ferry(0, NULL, MERGE, work_dir, work_dir, "plain", work_dir, "whole");
	assert_ferry(0, NULL, MERGE "merge_base=%s/plain", work_dir, work_dir, "nf4_twice", work_dir,
	        "merged", work_dir);
	assert_null(strstr(ferry_said(), "is quantized"));
	assert_same_model("whole", "merged");
	snprintf(path, sizeof(path), "merge_base=%s/plain", work_dir);
	train("nf4_twice", "run", path);
	assert_same_model("whole", "run/model");
	assert_ferry(0, NULL,
	        "export checkpoint=%s/run output_dir=%s/out export_dtype=fp32 merge_base=%s/plain", work_dir,
	        work_dir, work_dir);
	assert_same_model("whole", "out");
	train("plain", "run", "base_format=nf4");
	assert_non_null(
	        strstr(ferry_said(), "not the nf4, double quantized ones that the adapter was trained on"));
	assert_ferry(2, NULL, "train model=%s/plain data=%s/rows.jsonl output_dir=%s/no merge_base=%s/plain",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "merge_base"));
	files_free(f);
	free(f);
}

static void test_config(void **state)
{
	struct files *f = calloc(1, sizeof(*f));

	(void)state;
	model_make(f, NF4);
	model_write(f, "damaged", "{\"quant_method\": \"gptq\"}");
	assert_ferry(2, NULL, "eval model=%s/damaged data=%s/rows.jsonl", work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "quant_method gptq is not supported"));
	files_free(f);
	free(f);
}

static void plain_make(int hidden, int inner, int layers)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/plain", work_dir);
	if (file_kind_of(path) == FILE_DIR)
		assert_int_equal(file_remove_tree(path), 0);
	write_file("plain.json",
	        "{\"model_type\":\"llama\",\"vocab_size\":64,\"hidden_size\":%d,\"intermediate_size\":%d,"
	        "\"num_hidden_layers\":%d,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
	        "\"max_position_embeddings\":128,\"tie_word_embeddings\":false}",
	        hidden, inner, layers);
	assert_ferry(0, NULL, "init config=%s/plain.json output_dir=%s/plain export_dtype=fp32 seed=1",
	        work_dir, work_dir);
}

/* Quantizing while loading gives the values of whole matrices, also where 128 rows are more than a piece. */
static void test_wide(void **state)
{
	static const struct {
		enum form form;
		const char *keys;
	} cases[] = {{FP8, "base_format=fp8"}, {NF4, "base_format=nf4 base_double_quant=off"},
	        {NF4_TWICE, "base_format=nf4 base_block_size=128"}, {MXFP4, "base_format=mxfp4"}};

	(void)state;
	plain_make(640, 1120, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct files *f = calloc(1, sizeof(*f));
		char keys[100];

		model_make(f, cases[i].form);
		train("same", "a", "compute_dtype=fp32");
		snprintf(keys, sizeof(keys), "compute_dtype=fp32 %s", cases[i].keys);
		train("plain", "b", keys);
		assert_same_numbers("a", "b");
		train(forms[cases[i].form].name, "b", "compute_dtype=fp32 cpu_offload=on");
		assert_same_numbers("a", "b");
		files_free(f);
		free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_forms),
	        cmocka_unit_test(test_damaged),
	        cmocka_unit_test(test_merge),
	        cmocka_unit_test(test_config),
	        cmocka_unit_test(test_wide),
	};
	int failed;

	ferry_run_begin("quantized-files");
	write_rows("rows.jsonl", 23, 7);
	plain_make(160, 288, 2);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
