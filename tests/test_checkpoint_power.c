/* links: checkpoint */
/* A checkpoint survives a power failure at any call of its save. */
#include "tests/checkpoint_fixture.h"
#include "tests/sparing.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Simulated power loss. While checkpoints are saved, a model of the directory records every call that
 * changes files. A crash is a place in that record. Data that fsync has written before it exists. All
 * other changes of names (creations, renames, removals) and data may exist or not, in any combination.
 * Data may also be torn, missing although the file has grown, or garbage. The test writes such a disk as
 * real files, and loads the newest checkpoint from it. */

enum { NODES_MAX = 4096, ENTRIES_MAX = 64, EVENTS_MAX = 4096, NAME_BYTES = 96 };

struct entry {
	char name[NAME_BYTES];
	int node;
};

struct node {
	int is_dir;
	char *bytes;
	size_t len;
	struct entry entries[ENTRIES_MAX];
	int entry_count;
};

struct event {
	enum file_call_kind kind;
	int node;      /* written, synced or made */
	int dir, dir2; /* where names change */
	char name[NAME_BYTES], name2[NAME_BYTES];
	char *data;
	size_t len, offset;
};

static char *dir;
static struct node *nodes;   /* live: all calls applied */
static struct node *initial; /* as it was, and durable */
static int node_count, initial_count;
static struct event *events;
static int event_count;
static char root[2048]; /* path of node 0 */

/* ---- the model ---- */

static int find_entry(const struct node *node, const char *name)
{
	for (int i = 0; i < node->entry_count; i++) {
		if (!strcmp(node->entries[i].name, name))
			return i;
	}
	return -1;
}

static void set_entry(struct node *node, const char *name, int target)
{
	int i = find_entry(node, name);

	if (i < 0) {
		assert_true(node->entry_count < ENTRIES_MAX && strlen(name) < NAME_BYTES);
		i = node->entry_count++;
	}
	snprintf(node->entries[i].name, NAME_BYTES, "%s", name);
	node->entries[i].node = target;
}

static void drop_entry(struct node *node, const char *name)
{
	int i = find_entry(node, name);

	if (i >= 0)
		node->entries[i] = node->entries[--node->entry_count];
}

/* Puts bytes at an offset; a gap is zeros. */
static void put_bytes(struct node *node, const char *data, size_t len, size_t offset)
{
	if (offset + len > node->len) {
		node->bytes = realloc(node->bytes, offset + len);
		memset(node->bytes + node->len, 0, offset + len - node->len);
		node->len = offset + len;
	}
	if (data && len)
		memcpy(node->bytes + offset, data, len);
}

