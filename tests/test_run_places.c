/* links: cli */
/* not: asan */
/* Why not: it forks the program many hundred times, and the sanitizer looks at forks for seconds each. */
/* Every file that ferry writes, found from the calls that a run makes, so that a new file joins by itself.
 *
 * Each kind of run is killed before such a call, in the middle of a write, or by a power loss that tears what
 * was not flushed; or the disk is full for this call. Then the same command runs again. The results must be
 * those of a run that nothing happened to, or a message says what to do; nothing temporary may be left.
 *
 *     FERRY_PLACES=N   calls drawn for each kind (default 8). 0: every call, in each of the four ways
 *     FERRY_SEED=N     seed of the draws (default 1)
 *     FERRY_KIND=TEXT  only the kinds whose name contains it
 */
#include "tests/event_file.h"
#include "tests/run_disks.h"

#include "base/err.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"

#include <sys/mman.h>

static uint64_t seed = 1, draws;

/* ---- kinds of runs ---- */

#define TRAIN                                                                                                \
	"output_dir=%1$s/o save_steps=1 save_total_limit=2 threads=1 device=host logging_steps=1 "           \
	"per_device_train_batch_size=2 learning_rate=1e-3 "                                                  \
	"max_steps=3 "
#define TINY "train model=%1$s/tiny data=%1$s/rows.jsonl " TRAIN
#define PAIRS "train model=%1$s/speaker data=%1$s/pairs.jsonl preference_loss=sigmoid " TRAIN

/* again: what is added to the command after a kill. otherwise: added if that was refused, because the result
 * may be in place already; "": the refusal is the end. */
static const struct kind {
	const char *name, *line, *again, *otherwise;
} kinds[] = {
        {"full",
                TINY "eval_split=4 eval_steps=1 load_best_model_at_end=on report_to=tensorboard trace=2 "
                     "dump_gradients=%1$s/side/g.safetensors",
                "resume_from_checkpoint=auto", NULL},
        {"before the first checkpoint", TINY "save_steps=0 dump_gradients=%1$s/side/g.safetensors",
                "resume_from_checkpoint=auto", NULL},
        {"8 bits, one file", TINY "optimizer_state=8bit state_dict_type=FULL_STATE_DICT max_shard_size=20KB",
                "resume_from_checkpoint=auto", NULL},
        {"model only", TINY "save_only_model=on", "resume_from_checkpoint=auto", ""},
        {"recurrent layers", "train model=%1$s/recurrent data=%1$s/rows.jsonl " TRAIN,
                "resume_from_checkpoint=auto", NULL},
        {"lora", TINY "lora_rank=2 eval_split=4 eval_steps=2", "resume_from_checkpoint=auto", NULL},
        {"lora_adapter", TINY "lora_adapter=%1$s/first/adapter", "resume_from_checkpoint=auto", NULL},
        {"pairs", PAIRS "eval_split=3 eval_steps=2 dump_gradients=%1$s/side/g.safetensors",
                "resume_from_checkpoint=auto", NULL},
        {"pairs before the first checkpoint", PAIRS "save_steps=0 lora_adapter=%1$s/second/adapter",
                "resume_from_checkpoint=auto", NULL},
        {"another directory", TINY "resume_from_checkpoint=%1$s/first/checkpoint-000002 lora_rank=2", "",
                NULL},
        {"a branch", "train %1$s/o/config.yaml max_steps=3 resume_from_checkpoint=%1$s/o/checkpoint-000001",
                "", NULL},
        {"overwrite", TINY "overwrite_output_dir=on", "", NULL},
        {"data_cache", TINY "data=%1$s/long.jsonl data_memory=1MiB data_cache=%1$s/cache max_length=62",
                "resume_from_checkpoint=auto", NULL},
        {"merge", "merge model=%1$s/tiny lora_adapter=%1$s/first/adapter output_dir=%1$s/o", "",
                "overwrite_output_dir=on"},
        {"export", "export checkpoint=%1$s/full/checkpoint-000003 output_dir=%1$s/o", "",
                "overwrite_output_dir=on"},
        {"init", "init config=%1$s/tiny.json output_dir=%1$s/o seed=3", "", "overwrite_output_dir=on"},
        {"init over", "init config=%1$s/tiny.json output_dir=%1$s/o seed=3 overwrite_output_dir=on", "",
                NULL},
        {"report", "report %1$s/full html=%1$s/side/report.html", "", NULL},
        {"plan", "plan %1$s/tiny trace_file=%1$s/side/plan.json", "", ""},
};

/* ---- a process that dies at a call ---- */

