/* links: checkpoint model_families */
/* Tensors in parts: files that hold in one piece what the table has in several, and the reverse; results that
 * are killed while they are written. */
#include "tests/check.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/hf/hf_dir.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/hf/overlay.h"
#include "model/families/families.h"
#include "model/file_ranges.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { C = 8, I = 6, E = 3, V = 16, PLANES = 4096 };

static char *dir;

/* The table has experts whole: gate_up [E, 2I, C] and down [E, C, I]. */
static const struct family_split of_whole[] = {
        {"mlp.experts.gate_up_proj", "mlp.experts.%d.gate_proj.weight", 0, 2},
        {"mlp.experts.gate_up_proj", "mlp.experts.%d.up_proj.weight", 1, 2},
        {"mlp.experts.down_proj", "mlp.experts.%d.down_proj.weight", 0, 1},
        {NULL},
};
static const struct family_tensor whole_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION,
        TENSOR(GATE_UP_W, "mlp.experts.gate_up_proj"),
        TENSOR(DOWN_W, "mlp.experts.down_proj"),
        LLAMA_NORM_HEAD,
};

/* The table has them one by one: E is 2, of a whole that has two. */
static const struct family_split of_pieces[] = {
        {"mlp.both_proj", "mlp.%d.proj.weight", 0, 1},
        {"mlp.self.weight", "mlp.self_down.weight", 0, 1},
        {NULL},
};
static const struct family_tensor piece_tensors[] = {
        LLAMA_EMBED,
        LLAMA_ATTENTION,
        TENSOR(GATE_W, "mlp.0.proj.weight"),
        TENSOR(UP_W, "mlp.1.proj.weight"),
        TENSOR(DOWN_W, "mlp.self_down.weight"),
        LLAMA_NORM_HEAD,
};

static struct model_family family;

static struct model *model_of(const struct family_tensor *tensors, const struct family_split *splits)
{
	static const char text[] =
	        "{\"model_type\":\"llama\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":%d,"
	        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"max_position_embeddings\":32}";
	struct model_config config;
	struct model *model;
	char keys[400];
	json_t *json;

	family = family_llama;
	family.tensors = tensors;
	family.splits = splits;
	snprintf(keys, sizeof(keys), text, splits == of_whole ? E * I : I);
	check_ok(json_parse(&json, "config.json", keys, strlen(keys)));
	check_ok(model_config_read(&config, &family, json, "config.json"));
	check_ok(model_build(&model, &family, &config));
	json_decref(json);
	for (int t = 0; t < model->tensor_count && splits == of_whole; t++) {
		struct model_tensor *m = &model->tensors[t];
		int is_up = m->role == ROLE_GATE_UP_W;

		if (!is_up && m->role != ROLE_DOWN_W)
			continue;
		m->rank = 3;
		m->shape[0] = E;
		m->shape[1] = is_up ? 2 * I : C;
		m->shape[2] = is_up ? C : I;
		assert_int_equal(m->shape[0] * m->shape[1] * m->shape[2], m->count);
	}
	return model;
}

static uint16_t value_of(int tensor, int64_t index)
{
	return bf16_from_f32((float)((index * 7 + tensor * 13) % 101 - 50) * 0.125f);
}

/* A tensor of the files: elements of the table's from `first` on. */
struct given {
	char name[120];
	int rank;
	int64_t shape[3];
	int tensor[2]; /* one after the other; the second -1: none */
	int64_t first;
};

static int make_given(struct given *g, const struct model *model, int is_split)
{
	int count = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		const struct model_tensor *m = &model->tensors[t];
		int is_up = m->role == ROLE_GATE_UP_W, parts = is_up ? 2 : 1;

		if (is_split && m->rank == 3) {
			for (int e = 0; e < E; e++)
				for (int p = 0; p < parts; p++) {
					struct given *piece = &g[count++];

					*piece = (struct given){.rank = 2,
					        .shape = {m->shape[1] / parts, m->shape[2]},
					        .tensor = {t, -1},
					        .first = (e * parts + p) * m->count / (E * parts)};
					snprintf(piece->name, sizeof(piece->name),
					        "model.layers.%d.mlp.experts.%d.%s_proj.weight", m->layer, e,
					        !is_up ? "down"
					        : p    ? "up"
					               : "gate");
				}
			continue;
		}
		if (!is_split && m->role == ROLE_UP_W) /* with gate */
			continue;
		g[count] = (struct given){
		        .rank = m->rank, .shape = {m->shape[0], m->shape[1], m->shape[2]}, .tensor = {t, -1}};
		snprintf(g[count].name, sizeof(g->name), "%s", m->name);
		if (!is_split && m->role == ROLE_GATE_W) {
			g[count] = (struct given){.rank = 3,
			        .shape = {2, m->shape[0], m->shape[1]},
			        .tensor = {t, model_tensor_of(model, ROLE_UP_W, m->layer)}};
			snprintf(g[count].name, sizeof(g->name), "model.layers.%d.mlp.both_proj", m->layer);
		}
		count++;
	}
	return count;
}

