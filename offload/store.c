#include "offload/store.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/size.h"
#include "host/slab.h"

#include <inttypes.h>

enum { STORE_ALIGN = 64 };

struct store {
	struct device *device;
	const struct unit_map *map;
	void *slab[2]; /* by enum slab_kind */
	char *plane[STORE_PLANE_COUNT];
	int64_t element_bytes[STORE_PLANE_COUNT];
	int64_t slab_bytes[2];
	enum slab_kind crossing; /* of hi and gradient */
};

static enum slab_kind plane_slab(const struct store *s, enum store_plane plane)
{
	return plane == STORE_HI || plane == STORE_GRADIENT ? s->crossing : SLAB_PAGEABLE;
}

/* Element sizes from the plan's buffers: every unit has the same planes. */
static void planes_find(struct store *s, const struct plan *plan)
{
	for (int i = 0; i < plan->buffer_count; i++) {
		const struct plan_buffer *b = &plan->buffers[i];

		if (b->space == SPACE_STORE)
			s->element_bytes[b->plane] = b->bytes / s->map->units[b->unit].shard_count;
	}
}

int store_open(struct store **out, struct device *device, const struct plan *plan, enum slab_kind crossing)
{
	struct store *s = mem_alloc(1, sizeof(*s));
	int64_t offset[STORE_PLANE_COUNT] = {0};
	int rc = 0;

	if (!s)
		return ERR_NOMEM;
	s->device = device;
	s->map = plan->map;
	s->crossing = crossing;
	planes_find(s, plan);
	for (int p = 0; p < STORE_PLANE_COUNT; p++) {
		int64_t bytes = s->map->shard_total * s->element_bytes[p];
		int64_t *end = &s->slab_bytes[plane_slab(s, (enum store_plane)p)];

		if (!bytes)
			continue;
		offset[p] = *end ? round_up(*end, STORE_ALIGN) + SLAB_SKEW_BYTES : 0;
		*end = offset[p] + bytes;
	}
	for (int k = 0; k < 2 && !rc; k++)
		if (s->slab_bytes[k])
			rc = device_slab_open(device, &s->slab[k], s->slab_bytes[k], (enum slab_kind)k);
	if (rc) {
		err_note(rc, "store of %" PRId64 " bytes", s->slab_bytes[0] + s->slab_bytes[1]);
		store_close(s);
		return rc;
	}
	for (int p = 0; p < STORE_PLANE_COUNT; p++)
		if (s->element_bytes[p])
			s->plane[p] = (char *)s->slab[plane_slab(s, (enum store_plane)p)] + offset[p];
	*out = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	for (int k = 0; k < 2; k++)
		if (s->slab[k])
			device_slab_close(s->device, s->slab[k]);
	mem_free(s);
}

void *store_at(const struct store *s, enum store_plane plane, int unit)
{
	if (!s->plane[plane])
		return NULL;
	return s->plane[plane] + s->map->units[unit].first * s->element_bytes[plane];
}
