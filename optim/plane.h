/* Planes: the arrays that hold a parameter's weight, gradient and optimizer state element by element; and
 * the one list of them.
 *
 * HI is the bf16 weight, (HI << 16) + LO the fp32 master (base/num.h). M and V are the moments of AdamW in
 * the format of the run (optim/state_format.h); where that has scales, M_SCALE and V_SCALE hold one for every
 * block of elements. GRADIENT is what a step leaves for its update; it is never saved. CODES and CODE_SCALE
 * hold frozen weights in other formats (optim/weight_format.h); their values are in the model's files. A
 * range of scales is named by the elements that it belongs to: it begins and ends at a block's border, or at
 * the tensor's end.
 *
 * A row gives the identifier; the name in files, plans and messages; the name for people; what a number is
 * (enum plane_element); 1 where checkpoints hold the plane; and its turn in a shard file, which has wide
 * numbers first and planes as wide as each other in rising turn. Saved planes come first in the list.
 */
#ifndef FERRY_OPTIM_PLANE_H
#define FERRY_OPTIM_PLANE_H

#include "optim/state_format.h"

#define PLANES(ROW)                                                                                          \
	ROW(HI, "hi", "weights (bf16)", BF16, 1, 5)                                                          \
	ROW(LO, "lo", "master weights, low 16 bits", I16, 1, 6)                                              \
	ROW(M, "m", "Adam's first moment", STATE, 1, 3)                                                      \
	ROW(V, "v", "Adam's second moment", STATE, 1, 4)                                                     \
	ROW(M_SCALE, "m_scale", "Adam's first moment, scales", SCALE, 1, 1)                                  \
	ROW(V_SCALE, "v_scale", "Adam's second moment, scales", SCALE, 1, 2)                                 \
	ROW(GRADIENT, "gradient", "gradients", GRADIENT, 0, 7)                                               \
	ROW(CODES, "codes", "weights, codes", CODE, 0, 8)                                                    \
	ROW(CODE_SCALE, "code_scale", "weights, scales of codes", CODE, 0, 9)

#define PLANE_ENUM(id, ...) PLANE_##id,
enum plane { PLANES(PLANE_ENUM) PLANE_COUNT };
#undef PLANE_ENUM

/* What one number of a plane is: of a fixed type, an element or a scale of the state's format, or an element
 * in gradient_dtype; or a byte of what a weight format has (optim/weight_format.h). */
enum plane_element {
	PLANE_OF_BF16,
	PLANE_OF_I16,
	PLANE_OF_STATE,
	PLANE_OF_SCALE,
	PLANE_OF_GRADIENT,
	PLANE_OF_CODE
};

/* Sets of planes: bit 1 << enum plane. */
#define PLANE_IS_SAVED(id, name, title, element, saved, turn) | (saved) << PLANE_##id
#define PLANE_IS_MOMENT(id, name, title, element, ...) | (PLANE_OF_##element == PLANE_OF_STATE) << PLANE_##id
#define PLANE_IS_SCALE(id, name, title, element, ...) | (PLANE_OF_##element == PLANE_OF_SCALE) << PLANE_##id
enum {
	PLANES_SAVED = 0 PLANES(PLANE_IS_SAVED),
	PLANES_MOMENT = 0 PLANES(PLANE_IS_MOMENT),
	PLANES_SCALE = 0 PLANES(PLANE_IS_SCALE),
	PLANES_WEIGHT = PLANES_SAVED & ~(PLANES_MOMENT | PLANES_SCALE),
	PLANES_CODED = 1 << PLANE_CODES | 1 << PLANE_CODE_SCALE
};
#undef PLANE_IS_SAVED
#undef PLANE_IS_MOMENT
#undef PLANE_IS_SCALE

#define PLANE_SAVED(id, name, title, element, saved, turn) +(saved)
enum { PLANE_SAVED_COUNT = 0 PLANES(PLANE_SAVED) };
#undef PLANE_SAVED
_Static_assert(PLANES_SAVED == (1 << PLANE_SAVED_COUNT) - 1, "saved planes come first in the list");

const char *plane_name(enum plane plane);  /* "m_scale" */
const char *plane_title(enum plane plane); /* "Adam's first moment, scales" */

static inline int plane_is_in(enum plane plane, unsigned set)
{
	return set >> plane & 1;
}

/* Type of one number. `gradient` is gradient_dtype, read for the plane GRADIENT alone. */
enum dtype plane_dtype(enum plane plane, enum adamw_state state, enum dtype gradient);

/* The order in which a shard file has the saved planes of a range: wide numbers first, so that few are cut by
 * the border of a block of checksums. */
void plane_file_order(enum plane order[PLANE_SAVED_COUNT], enum adamw_state state);

/* The planes in a checkpoint of a training run with this state. */
unsigned planes_of(enum adamw_state state);

/* How many elements share one number of a plane, and how many numbers belong to `count` elements. */
int plane_block(enum plane plane, enum adamw_state state);
int64_t plane_numbers(enum plane plane, enum adamw_state state, int64_t count);

/* Bytes of one number, and of all numbers of `count` elements; a GRADIENT's in fp32, as it is collected. */
int plane_width(enum plane plane, enum adamw_state state);
int64_t plane_bytes(enum plane plane, enum adamw_state state, int64_t count);

#endif
