#include "cli/ranks.h"

#include "cli/signals.h"

#include "base/err.h"
#include "base/mem.h"
#include "comm/link.h"
#include "comm/world.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- what is whose ---- */

int ranks_on_node(const struct config *c, const struct machine *machine, int64_t world_size)
{
	if (c->ranks_per_node != CONFIG_AUTO)
		return (int)(world_size != CONFIG_AUTO && world_size < c->ranks_per_node ? world_size
		                                                                         : c->ranks_per_node);
	if (machine)
		return (int)machine_ranks_here(machine, world_size);
	return c->verb == VERB_PLAN ? (int)(world_size == CONFIG_AUTO ? 1 : world_size)
	                            : world_self()->local_size;
}

int ranks_of_host(const struct config *c, const struct machine *machine)
{
	return machine || c->verb == VERB_PLAN ? ranks_on_node(c, machine, c->world_size)
	                                       : world_self()->local_size;
}

int ranks_in_world(const struct config *c, const struct machine *machine)
{
	if (c->verb != VERB_PLAN)
		return world_self()->size;
	if (c->world_size != CONFIG_AUTO)
		return (int)c->world_size;
	return machine ? (int)machine_ranks_here(machine, CONFIG_AUTO) : 1;
}

int ranks_strategy(struct engine_options *o, const struct config *c, int world_size, int here)
{
	int node = c->ranks_per_node == CONFIG_AUTO ? here : (int)c->ranks_per_node;

	switch (c->sharding_strategy) {
	case CONFIG_SHARDING_NO_SHARD:
		node = 1;
		break;
	case CONFIG_SHARDING_HYBRID_SHARD:
	case CONFIG_SHARDING_HYBRID_SHARD_ZERO2:
		break;
	default:
		node = world_size;
	}
	if (node > world_size || world_size % node)
		return err_set(ERR_INPUT,
		        "sharding_strategy=%s: %d ranks are not nodes of %d; start as many ranks on each "
		        "host, or set "
		        "ranks_per_node",
		        config_text(c, "sharding_strategy"), world_size, node);
	if (node > 1 && node < world_size && world_self()->size > 1 && c->ranks_per_node == CONFIG_AUTO &&
	        world_self()->rank % node != world_self()->local_rank)
		return err_set(ERR_INPUT,
		        "sharding_strategy=%s: ranks of a host must be numbered one after the other (mpirun "
		        "--map-by slot, srun -m block)",
		        config_text(c, "sharding_strategy"));
	o->world_size = world_size;
	o->shard_ranks = node;
	o->policy.keep_gathered = c->sharding_strategy == CONFIG_SHARDING_SHARD_GRAD_OP ||
	                          c->sharding_strategy == CONFIG_SHARDING_HYBRID_SHARD_ZERO2;
	return 0;
}

/* The part of a range that one of several holders writes; cut where blocks of the optimizer's state begin. */
static void range_cut(struct plane_range *range, int part, int parts)
{
	int64_t blocks = (range->count + ADAMW_BLOCK - 1) / ADAMW_BLOCK;
	int64_t begin = blocks * part / parts * ADAMW_BLOCK, end = blocks * (part + 1) / parts * ADAMW_BLOCK;

	range->count = (end < range->count ? end : range->count) - begin;
	range->first += begin;
}

int ranks_held(struct plane_range **out, int64_t *range_count, const struct unit_map *map,
        enum ranks_purpose purpose)
{
	int parts = purpose == RANKS_WRITE ? world_self()->size / map->world_size : 1;
	int part = purpose == RANKS_WRITE ? world_self()->rank / map->world_size : 0;
	const struct model *model = map->model;
	struct plane_range *ranges = mem_alloc((size_t)model->tensor_count, sizeof(*ranges));

