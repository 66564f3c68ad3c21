/* Errors: a returned code, and a text in a thread-local slot.
 *
 * Every function that can fail returns 0 or a negative ERR_*. The first one to notice writes the text with
 * err_set; callers may put context in front with err_note ("model.safetensors: ..."). Only cli/ prints the
 * text or exits. Worker threads pass code and text to the joining thread in struct err.
 */
#ifndef FERRY_BASE_ERR_H
#define FERRY_BASE_ERR_H

#include <stdarg.h>

enum err_code {
	ERR_NOMEM = -1,       /* host memory is exhausted */
	ERR_IO = -2,          /* a system call on a file failed; the run may be repeated */
	ERR_INPUT = -3,       /* configuration, model or data from the user is wrong: exit 2 */
	ERR_UNSUPPORTED = -4, /* understood but not supported: refused by name, exit 2 */
	ERR_RANGE = -5,       /* an index or size out of bounds, arithmetic that would wrap */
	ERR_DEVICE = -6,      /* the device could not do what was queued */
	ERR_FIT = -7,         /* the plan does not fit the machine: exit 5 */
	ERR_NONFINITE = -8,   /* loss or gradients were not finite for too long: exit 4 */
	ERR_STOPPED = -9,     /* a signal asked to stop: exit 3 */
	ERR_INTERNAL = -10,   /* a bug in ferry */
};

enum { ERR_TEXT_BYTES = 1024 };

/* A code and its text as a value, to cross threads. code 0 means none. */
struct err {
	int code;
	char text[ERR_TEXT_BYTES];
};

/* Sets this thread's text and returns `code`, so that `return err_set(ERR_IO, ...)` reads well.
 * Text longer than the slot is cut. The arguments may include err_text() itself. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int err_setv(int code, const char *fmt, va_list ap);

/* Puts "<formatted>: " in front of this thread's text and returns `code` unchanged. */
int err_note(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* This thread's text; "" when none was set. Valid until the next err_* call of this thread. */
const char *err_text(void);

/* Moves code and this thread's text into *e, if *e holds none yet (the first error wins). */
void err_take(struct err *e, int code);

/* Sets this thread's text from *e and returns its code (0 when it holds none). */
int err_give(const struct err *e);

#endif
