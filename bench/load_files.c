/* Makes and reads files for the benchmarks of loading. */
#include "bench/load_files.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/page_cache.h"
#include "base/str.h"
#include "bench/bench_model.h"
#include "checkpoint/hf/hf_export.h"
#include "checkpoint/save.h"
#include "host/slab.h"
#include "model/families/open.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SHARDS = 5, PIECE_BYTES = 4 << 20, TABLE_COUNT = 1 << 20 };

/* ---- making files ---- */

/* Weights repeat from one table, because drawing each would take longer than writing them. */
struct numbers {
	uint16_t hi[2 * TABLE_COUNT];
	int16_t lo[2 * TABLE_COUNT];
	float moment[2 * TABLE_COUNT];
};

static struct numbers *numbers_make(void)
{
	struct numbers *n = mem_alloc(1, sizeof(*n));

	for (int64_t i = 0; n && i < 2 * TABLE_COUNT; i++) {
		float value = (float)(int32_t)rng_u64(1, 2, (uint64_t)(i % TABLE_COUNT)) * 0x1p-36f;

		n->hi[i] = plane_hi(f32_bits(value));
		n->lo[i] = plane_lo(f32_bits(value));
		n->moment[i] = value * value;
	}
	return n;
}

static int numbers_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	const struct numbers *n = context;
	int64_t at = (first + 977 * tensor) % TABLE_COUNT;

	if (count > TABLE_COUNT)
		return err_set(ERR_INTERNAL, "a piece of %" PRId64 " elements was requested", count);
	if (plane == PLANE_HI)
		memcpy(dst, n->hi + at, (size_t)count * sizeof(*n->hi));
	else if (plane == PLANE_LO)
		memcpy(dst, n->lo + at, (size_t)count * sizeof(*n->lo));
	else
		memcpy(dst, n->moment + at, (size_t)count * sizeof(*n->moment));
	return 0;
}

static int64_t bytes_per_parameter(enum load_kind kind)
{
	return kind == LOAD_CHECKPOINT ? 2 + 2 + 4 + 4 : kind == LOAD_F32 ? 4 : 2;
}

/* Makes a Llama with the sizes of a 1.1B model and as many blocks as needed; a smaller one for small
 * files. */
static int model_make(struct model **model, int64_t parameters)
{
	struct bench_shape s = {2048, 0, 32, 5632, 32000, 256, 1, 1, 4, 0};
	int64_t block;

	if (parameters < 200 << 20)
		s = (struct bench_shape){512, 0, 8, 1536, 8192, 256, 1, 1, 8, 0};
	if (parameters < 8 << 20)
		s = (struct bench_shape){64, 0, 4, 128, 512, 32, 1, 1, 4, 0};
	block = 2 * s.hidden * s.hidden + 2 * s.hidden * s.hidden * s.kv_heads / s.heads +
	        3 * s.hidden * s.intermediate;
	s.layers = (parameters - s.vocab * s.hidden) / block;
	if (s.layers < 1)
		s.layers = 1;
	return bench_model_open(model, &s);
}

static int weights_write(struct load_files *files, int64_t bytes)
{
	struct numbers *numbers = numbers_make();
	struct plane_source source = {.context = numbers, .read = numbers_read};
	struct hf_export options = {.dir = files->temp,
	        .existing = HF_EXPORT_REPLACE,
	        .dtype = files->kind == LOAD_F32 ? SAFETENSORS_F32 : SAFETENSORS_BF16,
	        .shard_bytes = bytes / SHARDS + 1};
	struct checkpoint_save save = {.output_dir = files->temp,
	        .step = 1,
	        .model = files->model,
	        .source = &source,
	        .planes = planes_of(ADAMW_STATE_F32),
	        .world = {.size = 1}};
	int err = numbers ? 0 : ERR_NOMEM;

	if (!err && files->kind != LOAD_CHECKPOINT) {
		err = hf_export_write(&options, files->model, &source);
		files->dir = mem_strdup(files->temp);
	} else if (!err) {
		save.training = json_object();
		err = save.training ? checkpoint_save(&save, &files->dir) : ERR_NOMEM;
		json_decref(save.training);
	}
	mem_free(numbers);
	return err || files->dir ? err : ERR_NOMEM;
}

