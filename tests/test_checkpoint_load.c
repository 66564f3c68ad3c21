/* links: checkpoint model_families */
/* also: tsan */
/* Loading weights and checkpoints: dtypes, byte ranges of each rank, damage, faults in threads. */
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/fresh_weights.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/hf/hf_import.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "model/families/open.h"
#include "tests/loaded_planes.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* Loading by several threads gives the same planes and the same error, for any split of the work and any
 * target. */

enum { THREADS = 4 };

enum { VOCAB = SANITIZED ? 1009 : 5003, REPEATS = SANITIZED ? 2 : 5, FAULT_STRIDE = SANITIZED ? 1009 : 101 };
enum { FAULT_EACH = THREADS_ONLY ? 2 : SANITIZED ? 4 : 8 }; /* so many first calls fail one by one */

static struct model *model;
static struct pool *pool;
static char *dir;

/* ---- weights of a HuggingFace directory ---- */

static char *weights(const char *name, enum safetensors_dtype dtype)
{
	char *path = file_join(dir, name);
	struct plane_source source = {.read = planes_read};
	struct hf_export options = {.dir = path, .dtype = dtype, .shard_bytes = 5 << 20};

	options.existing = HF_EXPORT_REPLACE;
	check_ok(hf_export_write(&options, model, &source));
	return path;
}

static int load_weights(const char *path, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t count, struct pool *by)
{
	struct hf_import *import;
	int err = hf_import_open(&import, path, model);

	if (!err)
		err = hf_import_load(import, sink, ranges, count, by);
	hf_import_close(import);
	return err;
}

static void weights_of_each_dtype(void **state)
{
	static const enum safetensors_dtype dtypes[] = {SAFETENSORS_BF16, SAFETENSORS_F32};

	(void)state;
	for (size_t d = 0; d < 2; d++) {
		char *path = weights("weights", dtypes[d]);

		/* 10: hide_some, with a pool */
		for (int variant = THREADS_ONLY ? 10 : 0; variant < 12; variant++) {
			struct planes p;
			struct plane_sink sink = sink_of(&p, variant & 1);

			planes_open(&p, model, hiding[variant / 4]);
			check_ok(load_weights(path, &sink, NULL, 0, variant & 2 ? pool : NULL));
			assert_int_equal(planes_differ(&p, dtypes[d]), 0);
			assert_int_equal(atomic_load(&p.crowd), 0);
			assert_true((p.written > 0) == (variant / 4 > 0));
			assert_true(p.addressed >= model->parameter_count);
			planes_close(&p);
		}
		mem_free(path);
	}
}

/* Over planes that are not zero, zeros are written. */
static void lo_becomes_zero(void **state)
{
	char *path = weights("weights", SAFETENSORS_BF16);
	struct planes p;
	struct plane_sink sink = sink_of(&p, 0);

	(void)state;
	planes_open(&p, model, hide_some);
	for (int t = 0; t < model->tensor_count; t++)
		memset(p.bytes[PLANE_LO][t], 0x77, (size_t)model->tensors[t].count * 2);
	check_ok(load_weights(path, &sink, NULL, 0, pool));
	assert_int_equal(planes_differ(&p, SAFETENSORS_BF16), 0);
	planes_close(&p);
	mem_free(path);
}

/* Rank `rank` of `size`: of each tensor its share, some of them empty. */
static int64_t share(struct plane_range *ranges, int rank, int size)
{
	int64_t count = 0;

	for (int t = 0; t < model->tensor_count; t++) {
		int64_t all = model->tensors[t].count, first = all * rank / size;
		int64_t part = all * (rank + 1) / size - first;

		if (part && t % 5 != 4)
			ranges[count++] = (struct plane_range){t, first, part};
		else if (t % 5 == 4 && rank == t % size)
			ranges[count++] = (struct plane_range){t, 0, all};
	}
	return count;
}

static void each_rank_reads_its_ranges(void **state)
{
	char *path = weights("weights", SAFETENSORS_F32);

	(void)state;
	for (int size = 1; size <= 7; size += 3) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);
		int64_t read = 0;

		planes_open(&p, model, hide_some);
		for (int rank = 0; rank < size; rank++) {
			struct plane_range ranges[TENSORS_MAX];
			int64_t count = share(ranges, rank, size);

			p.addressed = 0;
			check_ok(load_weights(path, &sink, ranges, count, pool));
			for (int64_t r = 0; r < count; r++)
				read += ranges[r].count;
			assert_true(p.addressed <= 2 * model->parameter_count / size + (1 << 20));
		}
		check_ok(load_weights(
		        path, &sink, &(struct plane_range){0}, 0, pool)); /* of one rank too many */
		assert_int_equal(read, model->parameter_count);
		assert_int_equal(planes_differ(&p, SAFETENSORS_F32), 0);
		planes_close(&p);
	}
	mem_free(path);
}

