/* Heartbeats: the ranks of one host watch each other through shared memory.
 *
 * Mental model. The ranks of a host map one small file as early as possible. Ranks that ferry started get a
 * file without a name from it. Other ranks use a file in /dev/shm, before MPI starts if the launcher's
 * environment is sufficient. A thread of each rank writes the time into its line every tenth of a second.
 * The rank also writes its phase (a step, loading), the exchange that it waits in, and a count of its
 * progress. Each process locks one byte of the file; the lock ends with the process.
 *
 * A stopped process, or one that hangs in the kernel, stops beating. A process in an endless loop beats but
 * makes no progress; a slow one makes progress. So a rank that waited too long can name the rank in the way,
 * and the last action of that rank. None of this uses MPI, which may be stuck or have failed. So the line
 * also has the rank's error.
 *
 * The file in /dev/shm loses its name when all ranks have mapped it, so nothing remains. Ranks of other
 * hosts, or with another /dev/shm, are not visible.
 */
#ifndef FERRY_COMM_HEARTBEAT_H
#define FERRY_COMM_HEARTBEAT_H

#include <stdint.h>

/* In a patient phase (loading, saving) a rank may go without exchanges for any time. */
enum heartbeat_phase { HEARTBEAT_BRISK, HEARTBEAT_PATIENT };

/* Returns the descriptor of a file without a name for `size` ranks that this process starts, closed on exec.
 * -1: errno. */
int heartbeat_make(int size);

/* fd: from heartbeat_make in the parent, or -1. With -1, key must be the same for all ranks of the job on
 * this host and for no others. rank, size: in the world. Without a shared file a rank sees only itself.
 * ERR_NOMEM, ERR_IO. */
int heartbeat_start(int fd, int64_t key, int rank, int size);

/* Watches the start of the ranks. Under MPI they wait for each other there and cannot be reached. Another
 * thread calls `lost` repeatedly if a rank of this host fails, is gone, or does not move for patience_ns (at
 * least 2 s). It does so too if ranks are missing after that time (at least 30 s). `lost` must end the
 * process. With patience_ns 0 it reports only ranks that fail or are gone. local_size: ranks of this host,
 * which wait here briefly for each other, so that no rank is in MPI unseen; 0: unknown. */
typedef void heartbeat_lost(int code, const char *text);
struct heartbeat_join {
	int local_size;
	int64_t patience_ns;
	heartbeat_lost *lost;
	int (*is_stopped)(void); /* 1 if this process got a signal to end; `lost` then gets ERR_STOPPED */
};
void heartbeat_join_begin(const struct heartbeat_join *join);
void heartbeat_join_end(void);

/* 1 for the first rank of this host that calls it: this rank reports the end of all. */
int heartbeat_speaks(void);

/* 1 if all ranks of this host have left, including this one. For a child of this process that may only use
 * system calls: it keeps heartbeat_fd open (-1: no file). */
int heartbeat_all_left(void);
int heartbeat_fd(void);

/* Removes the file's name; call when all ranks have mapped it. */
void heartbeat_unlink(void);
void heartbeat_stop(void);

/* Sets the current phase of this rank; a short text. */
void heartbeat_set_phase(const char *text, enum heartbeat_phase phase);
/* Sets the exchange that this thread waits in; NULL: none. */
void heartbeat_set_exchange(const char *what);
/* Counts progress of this rank. Any thread; costs an addition. */
void heartbeat_progress(void);

/* heartbeat_tell publishes that this rank failed with `code` and this thread's error. heartbeat_hear finds
 * such a failure of another rank of this host: it returns the code (0: none failed), the rank and the error.
 */
void heartbeat_tell(int code);
struct err;
int heartbeat_hear(int *rank, struct err *failure);

/* Call it now and then while waiting: ERR_DEVICE names a rank of this host with a dead process. */
int heartbeat_look(void);

/* 1 if all ranks of this host exist and none is stopped. */
int heartbeat_all_move(void);

/* Call after this rank waited waited_ns, more than patience_ns, in `what` for rank `peer`, with
 * heartbeat_look meanwhile. Returns 0 to wait on, or ERR_DEVICE with a text that names the rank in the way.
 */
int heartbeat_judge(const char *what, int peer, int64_t waited_ns, int64_t patience_ns);

#endif
