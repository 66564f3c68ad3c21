/* The virtual clock of streams, and their shares of the machine's resources. */
#include "device/meta/meta_clock.h"

#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>

enum item_kind { ITEM_WORK, ITEM_WAIT, ITEM_STAMP };

struct meta_item {
	enum item_kind kind;
	struct meta_load load;
	double left_ns; /* of load.alone_ns */
	struct meta_stream *target;
	int64_t target_count;
	int64_t *at_ns;
};

void meta_clock_add(struct meta_clock *clock, struct meta_stream *stream)
{
	stream->next = clock->streams;
	clock->streams = stream;
}

void meta_clock_remove(struct meta_clock *clock, struct meta_stream *stream)
{
	struct meta_stream **at = &clock->streams;

	meta_clock_run(clock, stream, stream->queued_count);
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	mem_free(stream->items);
	stream->items = NULL;
	stream->next = clock->closed;
	clock->closed = stream;
}

void meta_clock_close(struct meta_clock *clock)
{
	while (clock->streams)
		meta_clock_remove(clock, clock->streams);
	while (clock->closed) {
		struct meta_stream *s = clock->closed;

		clock->closed = s->next;
		mem_free(s);
	}
}

/* ---- queueing ---- */

static struct meta_item *item_add(struct meta_stream *s, enum item_kind kind)
{
	if (s->count == s->cap) {
		int64_t cap = s->cap ? 2 * s->cap : 64;
		struct meta_item *items = mem_resize(s->items, (size_t)cap, sizeof(*items));

		if (!items)
			return NULL;
		s->items = items;
		s->cap = cap;
	}
	s->queued_count++;
	s->items[s->count] = (struct meta_item){.kind = kind};
	return &s->items[s->count++];
}

/* Joins a piece to the one before it if neither uses a shared resource and no event lies between them. */
static int work_join(struct meta_stream *s, const struct meta_load *load)
{
	struct meta_item *last = s->count > s->first ? &s->items[s->count - 1] : NULL;

	if (!last || last->kind != ITEM_WORK || s->marked_count == s->queued_count)
		return 0;
	for (int r = 0; r < META_SHARED_COUNT; r++)
		if (load->share[r] != 0 || last->load.share[r] != 0)
			return 0;
	if (load->slows || load->beside > 0 || last->load.slows || last->load.beside > 0)
		return 0;
	last->load.alone_ns += load->alone_ns;
	last->left_ns += (double)load->alone_ns;
	return 1;
}

int meta_clock_work(struct meta_stream *s, const struct meta_load *load)
{
	struct meta_item *item;

	if (!load->alone_ns || work_join(s, load))
		return 0;
	item = item_add(s, ITEM_WORK);
	if (!item)
		return ERR_NOMEM;
	item->load = *load;
	item->left_ns = (double)load->alone_ns;
	return 0;
}

int meta_clock_wait(struct meta_stream *s, struct meta_stream *target, int64_t count)
{
	struct meta_item *item = target->done_count >= count || target == s ? NULL : item_add(s, ITEM_WAIT);

	if (!item)
		return target->done_count >= count || target == s ? 0 : ERR_NOMEM;
	item->target = target;
	item->target_count = count;
	return 0;
}

int meta_clock_stamp(struct meta_stream *s, int64_t *at_ns)
{
	struct meta_item *item = item_add(s, ITEM_STAMP);

	if (!item)
		return ERR_NOMEM;
	item->at_ns = at_ns;
	return 0;
}

/* ---- time ---- */

static struct meta_item *item_first(const struct meta_stream *s)
{
	return s->first < s->count ? &s->items[s->first] : NULL;
}

static void item_done(struct meta_stream *s)
{
	s->done_count++;
	if (++s->first == s->count)
		s->first = s->count = 0;
}

/* Passes items that take no time at the heads of streams: stamps, and waits that are over. */
static int heads_pass(struct meta_clock *clock)
{
	int any = 0;

	for (struct meta_stream *s = clock->streams; s; s = s->next)
		for (struct meta_item *item; (item = item_first(s)); any = 1) {
			if (item->kind == ITEM_STAMP)
				*item->at_ns = clock->now_ns;
			else if (item->kind == ITEM_WORK || item->target->done_count < item->target_count)
				break;
			item_done(s);
		}
	return any;
}

