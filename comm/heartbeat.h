/* Heartbeats: what the ranks of one host see of each other without asking.
 *
 * Mental model. The ranks of a host map one small file, as early as they can tell which: one without a name
 * from the ferry that started them, else one in /dev/shm, before MPI's own start where the launcher says
 * enough. A thread of each rank writes the time into its line there every tenth of a second, and each rank
 * writes what it is doing: a phase (a step, loading), the exchange that it waits in, if it does, and how much
 * it has done. A lock on a byte of the file stands for each process, and goes when that ends, however it
 * does. A process that is stopped, or hangs in the kernel, stops beating; one that runs in circles beats, but
 * gets nothing done and comes to no exchange; one that is slow gets things done. So a rank that has waited
 * too long can name the one that is in the way, and what that one did last. MPI is not involved: it may be
 * what is stuck, or what failed, so a rank's error stands in its line too.
 *
 * The file in /dev/shm has no name once all have it, so nothing is left behind. Ranks of other hosts are not
 * seen, nor those that see another /dev/shm.
 */
#ifndef FERRY_COMM_HEARTBEAT_H
#define FERRY_COMM_HEARTBEAT_H

#include <stdint.h>

/* In a phase that is patient (loading, saving) a rank may do without exchanges for any time. */
enum heartbeat_phase { HEARTBEAT_BRISK, HEARTBEAT_PATIENT };

/* For `size` ranks that this process starts: a descriptor of a file without a name, closed on exec. -1:
 * errno. */
int heartbeat_make(int size);

/* fd: of heartbeat_make in the parent, or -1; then key is the same for all ranks of the job on this host and
 * for no others. rank, size: in the world. Where no file can be shared a rank sees itself only. ERR_NOMEM,
 * ERR_IO. */
int heartbeat_start(int fd, int64_t key, int rank, int size);

/* The ranks' start, under MPI a meeting in which nobody can be reached. Of a rank of this host that fails
 * there, is gone, or does not move for patience_ns (at least 2 s), and of ranks that have not all come in
 * that time (at least 30 s), `lost` is told from another thread, again and again; it is to end the process.
 * patience_ns 0: only of one that fails or is gone. local_size: ranks of this host, which wait here for each
 * other for a moment, so that nobody is in MPI whom nobody sees; 0: not known. */
typedef void heartbeat_lost(int code, const char *text);
struct heartbeat_join {
	int local_size;
	int64_t patience_ns;
	heartbeat_lost *lost;
	int (*is_stopped)(void); /* this process was told to end, which is told to `lost` as ERR_STOPPED */
};
void heartbeat_join_begin(const struct heartbeat_join *join);
void heartbeat_join_end(void);

/* 1 for the first rank of this host that asks: it tells what all ended with. */
int heartbeat_speaks(void);

/* Has every rank of this host that came left it, this one too? For a child of this process, in which nothing
 * but calls of the kernel can be trusted: it keeps heartbeat_fd open (-1: nothing is seen). */
int heartbeat_all_left(void);
int heartbeat_fd(void);

/* All have mapped it: the name goes. */
void heartbeat_unlink(void);
void heartbeat_stop(void);

/* What this rank does from here on; short. */
void heartbeat_set_phase(const char *text, enum heartbeat_phase phase);
/* The exchange that a thread of it waits in; NULL: that thread does not any more. */
void heartbeat_set_exchange(const char *what);
/* It got something done. Any thread; costs an addition. */
void heartbeat_progress(void);

/* This rank failed with `code` and this thread's error: the others of its host hear of it, each from
 * heartbeat_hear, which returns the code (0: nobody failed), who, and the error. */
void heartbeat_tell(int code);
struct err;
int heartbeat_hear(int *rank, struct err *failure);

/* To be called now and then by one who waits: a rank of this host whose process is gone is an error
 * (ERR_DEVICE, which names it). */
int heartbeat_look(void);

/* Are all ranks of this host there, and none of them stopped? What can still be expected of them. */
int heartbeat_all_move(void);

/* This rank waited waited_ns, more than patience_ns, in `what` for the rank `peer`, and looked meanwhile.
 * Returns 0 where that is no reason to give up, else ERR_DEVICE with a text that names the rank in the way.
 */
int heartbeat_judge(const char *what, int peer, int64_t waited_ns, int64_t patience_ns);

#endif
