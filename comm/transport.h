/* Transports carry the bytes of links: MPI or Unix sockets.
 *
 * Mental model. A transport joins the ranks and moves messages. It never blocks and makes no decisions. A
 * lane is its state for one link, with the exchange in progress, if any. link.c begins an exchange, asks
 * until it is done, rests between questions, and judges waits that take too long. Only notes travel outside
 * of lanes: a failed rank sends one to all others.
 *
 * link.c calls everything but `rest` under one lock, so a transport needs none.
 */
#ifndef FERRY_COMM_TRANSPORT_H
#define FERRY_COMM_TRANSPORT_H

#include "base/err.h"
#include "comm/launch.h"
#include "comm/link.h"

#include <stdint.h>

/* The note of a failed rank. */
struct transport_note {
	int32_t rank;
	int32_t is_lost; /* for a rank that is gone or stands still, and will not answer */
	struct err err;
};

struct lane;

struct transport {
	/* Joins the ranks of the launcher. Collective. ERR_UNSUPPORTED, ERR_DEVICE, ERR_NOMEM. */
	int (*start)(struct link_place *place, const struct launch *launch);
	void (*stop)(void);

	/* A link's lane: ranks first, first + stride, ... of the world; `tag` is the link's own. ERR_NOMEM.
	 */
	int (*open)(struct lane **lane, int tag, int first, int stride);
	void (*close)(struct lane *lane);

	/* Begins an exchange; `parts` must stay unchanged until it is done or given up. Few parts need no
	 * memory. ERR_NOMEM, ERR_RANGE, ERR_DEVICE. */
	int (*begin)(struct lane *lane, const struct link_part *parts, int part_count);
	/* 1 when the exchange is done, 0, or ERR_DEVICE. */
	int (*ask)(struct lane *lane);
	/* The world rank of the other side of the first pending part; with only_gone only of ranks that left.
	 * -1: none. */
	int (*peer)(struct lane *lane, int only_gone);
	/* Cancels pending parts, so that their memory may be freed. */
	void (*give_up)(struct lane *lane);
	/* Sleeps for `ns`, or until something arrives. */
	void (*rest)(struct lane *lane, int64_t ns);

	/* Sends a note to all other ranks without waiting. Once. */
	void (*tell)(const struct transport_note *note);
	/* 1 if a note arrived. */
	int (*hear)(struct transport_note *note);
};

extern const struct transport transport_mpi;    /* link_mpi.c: mpirun, srun */
extern const struct transport transport_socket; /* link_socket.c: ranks that ferry started (local_job.h) */

#endif
