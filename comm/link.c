/* Links: waiting for exchanges, failures that end them, and collectives made of exchanges. */
#include "comm/link.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "comm/heartbeat.h"
#include "comm/transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
	YIELD_NS = 30000,     /* a wait first yields the core, ... */
	REST_MIN_NS = 20000,  /* ... then rests, ... */
	REST_MAX_NS = 500000, /* ... longer and longer */
	STAGGER_NS = 250 * 1000000,
	DRAIN_NS = 200 * 1000000, /* after a failure, for parts that both sides have begun */
	LOOK_NS = 50 * 1000000,
	STOPPED_NS = 1000 * 1000000, /* longer between two questions: this process was stopped */
	TAG_FIRST = 2,
};

static struct {
	const struct transport *transport; /* NULL: not started */
	int rank, size, next_tag;
	pthread_mutex_t lock; /* protects calls of the transport, and all fields but patience_ns */
	_Atomic int64_t patience_ns;
	struct transport_note failed; /* the first, of this or another rank; code 0: none */
} net = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct link {
	int first, stride, size, rank;
	struct lane *lane;
	const char *what;
};

/* ---- start and end ---- */

int link_start(struct link_place *place, const struct launch *launch)
{
	const struct transport *transport = launch->is_local ? &transport_socket : &transport_mpi;
	int rc = transport->start(place, launch);

	if (rc)
		return rc;
	net.transport = transport;
	net.rank = place->rank;
	net.size = place->size;
	net.next_tag = TAG_FIRST;
	return 0;
}

void link_stop(void)
{
	const struct transport *transport;

	pthread_mutex_lock(&net.lock);
	transport = net.transport;
	net.transport = NULL;
	if (transport)
		transport->stop();
	pthread_mutex_unlock(&net.lock);
}

/* ---- failure ---- */

/* Returns the code of the first failure of a rank; 0: none. Call under the lock. */
static int listen_once(void)
{
	struct transport_note note;
	int rank;

	/* hears later failures too, so that those ranks do not wait for a reader */
	while (net.transport && net.transport->hear(&note))
		if (!net.failed.err.code)
			net.failed = note;
	/* ranks of one host hear of a failure even if the transport failed */
	if (!net.failed.err.code && heartbeat_hear(&rank, &note.err))
		net.failed = (struct transport_note){.rank = rank, .err = note.err};
	return net.failed.err.code;
}

/* Call under the lock. */
static int failure_give(void)
{
	int code = err_give(&net.failed.err);

	return net.failed.rank == net.rank ? code : err_note(code, "rank %d", (int)net.failed.rank);
}

int link_failure(int *rank)
{
	int code = 0;

	pthread_mutex_lock(&net.lock);
	if (net.transport)
		code = listen_once();
	if (code)
		failure_give();
	if (rank)
		*rank = net.failed.rank;
	pthread_mutex_unlock(&net.lock);
	return code;
}

int link_lost(void)
{
	int is_lost;

	pthread_mutex_lock(&net.lock);
	is_lost = net.failed.is_lost;
	pthread_mutex_unlock(&net.lock);
	return is_lost;
}

/* is_lost: this thread's text is about a rank that cannot report itself. Every rank that waits for that rank
 * makes such a text. If one has reported already, its text counts. */
static int link_fail_by(int code, int is_lost)
{
	pthread_mutex_lock(&net.lock);
	if (net.transport && listen_once()) {
		code = is_lost ? failure_give() : code;
	} else if (net.transport) {
		net.failed = (struct transport_note){.rank = net.rank, .is_lost = is_lost};
		err_take(&net.failed.err, code);
		heartbeat_tell(code);
		net.transport->tell(&net.failed);
	}
	pthread_mutex_unlock(&net.lock);
	return code;
}

int link_fail(int code)
{
	return link_fail_by(code, 0);
}

/* ---- links ---- */

