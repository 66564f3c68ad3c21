/* links: cli */
/* ferry embed: vectors of texts as the golden data has them, forms of files, refusals. */
#include "data/source/records.h"
#include "tests/golden_reference.h"
#include "tests/run_fixture.h"

enum { NPY_HEADER = 128 };

/* The vectors of a .npy file; checks what its header says. */
static float *npy_read(const char *name, int rows, int width)
{
	char path[400], shape[60], *text;
	size_t len;
	float *values = mem_alloc((size_t)(rows * width), sizeof(*values));

	assert_non_null(values);
	path_of(path, name);
	text = read_file(path, &len);
	snprintf(shape, sizeof(shape), "'shape': (%d, %d)", rows, width);
	assert_memory_equal(text, "\x93NUMPY\x01\x00\x76\x00", 10);
	assert_int_equal(len, NPY_HEADER + 4 * (size_t)(rows * width));
	assert_int_equal(text[NPY_HEADER - 1], '\n');
	text[NPY_HEADER - 1] = 0;
	assert_non_null(strstr(text + 10, shape));
	memcpy(values, text + NPY_HEADER, 4 * (size_t)(rows * width));
	mem_free(text);
	return values;
}

/* Writes a column of rows as {"text"} to a file; returns their number. */
static int column_write(const char *name, const char *from, const char *column)
{
	struct str out = {0};
	char *text, *at, *line;
	size_t len;
	int rows = 0;

	text = at = read_file(from, &len);
	while ((line = strsep(&at, "\n")) && *line) {
		json_t *row = NULL, *one;
		char *dumped;

		assert_int_equal(json_parse(&row, "row", line, strlen(line)), 0);
		one = json_pack("{s:O}", "text", json_object_get(row, column));
		dumped = json_dumps(one, JSON_COMPACT);
		str_printf(&out, "%s\n", dumped);
		free(dumped);
		json_decref(one);
		json_decref(row);
		rows++;
	}
	write_file(name, "%s", out.data);
	str_free(&out);
	mem_free(text);
	return rows;
}

/* The first vectors of the golden data are those of the anchors. */
static void golden_check(const char *golden, const char *name, const char *keys)
{
	char *dir = mem_printf("%s/%s", golden, name), *pairs = mem_printf("%s/pairs.jsonl", dir),
	     *ref = mem_printf("%s/ref.safetensors", dir);
	struct safetensors *file;
	const struct safetensors_tensor *t;
	int rows, width;
	float *got;
	double *want;
	int64_t count;

	assert_int_equal(safetensors_open(&file, ref), 0);
	t = safetensors_find(file, "sentence.float32");
	assert_non_null(t);
	width = (int)t->shape[1];
	want = tensor_read(file, "sentence.float32", &count);
	rows = column_write("anchors.jsonl", pairs, "anchor");
	assert_ferry(0, NULL,
	        "embed model=%s/model data=%s/anchors.jsonl output=%s/got.npy compute_dtype=fp32 "
	        "per_device_eval_batch_size=3 %s",
	        dir, work_dir, work_dir, keys);
	got = npy_read("got.npy", rows, width);
	for (int i = 0; i < rows * width; i++)
		if (!(fabs((double)got[i] - want[i]) <= 3e-6))
			fail_msg("%s: number %d is %.9g, wanted %.9g", name, i, (double)got[i], want[i]);
	{
		char path[400];

		path_of(path, "got.npy");
		assert_int_equal(remove(path), 0);
	}
	safetensors_close(file);
	mem_free(got);
	mem_free(want);
	mem_free(dir);
	mem_free(pairs);
	mem_free(ref);
}

static void test_golden(void **state)
{
	const char *golden = golden_dir("test_run_embed with golden models");

	(void)state;
	if (!golden)
		skip();
	golden_check(golden, "modern/embed_qwen3", "prompt_name=query");
	golden_check(golden, "embeddings/bert", "");
	golden_check(golden, "embeddings/xlmr", "");
	golden_check(golden, "modern/embed_gemma", "prompt_name=query");
}

static void parquet_check(const char *name, const float *want, int rows, int width)
{
	struct records *records;
	char path[400];
	json_t *record;
	int row = 0;

	path_of(path, name);
	assert_int_equal(records_open(&records, path), 0);
	for (; records_next(records, &record) == 1; row++) {
		const json_t *list = json_object_get(record, "embedding");

		assert_int_equal(json_array_size(list), width);
		for (int i = 0; i < width; i++)
			assert_true(number_at(list, (size_t)i) == (double)want[row * width + i]);
		json_decref(record);
	}
	assert_int_equal(row, rows);
	records_close(records);
}

/* All kinds of files have the same numbers; the first text column is taken. */
static void test_forms(void **state)
{
	float *npy;
	char path[400], *text, *at, *line;
	size_t len;
	int row = 0;

	(void)state;
	write_file("texts.csv", "id,body\n1,good day\n2,a bad night\n3,x\n");
	assert_ferry(0, NULL,
	        "embed model=%s/speaker data=%s/texts.csv output=%s/v.npy normalize=on field_text=body",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, NULL,
	        "embed model=%s/speaker data=%s/texts.csv output=%s/v.jsonl normalize=on field_text=body "
	        "per_device_eval_batch_size=1",
	        work_dir, work_dir, work_dir);
	assert_ferry(0, NULL,
	        "embed model=%s/speaker data=%s/texts.csv output=%s/v.parquet normalize=on field_text=body",
	        work_dir, work_dir, work_dir);
	npy = npy_read("v.npy", 3, 32);
	path_of(path, "v.jsonl");
	text = at = read_file(path, &len);
	while ((line = strsep(&at, "\n")) && *line) {
		json_t *object = NULL, *list;
		double square = 0;

		assert_int_equal(json_parse(&object, "row", line, strlen(line)), 0);
		list = json_object_get(object, "embedding");
		assert_int_equal(json_array_size(list), 32);
		for (int i = 0; i < 32; i++) {
			double value = number_at(list, (size_t)i);

			square += value * value;
			assert_true(fabs(value - (double)npy[row * 32 + i]) <= 1e-6);
		}
		assert_true(fabs(square - 1) < 1e-5);
		json_decref(object);
		row++;
	}
	assert_int_equal(row, 3);
	mem_free(text);
	parquet_check("v.parquet", npy, 3, 32);
	mem_free(npy);
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv output=%s/v.npy", work_dir, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "exists; choose another name"));
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv output=%s/v.txt", work_dir, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "written as .npy, .jsonl or .parquet"));
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv output=%s/no/v.npy", work_dir,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "/no; make it, or name another"));
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv output=%s/v.parquet", work_dir,
	        work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "exists; choose another name"));
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv output=%s/w.npy field_text=no",
	        work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "no column \"no\""));
	path_of(path, "w.npy");
	assert_int_equal(file_kind_of(path), FILE_NONE);
	write_file("plain.txt", "one\ntwo\n");
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/texts.csv:1,%s/texts.csv:1 output=%s/w.npy",
	        work_dir, work_dir, work_dir, work_dir);
	assert_non_null(strstr(ferry_said(), "but embed lists each row once; remove the weights"));
	assert_ferry(2, NULL, "embed model=%s/speaker data=%s/plain.txt output=%s/w.npy", work_dir, work_dir,
	        work_dir);
	assert_non_null(strstr(ferry_said(), "a text has no columns"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden), cmocka_unit_test(test_forms)};
	int failed;

	ferry_run_begin("embed");
	speaker_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