	*range_count = 0;
	if (!ranges)
		return ERR_NOMEM;
	for (int t = 0; t < model->tensor_count; t++) {
		int64_t at, held, skipped;
		struct plane_range range;

		unit_map_locate(map, t, 0, model->tensors[t].count, &at, &held, &skipped);
		range = (struct plane_range){.tensor = t, .first = skipped, .count = held};
		range_cut(&range, part, parts);
		if (range.count > 0)
			ranges[(*range_count)++] = range;
	}
	*out = ranges;
	return 0;
}

/* A number for each tensor: of its weights that this rank holds, 0 where it holds none. */
static int tensors_hash(
        uint64_t *hashes, struct session *s, const struct plane_range *ranges, int64_t range_count)
{
	enum { PIECE = 65536 };
	struct plane_source source;
	uint16_t *piece = mem_alloc(PIECE, sizeof(*piece));
	int rc = piece ? 0 : ERR_NOMEM;

	session_source(s, &source);
	for (int64_t r = 0; r < range_count && !rc; r++)
		for (int64_t at = 0; at < ranges[r].count && !rc; at += PIECE) {
			int64_t left = ranges[r].count - at, count = left < PIECE ? left : PIECE;
			uint64_t *hash = &hashes[ranges[r].tensor];

			for (enum plane plane = PLANE_HI; plane <= PLANE_LO && !rc; plane++) {
				rc = source.read(source.context, ranges[r].tensor, plane,
				        ranges[r].first + at, count, piece);
				*hash = XXH3_64bits_withSeed(piece, (size_t)count * sizeof(*piece), *hash);
			}
		}
	mem_free(piece);
	return rc;
}

/* Ranks of the first group tell theirs in turn. */
static int hashes_compare(const struct unit_map *map, const uint64_t *hashes, uint64_t *first, int64_t step)
{
	int count = map->model->tensor_count, at = -1, rc = 0;

	for (int shard = 0; shard < map->world_size && !rc; shard++) {
		memcpy(first, hashes, (size_t)count * sizeof(*first));
		rc = world_broadcast(first, count * (int64_t)sizeof(*first), shard);
		for (int t = 0; t < count && at < 0 && map->rank == shard; t++)
			at = first[t] == hashes[t] ? -1 : t;
	}
	if (!rc && at >= 0)
		rc = err_set(ERR_INTERNAL,
		        "after step %" PRId64 " its %s is another than that of rank %d, which holds the same "
		        "shards: a bit flipped, in memory or on the way; the last checkpoint may hold it "
		        "already",
		        step, map->model->tensors[at].name, map->rank);
	return world_agree(rc);
}

int ranks_check_replicas(struct session *s, int64_t step)
{
	const struct unit_map *map = engine_units(s->engine);
	size_t count = (size_t)map->model->tensor_count;
	struct plane_range *ranges = NULL;
	uint64_t *hashes, *first;
	int64_t range_count = 0;
	int rc;

	if (world_self()->size == map->world_size)
		return 0;
	hashes = mem_alloc(count, sizeof(*hashes));
	first = mem_alloc(count, sizeof(*first));
	rc = hashes && first ? ranks_held(&ranges, &range_count, map, RANKS_READ) : ERR_NOMEM;
	if (!rc)
		rc = tensors_hash(hashes, s, ranges, range_count);
	rc = world_agree(rc);
	if (!rc)
		rc = hashes_compare(map, hashes, first, step);
	mem_free(ranges);
	mem_free(hashes);
	mem_free(first);
	return rc;
}

/* ---- where ranks are ---- */

/* A name travels as sums of numbers that only one rank does not leave 0. */
enum { NAME_BYTES = 48, NUMBER_BYTES = 6, NAME_NUMBERS = NAME_BYTES / NUMBER_BYTES, HOSTS_SHOWN = 16 };

static void name_pack(double *numbers, const char *name)
{
	for (int i = 0; i < NAME_NUMBERS; i++) {
		uint64_t value = 0;

		for (int k = 0; k < NUMBER_BYTES; k++)
			value = value << 8 | (unsigned char)name[i * NUMBER_BYTES + k];
		numbers[i] = (double)value;
	}
}