int link_open(struct link **out, int first, int stride, int size)
{
	struct link *link;
	int rc;

	if (!net.transport)
		return err_set(ERR_UNSUPPORTED,
		        "%d ranks were not started; set ranks=%d, or launch them "
		        "with mpirun or srun",
		        size, size);
	link = mem_alloc(1, sizeof(*link));
	if (!link)
		return ERR_NOMEM;
	*link = (struct link){.first = first,
	        .stride = stride,
	        .size = size,
	        .rank = (net.rank - first) / stride,
	        .what = "an exchange"};
	pthread_mutex_lock(&net.lock);
	rc = net.transport->open(&link->lane, net.next_tag++, first, stride);
	pthread_mutex_unlock(&net.lock);
	if (rc) {
		mem_free(link);
		return rc;
	}
	*out = link;
	return 0;
}

void link_close(struct link *link)
{
	if (!link)
		return;
	pthread_mutex_lock(&net.lock);
	if (net.transport)
		net.transport->close(link->lane);
	pthread_mutex_unlock(&net.lock);
	mem_free(link);
}

void link_name(struct link *link, const char *what)
{
	link->what = what;
}

void link_set_patience(int64_t timeout_ns)
{
	atomic_store(&net.patience_ns, timeout_ns);
}

int link_rank(const struct link *link)
{
	return link->rank;
}

int link_size(const struct link *link)
{
	return link->size;
}

/* ---- exchanges ---- */

static void pause_for(struct link *link, int64_t waited_ns)
{
	int64_t ns = waited_ns / 8;

	if (waited_ns < YIELD_NS) {
		sched_yield();
		return;
	}
	net.transport->rest(link->lane, ns < REST_MIN_NS ? REST_MIN_NS : ns > REST_MAX_NS ? REST_MAX_NS : ns);
}

/* Asks once. Returns 1 if all is done, 0 if not, or a negative ERR_*. Call under the lock. */
static int exchange_ask(struct link *link)
{
	if (!net.transport)
		return err_set(ERR_DEVICE, "an exchange after this process left the ranks");
	return net.transport->ask(link->lane);
}

static int exchange_peer(struct link *link, int only_gone)
{
	int peer;

	pthread_mutex_lock(&net.lock);
	peer = net.transport ? net.transport->peer(link->lane, only_gone) : -1;
	pthread_mutex_unlock(&net.lock);
	return peer;
}

/* Reports a failure to all ranks if this one waited too long, or for a rank that is gone. Lower ranks look
 * first, so usually only one reports. */
static int exchange_lose_patience(struct link *link, int64_t waited_ns)
{
	int64_t patience_ns = atomic_load(&net.patience_ns);
	int rc = heartbeat_look(), gone;

	if (rc)
		return link_fail_by(rc, 1);
	gone = exchange_peer(link, 1);
	if (gone >= 0) {
		err_set(ERR_DEVICE, "rank %d is gone; rank %d waits for it in %s", gone, net.rank,
		        link->what);
		return link_fail_by(ERR_DEVICE, 1);
	}
	if (!patience_ns || waited_ns < patience_ns + net.rank * (int64_t)STAGGER_NS)
		return 0;
	rc = heartbeat_judge(link->what, exchange_peer(link, 0), waited_ns, patience_ns);
	return rc ? link_fail_by(rc, 1) : 0;
}

/* Waits until everything is done, a rank failed (only with minds_failure), or until until_ns (0: never). */
static int exchange_wait(struct link *link, int minds_failure, int64_t until_ns)
{
	int64_t begin_ns = clock_now_ns(), asked_ns = begin_ns, looked_ns = begin_ns, now_ns;

	for (;;) {
		int done, failed = 0;

		pthread_mutex_lock(&net.lock);
		done = exchange_ask(link);
		if (!done && minds_failure && listen_once())
			failed = failure_give();
		pthread_mutex_unlock(&net.lock);
		if (done || failed)
			return done > 0 ? 0 : done ? done : failed;
		now_ns = clock_now_ns();
		if (now_ns - asked_ns > STOPPED_NS)
			begin_ns += now_ns - asked_ns; /* this process was stopped, as others may have been */
		asked_ns = now_ns;
		if (minds_failure && now_ns - looked_ns > LOOK_NS) {
			failed = exchange_lose_patience(link, now_ns - begin_ns);
			looked_ns = now_ns;
		}
		if (failed)
			return failed;
		if (until_ns && now_ns > until_ns)
			return err_set(ERR_DEVICE, "rank %d of %d: the others did not answer in time",
			        net.rank, net.size);
		pause_for(link, now_ns - begin_ns);
	}
}