/* The node of a path, -1 when it is not there or outside; *parent and name of its last part. */
static int look_up(const char *path, int *parent, char *name)
{
	char text[4096], *part, *rest;
	int node = 0;

	if (strncmp(path, root, strlen(root)) || (path[strlen(root)] && path[strlen(root)] != '/'))
		return *parent = -1;
	snprintf(text, sizeof(text), "%s", path + strlen(root));
	*parent = -1;
	*name = 0;
	for (part = strtok_r(text, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
		int i;

		assert_true(node >= 0);
		*parent = node;
		snprintf(name, NAME_BYTES, "%s", part);
		i = find_entry(&nodes[node], part);
		node = i < 0 ? -1 : nodes[node].entries[i].node;
	}
	return node;
}

static int new_node(int is_dir)
{
	assert_true(node_count < NODES_MAX);
	nodes[node_count] = (struct node){.is_dir = is_dir};
	return node_count++;
}

/* Applies an event to a disk. Does nothing if the names it needs do not exist. */
static void apply(struct node *disk, const struct event *event, const char *data, size_t len)
{
	int from;

	switch (event->kind) {
	case FILE_CALL_WRITE:
		put_bytes(&disk[event->node], data, len, event->offset);
		break;
	case FILE_CALL_CREATE:
	case FILE_CALL_MKDIR:
		set_entry(&disk[event->dir], event->name, event->node);
		break;
	case FILE_CALL_REMOVE:
		drop_entry(&disk[event->dir], event->name);
		break;
	case FILE_CALL_RENAME:
		from = find_entry(&disk[event->dir], event->name);
		if (from < 0)
			break;
		from = disk[event->dir].entries[from].node;
		drop_entry(&disk[event->dir], event->name);
		set_entry(&disk[event->dir2], event->name2, from);
		break;
	case FILE_CALL_EXCHANGE: {
		int a = find_entry(&disk[event->dir], event->name);
		int b = find_entry(&disk[event->dir2], event->name2), kept;

		if (a < 0 || b < 0)
			break;
		kept = disk[event->dir].entries[a].node;
		disk[event->dir].entries[a].node = disk[event->dir2].entries[b].node;
		disk[event->dir2].entries[b].node = kept;
		break;
	}
	default:
		break;
	}
}

/* ---- recording ---- */

static int node_of_fd(int fd)
{
	char link[64], path[4096], name[NAME_BYTES];
	ssize_t len;
	int parent;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	assert_true(len > 0);
	path[len] = 0;
	return look_up(path, &parent, name);
}

static int record(void *context, const struct file_call *call)
{
	struct event event = {.kind = call->kind, .node = -1, .dir = -1, .dir2 = -1};
	int there;

	(void)context;
	switch (call->kind) {
	case FILE_CALL_WRITE:
		event.node = node_of_fd(call->fd);
		event.len = call->len_bytes;
		event.offset = (size_t)call->offset_bytes;
		event.data = malloc(call->len_bytes + 1);
		memcpy(event.data, call->data, call->len_bytes);
		break;
	case FILE_CALL_RESERVE: /* zeros, until something is written there */
		event.kind = FILE_CALL_WRITE;
		event.node = node_of_fd(call->fd);
		event.len = call->len_bytes;
		event.data = calloc(call->len_bytes + 1, 1);
		break;
	case FILE_CALL_SYNC:
		event.node = node_of_fd(call->fd);
		break;
	case FILE_CALL_CREATE:
	case FILE_CALL_MKDIR:
		there = look_up(call->path, &event.dir, event.name);
		if (there >= 0 || event.dir < 0)
			return 0; /* it will fail, or is none of ours */
		event.node = new_node(call->kind == FILE_CALL_MKDIR);
		break;
	case FILE_CALL_REMOVE:
		event.node = look_up(call->path, &event.dir, event.name);
		break;
	case FILE_CALL_RENAME:
	case FILE_CALL_EXCHANGE:
		event.node = look_up(call->path, &event.dir, event.name);
		look_up(call->to, &event.dir2, event.name2);
		break;
	default:
		return 0;
	}
	if (event.node < 0)
		return 0;
	assert_true(event_count < EVENTS_MAX);
	events[event_count++] = event;
	apply(nodes, &event, event.data, event.len);
	return 0;
}

/* ---- crashes ---- */

enum doubt { DOUBT_SUBSET, DOUBT_PREFIX, DOUBT_LOST, DOUBT_THERE, DOUBT_COUNT };

struct crash {
	uint64_t seed;
	int at;                  /* events before this one were made */
	enum doubt names, data;  /* how what is not durable fares */
	int names_cut, data_cut; /* of DOUBT_PREFIX */
};

/* Was what event i changed fsynced before the crash? */
static int is_durable(const struct crash *crash, int i)
{
	int node = events[i].kind == FILE_CALL_WRITE ? events[i].node : events[i].dir;
	int node2 = events[i].kind == FILE_CALL_WRITE ? events[i].node : events[i].dir2;
	int one = 0, two = node2 < 0;

	for (int j = i + 1; j < crash->at; j++) {
		one |= events[j].kind == FILE_CALL_SYNC && events[j].node == node;
		two |= events[j].kind == FILE_CALL_SYNC && events[j].node == node2;
	}
	return one && two;
}

static int survives(const struct crash *crash, enum doubt doubt, int cut, int i)
{
	return doubt == DOUBT_THERE || (doubt == DOUBT_PREFIX && i < cut) ||
	       (doubt == DOUBT_SUBSET && rng_below(crash->seed, 7, (uint64_t)i, 2));
}

/* Only a part of a write reached the disk. */
static void apply_torn(struct node *disk, const struct crash *crash, int i)
{
	const struct event *event = &events[i];
	size_t kept = rng_below(crash->seed, 8, (uint64_t)i, event->len + 1);
	char *data;

	switch (rng_below(crash->seed, 9, (uint64_t)i, 4)) {
	case 0: /* the length grew, the data did not come */
		put_bytes(&disk[event->node], NULL, event->len, event->offset);
		break;
	case 1: /* a part, and nothing after it */
		apply(disk, event, event->data, kept);
		break;
	case 2: /* a part, and garbage */
		data = malloc(event->len + 1);
		memset(data, 0xa5, event->len + 1);
		memcpy(data, event->data, kept);
		apply(disk, event, data, event->len);
		free(data);
		break;
	default: /* nothing */
		break;
	}
}

static struct node *copy_nodes(const struct node *from, int count)
{
	struct node *copy = calloc((size_t)node_count, sizeof(*copy));

	memcpy(copy, from, (size_t)count * sizeof(*copy));
	for (int i = 0; i < count; i++) {
		copy[i].bytes = malloc(from[i].len + 1);
		if (from[i].len)
			memcpy(copy[i].bytes, from[i].bytes, from[i].len);
	}
	return copy;
}

static void free_nodes(struct node *disk, int count)
{
	for (int i = 0; i < count; i++)
		free(disk[i].bytes);
	free(disk);
}

static void write_out(const struct node *disk, int n, const char *path)
{
	if (!disk[n].is_dir) {
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);

		assert_true(fd >= 0 && write(fd, disk[n].bytes, disk[n].len) == (ssize_t)disk[n].len);
		close(fd);
		return;
	}
	assert_int_equal(mkdir(path, 0777), 0);
	for (int i = 0; i < disk[n].entry_count; i++) {
		char below[4096];

		snprintf(below, sizeof(below), "%s/%s", path, disk[n].entries[i].name);
		write_out(disk, disk[n].entries[i].node, below);
	}
}

