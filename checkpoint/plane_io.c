#include "checkpoint/plane_io.h"

static const char *const plane_names[PLANE_COUNT] = {"hi", "lo", "m", "v", "m_scale", "v_scale"};
static const char *const state_names[PLANE_STATE_COUNT] = {"fp32", "bf16", "8bit"};

const char *plane_name(enum plane plane)
{
	return plane_names[plane];
}

const char *plane_state_name(enum plane_state state)
{
	return state_names[state];
}

const enum plane *plane_file_order(enum plane_state state)
{
	static const enum plane wide[PLANE_COUNT] = {
	        PLANE_M, PLANE_V, PLANE_HI, PLANE_LO, PLANE_M_SCALE, PLANE_V_SCALE};
	static const enum plane narrow[PLANE_COUNT] = {
	        PLANE_M_SCALE, PLANE_V_SCALE, PLANE_HI, PLANE_LO, PLANE_M, PLANE_V};

	return state == PLANE_STATE_8BIT ? narrow : wide;
}
