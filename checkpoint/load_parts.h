/* Shared by the files of load.h. load.c opens and looks up, load_planes.c moves bytes. */
#ifndef FERRY_CHECKPOINT_LOAD_PARTS_H
#define FERRY_CHECKPOINT_LOAD_PARTS_H

#include "checkpoint/file/safetensors.h"
#include "checkpoint/load.h"

enum { CHECKPOINT_CACHE_BLOCKS = 4 };

/* One range of one plane in a file. */
struct checkpoint_entry {
	enum plane plane;
	struct plane_range range;
	int file;
	int64_t begin_bytes;
};

struct checkpoint_block {
	int file;
	int64_t block, used;  /* `used`: time of the last use, to choose the block to evict */
	unsigned char *bytes; /* NULL: empty */
};

struct checkpoint {
	char *path;
	struct manifest *manifest;
	struct safetensors **files;       /* [file_count]; NULL for files that are not shards */
	struct checkpoint_entry *entries; /* by plane, tensor, first */
	int64_t entry_count;
	struct checkpoint_block cache[CHECKPOINT_CACHE_BLOCKS];
	int64_t clock;
};

/* The entry that contains element `first`; the entries of a plane cover every tensor that has it. */
const struct checkpoint_entry *checkpoint_find_entry(
        const struct checkpoint *checkpoint, int tensor, enum plane plane, int64_t first);

/* Length of a block of a file: SAFETENSORS_BLOCK_BYTES, or less at the end. */
int64_t checkpoint_block_bytes(const struct checkpoint *checkpoint, int file, int64_t block);

/* ERR_INPUT for a block with another checksum than in the manifest. */
int checkpoint_fail_block(const struct checkpoint *checkpoint, int file, int64_t block);

/* Frees the cache's memory. */
void checkpoint_forget_blocks(struct checkpoint *checkpoint);

#endif