enum way { BEFORE, TORN, POWER, REFUSED, WAY_COUNT };
static const char *const ways[] = {"before", "in the middle of", "by a power loss at", "no: refused"};

enum { CALLS_MAX = 20000, FILES_MAX = 400 };

struct place {
	int kind;
	char file[100]; /* digits and temporary names made alike */
};

static struct {
	int at; /* -1: none */
	enum way way;
	int seen;
} death;
static int *call_count;
static struct place *places; /* [CALLS_MAX], shared with the child that notes them */
static int notes;

static struct {
	char path[500];
	int is_dirty;
	off_t flushed_bytes;
} files[FILES_MAX];
static int file_count;

static int file_find(const char *path)
{
	int i = 0;

	while (i < file_count && strcmp(files[i].path, path))
		i++;
	if (i == FILES_MAX)
		_exit(99);
	file_count += i == file_count;
	snprintf(files[i].path, sizeof(files[i].path), "%s", path);
	return i;
}

/* Messages name a part by the file that it will be. */
static const char *file_of(int fd)
{
	static char path[500];
	char link[40];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = 0;
	return path;
}

/* Half of what was not flushed is there. */
static void tear(void)
{
	for (int i = 0; i < file_count; i++) {
		struct stat st;

		if (files[i].is_dirty && !stat(files[i].path, &st) && S_ISREG(st.st_mode) &&
		        st.st_size > files[i].flushed_bytes &&
		        truncate(files[i].path, (files[i].flushed_bytes + st.st_size) / 2))
			_exit(99);
	}
}

/* Follows the call that is about to be made. */
static void follow(const struct file_call *call)
{
	struct stat st;
	int i;

	if (call->kind == FILE_CALL_CREATE) {
		i = file_find(call->path);
		if (!files[i].is_dirty && !stat(call->path, &st)) /* a log that was there before */
			files[i].flushed_bytes = st.st_size;
		files[i].is_dirty = 1;
	}
	if (call->kind == FILE_CALL_WRITE || call->kind == FILE_CALL_RESERVE)
		files[file_find(file_of(call->fd))].is_dirty = 1;
	if (call->kind == FILE_CALL_SYNC && !fstat(call->fd, &st)) {
		i = file_find(file_of(call->fd));
		files[i].is_dirty = 0;
		files[i].flushed_bytes = st.st_size;
	}
	if (call->kind == FILE_CALL_RENAME) {
		i = file_find(call->to);
		files[i].is_dirty = files[file_find(call->path)].is_dirty;
		files[i].flushed_bytes = files[file_find(call->path)].flushed_bytes;
		files[file_find(call->path)].is_dirty = 0;
	}
}

static void name_note(char out[100], const char *path)
{
	size_t len = 0;

	for (path += strlen(work_dir); *path && len < 98;) {
		size_t digits = strspn(path, "0123456789"), hex = strspn(path, "0123456789abcdef");

		if (hex < 16)
			hex = digits;
		out[len++] = hex ? '#' : *path;
		path += hex ? hex : 1;
	}
	out[len] = 0;
}

static void die(const struct file_call *call)
{
	if (death.way == TORN && call->kind == FILE_CALL_WRITE &&
	        pwrite(call->fd, call->data, call->len_bytes / 2, call->offset_bytes) < 0)
		_exit(99);
	if (death.way == POWER)
		tear();
	kill(getpid(), SIGKILL);
	pause();
}

static int dying_hook(void *context, const struct file_call *call)
{
	static const int changing[] = {[FILE_CALL_CREATE] = 1,
	        [FILE_CALL_WRITE] = 1,
	        [FILE_CALL_RESERVE] = 1,
	        [FILE_CALL_SYNC] = 1,
	        [FILE_CALL_CLOSE] = 1,
	        [FILE_CALL_RENAME] = 1,
	        [FILE_CALL_EXCHANGE] = 1,
	        [FILE_CALL_MKDIR] = 1,
	        [FILE_CALL_REMOVE] = 1,
	        [FILE_CALL_LOCK] = 1};

	(void)context;
	if (!call->path || strncmp(call->path, work_dir, strlen(work_dir)) || !changing[call->kind])
		return 0;
	if (notes && death.seen < CALLS_MAX) {
		places[death.seen].kind = (int)call->kind;
		name_note(places[death.seen].file, call->path);
	}
	*call_count = death.seen + 1;
	if (death.seen++ == death.at) {
		if (death.way == REFUSED) /* no disk is too full to remove a file */
			return call->kind == FILE_CALL_REMOVE ? 0 : ENOSPC;
		die(call);
	}
	follow(call);
	return 0;
}

/* ---- one case ---- */

