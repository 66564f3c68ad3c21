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

const char *adamw_state_saved_name(enum adamw_state state)
{
#define NAME(id, format, name, other, saved) saved,
	static const char *const names[ADAMW_STATE_COUNT] = {ADAMW_STATES(NAME)};
#undef NAME

	return names[state];
}

int adamw_state_has_scales(enum adamw_state state)
{
	return adamw_state_format(state)->block > 0;
}

int adamw_state_block(enum adamw_state state)
{
	int block = adamw_state_format(state)->block;

	return block ? block : ADAMW_BLOCK;
}

#define DIVIDES(id, format, ...)                                                                             \
	_Static_assert(ADAMW_BLOCK % (FORMAT_BLOCK_##format + (FORMAT_BLOCK_##format == 0)) == 0,            \
	        "blocks of " #id " do not divide the largest");
ADAMW_STATES(DIVIDES)
#undef DIVIDES

enum dtype adamw_state_dtype(enum adamw_state state)
{
	return adamw_state_format(state)->element;
}

int64_t adamw_state_bytes(enum adamw_state state)
{
	return dtype_bytes(adamw_state_dtype(state));
}

static const struct {
	const char *name, *title;
	enum plane_element element;
	int turn;
} facts[PLANE_COUNT] = {
#define FACTS(id, name, title, element, saved, turn) {name, title, PLANE_OF_##element, turn},
        PLANES(FACTS)
#undef FACTS
};

const char *plane_name(enum plane plane)
{
	return facts[plane].name;
}

const char *plane_title(enum plane plane)
{
	return facts[plane].title;
}

enum dtype plane_dtype(enum plane plane, enum adamw_state state, enum dtype gradient)
{
	switch (facts[plane].element) {
	case PLANE_OF_BF16:
		return DTYPE_BF16;
	case PLANE_OF_I16:
		return DTYPE_I16;
	case PLANE_OF_STATE:
		return adamw_state_format(state)->element;
	case PLANE_OF_SCALE:
		return adamw_state_format(state)->scale;
	case PLANE_OF_CODE:
		return DTYPE_U8;
	case PLANE_OF_GRADIENT:
		break;
	}
	return gradient;
}

void plane_file_order(enum plane order[PLANE_SAVED_COUNT], enum adamw_state state)
{
	for (int p = 0; p < PLANE_SAVED_COUNT; p++) {
		int width = plane_width((enum plane)p, state), at = p;

		for (; at; at--) {
			enum plane before = order[at - 1];
			int wider = plane_width(before, state) - width;

			if (wider > 0 || (wider == 0 && facts[before].turn < facts[p].turn))
				break;
			order[at] = before;
		}
		order[at] = (enum plane)p;
	}
}

unsigned planes_of(enum adamw_state state)
{
	return PLANES_WEIGHT | PLANES_MOMENT | (adamw_state_has_scales(state) ? PLANES_SCALE : 0u);
}

int plane_block(enum plane plane, enum adamw_state state)
{
	return plane_is_in(plane, PLANES_SCALE) ? adamw_state_block(state) : 1;
}

int64_t plane_numbers(enum plane plane, enum adamw_state state, int64_t count)
{
	int block = plane_block(plane, state);

	return count / block + (count % block != 0);
}

int plane_width(enum plane plane, enum adamw_state state)
{
	return (int)dtype_bytes(plane_dtype(plane, state, DTYPE_F32));
}

int64_t plane_bytes(enum plane plane, enum adamw_state state, int64_t count)
{
	return plane_numbers(plane, state, count) * plane_width(plane, state);
}
