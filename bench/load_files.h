/* The files of bench_load.c: a model's weights in a temporary or given directory, and raw reads for
 * comparison. */
#ifndef FERRY_BENCH_LOAD_FILES_H
#define FERRY_BENCH_LOAD_FILES_H

#include "bench/bench.h"
#include "checkpoint/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

enum load_kind { LOAD_BF16, LOAD_F32, LOAD_CHECKPOINT };

enum { LOAD_FILES_MAX = 256 };

struct load_files {
	enum load_kind kind;
	struct model *model;
	char *dir;  /* of the weights, or the checkpoint */
	char *temp; /* to be removed; NULL where the files were there before */
	int fd[LOAD_FILES_MAX];
	int64_t len_bytes[LOAD_FILES_MAX], bytes;
	int count;
};

/* Makes files of about so many bytes, in five shards, below $TMPDIR or /tmp; or opens those of `given`. */
int load_files_open(struct load_files *files, enum load_kind kind, const char *given, int64_t bytes);
void load_files_close(struct load_files *files);

/* Out of the page cache, or into it. The bytes that are cached afterwards. */
enum load_state { LOAD_COLD, LOAD_WARM };
int load_files_set(struct load_files *files, enum load_state state, int64_t *cached_bytes);

/* Takes so much memory, touches it and gives it back. In a virtual machine the host may have to find pages
 * for memory that nobody used lately, many times slower than the guest can read: it is asked for them
 * beforehand, for whatever is measured next. */
int load_memory_rouse(int64_t bytes, struct pool *pool);

/* Every byte by pread into memory of our own that nobody touched before, by so many threads at once. */
enum load_pages { LOAD_PAGES_SMALL, LOAD_PAGES_HUGE };
int load_files_read(struct load_files *files, double *seconds, int threads, enum load_pages pages);

#endif
