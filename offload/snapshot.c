/* Holds units as one step left them for a reader, while steps go on. */
#include "offload/snapshot.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

enum unit_state { UNIT_FREE, UNIT_AWAITED, UNIT_HELD };

struct unit_hold {
	enum unit_state state;
	int left; /* pieces of this rank that the reader still needs */
};

struct snapshot {
	const struct plan *plan;
	struct store *store;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t change;
	struct unit_hold *units;
	int cancelled;
	int64_t wait_ns, wait_begin_ns; /* total of finished waits; begin of the current wait, else 0 */
};

/* Elements of the range, which is in one piece, in this rank's shard; *at is their position from the shard's
 * start. */
static int64_t part_find(
        const struct snapshot *s, int64_t *at, int64_t *skipped, int tensor, int64_t first, int64_t count)
{
	const struct unit_map *map = s->plan->map;
	int64_t held;

	unit_map_locate(map, tensor, first, count, at, &held, skipped);
	*at -= map->units[unit_map_piece(map, tensor, first)->unit].first;
	return held;
}

int snapshot_open(struct snapshot **out, const struct plan *plan, struct store *store)
{
	struct snapshot *s = mem_alloc(1, sizeof(*s));

	*out = NULL;
	if (!s)
		return ERR_NOMEM;
	s->plan = plan;
	s->store = store;
	s->units = mem_alloc((size_t)plan->map->unit_count, sizeof(*s->units));
	if (!s->units) {
		mem_free(s);
		return ERR_NOMEM;
	}
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->change, NULL);
	*out = s;
	return 0;
}

void snapshot_close(struct snapshot *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->change);
	mem_free(s->units);
	mem_free(s);
}

int snapshot_is_possible(const struct snapshot *s)
{
	for (int u = 0; u < s->plan->map->unit_count; u++)
		for (int p = 0; p < PLANE_SAVED_COUNT; p++)
			if (unit_planes(&s->plan->map->units[u], s->plan->policy.state) >> p & 1 &&
			        !store_at(s->store, (enum plane)p, u))
				return 0;
	return 1;
}

/* Tables come last: most of their rows update after all other units. */
int snapshot_order(const struct snapshot *s, int index)
{
	const struct unit_map *map = s->plan->map;
	int others = map->unit_count - map->table_count, of_tables = index >= others, unit = -1;

	if (s->plan->policy.update_in_backward)
		return map->unit_count - 1 - index;
	for (int left = index - (of_tables ? others : 0); left >= 0; left--)
		do
			unit++;
		while ((map->units[unit].row_count > 0) != of_tables);
	return unit;
}

/* A unit without elements of this rank is free. */
void snapshot_begin(struct snapshot *s, enum snapshot_updates updates)
{
	const struct unit_map *map = s->plan->map;
	int64_t at, skipped;

	pthread_mutex_lock(&s->lock);
	s->cancelled = 0;
	for (int u = 0; u < map->unit_count; u++)
		s->units[u] = (struct unit_hold){UNIT_FREE, 0};
	for (int n = 0; n < map->piece_count; n++) {
		const struct unit_piece *piece = &map->pieces[n];
		struct unit_hold *unit = &s->units[piece->unit];

		if (!part_find(s, &at, &skipped, piece->tensor, piece->first, piece->count))
			continue;
		unit->state = updates == SNAPSHOT_UPDATES_PENDING && map->units[piece->unit].trainable
		                      ? UNIT_AWAITED
		                      : UNIT_HELD;
		unit->left++;
	}
	pthread_mutex_unlock(&s->lock);
}

void snapshot_end(struct snapshot *s)
{
	pthread_mutex_lock(&s->lock);
	for (int u = 0; u < s->plan->map->unit_count; u++)
		s->units[u] = (struct unit_hold){UNIT_FREE, 0};
	pthread_cond_broadcast(&s->change);
	pthread_mutex_unlock(&s->lock);
}

int snapshot_is_awaiting(struct snapshot *s)
{
	int awaiting = 0;

	pthread_mutex_lock(&s->lock);
	for (int u = 0; u < s->plan->map->unit_count; u++)
		awaiting |= s->units[u].state == UNIT_AWAITED;
	pthread_mutex_unlock(&s->lock);
	return awaiting;
}