static void name_unpack(char *name, const double *numbers)
{
	for (int i = 0; i < NAME_NUMBERS; i++) {
		uint64_t value = (uint64_t)numbers[i];

		for (int k = NUMBER_BYTES - 1; k >= 0; k--, value >>= 8)
			name[i * NUMBER_BYTES + k] = (char)(value & 0xff);
	}
	name[NAME_BYTES] = 0;
}

static void hosts_tell(struct str *text, const double *numbers, int size)
{
	char name[NAME_BYTES + 1];
	int shown = 0, next;

	for (int r = 0; r < size; r = next) {
		const double *own = numbers + (ptrdiff_t)r * NAME_NUMBERS;

		for (next = r + 1; next < size; next++)
			if (memcmp(own, numbers + (ptrdiff_t)next * NAME_NUMBERS,
			            NAME_NUMBERS * sizeof(*own)))
				break;
		name_unpack(name, own);
		if (shown < HOSTS_SHOWN)
			str_printf(text, "%s%s: %d", shown ? ", " : "", name, r);
		if (shown < HOSTS_SHOWN && next > r + 1)
			str_printf(text, " to %d", next - 1);
		if (shown++ == HOSTS_SHOWN)
			str_add(text, ", ...");
	}
}

int ranks_hosts(struct str *text)
{
	const struct world *w = world_self();
	char name[NAME_BYTES + 1] = {0};
	double *numbers;
	int rc;

	if (w->size == w->local_size)
		return 0;
	numbers = mem_alloc((size_t)w->size * NAME_NUMBERS, sizeof(*numbers));
	rc = world_agree(numbers ? 0 : ERR_NOMEM);
	if (!rc) {
		(void)gethostname(name, NAME_BYTES); /* cut where it is longer */
		name_pack(numbers + (ptrdiff_t)w->rank * NAME_NUMBERS, name);
		rc = world_sum(numbers, w->size * NAME_NUMBERS);
	}
	if (!rc)
		hosts_tell(text, numbers, w->size);
	mem_free(numbers);
	return rc ? rc : world_agree(str_check(text));
}

/* ---- callbacks ---- */

static int agree(void *context, int code)
{
	(void)context;
	return world_agree(code);
}

static int share(void *context, uint64_t *value)
{
	(void)context;
	return world_broadcast(value, sizeof(*value), 0);
}

struct checkpoint_world ranks_checkpoint_world(void)
{
	const struct world *w = world_self();

	return (struct checkpoint_world){.rank = w->rank,
	        .size = w->size,
	        .agree = w->size > 1 ? agree : NULL,
	        .share = w->size > 1 ? share : NULL};
}

static int device_broadcast(void *context, void *values, int64_t bytes, int root)
{
	(void)context;
	return world_broadcast(values, bytes, root);
}

static int device_sum(void *context, double *values, int count)
{
	(void)context;
	return world_sum(values, count);
}

const struct device_bootstrap *ranks_bootstrap(void)
{
	static const struct device_bootstrap bootstrap = {.broadcast = device_broadcast, .sum = device_sum};

	return &bootstrap;
}

int ranks_signal(int *signal)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
	enum { COUNT = sizeof(signals) / sizeof(*signals) };
	double caught[COUNT];
	int rc;

	for (int i = 0; i < COUNT; i++)
		caught[i] = signals_pending() == signals[i];
	rc = world_sum(caught, COUNT);
	*signal = 0;
	for (int i = 0; i < COUNT && !*signal; i++)
		if (caught[i] > 0)
			*signal = signals[i];
	return rc;
}

/* ---- whole tensors on rank 0 ---- */

struct request {
	int32_t tensor, plane; /* tensor -1: that was all */
	int64_t first, count;
};

/* Rank 0's view of all planes. */
struct collector {
	struct session *session;
	struct link *link;
};

