/* links: checkpoint */
/* Moments of AdamW in each storage format: they load byte for byte, in any world size. A manifest with planes
 * that do not fit its format is refused. */
#include "tests/checkpoint_fixture.h"
#include "tests/manifest_change.h"

#include "checkpoint/inspect.h"

static char *dir;

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	return err;
}

enum { COUNT_MOST = 700 };

static struct model_tensor state_tensors[] = {
        {.name = "model.embed.weight",
                .role = ROLE_EMBED,
                .rank = 2,
                .shape = {100, 7},
                .count = 700,
                .trainable = 1},
        {.name = "model.norm.weight",
                .role = ROLE_FINAL_NORM_W,
                .rank = 1,
                .shape = {5, 1},
                .count = 5,
                .trainable = 1},
        {.name = "lm_head.weight",
                .role = ROLE_HEAD_W,
                .rank = 2,
                .shape = {2, 256},
                .count = 512,
                .trainable = 1},
};
enum { TENSORS = sizeof(state_tensors) / sizeof(state_tensors[0]) };

static struct model state_model(void)
{
	return (struct model){.config = {.model_type = "fixture"},
	        .tensors = state_tensors,
	        .tensor_count = TENSORS,
	        .parameter_count = 1217};
}

/* Byte `at` of a tensor's part of a plane. */
static uint8_t byte_of(enum plane plane, int tensor, int64_t at)
{
	return (uint8_t)rng_u64(7, (uint64_t)(plane * 16 + tensor), (uint64_t)at);
}

static int state_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	const enum adamw_state *format = context;
	int64_t begin = plane_bytes(plane, *format, first);

	assert_true(!(PLANES_SCALE >> plane & 1) || first % ADAMW_BLOCK == 0);
	for (int64_t i = 0; i < plane_bytes(plane, *format, count); i++)
		((uint8_t *)dst)[i] = byte_of(plane, tensor, begin + i);
	return 0;
}

static int64_t seen[PLANE_COUNT]; /* numbers that came back */

static int state_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	const enum adamw_state *format = context;
	int64_t begin = plane_bytes(plane, *format, first);

	for (int64_t i = 0; i < plane_bytes(plane, *format, count); i++)
		if (((const uint8_t *)src)[i] != byte_of(plane, tensor, begin + i))
			fail_msg("plane %s of tensor %d: byte %d differs", plane_name(plane), tensor,
			        (int)(begin + i));
	seen[plane] += plane_numbers(plane, *format, count);
	return 0;
}

static void save_state(char **path, const char *out, enum adamw_state format, unsigned planes)
{
	struct model model = state_model();
	struct plane_source source = {.context = &format, .read = state_read};
	/* borders of blocks, and one range of a block that the tensor's end cuts */
	const struct plane_range ranges[] = {
	        {0, 0, 256}, {0, 256, 256}, {0, 512, 188}, {1, 0, 5}, {2, 0, 512}};
	json_t *training = json_object();
	struct checkpoint_save save = {.output_dir = out,
	        .step = 1,
	        .model = &model,
	        .source = &source,
	        .planes = planes,
	        .state = format,
	        .ranges = ranges,
	        .range_count = sizeof(ranges) / sizeof(ranges[0]),
	        .training = training,
	        .world = {.size = 1}};

	check_ok(checkpoint_save(&save, path));
	json_decref(training);
}