void snapshot_cancel(struct snapshot *s)
{
	pthread_mutex_lock(&s->lock);
	s->cancelled = 1;
	pthread_cond_broadcast(&s->change);
	pthread_mutex_unlock(&s->lock);
}

/* Waits until the unit is held. */
static int unit_await(struct snapshot *s, int unit)
{
	enum unit_state state;

	pthread_mutex_lock(&s->lock);
	while (s->units[unit].state == UNIT_AWAITED && !s->cancelled)
		pthread_cond_wait(&s->change, &s->lock);
	state = s->units[unit].state;
	pthread_mutex_unlock(&s->lock);
	return state == UNIT_HELD      ? 0
	       : state == UNIT_AWAITED ? err_set(ERR_STOPPED, "the run ended before the updates of the step")
	                               : err_set(ERR_INTERNAL, "unit %d is read, but not held", unit);
}

int snapshot_read(struct snapshot *s, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	const struct plan_policy *policy = &s->plan->policy;
	const struct unit_map *map = s->plan->map;
	int rc = 0;

	for (int64_t run; count && !rc; first += run, count -= run) {
		int unit = unit_map_piece(map, tensor, first)->unit;
		int64_t at, held, skipped;
		const char *from;

		run = unit_map_run(map, tensor, first, count);
		rc = unit_await(s, unit);
		if (rc)
			break;
		held = part_find(s, &at, &skipped, tensor, first, run);
		from = store_borrow(s->store, plane, unit);
		memcpy((char *)dst + plan_plane_bytes(policy, plane, skipped),
		        from + plan_plane_bytes(policy, plane, at),
		        (size_t)plan_plane_bytes(policy, plane, held));
		store_return(s->store, plane, unit, STORE_READ);
		dst = (char *)dst + plan_plane_bytes(policy, plane, run);
	}
	return rc;
}

int snapshot_at(
        struct snapshot *s, int tensor, enum plane plane, int64_t first, int64_t count, const void **out)
{
	const struct unit_map *map = s->plan->map;
	int64_t at, skipped;
	int unit = unit_map_piece(map, tensor, first)->unit, rc = unit_await(s, unit);
	const char *lies = store_at(s->store, plane, unit);

	*out = NULL;
	if (!rc && lies && unit_map_run(map, tensor, first, count) == count &&
	        part_find(s, &at, &skipped, tensor, first, count) == count)
		*out = lies + plan_plane_bytes(&s->plan->policy, plane, at);
	return rc;
}

void snapshot_done(struct snapshot *s, int tensor, int64_t first)
{
	struct unit_hold *unit = &s->units[unit_map_piece(s->plan->map, tensor, first)->unit];

	pthread_mutex_lock(&s->lock);
	if (unit->left && !--unit->left) {
		unit->state = UNIT_FREE;
		pthread_cond_broadcast(&s->change);
	}
	pthread_mutex_unlock(&s->lock);
}

void snapshot_update_begin(struct snapshot *s, int unit)
{
	pthread_mutex_lock(&s->lock);
	if (s->units[unit].state == UNIT_HELD) {
		s->wait_begin_ns = clock_now_ns();
		while (s->units[unit].state == UNIT_HELD)
			pthread_cond_wait(&s->change, &s->lock);
		s->wait_ns += clock_now_ns() - s->wait_begin_ns;
		s->wait_begin_ns = 0;
	}
	pthread_mutex_unlock(&s->lock);
}

void snapshot_update_end(struct snapshot *s, int unit)
{
	pthread_mutex_lock(&s->lock);
	if (s->units[unit].state == UNIT_AWAITED) {
		s->units[unit].state = UNIT_HELD;
		pthread_cond_broadcast(&s->change);
	}
	pthread_mutex_unlock(&s->lock);
}

int64_t snapshot_wait_ns(struct snapshot *s)
{
	int64_t ns;

	pthread_mutex_lock(&s->lock);
	ns = s->wait_ns + (s->wait_begin_ns ? clock_now_ns() - s->wait_begin_ns : 0);
	pthread_mutex_unlock(&s->lock);
	return ns;
}