static const char *const outputs[] = {"o", "side", "cache"};

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int shell_code(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int shell_code(const char *fmt, ...)
{
	char command[3000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	return system(command);
}

static void shell(const char *fmt, ...)
{
	char command[3000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	if (system(command))
		fail_msg("%s", command);
}

static void line_make(char line[3000], const struct kind *k, const char *more)
{
	int len;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	len = snprintf(line, 3000, k->line, work_dir);
#pragma GCC diagnostic pop
	snprintf(line + len, (size_t)(3000 - len), " %s", more);
}

/* What is there before the command. */
static void begin(const struct kind *k)
{
	shell("cd %s && rm -rf o side cache && mkdir side", work_dir);
	if (!strcmp(k->name, "a branch") || !strcmp(k->name, "overwrite"))
		shell("cp -a %1$s/full %1$s/o && sed -i s,%1$s/full,%1$s/o, %1$s/o/config.yaml", work_dir);
	if (!strcmp(k->name, "init over"))
		shell("cp -a %1$s/tiny %1$s/o", work_dir);
}

static int run_line(const struct kind *k, const char *more, int at, enum way way)
{
	char line[3000];

	line_make(line, k, more);
	death.at = at;
	death.way = way;
	death.seen = 0;
	file_count = 0;
	*call_count = 0;
	return run_hooked(dying_hook, NULL, "%s", line);
}

/* Files that appear only for a while, or that belong to a checkpoint that does not verify. */
static void check_left(const char *why)
{
	char path[400], **names = NULL;
	size_t count = 0;

	if (!shell_code("cd %s && find o side cache .o* 2>/dev/null | grep -E '[.]tmp|[.]lock|[.]part'",
	            work_dir))
		fail_msg("%s: that is left", why);
	path_of(path, "o");
	if (file_kind_of(path) != FILE_DIR)
		return;
	assert_int_equal(file_list_dir(path, &names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		char checkpoint[700];

		snprintf(checkpoint, sizeof(checkpoint), "%s/%s", path, names[i]);
		if (checkpoint_step_of(names[i]) >= 0 && checkpoint_verify(checkpoint, NULL, NULL))
			fail_msg("%s: %s", why, err_text());
	}
	file_list_free(names, count);
}

static void check_result(const struct kind *k, const char *why)
{
	check_left(why);
	for (size_t i = 0; i < 3; i++)
		if (shell_code("cd %s && { test -e whole.%s || exit 0; } && diff -rq -x metrics.jsonl -x "
		               "branch.json -x run.json -x 'events.out.*' "
		               "-x 'checkpoint-*' -x trace.json -x 'abandoned-*' -x config.yaml -x plan.json "
		               "%s whole.%s "
		               "1>&2",
		            work_dir, outputs[i], outputs[i], outputs[i]))
			fail_msg("%s: another result", why);
	if (run_has("whole.side/plan.json")) /* times that were measured */
		shell("tail -c 2 %s/side/plan.json | grep -q '}'", work_dir);
	if (run_has("whole.o/metrics.jsonl")) {
		char *got = run_numbers("o"), *expected = run_numbers("whole.o");

		if (strcmp(got, expected))
			fail_msg("%s: other rows:\n%s\ninstead of\n%s", why, got, expected);
		mem_free(got);
		mem_free(expected);
	}
	if (run_has("whole.o/events.out.tfevents.ferry")) {
		char dir[400];

		path_of(dir, "o");
		assert_events(dir, why);
	}
	if (run_has("whole.o/checkpoint-000003"))
		assert_true(run_has("o/checkpoint-000003"));
	assert_true(k != NULL);
}

/* Returns 0 if the run ended before its call number `at`. */
static int killed_at(const struct kind *k, int at, enum way way)
{
	char why[400];
	int code;

	begin(k);
	code = run_line(k, "", at, way);
	snprintf(why, sizeof(why), "%s, killed %s call %d, %d of %s", k->name, ways[way], at, places[at].kind,
	        places[at].file);
	if (!code && way == REFUSED) {
		check_result(k, why);
		return 1;
	}
	if (code != 128 + SIGKILL && way != REFUSED) {
		assert_int_equal(code, 0);
		return 0;
	}
	if (way == REFUSED && (code > 5 || !strstr(ferry_said(), "ferry ")))
		fail_msg("%s: exit code %d: %s", why, code, ferry_said());
	code = run_line(k, k->again, -1, BEFORE);
	if (code == 2 && k->otherwise) {
		if (!strstr(ferry_said(), "; "))
			fail_msg("%s: %s", why, ferry_said());
		code = *k->otherwise ? run_line(k, k->otherwise, -1, BEFORE) : 0;
	}
	if (code)
		fail_msg("%s: again: exit code %d: %s", why, code, ferry_said());
	check_result(k, why);
	return 1;
}

/* The first and the last call of each kind on each file come first, then others. */
static int is_first_or_last(int at, int count)
{
	int is_first = 1, is_last = 1;

	for (int i = 0; i < count; i++)
		if (places[i].kind == places[at].kind && !strcmp(places[i].file, places[at].file)) {
			is_first &= i >= at;
			is_last &= i <= at;
		}
	return is_first || is_last;
}

static int distinct_files(int count)
{
	int found = 0;

	for (int i = 0; i < count; i++) {
		int j = 0;

		while (strcmp(places[j].file, places[i].file))
			j++;
		found += j == i;
	}
	return found;
}

static void kind_run(const struct kind *k, int cases)
{
	int count, killed = 0;

	begin(k);
	notes = 1;
	if (run_line(k, "", -1, BEFORE))
		fail_msg("%s: %s", k->name, ferry_said());
	notes = 0;
	count = *call_count < CALLS_MAX ? *call_count : CALLS_MAX;
	for (size_t i = 0; i < 3; i++)
		shell("cd %s && rm -rf whole.%s && { test ! -e %s || cp -a %s whole.%s; }", work_dir,
		        outputs[i], outputs[i], outputs[i], outputs[i]);
	for (int at = 0; at < count && !cases; at++)
		for (enum way way = 0; way < WAY_COUNT; way++)
			killed += killed_at(k, at, way);
	for (int i = 0; i < cases; i++) {
		int at = (int)rng_below(seed, 1, draws++, (uint64_t)count);

		for (int tries = 0; tries < 100 && !is_first_or_last(at, count); tries++)
			at = (int)rng_below(seed, 1, draws++, (uint64_t)count);
		killed += killed_at(k, at, (enum way)rng_below(seed, 2, draws++, WAY_COUNT));
	}
	printf("%s: %d files, %d calls, %d kills\n", k->name, distinct_files(count), count, killed);
}

static void test_places(void **state)
{
	const char *cases = getenv("FERRY_PLACES"), *from = getenv("FERRY_SEED"),
	           *only = getenv("FERRY_KIND");

	(void)state;
	if (from)
		seed = strtoull(from, NULL, 10);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!only || strstr(kinds[i].name, only))
			kind_run(&kinds[i], cases ? atoi(cases) : 8);
}

/* ---- inputs ---- */

static void inputs_make(void)
{
	struct run_model tiny;
	struct str text = {0};
	char line[3000];

	speaker_make();
	tiny_model(&tiny);
	write_file("recurrent.json",
	        "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":64,\"hidden_size\":32,\"intermediate_size\":"
	        "48,"
	        "\"num_hidden_layers\":2,\"full_attention_interval\":2,\"num_attention_heads\":2,"
	        "\"num_key_value_heads\":1,\"head_dim\":16,\"linear_num_key_heads\":2,"
	        "\"linear_num_value_heads\":4,\"linear_key_head_dim\":8,\"linear_value_head_dim\":12,"
	        "\"max_position_embeddings\":128}");
	assert_ferry(
	        0, NULL, "init config=%s/recurrent.json output_dir=%s/recurrent seed=1", work_dir, work_dir);
	for (int i = 0; i < 12; i++)
		str_printf(&text,
		        "{\"prompt\":\"ask %d\",\"chosen\":\" the %d ship\",\"rejected\":\" no\"}\n", i, i);
	write_file("pairs.jsonl", "%s", text.data);
	str_free(&text);
	for (int row = 0; row < 6000; row++) {
		str_add(&text, "{\"input_ids\":[1");
		for (int i = 0; i < 60; i++)
			str_printf(&text, ",%d", 1 + (row + i) % 20);
		str_add(&text, "]}\n");
	}
	write_file("long.jsonl", "%s", text.data);
	str_free(&text);
	static const char *const before[][2] = {{"first", TINY "lora_rank=2"},
	        {"second", PAIRS "lora_rank=2"}, {"full", TINY "save_total_limit=all"}};
	for (size_t i = 0; i < 3; i++) {
		struct kind k = {.line = before[i][1]};

		line_make(line, &k, "");
		assert_ferry(0, NULL, "%s output_dir=%s/%s", line, work_dir, before[i][0]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_places)};
	int failed;

	call_count =
	        mmap(NULL, sizeof(*call_count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	places = mmap(
	        NULL, CALLS_MAX * sizeof(*places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ferry_run_begin("places");
	inputs_make();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
