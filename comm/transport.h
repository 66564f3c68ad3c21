/* Transports: what carries the bytes of links, MPI or Unix sockets.
 *
 * Mental model. A transport joins the ranks and moves messages; it blocks nowhere and decides nothing. A lane
 * is what it keeps for one link: the exchange that is under way there, if one is. link.c begins an exchange,
 * asks until it is done, rests between two questions, and says what a wait that takes too long means. Notes
 * are the one thing that goes outside of lanes: a rank that failed tells all others.
 *
 * link.c calls everything but `rest` under one lock, so a transport needs none.
 */
#ifndef FERRY_COMM_TRANSPORT_H
#define FERRY_COMM_TRANSPORT_H

#include "base/err.h"
#include "comm/launch.h"
#include "comm/link.h"

#include <stdint.h>

/* What a failed rank says. */
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

	/* Begins an exchange; `parts` stays as it is until it is done or given up. Few parts need no memory.
	 * ERR_NOMEM, ERR_RANGE, ERR_DEVICE. */
	int (*begin)(struct lane *lane, const struct link_part *parts, int part_count);
	/* 1 when all of it is done, 0, or ERR_DEVICE. */
	int (*ask)(struct lane *lane);
	/* The other side, as its rank in the world, of the first part that is not done; of those that left,
	 * where only_gone is set. -1: none. */
	int (*peer)(struct lane *lane, int only_gone);
	/* What is not done is taken back, so that the memory behind it may go. */
	void (*give_up)(struct lane *lane);
	/* Gives the core away for so long, or until something came. */
	void (*rest)(struct lane *lane, int64_t ns);

	/* To all other ranks, without waiting. Once. */
	void (*tell)(const struct transport_note *note);
	/* 1: one came. */
	int (*hear)(struct transport_note *note);
};

extern const struct transport transport_mpi;    /* link_mpi.c: mpirun, srun */
extern const struct transport transport_socket; /* link_socket.c: ranks that ferry started (local_job.h) */

#endif
