/* Links: messages between the ranks of a run.
 *
 * Mental model. Ranks are processes that were started together, by mpirun or srun or by ferry itself; MPI or
 * Unix sockets carry their bytes (transport.h). A link joins some ranks of the world, numbered anew from 0,
 * and keeps its messages apart from those of other links. Its one operation is an exchange: a list of sends
 * and receives that is done as a whole. Collectives are made of exchanges (host/cpu/cpu_comm.c on the
 * device's thread, comm/world.h on the program's own), so that the order of every sum is ours.
 *
 * Threads. One lock stands around each call of the transport; MPI is initialised for serialized use. Nothing
 * is called that blocks: waiting is asking again, with rests between that grow, so that several ranks on one
 * core do not burn what another needs, and so that a wait can end. A link is used by one thread at a time;
 * different links by different threads at once.
 *
 * Failure. link_fail tells all ranks of an error, and so does an exchange that fails; each exchange that
 * waits, on whatever link and thread, then returns that error, "rank 2: ..." in front. After it links carry
 * nothing more, but closing works.
 */
#ifndef FERRY_COMM_LINK_H
#define FERRY_COMM_LINK_H

#include <stdint.h>

/* Where a rank stands: in the world, and among the ranks of its host. */
struct link_place {
	int rank, size, local_rank, local_size;
	int64_t host_key; /* the same on all ranks of a host */
};

struct launch;

/* Joins the ranks of the launcher. Collective; once per process, from the main thread. ERR_UNSUPPORTED where
 * this build lacks the MPI that it takes, or where MPI knows nothing of the launcher; ERR_DEVICE, ERR_NOMEM.
 */
int link_start(struct link_place *place, const struct launch *launch);

/* Leaves the ranks; a no-op where link_start did not succeed. Collective. */
void link_stop(void);

struct link;

/* The ranks first, first + stride, ... of the world, `size` of them, this one among them. Not collective, but
 * all ranks open their links in the same order, which is how messages are told apart. ERR_NOMEM,
 * ERR_UNSUPPORTED (not started). */
int link_open(struct link **link, int first, int stride, int size);
void link_close(struct link *link);
/* What its exchanges are called from here on, in messages; kept, not copied. */
void link_name(struct link *link, const char *what);

int link_rank(const struct link *link);
int link_size(const struct link *link);

enum link_way { LINK_SEND, LINK_RECEIVE };
struct link_part {
	enum link_way way;
	int peer; /* rank within the link */
	void *values;
	int64_t bytes; /* 0: nothing is sent, and the other side knows */
};

/* All parts, in any order; those between the same two ranks pair up in the order of the lists. Returns when
 * all are done. ERR_NOMEM, ERR_DEVICE (the transport failed), or the error of the rank that failed. */
int link_exchange(struct link *link, const struct link_part *parts, int part_count);

/* The same, whatever failed before, for at most timeout_ns; ERR_DEVICE when that is over. */
int link_exchange_last(struct link *link, const struct link_part *parts, int part_count, int64_t timeout_ns);

/* Rank `root`'s bytes reach all. */
int link_broadcast(struct link *link, void *values, int64_t bytes, int root);

/* Sums over the ranks, added in their order; all get the same bits. */
int link_sum(struct link *link, double *values, int count);

/* Exchanges of all links that wait longer than this ask heartbeat_judge, again and again, and end with what
 * it says. 0: never. */
void link_set_patience(int64_t timeout_ns);

/* This rank failed with `code` and this thread's text: all ranks of the world are told, and their exchanges
 * end. The first one stands. Any thread; returns code. */
int link_fail(int code);

/* The error that ended the exchanges: returns its code (0: none) with its text in this thread's slot. *rank
 * is where it happened; may be NULL. */
int link_failure(int *rank);

/* Is that error about a rank that is gone or stands still, so that not all can answer? 1 or 0. */
int link_lost(void);

#endif