static void put(const char *to, const struct given *given, int count, int without)
{
	struct safetensors_decl decls[100] = {0};
	struct safetensors_writer *writer;
	char *path = file_join(to, "model.safetensors");
	static const uint32_t tower[5] = {1, 2, 3, 4, 0x7fc00000};
	int n = 0;

	check_ok(file_remove_tree(to));
	check_ok(file_make_dir(to));
	for (int i = count - 1; i >= 0; i--) /* in another order than the table's */
		if (i != without) {
			decls[n] = (struct safetensors_decl){
			        .name = given[i].name, .dtype = SAFETENSORS_BF16, .rank = given[i].rank};
			memcpy(decls[n++].shape, given[i].shape, sizeof(given[i].shape));
		}
	decls[n++] = (struct safetensors_decl){
	        .name = "model.visual.x", .dtype = SAFETENSORS_F32, .rank = 1, .shape = {5}};
	check_ok(safetensors_create(&writer, path, decls, n, NULL, 0, SAFETENSORS_PLAIN));
	for (int i = count - 1; i >= 0; i--) {
		const struct given *g = &given[i];
		int64_t size =
		        g->shape[0] * (g->rank > 1 ? g->shape[1] : 1) * (g->rank > 2 ? g->shape[2] : 1);
		int64_t each = g->tensor[1] < 0 ? size : size / 2;

		for (int64_t k = 0; k < size && i != without; k++) {
			uint16_t half = value_of(g->tensor[k / each], g->first + k % each);

			check_ok(safetensors_append(writer, &half, 2));
		}
	}
	check_ok(safetensors_append(writer, tower, sizeof(tower)));
	check_ok(safetensors_finish(writer));
	safetensors_writer_free(writer);
	mem_free(path);
}

static uint16_t planes[100][PLANES];

static int sink_write(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	(void)context;
	if (plane == PLANE_HI)
		memcpy(&planes[tensor][first], src, (size_t)count * 2);
	return 0;
}

static int has_none(const void *context, int tensor)
{
	(void)context;
	(void)tensor;
	return 0;
}

/* Writes what the import has read. */
static int export(struct hf_import *import, const struct model *model, const char *to)
{
	struct plane_source none = {0};
	struct overlay overlay;
	struct hf_export options = {.dir = to,
	        .existing = HF_EXPORT_REPLACE,
	        .dtype = SAFETENSORS_BF16,
	        .shard_bytes = 1000,
	        .layout = hf_import_layout(import)};

	overlay_set(&overlay, import, &none, has_none, NULL);
	return hf_export_write(&options, model, &overlay.source);
}

/* Compares two directories tensor by tensor, byte for byte. */
static int is_same(const char *a, const char *b)
{
	struct hf_dir *left, *right;
	int64_t found = 0, count = 0;

	check_ok(hf_dir_open(&left, a));
	if (hf_dir_open(&right, b)) {
		hf_dir_close(left);
		return 0;
	}
	for (int f = 0; f < right->file_count; f++)
		count += right->files[f]->tensor_count;
	for (int64_t i = 0; i < left->files[0]->tensor_count; i++)
		for (int f = 0; f < right->file_count; f++) {
			const struct safetensors_tensor *t = &left->files[0]->tensors[i],
			                                *same = safetensors_find(right->files[f], t->name);
			char one[PLANES], other[PLANES];

			if (!same || same->len_bytes != t->len_bytes || same->dtype != t->dtype ||
			        same->rank != t->rank || memcmp(same->shape, t->shape, sizeof(t->shape)) != 0)
				continue;
			check_ok(safetensors_read(left->files[0], t, one, 0, t->len_bytes));
			check_ok(safetensors_read(right->files[f], same, other, 0, t->len_bytes));
			found += !memcmp(one, other, (size_t)t->len_bytes);
		}
	count = count == left->files[0]->tensor_count && found == count;
	hf_dir_close(left);
	hf_dir_close(right);
	return (int)count;
}

