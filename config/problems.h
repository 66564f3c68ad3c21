/* What is wrong with a configuration: reading goes on after a mistake, so that all are seen at once.
 */
#ifndef FERRY_CONFIG_PROBLEMS_H
#define FERRY_CONFIG_PROBLEMS_H

#include "config/config.h"

/* Zero-initialise; problems_free. */
struct problems {
	char **lines;
	int count, cap;
};

/* Puts the present error text at this place, and returns 0. Other errors than ERR_INPUT and ERR_UNSUPPORTED
 * end the reading: returned as they are. */
int problems_insert(struct problems *p, int at, int err);

/* 0, or ERR_INPUT with all lines that have room and the number of the others. */
int problems_report(const struct problems *p);
void problems_free(struct problems *p);

/* The verb's key whose name or alias is nearest to a name with a mistake; NULL: none is near. */
const char *config_key_nearest(const char *name, enum verb verb);

#endif