/* Puts these bytes over a file's at the place where a tensor's element lies. */
static void damage(
        const char *path, const char *file, const char *tensor, int64_t offset, const void *bytes, size_t len)
{
	char *full = file_join(path, file);
	struct safetensors *st;
	int64_t at;
	int fd;

	check_ok(safetensors_open(&st, full));
	at = safetensors_find(st, tensor)->begin_bytes + offset;
	safetensors_close(st);
	fd = open(full, O_RDWR);
	assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
	close(fd);
	mem_free(full);
}

/* The file of a sharded model that holds a tensor (mem_free). */
static char *file_of(const char *path, const char *tensor)
{
	char *index = file_join(path, "model.safetensors.index.json"), *name;
	json_t *root;

	check_ok(json_read_file(&root, index, 1 << 20));
	name = mem_strdup(json_string_value(json_object_get(json_object_get(root, "weight_map"), tensor)));
	json_decref(root);
	mem_free(index);
	return name;
}

static void the_first_error_wins(void **state)
{
	static const float infinite = INFINITY;
	char *path = weights("infinite", SAFETENSORS_F32);
	const char *early = model->tensors[1].name, *late = model->tensors[model->tensor_count - 1].name;
	char *early_file = file_of(path, early), *late_file = file_of(path, late), wanted[256];

	(void)state;
	assert_string_not_equal(early_file, late_file);
	damage(path, late_file, late, 0, &infinite, 4);
	damage(path, late_file, late, 400, &infinite, 4);
	damage(path, early_file, early, 4 * 1000, &infinite, 4);
	damage(path, early_file, early, 4 * 70000, &infinite, 4);
	snprintf(wanted, sizeof(wanted), "%s: tensor \"%s\" holds inf at element 1000, byte ", early_file,
	        early);
	for (int i = 0; i < REPEATS; i++) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);

		planes_open(&p, model, hiding[i % 3]);
		check_fails(load_weights(path, &sink, NULL, 0, i ? pool : NULL), ERR_INPUT, wanted);
		planes_close(&p);
	}
	mem_free(path);
	mem_free(early_file);
	mem_free(late_file);
}

/* ---- fresh weights ---- */

static void fresh_weights(void **state)
{
	(void)state;
	for (int variant = THREADS_ONLY ? 5 : 0; variant < 6; variant++) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);
		int ranks = variant == 5 ? 3 : 1;
		int64_t differ = 0;

		planes_open(&p, model, hiding[variant / 2]);
		for (int rank = 0; rank < ranks; rank++) {
			struct plane_range ranges[TENSORS_MAX];
			int64_t count = share(ranges, rank, ranks);

			check_ok(fresh_weights_load(model, 11, &sink, ranks > 1 ? ranges : NULL, count,
			        variant & 1 ? pool : NULL));
		}
		assert_int_equal(atomic_load(&p.crowd), 0);
		for (int t = 0; t < model->tensor_count; t++)
			for (int64_t i = 0; i < model->tensors[t].count; i += 1 + i / 1000) {
				uint32_t bits = f32_bits(model_init_value(model, t, i, 11));

				differ += ((uint16_t *)p.bytes[PLANE_HI][t])[i] != plane_hi(bits);
				differ += ((int16_t *)p.bytes[PLANE_LO][t])[i] != plane_lo(bits);
			}
		assert_int_equal(differ, 0);
		planes_close(&p);
	}
}

/* ---- checkpoints ---- */

/* Tensors in two ranges, cut at odd places, so that numbers cross the borders of blocks. */
static char *checkpoint_make(const char *name)
{
	struct plane_source source = {.read = planes_read};
	struct plane_range ranges[2 * TENSORS_MAX];
	char *out = file_join(dir, name), *path;
	struct checkpoint_save save = {.output_dir = out,
	        .step = 1,
	        .model = model,
	        .source = &source,
	        .planes = planes_of(planes_format),
	        .state = planes_format,
	        .ranges = ranges,
	        .training = json_object(),
	        .world = {.size = 1}};

	for (int t = 0; t < model->tensor_count; t++) {
		int64_t all = model->tensors[t].count, cut = all / 3 | 1;

		ranges[save.range_count++] = (struct plane_range){t, 0, cut};
		ranges[save.range_count++] = (struct plane_range){t, cut, all - cut};
	}
	check_ok(checkpoint_save(&save, &path));
	json_decref(save.training);
	mem_free(out);
	return path;
}