static void make_crash(const struct crash *crash, const char *path)
{
	struct node *disk = copy_nodes(initial, initial_count);

	for (int i = 0; i < node_count; i++)
		disk[i].is_dir = nodes[i].is_dir;
	for (int i = 0; i < crash->at; i++) {
		int data = events[i].kind == FILE_CALL_WRITE;

		if (events[i].kind == FILE_CALL_SYNC)
			continue;
		if (is_durable(crash, i) || survives(crash, data ? crash->data : crash->names,
		                                    data ? crash->data_cut : crash->names_cut, i))
			apply(disk, &events[i], events[i].data, events[i].len);
		else if (data)
			apply_torn(disk, crash, i);
	}
	check_ok(file_remove_tree(path));
	write_out(disk, 0, path);
	free_nodes(disk, node_count);
}

/* ---- scenarios ---- */

static void read_in(const char *path, int n)
{
	char **names = NULL;
	size_t count = 0;

	check_ok(file_list_dir(path, &names, &count));
	for (size_t i = 0; i < count; i++) {
		char *below = file_join(path, names[i]);
		int is_dir = file_kind_of(below) == FILE_DIR, node = new_node(is_dir);

		set_entry(&nodes[n], names[i], node);
		if (is_dir) {
			read_in(below, node);
		} else {
			char *bytes;
			size_t len;

			check_ok(file_read_all(below, 1 << 24, &bytes, &len));
			put_bytes(&nodes[node], bytes, len, 0);
			mem_free(bytes);
		}
		mem_free(below);
	}
	file_list_free(names, count);
}

struct scenario {
	const char *name;
	int64_t before[2]; /* steps that are there already; 0: none */
	int64_t saves[3];  /* recorded; 0: no more */
	int total_limit;
	const char *out; /* below the root */
};

static const struct scenario scenarios[] = {
        {"the next step, the old one goes", {1}, {2}, 1, "run"},
        {"the next step, all stay", {1, 2}, {3}, 0, "run"},
        {"the first, in new directories", {0}, {1}, 2, "a/b/run"},
        {"the same step again", {1, 2}, {2}, 2, "run"},
        {"three in a row", {1}, {2, 3, 4}, 1, "run"},
        {"back to an older step", {3}, {2}, 2, "run"},
};

static int64_t campaign(const char *name, int64_t usual)
{
	const char *value = getenv(name);

	usual = (usual + sparing(4) - 1) / sparing(4);
	return value && *value ? strtoll(value, NULL, 10) : usual;
}

/* After a crash, the newest checkpoint must be between the promised one and the last one begun. */
struct promise {
	int end; /* events of this save */
	int64_t newest;
};

static int record_scenario(const struct scenario *scenario, const char *files, struct promise *promises)
{
	char *base = fixture_sub_dir(dir, "recorded"), *out = file_join(base, scenario->out);
	int saves = 0;

	nodes = calloc(NODES_MAX, sizeof(*nodes));
	events = calloc(EVENTS_MAX, sizeof(*events));
	node_count = event_count = 0;
	snprintf(root, sizeof(root), "%s", base);
	promises[0] = (struct promise){0, 0};
	for (int i = 0; i < 2 && scenario->before[i]; i++) {
		check_ok(fixture_save(out, files, scenario->before[i], 0));
		promises[0].newest = scenario->before[i];
	}
	new_node(1);
	read_in(base, 0);
	initial_count = node_count;
	initial = copy_nodes(nodes, node_count);
	file_hook_set(record, NULL);
	for (; saves < 3 && scenario->saves[saves]; saves++) {
		int64_t newest = promises[saves].newest, step = scenario->saves[saves];

		check_ok(fixture_save(out, files, step, scenario->total_limit));
		promises[saves + 1] = (struct promise){event_count, step > newest ? step : newest};
	}
	file_hook_set(NULL, NULL);
	mem_free(out);
	mem_free(base);
	return saves;
}

