/* Reads the limits of control groups, v1 and v2, from the group of this process up to the root. */
#include "host/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum version { VERSION_1 = 1, VERSION_2 = 2 };

/* A group's files: mount point, the group that is mounted there, the group of this process. */
struct group {
	enum version version;
	char mount[PATH_MAX], mount_group[PATH_MAX], group[PATH_MAX];
};

/* Reads the file's text, cut to the buffer. Returns 0 if there is none. */
static int read_text(char *text, size_t text_bytes, const char *dir, const char *name)
{
	char path[2 * PATH_MAX];
	size_t len;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return 0;
	f = fopen(path, "re");
	if (!f)
		return 0;
	len = fread(text, 1, text_bytes - 1, f);
	fclose(f);
	text[len] = 0;
	return len > 0;
}

/* -1: no such file, or "max", or -1 itself. */
static int64_t read_number(const char *dir, const char *name)
{
	char text[64];

	if (!read_text(text, sizeof(text), dir, name) || text[0] < '0' || text[0] > '9')
		return -1;
	return strtoll(text, NULL, 10);
}

/* The number in the line "key number" of memory.stat; 0: none. */
static int64_t read_stat(const char *dir, const char *key)
{
	char text[8192];
	size_t len = strlen(key);

	if (!read_text(text, sizeof(text), dir, "memory.stat"))
		return 0;
	for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, key, len) == 0 && line[len] == ' ')
			return strtoll(line + len, NULL, 10);
	return 0;
}

static int word_in_list(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; (at = strstr(at, word)); at += len)
		if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == 0 || at[len] == '\n'))
			return 1;
	return 0;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		unsigned code;

		if (from[0] == '\\' && sscanf(from + 1, "%3o", &code) == 1) {
			*to++ = (char)code;
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = 0;
}

/* proc(5): id parent major:minor ROOT MOUNT_POINT options [tags] - TYPE source SUPER_OPTIONS */
static int find_mount(struct group *g, const char *root, const char *controller)
{
	char path[PATH_MAX], *line = NULL;
	size_t line_bytes = 0;
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (!found && getline(&line, &line_bytes, f) > 0) {
		char group[PATH_MAX], mount[PATH_MAX], type[32], options[256];
		const char *tail = strstr(line, " - ");

		if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", group, mount) != 2 ||
		        sscanf(tail, " - %31s %*s %255s", type, options) != 2)
			continue;
		if (g->version == VERSION_2
		                ? strcmp(type, "cgroup2") != 0
		                : strcmp(type, "cgroup") != 0 || !word_in_list(options, controller))
			continue;
		unescape(group);
		unescape(mount);
		found = snprintf(g->mount, sizeof(g->mount), "%s%s", root, mount) < (int)sizeof(g->mount);
		snprintf(g->mount_group, sizeof(g->mount_group), "%s", group);
	}
	free(line);
	fclose(f);
	return found;
}

/* A line of /proc/self/cgroup: "ID:CONTROLLERS:GROUP", of v2 "0::GROUP". */
static int find_group(struct group *g, const char *root, const char *controller)
{
	char path[PATH_MAX], *line = NULL;
	size_t line_bytes = 0;
	int found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = fopen(path, "re");
	if (!f)
		return 0;
	while (!found && getline(&line, &line_bytes, f) > 0) {
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = 0;
		list++;
		found = g->version == VERSION_2 ? list[0] == 0 : word_in_list(list, controller);
		group[strcspn(group, "\n")] = 0;
		snprintf(g->group, sizeof(g->group), "%s", group);
	}
	free(line);
	fclose(f);
	return found && find_mount(g, root, controller);
}

typedef void limit_fn(struct cgroup_limits *limits, enum version version, const char *dir);

/* Calls `take` for the group and all mounted groups above it. A group outside of the mount (a container
 * without a cgroup namespace) counts as the mount point itself. */
static void walk_up(struct cgroup_limits *limits, const struct group *g, limit_fn *take)
{
	char dir[2 * PATH_MAX];
	size_t mount_len = strlen(g->mount),
	       skip = strcmp(g->mount_group, "/") == 0 ? 0 : strlen(g->mount_group);
	const char *below = g->group;

	if (skip) {
		below = strncmp(g->group, g->mount_group, skip) == 0 ? g->group + skip : "";
		if (*below && *below != '/') /* the name of another group that begins alike */
			below = "";
	}
	snprintf(dir, sizeof(dir), "%s%s", g->mount, below);
	for (;;) {
		char *slash;

		take(limits, g->version, dir);
		if (strlen(dir) <= mount_len)
			return;
		slash = strrchr(dir, '/');
		*slash = 0;
	}
}

static void take_cpu(struct cgroup_limits *limits, enum version version, const char *dir)
{
	double quota, period, limit;

	if (version == VERSION_2) {
		char text[64];

		if (!read_text(text, sizeof(text), dir, "cpu.max") ||
		        sscanf(text, "%lf %lf", &quota, &period) != 2)
			return;
	} else {
		quota = (double)read_number(dir, "cpu.cfs_quota_us");
		period = (double)read_number(dir, "cpu.cfs_period_us");
	}
	if (!(quota > 0) || !(period > 0))
		return;
	limit = quota / period;
	if (limits->cpu_quota == 0 || limit < limits->cpu_quota)
		limits->cpu_quota = limit;
}

/* Above memory.high the kernel slows the group down and reclaims memory, so it limits a run like memory.max.
 */
static int64_t memory_limit(enum version version, const char *dir)
{
	int64_t limit = read_number(dir, version == VERSION_2 ? "memory.max" : "memory.limit_in_bytes");
	int64_t high = version == VERSION_2 ? read_number(dir, "memory.high") : -1;

	return high >= 0 && (limit < 0 || high < limit) ? high : limit;
}

static void take_memory(struct cgroup_limits *limits, enum version version, const char *dir)
{
	int is_v2 = version == VERSION_2;
	int64_t limit = memory_limit(version, dir), used;

	if (limit < 0 || limit > INT64_MAX / 2)
		return;
	used = read_number(dir, is_v2 ? "memory.current" : "memory.usage_in_bytes");
	used -= read_stat(dir, is_v2 ? "inactive_file" : "total_inactive_file");
	used -= read_stat(dir, is_v2 ? "active_file" : "total_active_file");
	if (used < 0)
		used = 0;
	/* a large group may have less room than a smaller one inside it */
	if (limits->memory_bytes && limit - used >= limits->memory_bytes - limits->memory_used_bytes)
		return;
	limits->memory_bytes = limit;
	limits->memory_used_bytes = used;
}

void cgroup_limits_read(struct cgroup_limits *limits, const char *root)
{
	struct group g;

	*limits = (struct cgroup_limits){0};
	for (enum version v = VERSION_1; v <= VERSION_2; v++) {
		g.version = v;
		if (find_group(&g, root, "cpu"))
			walk_up(limits, &g, take_cpu);
		if (find_group(&g, root, "memory"))
			walk_up(limits, &g, take_memory);
	}
}
