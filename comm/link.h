/* Links: messages between the ranks of a run.
 *
 * Mental model. Ranks are processes that mpirun, srun or ferry started together. MPI or Unix sockets carry
 * their bytes (transport.h). A link joins some ranks of the world, numbered from 0, and separates its
 * messages from those of other links. Its one operation is an exchange: a list of sends and receives, done
 * as a whole. Collectives consist of exchanges (host/cpu/cpu_comm.c on the device's thread, comm/world.h on
 * the program's thread), so ferry controls the order of every sum.
 *
 * Threads. One lock protects each call of the transport; MPI is initialised for serialized use. No call
 * blocks. Waiting repeats the question with growing pauses, so that several ranks on one core do not burn
 * its time, and so that a wait can end. One thread at a time uses a link; different threads may use
 * different links at once.
 *
 * Failure. link_fail, or a failed exchange, sends an error to all ranks. Each waiting exchange, on any link
 * and thread, then returns that error with "rank 2: ..." in front. After that links carry nothing more, but
 * closing works.
 */
#ifndef FERRY_COMM_LINK_H
#define FERRY_COMM_LINK_H

#include <stdint.h>

/* The position of a rank in the world and among the ranks of its host. */
struct link_place {
	int rank, size, local_rank, local_size;
	int64_t host_key; /* the same on all ranks of a host */
};

struct launch;

/* Joins the ranks of the launcher. Collective; once per process, from the main thread. ERR_UNSUPPORTED if
 * this build lacks MPI, or if MPI does not know the launcher; ERR_DEVICE, ERR_NOMEM. */
int link_start(struct link_place *place, const struct launch *launch);

/* Leaves the ranks; does nothing if link_start failed. Collective. */
void link_stop(void);

struct link;

/* The ranks first, first + stride, ... of the world, `size` of them, this one among them. Not collective,
 * but all ranks must open their links in the same order, which separates their messages. ERR_NOMEM,
 * ERR_UNSUPPORTED (not started). */
int link_open(struct link **link, int first, int stride, int size);
void link_close(struct link *link);
/* Sets the name of its exchanges in messages; kept, not copied. */
void link_name(struct link *link, const char *what);

int link_rank(const struct link *link);
int link_size(const struct link *link);

enum link_way { LINK_SEND, LINK_RECEIVE };
struct link_part {
	enum link_way way;
	int peer; /* rank within the link */
	void *values;
	int64_t bytes; /* 0: nothing is sent; the other side must have 0 too */
};

/* Does all parts, in any order. Parts between the same two ranks pair up in the order of the lists. Returns
 * when all are done. ERR_NOMEM, ERR_DEVICE (the transport failed), or the error of the rank that failed. */
int link_exchange(struct link *link, const struct link_part *parts, int part_count);

/* The same despite earlier failures, for at most timeout_ns; then ERR_DEVICE. */
int link_exchange_last(struct link *link, const struct link_part *parts, int part_count, int64_t timeout_ns);

/* Copies rank `root`'s bytes to all ranks. */
int link_broadcast(struct link *link, void *values, int64_t bytes, int root);

/* Sums over the ranks in rank order; all get the same bits. */
int link_sum(struct link *link, double *values, int count);

/* Exchanges that wait longer than this call heartbeat_judge repeatedly and end with its result. 0: never. */
void link_set_patience(int64_t timeout_ns);

/* Reports the failure of this rank with `code` and this thread's text to all ranks and ends their exchanges.
 * The first failure counts. Any thread; returns code. */
int link_fail(int code);

/* Returns the code of the error that ended the exchanges (0: none), with its text in this thread's slot.
 * *rank is the failed rank; may be NULL. */
int link_failure(int *rank);

/* 1 if that error is about a rank that is gone or hangs, so that not all ranks can answer; else 0. */
int link_lost(void);

#endif
