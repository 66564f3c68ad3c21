/* What a plan's memory is made of, for people. */
#include "offload/plan.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

/* By what buffers are called; those of a store plane go by the plane. */
static const struct {
	const char *what;
	enum plan_part part;
} names[] = {
        {"weights", PART_WEIGHTS},
        {"weights hi", PART_WEIGHTS},
        {"weights lo", PART_WEIGHTS},
        {"update hi", PART_WEIGHTS},
        {"gradients", PART_GRADIENTS},
        {"reduced gradients", PART_GRADIENTS},
        {"rounded gradients", PART_GRADIENTS},
        {"update gradient", PART_GRADIENTS},
        {"gradient ring", PART_GRADIENTS},
        {"activations", PART_ACTIVATIONS},
        {"block inputs", PART_ACTIVATIONS},
        {"spilled block inputs", PART_ACTIVATIONS},
        {"block input gradients", PART_ACTIVATIONS},
        {"scratch", PART_WORKSPACE},
        {"rope table", PART_WORKSPACE},
        {"batch", PART_STAGING},
        {"loss", PART_STAGING},
        {"sums of squares", PART_STAGING},
};

static enum plan_part plane_part(enum store_plane plane)
{
	switch (plane) {
	case STORE_HI:
	case STORE_LO:
		return PART_WEIGHTS;
	case STORE_GRADIENT:
		return PART_GRADIENTS;
	default:
		return PART_OPTIMIZER;
	}
}

enum plan_part plan_buffer_part(const struct plan_buffer *b)
{
	if (b->plane >= 0)
		return plane_part((enum store_plane)b->plane);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(b->what, names[i].what))
			return names[i].part;
	return PART_COUNT;
}

static int is_alive(const struct plan_buffer *b, int op)
{
	return b->persistent || (b->first_op >= 0 && b->first_op <= op && op <= b->last_op);
}

/* The operation during which most is alive. */
static int fullest_find(int *fullest, const struct plan *p, enum plan_space space)
{
	int64_t *change = mem_alloc((size_t)p->op_count + 1, sizeof(*change));
	int64_t now = 0, most = -1;

	if (!change)
		return ERR_NOMEM;
	for (int i = 0; i < p->buffer_count; i++) {
		const struct plan_buffer *b = &p->buffers[i];

		if (b->space != space || b->persistent || b->first_op < 0)
			continue;
		change[b->first_op] += b->bytes;
		change[b->last_op + 1] -= b->bytes;
	}
	*fullest = 0;
	for (int op = 0; op < p->op_count; op++) {
		now += change[op];
		if (now > most) {
			most = now;
			*fullest = op;
		}
	}
	mem_free(change);
	return 0;
}

int plan_parts(int64_t bytes[PART_COUNT], int *op, const struct plan *p, enum plan_space space)
{
	int rc = fullest_find(op, p, space);

	memset(bytes, 0, PART_COUNT * sizeof(*bytes));
	for (int i = 0; i < p->buffer_count && !rc; i++) {
		const struct plan_buffer *b = &p->buffers[i];
		enum plan_part part = plan_buffer_part(b);

		if (part == PART_COUNT)
			rc = err_set(ERR_INTERNAL, "a plan's buffer \"%s\" is of no part of memory", b->what);
		else if (b->space == space && is_alive(b, *op))
			bytes[part] += b->bytes;
	}
	return rc;
}

const char *plan_part_name(enum plan_part part)
{
	static const char *const part_names[PART_COUNT] = {
	        "weights", "gradients", "optimizer", "activations", "workspace", "staging"};

	return part_names[part];
}
