#include "host/world.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/link.h"

#include <string.h>

/* How long a rank that is done waits for the last words of the others, once one of them failed. */
#define FAREWELL_NS (3 * (int64_t)1000000000)

/* A rank's error, as it travels; code 0: none. */
struct verdict {
	int32_t rank, code;
	int32_t is_heard; /* it is that of another rank */
	char text[ERR_TEXT_BYTES];
};

static struct {
	struct world self;
	struct link *link, *last;
	char heard[ERR_TEXT_BYTES]; /* text of the last error that all agreed on */
	int all_are_there;          /* at the end */
} world = {.self = {.size = 1, .local_size = 1}};

int world_start(void)
{
	struct link_place place;
	int rc;

	if (link_launched_size() == 1)
		return 0;
	rc = link_start(&place);
	if (!rc)
		rc = link_open(&world.link, 0, 1, place.size);
	if (!rc)
		rc = link_open(&world.last, 0, 1, place.size);
	if (rc)
		return rc;
	link_name(world.link, "an agreement");
	world.self = (struct world){place.rank, place.size, place.local_rank, place.local_size};
	if (heartbeat_start(place.host_key, place.rank, place.local_rank, place.local_size))
		log_debug("ranks of this host do not see each other: %s", err_text());
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

int world_broadcast(void *values, int64_t bytes, int root)
{
	return world.self.size > 1 ? link_broadcast(world.link, values, bytes, root) : 0;
}

int world_sum(double *values, int count)
{
	return world.self.size > 1 ? link_sum(world.link, values, count) : 0;
}

static void verdict_set(struct verdict *v, int code)
{
	*v = (struct verdict){.rank = world.self.rank, .code = code};
	if (code)
		memcpy(v->text, err_text(), strnlen(err_text(), sizeof(v->text) - 1));
}

/* The verdicts of all ranks on rank 0, `all`; elsewhere only this rank's is sent. timeout_ns 0: whatever it
 * takes, unless a rank fails. */
static int verdicts_gather(struct verdict *own, struct verdict *all, int64_t timeout_ns)
{
	struct link_part *parts = mem_alloc((size_t)world.self.size, sizeof(*parts));
	int count = 0, rc;

	if (!parts)
		return ERR_NOMEM;
	if (world.self.rank)
		parts[count++] = (struct link_part){LINK_SEND, 0, own, sizeof(*own)};
	else
		all[0] = *own;
	for (int r = 1; r < world.self.size && !world.self.rank; r++)
		parts[count++] = (struct link_part){LINK_RECEIVE, r, &all[r], sizeof(*all)};
	rc = timeout_ns ? link_exchange_last(world.last, parts, count, timeout_ns)
	                : link_exchange(world.link, parts, count);
	mem_free(parts);
	return rc;
}

static const struct verdict *verdicts_first(const struct verdict *all)
{
	for (int r = 0; r < world.self.size; r++)
		if (all[r].code)
			return &all[r];
	return &all[0];
}

int world_agree(int code)
{
	struct verdict own, *all;
	int rc;

	if (world.self.size == 1)
		return code;
	verdict_set(&own, code);
	all = world.self.rank ? NULL : mem_alloc((size_t)world.self.size, sizeof(*all));
	rc = all || world.self.rank ? verdicts_gather(&own, all, 0) : ERR_NOMEM;
	if (!rc && all)
		own = *verdicts_first(all);
	mem_free(all);
	if (!rc)
		rc = link_broadcast(world.link, &own, sizeof(own), 0);
	if (rc || !own.code)
		return rc;
	memcpy(world.heard, own.text, sizeof(world.heard));
	if (own.rank == world.self.rank)
		return err_set(own.code, "%s", own.text);
	return err_set(own.code, "rank %d: %s", (int)own.rank, own.text);
}

/* ---- the end ---- */

/* Does the text say what another rank's error said? */
static int is_heard(int code, const char *text)
{
	char own[ERR_TEXT_BYTES];
	int heard, rank = 0;

	memcpy(own, text, strnlen(text, sizeof(own) - 1) + 1);
	own[sizeof(own) - 1] = 0;
	if (*world.heard && strstr(own, world.heard))
		return 1;
	heard = link_failure(&rank) == code && rank != world.self.rank && strstr(own, err_text()) != NULL;
	err_set(code, "%s", own);
	return heard;
}

static void verdicts_report(const struct verdict *all, world_report *report, void *context)
{
	for (int r = 0; r < world.self.size; r++)
		if (all[r].code && (!r || (!all[r].is_heard && !strstr(all[0].text, all[r].text))))
			report(context, r, all[r].text);
}

/* Rank 0 hears what the others ended with, and all hear what stands. */
static int farewell(struct verdict *own, world_report *report, void *context)
{
	struct verdict *all = world.self.rank ? NULL : mem_alloc((size_t)world.self.size, sizeof(*all));
	int rc = all || world.self.rank ? verdicts_gather(own, all, FAREWELL_NS) : ERR_NOMEM;

	if (all) {
		verdicts_report(all, report, context);
		own->code = verdicts_first(all)->code;
	}
	mem_free(all);
	for (int r = 1; r < world.self.size && !rc; r++) {
		const struct link_part told = {world.self.rank ? LINK_RECEIVE : LINK_SEND,
		        world.self.rank ? 0 : r, &own->code, sizeof(own->code)};

		if (!world.self.rank || r == world.self.rank)
			rc = link_exchange_last(world.last, &told, 1, FAREWELL_NS);
	}
	return rc;
}

int world_end(int code, world_report *report, void *context)
{
	struct verdict own;
	struct err why = {0};

	if (world.self.size == 1) {
		if (code)
			report(context, 0, err_text());
		return code;
	}
	if (!code)
		code = world_agree(0);
	verdict_set(&own, code);
	own.is_heard = code && is_heard(code, own.text);
	if (code && !own.is_heard)
		link_fail(code);
	err_take(&why, code);
	world.all_are_there = !code || !farewell(&own, report, context);
	if (!world.all_are_there && world.self.rank && !own.is_heard)
		report(context, world.self.rank, own.text);
	heartbeat_stop();
	err_give(&why);
	link_close(world.link);
	link_close(world.last);
	world.self = (struct world){.size = 1, .local_size = 1};
	return own.code;
}

void world_leave(void)
{
	if (world.all_are_there)
		link_stop();
}
