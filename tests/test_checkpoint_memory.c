/* links: checkpoint model_families */
/* not: asan */
/* It compares resident memory, to which the sanitizer adds its own. */

/* Memory of loading: it stays within load_memory_bytes (checkpoint/file/load_memory.h).
 *
 * Covers HuggingFace files and checkpoints, one thread and several, cached files and others. Each load is
 * measured in its own process. Its planes (arrays of weights and moments) are touched before, so that only
 * the loader adds memory.
 */
#include "base/json.h"
#include "base/process.h"
#include "checkpoint/file/load_memory.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "model/families/open.h"
#include "tests/loaded_planes.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 20000 };

static struct model *model;
static char *dir;

/* ---- files ---- */

static char *weights_make(void)
{
	char *path = file_join(dir, "weights");
	struct plane_source source = {.read = planes_read};
	struct hf_export options = {.dir = path,
	        .dtype = SAFETENSORS_F32,
	        .shard_bytes = 16 << 20,
	        .existing = HF_EXPORT_REPLACE};

	check_ok(hf_export_write(&options, model, &source));
	return path;
}

static char *checkpoint_make(void)
{
	struct plane_source source = {.read = planes_read};
	struct plane_range ranges[TENSORS_MAX];
	char *out = file_join(dir, "out"), *path;
	struct checkpoint_save save = {.output_dir = out,
	        .step = 1,
	        .model = model,
	        .source = &source,
	        .planes = planes_of(planes_format),
	        .state = planes_format,
	        .ranges = ranges,
	        .range_count = model->tensor_count,
	        .training = json_object(),
	        .world = {.size = 1}};

	for (int t = 0; t < model->tensor_count; t++)
		ranges[t] = (struct plane_range){t, 0, model->tensors[t].count};
	check_ok(checkpoint_save(&save, &path));
	json_decref(save.training);
	mem_free(out);
	return path;
}

/* All or nothing of the files is cached from here on, where the file system can do that. */
static void files_cache(const char *path, int is_cold)
{
	static char bytes[1 << 16];
	char **names = NULL;
	size_t count = 0;

	check_ok(file_list_dir(path, &names, &count));
	for (size_t i = 0; i < count; i++) {
		char *file = file_join(path, names[i]);
		int fd = open(file, O_RDONLY);

		assert_true(fd >= 0);
		fsync(fd);
		if (is_cold)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		while (!is_cold && read(fd, bytes, sizeof(bytes)) > 0)
			continue;
		close(fd);
		mem_free(file);
	}
	file_list_free(names, count);
}

/* ---- one load, measured ---- */

struct measured {
	const char *path;
	int is_checkpoint, is_cold, workers;
	int (*hidden)(int tensor, enum plane plane);
};

static void idle(void *context, int64_t job, int worker)
{
	(void)context, (void)job, (void)worker;
	usleep(1000);
}

static void planes_touch(struct planes *p)
{
	for (int plane = 0; plane <= PLANE_V; plane++)
		for (int t = 0; t < model->tensor_count; t++)
			memset(p->bytes[plane][t], 1,
			        (size_t)model->tensors[t].count *
			                (size_t)plane_width((enum plane)plane, planes_format));
}

/* In the child: how much its memory grew; the files are open before, as a run has them. */
static int64_t load_grows(const struct measured *m)
{
	struct pool *pool = NULL;
	struct planes p;
	struct plane_sink sink = sink_of(&p, 0);
	struct hf_import *import = NULL;
	struct checkpoint *checkpoint = NULL;
	int64_t before;

	check_ok(pool_open(&pool, m->workers));
	pool_run(pool, 4 * m->workers, idle, NULL);
	planes_open(&p, model, m->hidden);
	planes_touch(&p);
	check_ok(m->is_checkpoint ? checkpoint_open(&checkpoint, m->path)
	                          : hf_import_open(&import, m->path, model));
	process_peak_reset();
	before = process_resident_bytes();
	if (process_peak_bytes() > before + (1 << 20))
		return -1; /* the system does not forget peaks */
	check_ok(m->is_checkpoint ? checkpoint_load(checkpoint, &sink, NULL, 0, pool)
	                          : hf_import_load(import, &sink, NULL, 0, pool));
	return process_peak_bytes() - before;
}