/* Files in either form give the same planes, whole or in odd ranges, and results in the files' form. */
static void test_both_forms(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct model *model =
		        i ? model_of(piece_tensors, of_pieces) : model_of(whole_tensors, of_whole);
		char *from = file_join(dir, "from"), *to = file_join(dir, "to");
		struct given given[100];
		int count = make_given(given, model, !i);
		struct plane_sink sink = {.write = sink_write};
		struct hf_import *import;

		put(from, given, count, -1);
		check_ok(hf_import_open(&import, from, model));
		for (int odd = 0; odd < 2; odd++) {
			memset(planes, 0, sizeof(planes));
			for (int t = 0; t < model->tensor_count && odd; t++) { /* as ranks read them */
				int64_t half = model->tensors[t].count / 3 + 1;
				struct plane_range ranges[2] = {
				        {t, half, model->tensors[t].count - half}, {t, 0, half}};

				check_ok(hf_import_load(import, &sink, ranges, 2, NULL));
			}
			if (!odd)
				check_ok(hf_import_load(import, &sink, NULL, 0, NULL));
			for (int t = 0; t < model->tensor_count; t++)
				for (int64_t k = 0; k < model->tensors[t].count; k++)
					assert_int_equal(planes[t][k], value_of(t, k));
		}
		check_ok(export(import, model, to));
		assert_true(is_same(from, to));
		hf_import_close(import);
		model_close(model);
		mem_free(from);
		mem_free(to);
	}
}

/* A piece that is missing, twice there, or of another shape is named. */
static void test_refused(void **state)
{
	struct model *model = model_of(whole_tensors, of_whole);
	char *from = file_join(dir, "refused");
	struct given given[100];
	int count = make_given(given, model, 1), piece = 0;
	struct hf_import *import;

	(void)state;
	while (!strstr(given[piece].name, "experts.1.up_proj"))
		piece++;
	put(from, given, count, piece);
	check_fails(hf_import_open(&import, from, model), ERR_INPUT,
	        "only parts of model.layers.0.mlp.experts.gate_up_proj are there, 5, as");
	given[piece].shape[0]--;
	put(from, given, count, -1);
	check_fails(hf_import_open(&import, from, model), ERR_INPUT,
	        "has shape [5, 8]; config.json gives [6, 8]");
	given[piece].shape[0]++;
	given[count] = given[piece];
	snprintf(given[count].name, sizeof(given->name), "layers.0.mlp.experts.1.up_proj.weight");
	put(from, given, count + 1, -1);
	check_fails(hf_import_open(&import, from, model), ERR_INPUT, "are two names of one tensor");
	model_close(model);
	mem_free(from);
}

/* ---- killed ---- */

static int kill_hook(void *context, const struct file_call *call)
{
	int64_t *countdown = context;

	(void)call;
	if (!--*countdown)
		raise(SIGKILL);
	return 0;
}

/* Before each of its calls: the old result stays, or the new one is whole; and the next one leaves no
 * remains. */
static void test_killed(void **state)
{
	struct model *model = model_of(whole_tensors, of_whole);
	char *from = file_join(dir, "from"), *to = file_join(dir, "killed"), **names;
	struct given given[100];
	int count = make_given(given, model, 1), status = -1, kills = 0;
	struct hf_import *import;
	size_t name_count;

	(void)state;
	put(from, given, count, -1);
	check_ok(hf_import_open(&import, from, model));
	for (int64_t n = 1; status; n++) {
		pid_t pid = fork();

		if (!pid) {
			file_hook_set(kill_hook, &n);
			_exit(export(import, model, to) ? 1 : 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(!status || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
		assert_true(file_kind_of(to) == FILE_NONE || is_same(from, to));
		kills += status != 0;
	}
	assert_true(kills > 20);
	check_ok(file_list_dir(dir, &names, &name_count));
	for (size_t i = 0; i < name_count; i++)
		assert_null(strstr(names[i], ".tmp"));
	file_list_free(names, name_count);
	hf_import_close(import);
	model_close(model);
	mem_free(from);
	mem_free(to);
}

static int begin(void **state)
{
	int err = check_dir_make(state);

	dir = *state;
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_both_forms),
	        cmocka_unit_test(test_refused),
	        cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, begin, check_dir_remove);
}
