/* The limits that a shell or a service manager puts on a process (getrlimit(2)). */
#ifndef FERRY_HOST_LIMITS_H
#define FERRY_HOST_LIMITS_H

/* Raises the limits on open files and on stacks to what ferry may need, as far as this process is allowed.
 * Call before there are threads, since their stacks have the size of that limit. ERR_FIT: the stack is too
 * small. */
int limits_raise(void);

#endif