/* The work at the head of a stream; NULL if the stream waits or is done. */
static struct meta_item *work_first(const struct meta_stream *s)
{
	struct meta_item *item = item_first(s);

	return item && item->kind == ITEM_WORK ? item : NULL;
}

/* The common value of all open rates at which resource r is full; INFINITY: it does not fill. */
static double level_of(const struct meta_clock *clock, enum meta_shared r)
{
	double wanted = 0, left = 1;

	for (const struct meta_stream *s = clock->streams; s; s = s->next) {
		const struct meta_item *work = work_first(s);

		if (work && s->rate < 0)
			wanted += work->load.share[r];
		else if (work)
			left -= s->rate * work->load.share[r];
	}
	return wanted > left ? fmax(left, 0) / wanted : INFINITY;
}

/* The most that a stream's first piece can do beside the others. */
static double limit_of(const struct meta_clock *clock, const struct meta_stream *stream)
{
	const struct meta_item *work = work_first(stream);

	if (!work || work->load.beside <= 0)
		return 1;
	for (const struct meta_stream *s = clock->streams; s; s = s->next)
		if (s != stream && work_first(s) && work_first(s)->load.slows)
			return work->load.beside;
	return 1;
}

/* The resource that fills first while all open rates rise together, and their value *least then, at most
 * 1. */
static enum meta_shared full_first(double *least, const struct meta_clock *clock)
{
	enum meta_shared full = META_SHARED_COUNT;

	*least = 1;
	for (enum meta_shared r = 0; r < META_SHARED_COUNT; r++) {
		double level = level_of(clock, r);

		if (level < *least) {
			*least = level;
			full = r;
		}
	}
	return full;
}

/* Fixes open rates at their limits below `least`; returns their number. */
static int limits_fix(struct meta_clock *clock, double least)
{
	double lowest = least;
	int count = 0;

	for (struct meta_stream *s = clock->streams; s; s = s->next)
		if (s->rate < 0 && s->limit < lowest)
			lowest = s->limit;
	for (struct meta_stream *s = clock->streams; s && lowest < least; s = s->next)
		if (s->rate < 0 && s->limit <= lowest) {
			s->rate = s->limit;
			count++;
		}
	return count;
}

/* Raises all rates together. A full resource fixes the rates of the pieces that use it; the others rise on.
 */
static void rates_find(struct meta_clock *clock)
{
	for (struct meta_stream *s = clock->streams; s; s = s->next) {
		s->rate = -1; /* still open */
		s->limit = limit_of(clock, s);
	}
	for (;;) {
		double least;
		enum meta_shared full = full_first(&least, clock);

		if (limits_fix(clock, least))
			continue;
		for (struct meta_stream *s = clock->streams; s; s = s->next) {
			const struct meta_item *work = work_first(s);

			if (s->rate < 0 &&
			        (full == META_SHARED_COUNT || (work && work->load.share[full] > 0)))
				s->rate = least;
		}
		if (full == META_SHARED_COUNT)
			return;
	}
}

/* Advances the clock to the next end of a piece. */
static void time_pass(struct meta_clock *clock)
{
	double next_ns = INFINITY;
	int64_t passed_ns;

	rates_find(clock);
	for (struct meta_stream *s = clock->streams; s; s = s->next) {
		const struct meta_item *work = work_first(s);

		if (work && s->rate > 0)
			next_ns = fmin(next_ns, work->left_ns / s->rate);
	}
	assert(isfinite(next_ns)); /* waits are for earlier work, so some piece runs */
	passed_ns = (int64_t)ceil(next_ns);
	clock->now_ns += passed_ns;
	for (struct meta_stream *s = clock->streams; s; s = s->next) {
		struct meta_item *head = item_first(s);

		if (!head)
			continue;
		if (head->kind == ITEM_WAIT) {
			if (s->base.queue == QUEUE_COMPUTE)
				clock->wait_ns[head->target->base.queue] += passed_ns;
			continue;
		}
		clock->busy_ns[s->base.queue] += passed_ns;
		head->left_ns -= s->rate * (double)passed_ns;
		if (head->left_ns <= 0)
			item_done(s);
	}
}

void meta_clock_run(struct meta_clock *clock, const struct meta_stream *stream, int64_t count)
{
	for (;;) {
		while (heads_pass(clock))
			;
		if (stream->done_count >= count)
			return;
		time_pass(clock);
	}
}