static void check_crash(const struct scenario *scenario, const struct crash *crash,
        const struct promise *promises, int saves, const char *files)
{
	char *base = file_join(dir, "crashed"), *out = file_join(base, scenario->out);
	int begun = 0, code, directories;
	int64_t step = -1;

	make_crash(crash, base);
	while (begun < saves && promises[begun + 1].end <= crash->at)
		begun++;
	code = fixture_load_newest(&step, out);
	if (code || step < promises[begun].newest ||
	        step > promises[begun < saves ? begun + 1 : begun].newest) {
		print_error("%s: seed %" PRIu64 ", event %d of %d, names %d, data %d: code %d, step %" PRId64
		            ", %s\n",
		        scenario->name, crash->seed, crash->at, event_count, crash->names, crash->data, code,
		        step, code ? err_text() : "");
		fail();
	}
	directories = file_kind_of(out) == FILE_DIR ? fixture_names_with(out, "checkpoint-") : 0;
	for (int64_t s = 1; s <= 4 && directories; s++) { /* no directory of the name that is none */
		char name[64], *path;

		snprintf(name, sizeof(name), "checkpoint-%06" PRId64, s);
		path = file_join(out, name);
		if (file_kind_of(path) == FILE_DIR)
			check_ok(checkpoint_verify(path, NULL, NULL));
		mem_free(path);
	}
	if (crash->seed % 16 == 0) { /* life goes on */
		check_ok(fixture_save(out, files, 9, 1));
		check_ok(fixture_load_newest(&step, out));
		assert_int_equal(step, 9);
		assert_int_equal(fixture_names_with(out, ""), 1);
	}
	mem_free(out);
	mem_free(base);
}

static void power_fails_at_any_moment(void **state)
{
	enum { SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };
	int64_t states = campaign("FERRY_CAMPAIGN_POWER", 900) / SCENARIOS, total = 0;
	uint64_t seed = (uint64_t)campaign("FERRY_CAMPAIGN_SEED", 1) * 1000003;
	char *files = fixture_model_files(dir);

	(void)state;
	for (int s = 0; s < SCENARIOS; s++) {
		struct promise promises[4];
		int saves = record_scenario(&scenarios[s], files, promises);

		for (int64_t i = 0; i < states; i++) {
			struct crash crash = {.seed = ++seed};

			/* every event first, then at random */
			crash.at = (int)(i <= event_count
			                         ? i
			                         : (int64_t)rng_below(seed, 1, 0, (uint64_t)event_count + 1));
			if (i > event_count && i % 4 == 0) /* the end: nothing that was promised is lost */
				crash.at = event_count;
			crash.names = (enum doubt)rng_below(seed, 2, 0, DOUBT_COUNT);
			crash.data = (enum doubt)rng_below(seed, 3, 0, DOUBT_COUNT);
			crash.names_cut = (int)rng_below(seed, 4, 0, (uint64_t)event_count + 1);
			crash.data_cut = (int)rng_below(seed, 5, 0, (uint64_t)event_count + 1);
			check_crash(&scenarios[s], &crash, promises, saves, files);
			total++;
		}
		print_message("%s: %d events\n", scenarios[s].name, event_count);
		for (int e = 0; e < event_count; e++)
			free(events[e].data);
		free(events);
		free_nodes(initial, initial_count);
		free_nodes(nodes, node_count);
	}
	print_message("%" PRId64 " states after a power loss\n", total);
	mem_free(files);
}

/* The method finds mistakes: without any fsync, or with the rename before it, a checkpoint is lost. */
static void the_simulation_can_fail(void **state)
{
	char *files = fixture_model_files(dir);
	struct promise promises[4];
	int bad = 0;

	(void)state;
	record_scenario(&scenarios[0], files, promises);
	for (int e = 0; e < event_count; e++) { /* every fsync was a lie */
		if (events[e].kind == FILE_CALL_SYNC)
			events[e].node = -1;
	}
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct crash crash = {.seed = seed, .at = event_count, .names = DOUBT_SUBSET};
		char *base = file_join(dir, "crashed"), *out = file_join(base, scenarios[0].out);
		int64_t step;

		make_crash(&crash, base);
		bad += fixture_load_newest(&step, out) || step != 2;
		mem_free(out);
		mem_free(base);
	}
	assert_true(bad > 10);
	for (int e = 0; e < event_count; e++)
		free(events[e].data);
	free(events);
	free_nodes(initial, initial_count);
	free_nodes(nodes, node_count);
	mem_free(files);
}

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	return err;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(power_fails_at_any_moment),
	        cmocka_unit_test(the_simulation_can_fail),
	};

	return cmocka_run_group_tests_name("checkpoint_power", tests, make_dir, check_dir_remove);
}
