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
	void *slab[2];                  /* by enum slab_kind */
	int64_t *at[STORE_PLANE_COUNT]; /* per unit: bytes from the plane's first; -1 where it is elsewhere */
	int64_t bytes[STORE_PLANE_COUNT]; /* of all units that it has */
	int64_t first[STORE_PLANE_COUNT]; /* in its slab */
	int64_t slab_bytes[2];
	enum slab_kind crossing; /* of hi and gradient */
};

static enum slab_kind plane_slab(const struct store *s, enum store_plane plane)
{
	return plane == STORE_HI || plane == STORE_GRADIENT ? s->crossing : SLAB_PAGEABLE;
}

/* Which units a plane has, from the plan's buffers; they stand in unit order there too. */
static int planes_find(struct store *s, const struct plan *plan)
{
	for (int p = 0; p < STORE_PLANE_COUNT; p++) {
		s->at[p] = mem_alloc((size_t)s->map->unit_count, sizeof(*s->at[p]));
		if (!s->at[p])
			return ERR_NOMEM;
		for (int u = 0; u < s->map->unit_count; u++)
			s->at[p][u] = -1;
	}
	for (int i = 0; i < plan->buffer_count; i++) {
		const struct plan_buffer *b = &plan->buffers[i];

		if (b->space != SPACE_STORE)
			continue;
		s->at[b->plane][b->unit] = s->bytes[b->plane];
		s->bytes[b->plane] += b->bytes;
	}
	return 0;
}

int store_open(struct store **out, struct device *device, const struct plan *plan, enum slab_kind crossing)
{
	struct store *s = mem_alloc(1, sizeof(*s));
	int rc;

	if (!s)
		return ERR_NOMEM;
	s->device = device;
	s->map = plan->map;
	s->crossing = crossing;
	rc = planes_find(s, plan);
	for (int p = 0; p < STORE_PLANE_COUNT && !rc; p++) {
		int64_t *end = &s->slab_bytes[plane_slab(s, (enum store_plane)p)];

		if (!s->bytes[p])
			continue;
		s->first[p] = *end ? round_up(*end, STORE_ALIGN) + SLAB_SKEW_BYTES : 0;
		*end = s->first[p] + s->bytes[p];
	}
	for (int k = 0; k < 2 && !rc; k++)
		if (s->slab_bytes[k])
			rc = device_slab_open(device, &s->slab[k], s->slab_bytes[k], (enum slab_kind)k);
	if (rc) {
		err_note(rc, "store of %" PRId64 " bytes", s->slab_bytes[0] + s->slab_bytes[1]);
		store_close(s);
		return rc;
	}
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
	for (int p = 0; p < STORE_PLANE_COUNT; p++)
		mem_free(s->at[p]);
	mem_free(s);
}

void *store_at(const struct store *s, enum store_plane plane, int unit)
{
	if (s->at[plane][unit] < 0)
		return NULL;
	return (char *)s->slab[plane_slab(s, plane)] + s->first[plane] + s->at[plane][unit];
}