static int own_read(struct session *s, const struct request *r, void *dst)
{
	struct plane_source source;

	if (r->plane == PLANE_GRADIENT)
		return engine_read_gradient(s->engine, r->tensor, r->first, r->count, dst);
	session_source(s, &source);
	return source.read(source.context, r->tensor, (enum plane)r->plane, r->first, r->count, dst);
}

static int64_t request_bytes(const struct session *s, int plane, int64_t count)
{
	return plane == PLANE_GRADIENT
	               ? 4 * count
	               : plane_bytes((enum plane)plane, session_plane_state(s->config), count);
}

/* The part of a request that a rank's shard holds. */
static int request_part(
        const struct unit_map *map, int rank, const struct request *whole, struct request *part)
{
	struct unit_map other = *map;
	int64_t at, held, skipped;

	other.rank = rank;
	unit_map_locate(&other, whole->tensor, whole->first, whole->count, &at, &held, &skipped);
	*part = *whole;
	part->first += skipped;
	part->count = held;
	return held > 0;
}

static int all_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct collector *c = context;
	const struct unit_map *map = engine_units(c->session->engine);
	struct request whole = {tensor, (int32_t)plane, first, count}, part;
	int rc = own_read(c->session, &whole, dst);

	for (int r = 1; r < map->world_size && !rc; r++) {
		if (!request_part(map, r, &whole, &part))
			continue;
		struct link_part parts[] = {{LINK_SEND, r, &part, sizeof(part)},
		        {LINK_RECEIVE, r,
		                (char *)dst + request_bytes(c->session, whole.plane, part.first - first),
		                request_bytes(c->session, whole.plane, part.count)}};

		rc = link_exchange(c->link, parts, 2);
	}
	return rc;
}

/* In a world of one. */
static int all_at(void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void **at)
{
	struct collector *c = context;
	struct plane_source source;

	*at = NULL;
	if ((int)plane == PLANE_GRADIENT)
		return 0;
	session_source(c->session, &source);
	return source.at(source.context, tensor, plane, first, count, at);
}

/* Answers rank 0 until it has all. */
static int serve(struct session *s, struct link *link)
{
	struct request request;
	const struct link_part ask = {LINK_RECEIVE, 0, &request, sizeof(request)};
	int64_t cap_bytes = 0;
	void *values = NULL;
	int rc;

	while (!(rc = link_exchange(link, &ask, 1)) && request.tensor >= 0) {
		int64_t bytes = request_bytes(s, request.plane, request.count);
		struct link_part answer = {LINK_SEND, 0, NULL, bytes};

		if (bytes > cap_bytes) {
			mem_free(values);
			values = mem_alloc((size_t)bytes, 1);
			cap_bytes = values ? bytes : 0;
		}
		rc = values ? own_read(s, &request, values) : ERR_NOMEM;
		answer.values = values;
		rc = rc ? link_fail(rc) : link_exchange(link, &answer, 1);
		if (rc)
			break;
	}
	mem_free(values);
	return rc;
}

static int collect(struct collector *c, ranks_work *work, void *context)
{
	const struct plane_source source = {.context = c, .read = all_read};
	struct request end = {.tensor = -1};
	int size = world_self()->size, rc = work(context, &source);
	struct err why = {0};

	err_take(&why, rc);
	for (int r = 1; r < size; r++) {
		const struct link_part last = {LINK_SEND, r, &end, sizeof(end)};

		if (link_exchange(c->link, &last, 1))
			break; /* a rank failed: all know */
	}
	return err_give(&why);
}

int ranks_collect(struct session *s, ranks_work *work, void *context)
{
	struct collector c = {.session = s};
	const struct world *w = world_self();
	int rc;

	if (w->size == 1)
		return work(context, &(struct plane_source){.context = &c, .read = all_read, .at = all_at});
	rc = world_agree(link_open(&c.link, 0, 1, w->size));
	if (!rc)
		rc = world_agree(w->rank ? serve(s, c.link) : collect(&c, work, context));
	link_close(c.link);
	return rc;
}
