/* The mistakes of a configuration. Reading goes on after one, so that the user sees all of them. */
#ifndef FERRY_CONFIG_PROBLEMS_H
#define FERRY_CONFIG_PROBLEMS_H

#include "config/config.h"

/* Zero-initialise; problems_free. */
struct problems {
	char **lines;
	int count, cap;
};

/* Inserts this thread's error text at that place and returns 0. Other errors than ERR_INPUT and
 * ERR_UNSUPPORTED end the reading, so it returns them. */
int problems_insert(struct problems *p, int at, int err);

/* 0 without mistakes; else ERR_INPUT with as many lines as have room, and the number of the others. */
int problems_report(const struct problems *p);
/* Forgets all but the first `count`. */
void problems_cut(struct problems *p, int count);
void problems_free(struct problems *p);

/* The verb's key whose name or alias is nearest to a name with a mistake; NULL: none is near. */
const char *config_key_nearest(const char *name, enum verb verb);

#endif
