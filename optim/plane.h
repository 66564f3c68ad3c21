/* Planes: the arrays that hold a parameter's weight, gradient and optimizer state element by element; and
 * the one list of them.
 *
 * HI is the bf16 weight, (HI << 16) + LO the fp32 master weight (base/num.h). M and V are AdamW's moments in
 * the format of the run (optim/state_format.h). If the format has scales, M_SCALE and V_SCALE hold one fp32
 * for every ADAMW_BLOCK elements. GRADIENT is a step's gradient until its update; checkpoints never contain
 * it. Functions address a range of scales by its elements: the range begins and ends at a block's border, or
 * at the tensor's end.
 */
#ifndef FERRY_OPTIM_PLANE_H
#define FERRY_OPTIM_PLANE_H

#include "optim/state_format.h"

/* identifier, name in files, plans and messages */
#define PLANES(X)                                                                                            \
	X(HI, "hi")                                                                                          \
	X(LO, "lo")                                                                                          \
	X(M, "m")                                                                                            \
	X(V, "v")                                                                                            \
	X(M_SCALE, "m_scale")                                                                                \
	X(V_SCALE, "v_scale")                                                                                \
	X(GRADIENT, "gradient")

#define PLANE_ENUM(id, name) PLANE_##id,
enum plane { PLANES(PLANE_ENUM) PLANE_COUNT };
#undef PLANE_ENUM

/* The planes that a checkpoint may contain come first. */
enum { PLANE_SAVED_COUNT = PLANE_GRADIENT };

/* Sets of planes: bit 1 << enum plane. */
enum {
	PLANES_WEIGHT = 1 << PLANE_HI | 1 << PLANE_LO,
	PLANES_MOMENT = 1 << PLANE_M | 1 << PLANE_V,
	PLANES_SCALE = 1 << PLANE_M_SCALE | 1 << PLANE_V_SCALE,
};

const char *plane_name(enum plane plane);

/* The planes in a checkpoint of a training run with this state. */
unsigned planes_of(enum adamw_state state);

/* The subset of a run's planes that one tensor has. A frozen tensor has no optimizer state, and a low half
 * only if its values need more than bf16. */
unsigned planes_of_tensor(unsigned planes, int trainable, int is_wide);

/* How many numbers of a plane belong to `count` elements. */
int64_t plane_numbers(enum plane plane, int64_t count);

/* Bytes of one number, and of all numbers of `count` elements; not of GRADIENT. */
int plane_width(enum plane plane, enum adamw_state state);
int64_t plane_bytes(enum plane plane, enum adamw_state state, int64_t count);

#endif
