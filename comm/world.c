/* Agreement of all ranks: sums, broadcasts, errors. */
#include "comm/world.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/link.h"

#include <string.h>
#include <time.h>

/* How long a rank waits for the last reports of the others after a failure. If a rank is gone or stopped the
 * wait is GONE_NS, because a launcher ends the rest after a second. */
#define FAREWELL_NS (3 * (int64_t)1000000000)
#define GONE_NS (300 * (int64_t)1000000)

enum { RANK_ALL = -1 };

/* A rank's error as it travels; code 0: none. RANK_ALL: all ranks met the same. */
struct verdict {
	int32_t rank;
	int32_t is_heard;     /* the error came from another rank */
	int32_t is_judgement; /* by a rank that waited, about one that does not report itself */
	struct err err;
};

static struct {
	struct world self;
	struct link *link, *last;
	struct verdict *all;     /* [size]; made early, so that agreeing and ending need no memory */
	struct link_part *parts; /* [size] */
	struct err_id agreed;    /* the error that all agreed on, until they go on together */
	int is_own;              /* it was this rank's error */
	int all_are_there;       /* all ranks answered at the end */
} world = {.self = {.size = 1, .local_size = 1}};

/* Starts the ranks. The ranks of this host see each other meanwhile if the launcher says who they are. */
static int world_join(struct link_place *place, const struct launch *launch, struct heartbeat_join join)
{
	int is_seen = launch->key &&
	              !heartbeat_start(launch->heart_fd, launch->key, launch->rank, launch->size),
	    rc;

	join.local_size = launch->local_size;
	if (is_seen)
		heartbeat_join_begin(&join);
	rc = link_start(place, launch);
	if (rc)
		heartbeat_tell(rc);
	heartbeat_join_end();
	if (!rc && !is_seen && heartbeat_start(launch->heart_fd, place->host_key, place->rank, place->size))
		log_debug("ranks of this host do not see each other: %s", err_text());
	return rc;
}

int world_start(const struct heartbeat_join *join)
{
	struct link_place place;
	struct launch launch;
	int rc;

	launch_read(&launch);
	if (launch.size == 1)
		return 0;
	err_process_set(launch.rank);
	rc = world_join(&place, &launch, *join);
	if (rc)
		return rc;
	err_process_set(place.rank);
	link_set_patience(join->patience_ns);
	world.self = (struct world){place.rank, place.size, place.local_rank, place.local_size};
	rc = link_open(&world.link, 0, 1, place.size);
	if (!rc)
		rc = link_open(&world.last, 0, 1, place.size);
	world.all = mem_alloc((size_t)place.size, sizeof(*world.all));
	world.parts = mem_alloc((size_t)place.size, sizeof(*world.parts));
	if (!rc && (!world.all || !world.parts))
		rc = ERR_NOMEM;
	if (rc)
		return link_fail(rc); /* the others wait in world_agree */
	link_name(world.link, "an agreement");
	rc = world_agree(0);
	heartbeat_unlink();
	return rc;
}

void world_set_phase(const char *text, enum heartbeat_phase phase)
{
	heartbeat_set_phase(text, phase);
}

void world_set_patience(int64_t timeout_ns)
{
	if (world.self.size > 1)
		link_set_patience(timeout_ns);
}

const struct world *world_self(void)
{
	return &world.self;
}

/* An exchange succeeded, so the error agreed on before it did not end the run. */
static int gone_on(int rc)
{
	if (!rc)
		world.agreed = (struct err_id){0};
	return rc;
}

int world_broadcast(void *values, int64_t bytes, int root)
{
	return world.self.size > 1 ? gone_on(link_broadcast(world.link, values, bytes, root)) : 0;
}

int world_sum(double *values, int count)
{
	return world.self.size > 1 ? gone_on(link_sum(world.link, values, count)) : 0;
}

static void verdict_set(struct verdict *v, int code)
{
	*v = (struct verdict){.rank = world.self.rank};
	if (code)
		err_take(&v->err, code);
}

/* Gathers the verdicts of all ranks in `all` on rank 0; other ranks send theirs. timeout_ns 0: no limit,
 * unless a rank fails. */
static int verdicts_gather(struct verdict *own, struct verdict *all, int64_t timeout_ns)
{
	struct link_part *parts = world.parts;
	int count = 0;

	if (world.self.rank)
		parts[count++] = (struct link_part){LINK_SEND, 0, own, sizeof(*own)};
	else
		all[0] = *own;
	for (int r = 1; r < world.self.size && !world.self.rank; r++)
		parts[count++] = (struct link_part){LINK_RECEIVE, r, &all[r], sizeof(*all)};
	return timeout_ns ? link_exchange_last(world.last, parts, count, timeout_ns)
	                  : link_exchange(world.link, parts, count);
}

/* 1 if it is one error, or two with the same code and cause that ranks met independently. */
static int is_said(const struct err *a, const struct err *b)
{
	return err_same(a->id, b->id) || (a->code && a->code == b->code && a->id.cause == b->id.cause);
}

/* 1 if all ranks failed independently and of the same cause. */
static int verdicts_are_one(const struct verdict *all)
{
	for (int r = 0; r < world.self.size; r++)
		if (!all[r].err.code || all[r].is_heard || !is_said(&all[r].err, &all[0].err))
			return 0;
	return 1;
}

