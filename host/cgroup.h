/* Limits of this process's control groups on processors and memory: cgroup v1, v2, and both at once.
 *
 * /proc/self/cgroup names the groups, /proc/self/mountinfo the place of their files. Every group up to the
 * root may set a limit. For processors the smallest limit counts. For memory the group with the least room
 * left counts, even if another has a smaller limit. memory.high counts as a limit. Files that cannot be read
 * set no limit. Sources: cgroups(7), the kernel's Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
 */
#ifndef FERRY_HOST_CGROUP_H
#define FERRY_HOST_CGROUP_H

#include <stdint.h>

struct cgroup_limits {
	double cpu_quota;          /* processors' worth of time; 0: no limit */
	int64_t memory_bytes;      /* limit of the group with the least room; 0: no limit */
	int64_t memory_used_bytes; /* used in the group that sets memory_bytes, without file pages that the
	                              kernel would drop */
};

/* `root` is a prefix of /proc and /sys: "" except in tests. */
void cgroup_limits_read(struct cgroup_limits *limits, const char *root);

#endif
