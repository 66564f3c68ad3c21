/* The ranks of each host by host name. */
#ifndef FERRY_COMM_HOSTS_H
#define FERRY_COMM_HOSTS_H

#include "base/str.h"

/* "a: 0 to 7, b: 8 to 15"; empty if one host has all ranks. Collective. ERR_NOMEM. */
int world_hosts(struct str *text);

#endif