static const struct verdict *verdicts_first(const struct verdict *all)
{
	for (int r = 0; r < world.self.size; r++)
		if (all[r].err.code)
			return &all[r];
	return &all[0];
}

/* 1 if this thread's error is the one that all agreed on. */
static int is_agreed(void)
{
	return err_same(err_identity(), world.agreed);
}

int world_agree(int code)
{
	struct verdict own;
	int rc;

	if (world.self.size == 1 || (code && is_agreed()))
		return code;
	verdict_set(&own, code);
	rc = verdicts_gather(&own, world.all, 0);
	if (!rc && !world.self.rank) {
		own = *verdicts_first(world.all);
		own.rank = verdicts_are_one(world.all) ? RANK_ALL : own.rank;
	}
	if (!rc)
		rc = link_broadcast(world.link, &own, sizeof(own), 0);
	if (rc || !own.err.code)
		return gone_on(rc);
	world.agreed = own.err.id;
	world.is_own = own.rank == world.self.rank || own.rank == RANK_ALL;
	err_give(&own.err);
	return world.is_own ? own.err.code : err_note(own.err.code, "rank %d", (int)own.rank);
}

/* ---- the end ---- */

/* 1 if this thread's error, which `own` holds, came from another rank. If the error ended the exchanges,
 * `own` gets its plain text, without the notes of this rank, so that all ranks have the same text. */
static int is_heard(struct verdict *own)
{
	int rank = 0, code;

	if (is_agreed())
		return !world.is_own;
	code = link_failure(&rank);
	if (!code || !err_same(err_identity(), own->err.id)) {
		err_give(&own->err);
		return 0;
	}
	own->err = (struct err){0};
	err_take(&own->err, code);
	own->is_judgement = rank == world.self.rank && link_lost();
	return rank != world.self.rank;
}

static void verdicts_report(const struct verdict *all, world_report *report, void *context)
{
	int is_one = verdicts_are_one(all);
	int is_told = !heartbeat_speaks(); /* by another rank, because rank 0 was late */

	for (int r = 0; r < world.self.size; r++) {
		const struct verdict *v = &all[r];
		int is_known = r ? v->is_heard || is_said(&all[0].err, &v->err) : is_told && v->is_heard;

		/* several ranks may have judged at once */
		if (!v->err.code || is_known || (is_told && v->is_judgement))
			continue;
		report(context, is_one || v->is_heard ? RANK_ALL : r, v->err.text);
		is_told = 1;
	}
}

/* Rank 0 gets the results of the others, reports them and sends all ranks the final code, even if one of them
 * does not answer. */
static int farewell(struct verdict *own, world_report *report, void *context)
{
	int64_t timeout_ns = heartbeat_all_move() && !link_lost() ? FAREWELL_NS : GONE_NS;
	int rc;

	if (!world.parts || !world.all || !world.last) { /* this rank failed at the start */
		if (!world.self.rank)
			report(context, 0, own->err.text);
		return ERR_DEVICE;
	}
	memset(world.all, 0, (size_t)world.self.size * sizeof(*world.all));
	rc = verdicts_gather(own, world.all, timeout_ns);
	if (!world.self.rank) {
		verdicts_report(world.all, report, context);
		own->err.code = verdicts_first(world.all)->err.code;
	}
	for (int r = 1; r < world.self.size; r++) {
		const struct link_part told = {world.self.rank ? LINK_RECEIVE : LINK_SEND,
		        world.self.rank ? 0 : r, &own->err.code, sizeof(own->err.code)};

		if ((!world.self.rank || r == world.self.rank) &&
		        link_exchange_last(world.last, &told, 1, world.self.rank ? 2 * timeout_ns : GONE_NS))
			rc = ERR_DEVICE;
	}
	return rc;
}

int world_end(int code, world_report *report, void *context)
{
	const struct timespec linger = {
	        .tv_nsec = FAREWELL_NS % 1000000000, .tv_sec = FAREWELL_NS / 1000000000};
	struct verdict own;
	struct err why = {0};

	if (world.self.size == 1) {
		if (code)
			report(context, RANK_ALL, err_text());
		return code;
	}
	if (!code)
		code = world_agree(0);
	verdict_set(&own, code);
	own.is_heard = code && is_heard(&own);
	if (code && !own.is_heard && !is_agreed()) /* an agreed error has already reached all ranks */
		link_fail(code);
	err_take(&why, code);
	world.all_are_there = !code || !farewell(&own, report, context);
	if (!world.all_are_there && world.self.rank && !own.is_heard && heartbeat_speaks())
		report(context, world.self.rank, own.err.text);
	if (!world.all_are_there && world.self.rank && heartbeat_all_move())
		nanosleep(&linger,
		        NULL); /* rank 0 may still be reporting; the job ends when this rank leaves */
	heartbeat_stop();
	err_give(&why);
	link_close(world.link);
	link_close(world.last);
	mem_free(world.all);
	mem_free(world.parts);
	world.self = (struct world){.size = 1, .local_size = 1};
	return own.err.code;
}

int world_can_free(int code)
{
	return !code || code == ERR_STOPPED || world.self.size == 1;
}

void world_leave(void)
{
	if (world.all_are_there)
		link_stop();
}
