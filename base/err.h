/* Errors: a returned code, and a text in a thread-local slot.
 *
 * Every function that can fail returns 0 or a negative ERR_*. The first one to notice writes the text with
 * err_set; callers may put context in front with err_note ("model.safetensors: ..."). Only cli/ prints the
 * text or exits. Worker threads give code and text to the thread that joins them, in a struct err.
 *
 * Texts are for people. Code compares struct err_id instead. It stays with its error through err_note,
 * err_reword, other threads and other ranks.
 */
#ifndef FERRY_BASE_ERR_H
#define FERRY_BASE_ERR_H

#include <stdarg.h>
#include <stdint.h>

enum err_code {
	ERR_NOMEM = -1,       /* host memory is exhausted */
	ERR_IO = -2,          /* a system call on a file failed; the run may be repeated */
	ERR_INPUT = -3,       /* configuration, model or data from the user is wrong: exit 2 */
	ERR_UNSUPPORTED = -4, /* understood but not supported: the text names it, exit 2 */
	ERR_RANGE = -5,       /* an index or size out of bounds, arithmetic that would wrap */
	ERR_DEVICE = -6,      /* the device could not do what was queued */
	ERR_FIT = -7,         /* the plan does not fit the machine: exit 5 */
	ERR_NONFINITE = -8,   /* loss or gradients were not finite for too long: exit 4 */
	ERR_STOPPED = -9,     /* a signal asked to stop: exit 3 */
	ERR_INTERNAL = -10,   /* a bug in ferry */
};

enum { ERR_TEXT_BYTES = 4096 };

/* Identifies an error: the process that called err_set (err_process_set), and the number of that call in it,
 * from 1; 0: no error. `cause` is a digest of code and text. It is equal in two processes that meet the same
 * error independently. */
struct err_id {
	int64_t process;
	uint64_t number, cause;
};

/* A code, its text and its identity as a value, to cross threads and ranks. code 0 means none. */
struct err {
	struct err_id id;
	int code;
	char text[ERR_TEXT_BYTES];
};

/* Sets the number of this process in the run, 0 by default. Call it before other threads start. */
void err_process_set(int process);

/* Sets this thread's text and returns `code`, so that `return err_set(ERR_IO, ...)` reads well.
 * Text longer than the slot is cut. The arguments may include err_text() itself. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int err_setv(int code, const char *fmt, va_list ap);

/* Puts "<formatted>: " in front of this thread's text and returns `code` unchanged. */
int err_note(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Replaces this thread's text and keeps the identity of its error. Returns `code`. */
int err_reword(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The identity of this thread's error. */
struct err_id err_identity(void);

/* 1 if both identify the same call of err_set, else 0. */
int err_same(struct err_id a, struct err_id b);

/* This thread's text; "" if none was set. Valid until the next err_* call of this thread. */
const char *err_text(void);

/* Moves code, this thread's text and its identity into *e, if *e holds none yet (the first error wins). */
void err_take(struct err *e, int code);

/* Sets this thread's text and identity from *e and returns its code (0 if it holds none). */
int err_give(const struct err *e);

#endif
