/* The files of bench_load.c: a model's weights in a temporary or given directory, and raw reads for
 * comparison. */
#ifndef FERRY_BENCH_LOAD_FILES_H
#define FERRY_BENCH_LOAD_FILES_H

#include "bench/bench.h"
#include "checkpoint/file/plane_io.h"
#include "host/pool.h"
#include "model/model.h"

enum load_kind { LOAD_BF16, LOAD_F32, LOAD_CHECKPOINT, LOAD_NF4 }; /* NF4: bf16 files, quantized */

enum { LOAD_FILES_MAX = 256 };

struct load_files {
	enum load_kind kind;
	struct model *model;
	char *dir;  /* directory of the weights, or the checkpoint */
	char *temp; /* directory to remove; NULL for existing files */
	int fd[LOAD_FILES_MAX];
	int64_t len_bytes[LOAD_FILES_MAX], bytes;
	int count;
};

/* Makes files of about `bytes` bytes, in five shards, below $TMPDIR or /tmp; or opens those in `given`. */
int load_files_open(struct load_files *files, enum load_kind kind, const char *given, int64_t bytes);
void load_files_close(struct load_files *files);

/* Drops the files from the page cache or reads them into it. *cached_bytes: cached bytes afterwards. */
enum load_state { LOAD_COLD, LOAD_WARM };
int load_files_set(struct load_files *files, enum load_state state, int64_t *cached_bytes);

/* Takes this much memory, touches it and frees it. In a virtual machine the host may have to find pages for
 * unused memory, many times slower than the guest reads. So this requests them before the next
 * measurement. */
int bench_memory_warm(int64_t bytes, struct pool *pool);

/* Reads every byte with pread into new memory, with this number of threads. */
enum load_pages { LOAD_PAGES_SMALL, LOAD_PAGES_HUGE };
int load_files_read(struct load_files *files, double *seconds, int threads, enum load_pages pages);

#endif
