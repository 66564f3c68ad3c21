/* Lets rank 0 read the other ranks' ranges, piece by piece. */
#include "train/ranks/collect.h"

#include "train/ranks/planes.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/link.h"
#include "comm/world.h"

struct request {
	int32_t tensor, plane; /* tensor -1: the end */
	int64_t first, count;
};

/* Rank 0's view of all planes. */
struct collector {
	struct engine *engine;
	enum adamw_state state; /* format of the moments */
	struct link *link;
};

static int own_read(struct engine *e, const struct request *r, void *dst)
{
	struct plane_source source;

	if (r->plane == PLANE_GRADIENT)
		return engine_read_gradient(e, r->tensor, r->first, r->count, dst);
	planes_source(&source, e);
	return source.read(source.context, r->tensor, (enum plane)r->plane, r->first, r->count, dst);
}

/* The part of a request, which is in one piece, that a rank's shard holds. */
static int request_part(
        const struct unit_map *map, int rank, const struct request *whole, struct request *part)
{
	struct unit_map other = *map;
	int64_t at, held, skipped;

	other.shard_rank = rank;
	unit_map_locate(&other, whole->tensor, whole->first, whole->count, &at, &held, &skipped);
	*part = *whole;
	part->first += skipped;
	part->count = held;
	return held > 0;
}

static int all_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct collector *c = context;
	const struct unit_map *map = engine_units(c->engine);
	int64_t run = count ? unit_map_run(map, tensor, first, count) : 0;
	struct request whole = {tensor, (int32_t)plane, first, run}, part;
	int rc = own_read(c->engine, &whole, dst);

	for (int r = 1; r < map->shard_ranks && !rc; r++) {
		if (!request_part(map, r, &whole, &part))
			continue;
		struct link_part parts[] = {{LINK_SEND, r, &part, sizeof(part)},
		        {LINK_RECEIVE, r, (char *)dst + plane_bytes(plane, c->state, part.first - first),
		                plane_bytes(plane, c->state, part.count)}};

		rc = link_exchange(c->link, parts, 2);
	}
	if (rc || run == count)
		return rc;
	return all_read(context, tensor, plane, first + run, count - run,
	        (char *)dst + plane_bytes(plane, c->state, run));
}

/* Only with one rank. */
static int all_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	struct collector *c = context;
	struct plane_source source;

	*at = NULL;
	if ((int)plane == PLANE_GRADIENT)
		return 0;
	planes_source(&source, c->engine);
	return source.at(source.context, tensor, plane, first, count, at);
}

/* Answers rank 0's requests until it sends the end. */
static int serve(struct collector *c)
{
	struct request request;
	const struct link_part ask = {LINK_RECEIVE, 0, &request, sizeof(request)};
	int64_t cap_bytes = 0;
	void *values = NULL;
	int rc;

	while (!(rc = link_exchange(c->link, &ask, 1)) && request.tensor >= 0) {
		int64_t bytes = plane_bytes((enum plane)request.plane, c->state, request.count);
		struct link_part answer = {LINK_SEND, 0, NULL, bytes};

		if (bytes > cap_bytes) {
			mem_free(values);
			values = mem_alloc((size_t)bytes, 1);
			cap_bytes = values ? bytes : 0;
		}
		rc = values ? own_read(c->engine, &request, values) : ERR_NOMEM;
		answer.values = values;
		rc = rc ? link_fail(rc) : link_exchange(c->link, &answer, 1);
		if (rc)
			break;
	}
	mem_free(values);
	return rc;
}

static int collect(struct collector *c, collect_work *work, void *context)
{
	const struct plane_source source = {.context = c, .read = all_read};
	struct request end = {.tensor = -1};
	int size = world_self()->size, rc = work(context, &source);
	struct err why = {0};

	err_take(&why, rc);
	for (int r = 1; r < size; r++) {
		const struct link_part last = {LINK_SEND, r, &end, sizeof(end)};

		if (link_exchange(c->link, &last, 1))
			break; /* a rank failed, and all ranks know */
	}
	return err_give(&why);
}

int collect_planes(struct engine *e, enum adamw_state state, collect_work *work, void *context)
{
	struct collector c = {.engine = e, .state = state};
	const struct world *w = world_self();
	int rc;

	if (w->size == 1)
		return work(context, &(struct plane_source){.context = &c, .read = all_read, .at = all_at});
	rc = world_agree(link_open(&c.link, 0, 1, w->size));
	if (!rc)
		rc = world_agree(w->rank ? serve(&c) : collect(&c, work, context));
	link_close(c.link);
	return rc;
}
