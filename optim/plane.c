/* Planes and optimizer-state formats: the tables behind the two lists. */
#include "optim/plane.h"

const struct format_facts *adamw_state_format(enum adamw_state state)
{
#define FORMAT(id, format, ...) FORMAT_##format,
	static const enum format formats[ADAMW_STATE_COUNT] = {ADAMW_STATES(FORMAT)};
#undef FORMAT

	return &format_facts[formats[state]];
}

const char *adamw_state_name(enum adamw_state state)
{
#define NAME(id, format, name, ...) name,
	static const char *const names[ADAMW_STATE_COUNT] = {ADAMW_STATES(NAME)};
#undef NAME

	return names[state];
}

int adamw_state_has_scales(enum adamw_state state)
{
	return adamw_state_format(state)->block > 0;
}

enum dtype adamw_state_dtype(enum adamw_state state)
{
	return adamw_state_format(state)->element;
}

int64_t adamw_state_bytes(enum adamw_state state)
{
	return dtype_bytes(adamw_state_dtype(state));
}

const char *plane_name(enum plane plane)
{
#define NAME(id, name) name,
	static const char *const names[PLANE_COUNT] = {PLANES(NAME)};
#undef NAME

	return names[plane];
}

unsigned planes_of(enum adamw_state state)
{
	return PLANES_WEIGHT | PLANES_MOMENT | (adamw_state_has_scales(state) ? PLANES_SCALE : 0u);
}

unsigned planes_of_tensor(unsigned planes, int trainable, int is_wide)
{
	if (trainable)
		return planes;
	return planes & (is_wide ? (unsigned)PLANES_WEIGHT : 1u << PLANE_HI);
}

int64_t plane_numbers(enum plane plane, int64_t count)
{
	if (!(PLANES_SCALE >> plane & 1))
		return count;
	return count / ADAMW_BLOCK + (count % ADAMW_BLOCK != 0);
}

int plane_width(enum plane plane, enum adamw_state state)
{
	if (PLANES_WEIGHT >> plane & 1)
		return 2;
	return PLANES_SCALE >> plane & 1 ? 4 : (int)adamw_state_bytes(state);
}

int64_t plane_bytes(enum plane plane, enum adamw_state state, int64_t count)
{
	return plane_numbers(plane, count) * plane_width(plane, state);
}