static int temp_make(char **path)
{
	const char *tmp = getenv("TMPDIR");

	*path = mem_printf("%s/ferry-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!*path)
		return ERR_NOMEM;
	if (mkdtemp(*path))
		return 0;
	err_set(ERR_INPUT, "%s: cannot create a directory: %s; TMPDIR may name another place", *path,
	        strerror(errno));
	mem_free(*path);
	*path = NULL;
	return ERR_INPUT;
}

/* ---- the files ---- */

static int file_add(struct load_files *files, const char *name)
{
	char *path;
	int fd;

	if (!str_ends_with(name, ".safetensors"))
		return 0;
	if (files->count == LOAD_FILES_MAX)
		return err_set(ERR_INPUT, "%s: more than %d files", files->dir, LOAD_FILES_MAX);
	path = file_join(files->dir, name);
	fd = path ? file_open_read(path, &files->len_bytes[files->count]) : ERR_NOMEM;
	mem_free(path);
	if (fd < 0)
		return fd;
	files->bytes += files->len_bytes[files->count];
	files->fd[files->count++] = fd;
	return 0;
}

static int files_add(struct load_files *files)
{
	char **names = NULL;
	size_t count = 0;
	int err = file_list_dir(files->dir, &names, &count);

	for (size_t i = 0; i < count && !err; i++)
		err = file_add(files, names[i]);
	file_list_free(names, count);
	if (!err && !files->bytes)
		err = err_set(ERR_INPUT, "%s: holds no safetensors", files->dir);
	return err;
}

int load_files_open(struct load_files *files, enum load_kind kind, const char *given, int64_t bytes)
{
	int err;

	*files = (struct load_files){.kind = kind};
	if (given && *given) {
		err = model_open_path(&files->model, given);
		files->dir = mem_strdup(given);
		if (!err && !files->dir)
			err = ERR_NOMEM;
	} else {
		err = model_make(&files->model, bytes / bytes_per_parameter(kind));
		if (!err)
			err = temp_make(&files->temp);
		if (!err)
			err = weights_write(files, bytes);
	}
	return err ? err : files_add(files);
}

void load_files_close(struct load_files *files)
{
	for (int i = 0; i < files->count; i++)
		file_abandon(files->fd[i], files->dir);
	if (files->temp)
		(void)!file_remove_tree(files->temp);
	model_close(files->model);
	mem_free(files->dir);
	mem_free(files->temp);
}

/* ---- reading ---- */

struct reading {
	const struct load_files *files;
	char *to; /* destination of all bytes */
	int err;
};

static void read_piece(void *context, int64_t task, int worker)
{
	struct reading *r = context;
	int64_t piece = task, at = 0, left, part;
	int f = 0, err;

	(void)worker;
	for (; piece * PIECE_BYTES >= r->files->len_bytes[f]; f++) {
		piece -= (r->files->len_bytes[f] + PIECE_BYTES - 1) / PIECE_BYTES;
		at += r->files->len_bytes[f];
	}
	left = r->files->len_bytes[f] - piece * PIECE_BYTES;
	part = left < PIECE_BYTES ? left : PIECE_BYTES;
	err = file_read_at(r->files->fd[f], r->files->dir, r->to + at + piece * PIECE_BYTES, (size_t)part,
	        piece * PIECE_BYTES);
	if (err)
		__atomic_store_n(&r->err, err, __ATOMIC_RELAXED);
}

static void touch_piece(void *context, int64_t task, int worker)
{
	char *piece = (char *)context + task * PIECE_BYTES;

	(void)worker;
	for (int64_t at = 0; at < PIECE_BYTES; at += 4096)
		piece[at] = 1;
}

int bench_memory_warm(int64_t bytes, struct pool *pool)
{
	int64_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	void *base;
	int err = slab_map(&base, pieces * PIECE_BYTES, "memory of a benchmark");

	if (err)
		return err;
	pool_run(pool, pieces, touch_piece, base);
	slab_unmap(base, pieces * PIECE_BYTES);
	return 0;
}

int load_files_read(struct load_files *files, double *seconds, int threads, enum load_pages pages)
{
	struct reading r = {.files = files};
	struct pool *pool = NULL;
	int64_t pieces = 0, start;
	int err = pool_open(&pool, threads);

	if (err)
		return err;
	r.to = mmap(NULL, (size_t)files->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r.to == MAP_FAILED) {
		pool_close(pool);
		return err_set(ERR_NOMEM, "%" PRId64 " bytes: %s", files->bytes, strerror(errno));
	}
	madvise(r.to, (size_t)files->bytes, pages == LOAD_PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (int i = 0; i < files->count; i++)
		pieces += (files->len_bytes[i] + PIECE_BYTES - 1) / PIECE_BYTES;
	start = clock_now_ns();
	pool_run(pool, pieces, read_piece, &r);
	*seconds = (double)(clock_now_ns() - start) * 1e-9;
	munmap(r.to, (size_t)files->bytes);
	pool_close(pool);
	return r.err ? err_set(r.err, "%s: its files cannot be read", files->dir) : 0;
}

int load_files_set(struct load_files *files, enum load_state state, int64_t *cached_bytes)
{
	char *piece = mem_alloc(PIECE_BYTES, 1);
	int err = piece ? 0 : ERR_NOMEM;

	*cached_bytes = 0;
	for (int i = 0; i < files->count && !err; i++) {
		struct page_cache *cache;

		if (state == LOAD_COLD)
			posix_fadvise(files->fd[i], 0, 0, POSIX_FADV_DONTNEED);
		for (int64_t at = 0; state == LOAD_WARM && !err && at < files->len_bytes[i];
		        at += PIECE_BYTES) {
			int64_t left = files->len_bytes[i] - at;

			err = file_read_at(files->fd[i], files->dir, piece,
			        (size_t)(left < PIECE_BYTES ? left : PIECE_BYTES), at);
		}
		if (!err)
			err = page_cache_open(&cache, files->fd[i], files->len_bytes[i]);
		if (!err) {
			*cached_bytes += page_cache_found_bytes(cache, 0, files->len_bytes[i]);
			page_cache_close(cache);
		}
	}
	mem_free(piece);
	return err;
}
