/* The order of planes in a shard file. */
#include "checkpoint/plane_io.h"

const enum plane *plane_file_order(enum adamw_state state)
{
	static const enum plane wide[PLANE_SAVED_COUNT] = {
	        PLANE_M, PLANE_V, PLANE_HI, PLANE_LO, PLANE_M_SCALE, PLANE_V_SCALE};
	static const enum plane narrow[PLANE_SAVED_COUNT] = {
	        PLANE_M_SCALE, PLANE_V_SCALE, PLANE_HI, PLANE_LO, PLANE_M, PLANE_V};

	return adamw_state_has_scales(state) ? narrow : wide;
}