static int64_t measure(const struct measured *m)
{
	int64_t grown = 0;
	int ends[2], status;
	pid_t child;

	files_cache(m->path, m->is_cold);
	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (!child) {
		grown = load_grows(m);
		_exit(write(ends[1], &grown, sizeof(grown)) != sizeof(grown));
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &grown, sizeof(grown)), sizeof(grown));
	close(ends[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	return grown;
}

static void loads_stay_within(void **state)
{
	static const int workers[] = {1, 2, 8};
	char *paths[] = {weights_make(), checkpoint_make()};
	int64_t plane_bytes = 12 * model->parameter_count;

	(void)state;
	for (int variant = 0; variant < 24; variant++) {
		struct measured m = {.is_checkpoint = variant & 1,
		        .is_cold = variant >> 1 & 1,
		        .hidden = variant >> 2 & 1 ? hide_all : NULL,
		        .workers = workers[variant / 8]};
		struct load_memory load = {.workers = m.workers,
		        .tensor_count = model->tensor_count,
		        .plane_bytes = plane_bytes,
		        .shards = 1};
		int64_t bound = load_memory_bytes(&load), grown;

		m.path = paths[m.is_checkpoint];
		grown = measure(&m);
		if (grown < 0) {
			print_message("SKIPPED test_checkpoint_memory: this system does not forget peaks of "
			              "memory\n");
			skip();
		}
		print_message("%s, %s, %s, %d threads: %.2f MiB, bound %.2f MiB\n",
		        m.is_checkpoint ? "checkpoint" : "weights", m.is_cold ? "not cached" : "cached",
		        m.hidden ? "no addresses" : "addresses", m.workers, (double)grown / 0x1p20,
		        (double)bound / 0x1p20);
		assert_true(grown <= bound);
	}
	mem_free(paths[0]);
	mem_free(paths[1]);
}

/* It grows with threads up to the windows' sum, with shards and receivers by tables and the ring; not with
 * the model beyond its tables. */
static void the_bound_itself(void **state)
{
	struct load_memory load = {
	        .workers = 2, .tensor_count = 300, .plane_bytes = INT64_C(96) << 30, .shards = 1};
	int64_t two = load_memory_bytes(&load), larger;

	(void)state;
	assert_true(two > 2 * (LOAD_WINDOW_MOST_BYTES + LOAD_SCRATCH_BYTES) && two < 12 << 20);
	load.workers = 128;
	assert_true(load_memory_bytes(&load) <
	            LOAD_WINDOWS_BYTES + 128 * (LOAD_SCRATCH_BYTES + (16 << 10)) + (4 << 20));
	load.workers = 2;
	load.shards = 8;
	load.receivers = 1;
	larger = load_memory_bytes(&load) - two;
	assert_true(larger >= LOAD_RING_PIECES * LOAD_CHUNK_BYTES && larger < 8 << 20);
}

static int setup(void **state)
{
	json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "model_type", "llama",
	        "vocab_size", VOCAB, "hidden_size", 256, "intermediate_size", 640, "num_hidden_layers", 2,
	        "num_attention_heads", 4, "num_key_value_heads", 2, "max_position_embeddings", 64,
	        "tie_word_embeddings", 0);

	check_dir_make(state);
	dir = *state;
	check_ok(model_open(&model, config, "test"));
	json_decref(config);
	return 0;
}

static int teardown(void **state)
{
	model_close(model);
	return check_dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(the_bound_itself),
	        cmocka_unit_test(loads_stay_within),
	};

	return cmocka_run_group_tests_name("checkpoint_memory", tests, setup, teardown);
}
