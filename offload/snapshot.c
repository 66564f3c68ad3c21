#include "offload/snapshot.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#include <pthread.h>

enum unit_state { UNIT_FREE, UNIT_AWAITED, UNIT_HELD };

struct snapshot {
	pthread_mutex_t lock; /* for all below */
	pthread_cond_t change;
	enum unit_state *units;
	int unit_count, cancelled;
	int64_t wait_ns;
};

int snapshot_open(struct snapshot **out, int unit_count)
{
	struct snapshot *s = mem_alloc(1, sizeof(*s));

	*out = NULL;
	if (!s)
		return ERR_NOMEM;
	s->units = mem_alloc((size_t)unit_count, sizeof(*s->units));
	if (!s->units) {
		mem_free(s);
		return ERR_NOMEM;
	}
	s->unit_count = unit_count;
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

static void set_all(struct snapshot *s, enum unit_state state)
{
	pthread_mutex_lock(&s->lock);
	for (int u = 0; u < s->unit_count; u++)
		s->units[u] = state;
	s->cancelled = 0;
	pthread_cond_broadcast(&s->change);
	pthread_mutex_unlock(&s->lock);
}

void snapshot_begin(struct snapshot *s, enum snapshot_updates updates)
{
	set_all(s, updates == SNAPSHOT_UPDATES_PENDING ? UNIT_AWAITED : UNIT_HELD);
}

void snapshot_end(struct snapshot *s)
{
	set_all(s, UNIT_FREE);
}

int snapshot_is_awaiting(struct snapshot *s)
{
	int awaiting = 0;

	pthread_mutex_lock(&s->lock);
	for (int u = 0; u < s->unit_count; u++)
		awaiting |= s->units[u] == UNIT_AWAITED;
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

int snapshot_hold(struct snapshot *s, int unit)
{
	int state;

	pthread_mutex_lock(&s->lock);
	while (s->units[unit] == UNIT_AWAITED && !s->cancelled)
		pthread_cond_wait(&s->change, &s->lock);
	state = s->units[unit];
	pthread_mutex_unlock(&s->lock);
	return state == UNIT_HELD      ? 0
	       : state == UNIT_AWAITED ? err_set(ERR_STOPPED, "the run ended before its last update")
	                               : err_set(ERR_INTERNAL, "unit %d is read, but not held", unit);
}

static void set_one(struct snapshot *s, int unit, enum unit_state state)
{
	s->units[unit] = state;
	pthread_cond_broadcast(&s->change);
}

void snapshot_free(struct snapshot *s, int unit)
{
	pthread_mutex_lock(&s->lock);
	set_one(s, unit, UNIT_FREE);
	pthread_mutex_unlock(&s->lock);
}

void snapshot_update_begin(struct snapshot *s, int unit)
{
	int64_t begin;

	pthread_mutex_lock(&s->lock);
	if (s->units[unit] == UNIT_HELD) {
		begin = clock_now_ns();
		while (s->units[unit] == UNIT_HELD)
			pthread_cond_wait(&s->change, &s->lock);
		s->wait_ns += clock_now_ns() - begin;
	}
	pthread_mutex_unlock(&s->lock);
}

void snapshot_update_end(struct snapshot *s, int unit)
{
	pthread_mutex_lock(&s->lock);
	if (s->units[unit] == UNIT_AWAITED)
		set_one(s, unit, UNIT_HELD);
	pthread_mutex_unlock(&s->lock);
}

int64_t snapshot_wait_ns(struct snapshot *s)
{
	int64_t ns;

	pthread_mutex_lock(&s->lock);
	ns = s->wait_ns;
	pthread_mutex_unlock(&s->lock);
	return ns;
}
