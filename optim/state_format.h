/* The formats of AdamW's m and v: the one list of optimizer-state formats.
 *
 * A row gives the format's identifier, its storage format (base/dtype.h: bytes and scales), its word in
 * optimizer_state=, a second word that users write, and its word in checkpoints. That one changes whenever
 * the meaning of the stored bytes does. Rows are sorted by falling size. The enum, sizes, configuration words
 * and tests use this list. optim/adamw_state.h defines the values that an update stores. A new format needs a
 * row here and its arithmetic in adamw_state.h or the kernels beside it.
 */
#ifndef FERRY_OPTIM_STATE_FORMAT_H
#define FERRY_OPTIM_STATE_FORMAT_H

#include "base/dtype.h"

#define ADAMW_STATES(ROW)                                                                                    \
	ROW(F32, F32, "fp32", "float32", "fp32")                                                             \
	ROW(BF16, BF16, "bf16", "bfloat16", "bf16")                                                          \
	ROW(8BIT, CODES_8, "8bit", "int8", "8bit-root")

#define ADAMW_STATE_ENUM(id, ...) ADAMW_STATE_##id,
enum adamw_state { ADAMW_STATES(ADAMW_STATE_ENUM) ADAMW_STATE_COUNT };
#undef ADAMW_STATE_ENUM

/* ADAMW_BLOCK_8BIT, and so on: the number of elements that share a scale, counted from the tensor's start; 0:
 * no scales. ADAMW_BLOCK is the largest, a multiple of the others, so a cut at its multiples splits no block
 * of any format. */
#define ADAMW_STATE_BLOCK(id, format, ...) ADAMW_BLOCK_##id = FORMAT_BLOCK_##format,
#define ADAMW_STATE_ROOM(id, format, ...) char of_##id[FORMAT_BLOCK_##format + (FORMAT_BLOCK_##format == 0)];
union adamw_largest_block { /* C++ takes no new type in sizeof */
	ADAMW_STATES(ADAMW_STATE_ROOM)
};
enum { ADAMW_STATES(ADAMW_STATE_BLOCK) ADAMW_BLOCK = sizeof(union adamw_largest_block) };
#undef ADAMW_STATE_BLOCK
#undef ADAMW_STATE_ROOM

/* 0 <= state < ADAMW_STATE_COUNT. */
const struct format_facts *adamw_state_format(enum adamw_state state);
const char *adamw_state_name(enum adamw_state state);       /* "fp32", "bf16", "8bit" */
const char *adamw_state_saved_name(enum adamw_state state); /* "fp32", "bf16", "8bit-root" */
int adamw_state_has_scales(enum adamw_state state);
int adamw_state_block(enum adamw_state state); /* ADAMW_BLOCK where there are no scales */

/* Type of an element of m, and of v, and its bytes. */
enum dtype adamw_state_dtype(enum adamw_state state);
int64_t adamw_state_bytes(enum adamw_state state);

#endif
