/* What the control groups of this process allow: processors and memory, cgroup v1, v2 and both at once.
 *
 * /proc/self/cgroup names the groups, /proc/self/mountinfo where their files are; every group on the way up
 * may set a limit. Of processors the smallest limit counts; of memory the group with the least room left,
 * which need not be the one with the smallest limit. memory.high counts as a limit. Whatever cannot be read
 * sets no limit. Sources: cgroups(7), the kernel's Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
 */
#ifndef FERRY_HOST_CGROUP_H
#define FERRY_HOST_CGROUP_H

#include <stdint.h>

struct cgroup_limits {
	double cpu_quota;          /* processors' worth of time; 0: no limit */
	int64_t memory_bytes;      /* limit of the group with the least room; 0: no limit */
	int64_t memory_used_bytes; /* of the group that sets memory_bytes, less file pages that the kernel
	                              would drop */
};

/* `root` goes before /proc and /sys: "" but in tests. */
void cgroup_limits_read(struct cgroup_limits *limits, const char *root);

#endif