static int load_checkpoint(const char *path, const struct plane_sink *sink, const struct plane_range *ranges,
        int64_t count, struct pool *by)
{
	struct checkpoint *checkpoint;
	int err = checkpoint_open(&checkpoint, path);

	if (!err)
		err = checkpoint_load(checkpoint, sink, ranges, count, by);
	checkpoint_close(checkpoint);
	return err;
}

static int64_t checkpoint_differ(const struct planes *p)
{
	int64_t differ = 0;

	for (int plane = 0; plane <= PLANE_V; plane++)
		for (int t = 0; t < model->tensor_count; t++) {
			int width = plane_width((enum plane)plane, planes_format);

			for (int64_t i = 0; i < model->tensors[t].count; i += EACH)
				differ += element_at(p->bytes[plane][t], width, i) !=
				          value_of((enum plane)plane, width, t, i);
		}
	return differ;
}

static void checkpoints(void **state)
{
	char *path = checkpoint_make("checkpoints");

	(void)state;
	for (int variant = THREADS_ONLY ? 5 : 0; variant < 6; variant++) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);

		planes_open(&p, model, hiding[variant / 2]);
		check_ok(load_checkpoint(path, &sink, NULL, 0, variant & 1 ? pool : NULL));
		assert_int_equal(checkpoint_differ(&p), 0);
		assert_int_equal(atomic_load(&p.crowd), 0);
		planes_close(&p);
	}
	for (int size = 2; size <= 7; size += 5) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);

		planes_open(&p, model, hide_some);
		for (int rank = 0; rank < size; rank++) {
			struct plane_range ranges[TENSORS_MAX];
			int64_t count = share(ranges, rank, size);

			check_ok(load_checkpoint(path, &sink, ranges, count, pool));
		}
		check_ok(load_checkpoint(path, &sink, &(struct plane_range){0}, 0, pool));
		assert_int_equal(checkpoint_differ(&p), 0);
		planes_close(&p);
	}
	mem_free(path);
}

static void the_first_damaged_block_is_named(void **state)
{
	char *path = checkpoint_make("damaged"), *file = file_join(path, "rank-00000.safetensors");
	static const int64_t blocks[] = {5, 2, 4};
	int fd = open(file, O_RDWR);
	char wanted[128];

	(void)state;
	for (size_t b = 0; b < 3; b++) {
		unsigned char byte;
		int64_t at = blocks[b] * SAFETENSORS_BLOCK_BYTES + 12345;

		assert_int_equal(pread(fd, &byte, 1, at), 1);
		byte ^= 4;
		assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	}
	close(fd);
	snprintf(wanted, sizeof(wanted), "rank-00000.safetensors: byte %d: the %d bytes from here differ",
	        2 * SAFETENSORS_BLOCK_BYTES, SAFETENSORS_BLOCK_BYTES);
	for (int i = 0; i < REPEATS; i++) {
		struct planes p;
		struct plane_sink sink = sink_of(&p, 1);

		planes_open(&p, model, hiding[i % 3]);
		check_fails(load_checkpoint(path, &sink, NULL, 0, i ? pool : NULL), ERR_INPUT, wanted);
		planes_close(&p);
	}
	mem_free(file);
	mem_free(path);
}

/* ---- faults ---- */

struct fault {
	int64_t countdown;
	int answer, fired;
};

static int fault_hook(void *context, const struct file_call *call)
{
	struct fault *fault = context;

	(void)call;
	if (--fault->countdown)
		return 0;
	fault->fired = 1;
	return fault->answer;
}