static int exchange(
        struct link *link, const struct link_part *parts, int part_count, int minds_failure, int64_t until_ns)
{
	struct err why = {0};
	int rc;

	pthread_mutex_lock(&net.lock);
	rc = net.transport ? net.transport->begin(link->lane, parts, part_count) : exchange_ask(link);
	pthread_mutex_unlock(&net.lock);
	heartbeat_set_exchange(link->what);
	if (!rc)
		rc = exchange_wait(link, minds_failure, until_ns);
	heartbeat_set_exchange(NULL);
	if (!rc)
		return 0;
	err_take(&why, rc);
	if (minds_failure && net.transport)
		(void)exchange_wait(link, 0, clock_now_ns() + DRAIN_NS);
	pthread_mutex_lock(&net.lock);
	if (net.transport)
		net.transport->give_up(link->lane);
	pthread_mutex_unlock(&net.lock);
	return err_give(&why);
}

int link_exchange(struct link *link, const struct link_part *parts, int part_count)
{
	int rc = link_failure(NULL);

	if (rc)
		return rc;
	rc = exchange(link, parts, part_count, 1, 0);
	return rc ? link_fail(rc) : 0; /* else its peers would wait for ever */
}

int link_exchange_last(struct link *link, const struct link_part *parts, int part_count, int64_t timeout_ns)
{
	return exchange(link, parts, part_count, 0, clock_now_ns() + timeout_ns);
}

/* ---- collectives ---- */

int link_broadcast(struct link *link, void *values, int64_t bytes, int root)
{
	int size = link_size(link), count = 0, rc;
	struct link_part *parts = mem_alloc((size_t)size, sizeof(*parts));

	if (!parts)
		return ERR_NOMEM;
	if (link_rank(link) != root)
		parts[count++] = (struct link_part){LINK_RECEIVE, root, values, bytes};
	else
		for (int r = 0; r < size; r++)
			if (r != root)
				parts[count++] = (struct link_part){LINK_SEND, r, values, bytes};
	rc = link_exchange(link, parts, count);
	mem_free(parts);
	return rc;
}

/* Rank 0 gets all values, adds them and sends the sums back. */
int link_sum(struct link *link, double *values, int count)
{
	int size = link_size(link), part_count = 0, rc = 0;
	int64_t bytes = (int64_t)count * (int64_t)sizeof(*values);
	struct link_part *parts;
	double *all;

	if (size == 1 || !count)
		return 0;
	parts = mem_alloc((size_t)size, sizeof(*parts));
	all = link_rank(link) ? NULL : mem_alloc((size_t)size * (size_t)count, sizeof(*all));
	if (!parts || (!all && !link_rank(link)))
		rc = ERR_NOMEM;
	if (!rc && link_rank(link))
		parts[part_count++] = (struct link_part){LINK_SEND, 0, values, bytes};
	for (int r = 1; r < size && !rc && !link_rank(link); r++)
		parts[part_count++] = (struct link_part){LINK_RECEIVE, r, all + (int64_t)r * count, bytes};
	if (!rc)
		rc = link_exchange(link, parts, part_count);
	for (int r = 1; r < size && !rc && !link_rank(link); r++)
		for (int i = 0; i < count; i++)
			values[i] += all[(int64_t)r * count + i];
	mem_free(parts);
	mem_free(all);
	return rc ? rc : link_broadcast(link, values, bytes, 0);
}