static int64_t int_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void each_format_comes_back(void **state)
{
	(void)state;
	for (int f = 0; f < ADAMW_STATE_COUNT; f++) {
		enum adamw_state format = (enum adamw_state)f;
		char *out = fixture_sub_dir(dir, "formats"), *path = NULL;
		struct plane_sink sink = {.context = &format, .write = state_write};
		struct model model = state_model();
		struct checkpoint *checkpoint;
		int64_t scales = adamw_state_has_scales(format) ? 3 + 1 + 2 : 0, listed = 0;
		uint8_t part[4 * COUNT_MOST];
		const json_t *tensor;
		json_t *root;
		size_t i;

		save_state(&path, out, format, planes_of(format));
		check_ok(checkpoint_verify(path, NULL, NULL));
		check_ok(checkpoint_open(&checkpoint, path));
		check_ok(checkpoint_match(checkpoint, &model));
		assert_int_equal(checkpoint_manifest(checkpoint)->state, format);
		memset(seen, 0, sizeof(seen));
		check_ok(checkpoint_load(checkpoint, &sink, NULL, 0, NULL));
		for (int p = 0; p < PLANE_SAVED_COUNT; p++)
			assert_int_equal(seen[p], p <= PLANE_V ? model.parameter_count : scales);
		check_ok(checkpoint_read(checkpoint, 0, PLANE_M, 255, 300, part)); /* over two borders */
		state_write(&format, 0, PLANE_M, 255, 300, part);
		check_ok(inspect_path(&root, path));
		assert_string_equal(json_string_value(json_object_get(root, "optimizer_state")),
		        adamw_state_name(format));
		json_array_foreach(json_object_get(root, "tensors"), i, tensor) listed +=
		        int_of(tensor, "bytes");
		assert_int_equal(
		        listed, (4 + 2 * adamw_state_bytes(format)) * model.parameter_count + 8 * scales);
		json_decref(root);
		checkpoint_close(checkpoint);
		mem_free(path);
		mem_free(out);
	}
}

static void manifests_that_do_not_fit(void **state)
{
	static const struct {
		enum adamw_state format;
		const char *from, *to;
		int code;
		const char *text; /* NULL: is read */
	} cases[] = {
	        {ADAMW_STATE_F32, " \"optimizer_state\": \"fp32\",\n", "", 0, NULL}, /* as they once were */
	        {ADAMW_STATE_F32, "\"fp32\"", "\"4bit\"", ERR_UNSUPPORTED, "\"4bit\" is not supported"},
	        {ADAMW_STATE_F32, "\"fp32\"", "\"bf16\"", ERR_INPUT, "lacks \"m\" of"},
	        {ADAMW_STATE_F32, "\"fp32\"", "\"8bit-root\"", ERR_INPUT, "\"planes\" does not match"},
	        {ADAMW_STATE_8BIT, "\"8bit-root\"", "\"8bit\"", ERR_UNSUPPORTED,
	                "8-bit optimizer state of an older ferry; resume or export it with the ferry that "
	                "wrote it"},
	        {ADAMW_STATE_8BIT, "\"8bit-root\"", "\"fp32\"", ERR_INPUT, "\"planes\" does not match"},
	        {ADAMW_STATE_8BIT, ",\"v_scale\"", "", ERR_INPUT, "\"planes\" does not match"},
	        {ADAMW_STATE_8BIT, "\"v_scale\"", "\"scale\"", ERR_INPUT,
	                "unknown array \"scale\"; expected hi"},
	        {ADAMW_STATE_F32, "\"block_bytes\": 4194304", "\"block_bytes\": 65536", ERR_UNSUPPORTED,
	                "block_bytes=65536 is not supported; supported: 4194304"},
	        {ADAMW_STATE_F32, "[0,0,256]", "[0,0]", ERR_INPUT,
	                "\"ranges\" has an entry that is not [tensor, first, count]; use another checkpoint"},
	        {ADAMW_STATE_8BIT, "[0,0,256],[0,256,256]", "[0,0,255],[0,255,257]", ERR_INPUT,
	                "cuts a block"},
	        {ADAMW_STATE_BF16, "[0,0,256],[0,256,256]", "[0,0,255],[0,255,257]", ERR_INPUT, "lacks \""},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *out = fixture_sub_dir(dir, "manifests"), *path = NULL;
		struct checkpoint *checkpoint = NULL;

		save_state(&path, out, cases[i].format, planes_of(cases[i].format));
		manifest_change(path, cases[i].from, cases[i].to);
		if (cases[i].text)
			check_fails(checkpoint_open(&checkpoint, path), cases[i].code, cases[i].text);
		else
			check_ok(checkpoint_open(&checkpoint, path));
		checkpoint_close(checkpoint);
		mem_free(path);
		mem_free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(each_format_comes_back),
	        cmocka_unit_test(manifests_that_do_not_fit),
	};

	return cmocka_run_group_tests_name("checkpoint_state", tests, make_dir, check_dir_remove);
}