static void calls_fail_under_threads(void **state)
{
	static const int answers[] = {EIO, EINTR, FILE_HOOK_SHORT};
	char *path = weights("weights", SAFETENSORS_BF16), *saved = checkpoint_make("faults");

	(void)state;
	for (int kind = 0; kind < 2; kind++)
		for (size_t a = 0; a < 3; a++) {
			struct fault fault = {.fired = 1};

			for (int64_t n = 1; fault.fired; n += n < FAULT_EACH ? 1 : FAULT_STRIDE) {
				struct planes p;
				struct plane_sink sink = sink_of(&p, 1);
				int code;

				planes_open(&p, model, hide_some);
				fault = (struct fault){n, answers[a], 0};
				file_hook_set(fault_hook, &fault);
				code = kind ? load_checkpoint(saved, &sink, NULL, 0, pool)
				            : load_weights(path, &sink, NULL, 0, pool);
				file_hook_set(NULL, NULL);
				if (code) /* a stat that is interrupted is no reason to go on */
					assert_true(answers[a] != FILE_HOOK_SHORT &&
					            (code == ERR_IO || code == ERR_INPUT) &&
					            strlen(err_text()) > 10);
				if (!code)
					assert_int_equal(kind ? checkpoint_differ(&p)
					                      : planes_differ(&p, SAFETENSORS_BF16),
					        0);
				planes_close(&p);
			}
		}
	mem_free(path);
	mem_free(saved);
}

/* ---- the page cache ---- */

enum cache_change { CACHE_KEEP, CACHE_DROP, CACHE_FILL };

/* Bytes of a directory's shards that are cached, after that change. */
static int64_t cached_bytes(const char *path, enum cache_change change)
{
	char **names;
	size_t count;
	int64_t cached = 0;

	check_ok(file_list_dir(path, &names, &count));
	for (size_t i = 0; i < count; i++) {
		char *full = file_join(path, names[i]), *bytes = NULL;
		struct page_cache *cache;
		int64_t len;
		int fd = file_open_read(full, &len);
		size_t read;

		if (change == CACHE_DROP)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (change == CACHE_FILL)
			check_ok(file_read_all(full, 1 << 30, &bytes, &read));
		mem_free(bytes);
		if (strstr(names[i], ".safetensors") && !strstr(names[i], ".json")) {
			check_ok(page_cache_open(&cache, fd, len));
			cached += page_cache_found_bytes(cache, 0, len);
			page_cache_close(cache);
		}
		close(fd);
		mem_free(full);
	}
	file_list_free(names, count);
	return cached;
}

/* Cached pages stay cached through a load, except for those that the system takes meanwhile. So one of a
 * few tries must be undisturbed. */
static void check_stays(const char *path,
        int (*load)(
                const char *, const struct plane_sink *, const struct plane_range *, int64_t, struct pool *),
        const struct plane_sink *sink)
{
	int64_t found = 1, after = 0;

	for (int i = 0; i < 5 && found != after; i++) {
		found = cached_bytes(path, CACHE_FILL);
		check_ok(load(path, sink, NULL, 0, pool));
		after = cached_bytes(path, CACHE_KEEP);
	}
	assert_true(found >= 4 * model->parameter_count);
	assert_int_equal(found, after);
}

static void the_page_cache_is_left_as_it_was(void **state)
{
	char *path = weights("cached", SAFETENSORS_F32), *saved = checkpoint_make("cached-out");
	struct planes p;
	struct plane_sink sink = sink_of(&p, 1);

	(void)state;
	planes_open(&p, model, hide_some);
	check_stays(path, load_weights, &sink);
	check_stays(saved, load_checkpoint, &sink);
	if (!cached_bytes(path, CACHE_DROP)) { /* a disk */
		check_ok(load_weights(path, &sink, NULL, 0, pool));
		assert_int_equal(cached_bytes(path, CACHE_KEEP), 0);
		assert_int_equal(cached_bytes(saved, CACHE_DROP), 0);
		check_ok(load_checkpoint(saved, &sink, NULL, 0, pool));
		assert_int_equal(cached_bytes(saved, CACHE_KEEP), 0);
		assert_int_equal(checkpoint_differ(&p), 0);
	}
	planes_close(&p);
	mem_free(path);
	mem_free(saved);
}

/* ---- */

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
	return pool_open(&pool, THREADS);
}

static int teardown(void **state)
{
	pool_close(pool);
	model_close(model);
	return check_dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(weights_of_each_dtype),
	        cmocka_unit_test(lo_becomes_zero),
	        cmocka_unit_test(each_rank_reads_its_ranges),
	        cmocka_unit_test(the_first_error_wins),
	        cmocka_unit_test(fresh_weights),
	        cmocka_unit_test(checkpoints),
	        cmocka_unit_test(the_first_damaged_block_is_named),
	        cmocka_unit_test(calls_fail_under_threads),
	        cmocka_unit_test(the_page_cache_is_left_as_it_was),
	};

	return cmocka_run_group_tests_name("checkpoint_load", tests, setup, teardown);
}
