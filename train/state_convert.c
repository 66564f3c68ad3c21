/* Converts AdamW's moments from one format to another. */
#include "train/state_convert.h"

#include "base/err.h"
#include "base/mem.h"
#include "optim/adamw_convert.h"

enum { PIECE = 64 << 10 };

_Static_assert(PIECE % ADAMW_BLOCK == 0, "whole blocks");

struct convert {
	struct checkpoint *from;
	const struct plane_sink *sink;
	enum adamw_state saved, wanted;
	float x[PIECE], scales[PIECE];
	char stored[PIECE * sizeof(float)];
};

static int piece_copy(struct convert *c, int tensor, enum plane plane, int64_t first, int64_t count)
{
	int rc = checkpoint_read(c->from, tensor, plane, first, count, c->stored);

	return rc ? rc : c->sink->write(c->sink->context, tensor, plane, first, count, c->stored);
}

static int piece_convert(struct convert *c, int tensor, enum plane plane, int64_t first, int64_t count)
{
	enum plane scale = plane == PLANE_M ? PLANE_M_SCALE : PLANE_V_SCALE;
	enum adamw_moment moment = plane == PLANE_M ? ADAMW_MOMENT_M : ADAMW_MOMENT_V;
	int rc = checkpoint_read(c->from, tensor, plane, first, count, c->stored);

	if (!rc && adamw_state_has_scales(c->saved))
		rc = checkpoint_read(c->from, tensor, scale, first, count, c->scales);
	if (rc)
		return rc;
	adamw_state_widen(c->x, c->stored, c->scales, count, c->saved, moment);
	adamw_state_narrow(c->stored, c->scales, c->x, count, c->wanted, moment);
	rc = c->sink->write(c->sink->context, tensor, plane, first, count, c->stored);
	if (!rc && adamw_state_has_scales(c->wanted))
		rc = c->sink->write(c->sink->context, tensor, scale, first, count, c->scales);
	return rc;
}

int state_convert_planes(struct checkpoint *from, const struct plane_sink *sink, enum adamw_state wanted,
        const struct plane_range *ranges, int64_t range_count)
{
	struct convert *c = mem_alloc(1, sizeof(*c));
	int rc = c ? 0 : ERR_NOMEM;

	if (!rc) {
		c->from = from;
		c->sink = sink;
		c->saved = checkpoint_manifest(from)->state;
		c->wanted = wanted;
	}
	for (int p = 0; p < PLANE_SAVED_COUNT && !rc; p++)
		for (int64_t r = 0; r < range_count && !rc; r++) {
			unsigned planes = checkpoint_manifest(from)->tensors[ranges[r].tensor].planes;

			if (!plane_is_in((enum plane)p, planes & ~(unsigned)PLANES_SCALE))
				continue; /* scales are converted with their moment */
			for (int64_t done = 0; done < ranges[r].count && !rc; done += PIECE) {
				int64_t left = ranges[r].count - done, count = left < PIECE ? left : PIECE;

				rc = (plane_is_in((enum plane)p, PLANES_MOMENT) ? piece_convert : piece_copy)(
				        c, ranges[r].tensor, (enum plane)p, ranges[r].first + done, count);
			}
		}
	mem_free(c);
	return rc;
}
