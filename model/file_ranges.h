/* Where a tensor of files stands in a model's table.
 *
 * Mostly one tensor of a file is one of the table. Some families store matrices in one piece or in several:
 * the experts of a layer as one [E, 2I, H] tensor, or each expert's gate and up as [I, H]. A family names
 * both forms (struct family_split), the table has either, and files may have the other.
 */
#ifndef FERRY_MODEL_FILE_RANGES_H
#define FERRY_MODEL_FILE_RANGES_H

#include "model/model.h"

/* Elements [first, first + count) of a tensor of the table. */
struct file_range {
	int tensor;
	int64_t first, count;
};

/* The ranges that a file's tensor of this name holds, one after the other, and the shape that it needs. */
struct file_ranges {
	struct file_range *range; /* [room], kept for the next name; mem_free */
	int count, room;
	int is_buffer; /* without ranges: MODEL_NAME_BUFFER, not MODEL_NAME_UNKNOWN */
	int rank;
	int64_t shape[MODEL_RANK_MAX];
};

/* Finds them; the name may be any that model_find_tensor takes, or that of a piece. ERR_INPUT: the piece
 * of a whole that has fewer; ERR_NOMEM. */
int model_find_ranges(struct file_ranges *out, const struct model *model, const char *name);

/* The name of the files' tensor that begins with rows of this tensor of the table, between those of others:
 * *name, to mem_free. *name is NULL, and 1: its rows stand in one that begins with another's; 0: they are not
 * woven. ERR_NOMEM. */
int model_woven_name(char **name, const struct model *model, int tensor);

/* For families that find ranges themselves. The tensor of the table that stands at `place` of the block of
 * `name`, of which `inside` is the part within the block; or a negative number. */
int file_ranges_beside(const struct model *model, const char *name, const char *inside, const char *place);
/* Adds a range. The first sets the rank and the shape to those of its tensor. ERR_NOMEM. */
int file_ranges_add(
        struct file_ranges *out, const struct model *model, int tensor, int64_t first, int64_t count);

#endif
