/* Shared by the files of save.h. save.c has the protocol, save_shard.c writes a rank's file. */
#ifndef FERRY_CHECKPOINT_SAVE_PARTS_H
#define FERRY_CHECKPOINT_SAVE_PARTS_H

#include "base/err.h"
#include "checkpoint/file/safetensors.h"
#include "checkpoint/save.h"

struct checkpoint_saving {
	struct checkpoint_save save;
	char *temp, *final;        /* directories */
	struct manifest_file file; /* this rank's file */
	struct plane_range *whole; /* the ranges if save.ranges is NULL */
	struct err err;            /* error of this rank's write or verify */
	int64_t *surplus;          /* rank 0: steps of the checkpoints to remove */
	uint64_t surplus_count;
	int is_committed;
};

/* The saved planes of a tensor. */
unsigned save_planes_of(const struct checkpoint_save *save, int tensor);

/* Writes this rank's file, and sets its length and checksums in s->file. */
int save_write_shard(struct checkpoint_saving *s);

#endif
