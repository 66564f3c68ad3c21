/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* A fault on one of several ranks: memory, files, links, threads or mappings, at any call in any part of a
 * run.
 *
 * All ranks end with one exit code and one error that names the rank, printed once. Nothing hangs, and
 * nothing is left over. Existing checkpoints are complete, and the run continues from them. The ranks run
 * this program (ranks_child.h).
 *
 * FERRY_RANKS_FAULTS sets the number of random faults, FERRY_CAMPAIGN_SEED their seed. FERRY_RANKS_FIRST
 * is the number of the first one, to repeat the fault of a complaint.
 */
#include "tests/ranks_child.h"
#include "tests/ranks_job.h"

#include "checkpoint/load.h"
#include "checkpoint/save.h"

enum { HANG_SECONDS = 40, PATIENCE_S = 20 };

/* The kinds of run; a fault may happen in any part of one. */
static const struct scenario {
	const char *name, *more;
	int resumes;
} scenarios[] = {
        {"saving beside the steps", "save_steps=2 save_total_limit=0", 0},
        {"resuming", "save_steps=3 optimizer_state=bf16", 1},
        {"replicas", "save_steps=2 sharding_strategy=NO_SHARD check_replicas=1 eval_steps=2 eval_data=DATA",
                0},
        {"everything on the device", "cpu_offload=off save_steps=0 save_first_step=on", 0},
        {"rank 0 reads and writes", "load=rank0_only state_dict_type=FULL_STATE_DICT save_steps=2", 1},
        {"activations leave", "activations=offload save_steps=2 save_total_limit=1 wrap_policy=none", 1},
        {"samples", "sample_prompt=a sample_steps=1 max_new_tokens=3 save_steps=0", 0},
};
enum {
	REPLICAS = 2,
	SAMPLES = sizeof(scenarios) / sizeof(*scenarios) - 1,
	SCENARIO_COUNT = SAMPLES,
	STEPS = 5
};

struct fault {
	int scenario, rank;
	enum child_what what;
	enum child_how how;
	long at;
};

/* How a job ended. */
struct ended {
	int code, is_hung;
	double seconds;
	int codes[RANKS]; /* -1: the rank left no record */
	long seen[RANKS][CHILD_WHAT_COUNT];
	char texts[RANKS][ERR_TEXT_BYTES];
};

static char self[400];
static int patience_s = PATIENCE_S;
static int complaint_count, tolerated_count, unrecorded_count;
static int64_t number; /* of the fault in the campaign */

__attribute__((format(printf, 3, 4))) static void complain(
        const struct fault *f, const struct ended *e, const char *fmt, ...)
{
	char text[2000];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	print_error(
	        "\nfault %lld, rank %d, %s %ld %s, %s: %s\nexit %d after %.1f s, codes %d %d %d; said:\n%s\n",
	        (long long)number, f->rank, child_whats[f->what], f->at, child_hows[f->how],
	        scenarios[f->scenario].name, text, e->code, e->seconds, e->codes[0], e->codes[1], e->codes[2],
	        ferry_said());
	complaint_count++;
}

/* ---- one job ---- */

static void record_read(struct ended *e, int rank)
{
	char path[400];
	FILE *f;
	size_t len = 0;

	e->codes[rank] = -1;
	e->texts[rank][0] = 0;
	snprintf(path, sizeof(path), "%s/records/rank-%d", work_dir, rank);
	f = fopen(path, "r");
	if (!f)
		return;
	assert_int_equal(fscanf(f, "%d", &e->codes[rank]), 1);
	for (int w = 0; w < CHILD_WHAT_COUNT; w++)
		assert_int_equal(fscanf(f, "%ld", &e->seen[rank][w]), 1);
	(void)getc(f);
	len = fread(e->texts[rank], 1, sizeof(e->texts[rank]) - 1, f);
	e->texts[rank][len] = 0;
	fclose(f);
}

static void job_run(struct ended *e, const struct fault *f, const char *out)
{
	char command[4096], args[3500], more[700], path[400], *data;
	int64_t begin_ns;
	pid_t launched;

	snprintf(more, sizeof(more), "%s", scenarios[f->scenario].more);
	data = strstr(more, "DATA");
	if (data)
		snprintf(data, sizeof(more) - (size_t)(data - more), "%s", tiny.data);
	if (scenarios[f->scenario].resumes)
		snprintf(more + strlen(more), sizeof(more) - strlen(more),
		        " resume_from_checkpoint=%s/first/checkpoint-000002", work_dir);
	snprintf(args, sizeof(args),
	        "as-ferry %d:%s:%ld:%s train model=%s data=%s output_dir=%s/%s " SETTINGS
	        "max_steps=%d watchdog_timeout=%d %s",
	        f->rank, child_whats[f->what], f->at, child_hows[f->how], tiny.dir, tiny.data, work_dir, out,
	        STEPS, patience_s, more);
	ranks_launch(command, sizeof(command), RANKS, self, args);
	remove_run(out);
	remove_run("records");
	snprintf(path, sizeof(path), "%s/records", work_dir);
	assert_int_equal(mkdir(path, 0777), 0);
	setenv("FERRY_TEST_RECORDS", path, 1);
	begin_ns = clock_now_ns();
	launched = run_start(command);
	e->is_hung = 0;
	while (is_running(launched) && !e->is_hung) {
		sleep_ms(5);
		e->is_hung = clock_now_ns() - begin_ns > HANG_SECONDS * (int64_t)1000000000;
	}
	if (e->is_hung)
		job_kill();
	e->code = run_wait(launched);
	e->seconds = 1e-9 * (double)(clock_now_ns() - begin_ns);
	for (int r = 0; r < RANKS; r++)
		record_read(e, r);
}

/* ---- what must hold ---- */

/* Checks that checkpoints are complete, and returns their number. *temporary counts other entries. */
static int checkpoints_check(const struct fault *f, const struct ended *e, const char *out, int *temporary)
{
	char dir[400], **names = NULL;
	size_t count = 0;
	int found = 0;

	*temporary = 0;
	snprintf(dir, sizeof(dir), "%s/%s", work_dir, out);
	if (file_kind_of(dir) != FILE_DIR)
		return 0;
	assert_int_equal(file_list_dir(dir, &names, &count), 0);
	for (size_t i = 0; i < count; i++) {
		char *path = file_join(dir, names[i]);

		*temporary += strstr(names[i], ".tmp") != NULL;
		if (checkpoint_step_of(names[i]) >= 0 && ++found && checkpoint_verify(path, NULL, NULL))
			complain(f, e, "%s is not whole: %s", names[i], err_text());
		mem_free(path);
	}
	file_list_free(names, count);
	return found;
}

/* 1 if the text names the call that failed. */
static int is_reason(const struct fault *f, const char *text)
{
	switch (f->what) {
	case CHILD_MEMORY:
		return strstr(text, "out of memory") != NULL;
	case CHILD_FILE:
		return strstr(text, strerror(EIO)) || strstr(text, strerror(ENOSPC)) ||
		       strstr(text, work_dir); /* if ferry cannot get the kind of a file, it reports a wrong
		                                  kind */
	case CHILD_LINK:
		return strstr(text, ranks_are_local ? "socket" : "MPI") != NULL;
	case CHILD_THREAD:
		return strstr(text, "thread") != NULL;
	default:
		return strstr(text, "memory") != NULL || strstr(text, strerror(ENOMEM)) != NULL;
	}
}

/* One code on all ranks, one error, that of the rank. */
static void failure_check(const struct fault *f, const struct ended *e)
{
	char *said = mem_strdup(ferry_said()), name[32];

	snprintf(name, sizeof(name), "rank %d: ", f->rank);
	if (e->code > 5)
		complain(f, e, "no exit code of ferry");
	for (int r = 0; r < RANKS; r++) {
		if (e->codes[r] < 0 && f->what == CHILD_LINK && f->how == CHILD_ON) {
			unrecorded_count++; /* a rank that can say nothing leaves, and the launcher ends the
			                       rest */
		} else if (e->codes[r] < 0) {
			complain(f, e, "rank %d left no record", r);
		} else if (e->codes[r] != e->code) {
			complain(f, e, "rank %d ended with %d", r, e->codes[r]);
		} else if (r != f->rank && !strstr(e->texts[r], name)) {
			complain(f, e, "rank %d does not name it: %s", r, e->texts[r]);
		} else if (!is_reason(f, e->texts[r])) {
			complain(f, e, "rank %d has another reason: %s", r, e->texts[r]);
		}
	}
	if (count_of(said, "ferry train: ") != 1 && !(f->what == CHILD_LINK && f->how == CHILD_ON))
		complain(f, e, "the error is told %d times", count_of(said, "ferry train: "));
	else if (!strstr(said, "ferry train: ") || !strstr(strstr(said, "ferry train: "), name))
		complain(f, e, "the rank is not named");
	mem_free(said);
}

static void fault_try(const struct fault *f)
{
	struct ended e = {0};
	int temporary, found;

	job_run(&e, f, "bad");
	job_check_gone();
	found = checkpoints_check(f, &e, "bad", &temporary);
	if (e.is_hung) {
		complain(f, &e, "hangs");
	} else if (e.code) {
		failure_check(f, &e);
		if (temporary && !(f->rank == 0 && f->how == CHILD_ON && f->what == CHILD_FILE))
			complain(f, &e, "%d temporary directories are left", temporary);
	} else {
		tolerated_count++;
		for (int r = 0; r < RANKS; r++)
			if (e.codes[r])
				complain(f, &e, "rank %d ended with %d", r, e.codes[r]);
		if (!found || temporary)
			complain(f, &e, "%d checkpoints, %d temporary directories", found, temporary);
	}
}

/* ---- the campaign ---- */

/* How often each rank asks for each thing in each scenario, where nothing fails. */
static long asked[SCENARIO_COUNT][RANKS][CHILD_WHAT_COUNT];

static void scenario_count(int scenario)
{
	struct fault none = {.scenario = scenario, .what = CHILD_MEMORY, .at = 1L << 40};
	struct ended e = {0};

	if (asked[scenario][0][CHILD_MEMORY])
		return;
	job_run(&e, &none, scenario ? "count" : "first");
	if (e.code)
		fail_msg("%s: %s", scenarios[scenario].name, ferry_said());
	memcpy(asked[scenario], e.seen, sizeof(e.seen));
}

static int draw_for(uint64_t what, int64_t of, int below)
{
	const char *text = getenv("FERRY_CAMPAIGN_SEED");

	return (int)rng_below(text ? strtoull(text, NULL, 10) : 1, what, (uint64_t)of, (uint64_t)below);
}

static int draw(uint64_t what, int below)
{
	return draw_for(what, number, below);
}

static void test_faults(void **state)
{
	const char *count = getenv("FERRY_RANKS_FAULTS"), *first = getenv("FERRY_RANKS_FIRST");
	int64_t end = (first ? atoll(first) : 0) + (count ? atoll(count) : 6);

	(void)state;
	scenario_count(0); /* the others resume from it */
	for (number = first ? atoll(first) : 0; number < end; number++) {
		struct fault f = {
		        .scenario = draw_for(1, number / 2, SCENARIO_COUNT), /* each is run once without */
		        .rank = draw(2, RANKS),
		        .what = (enum child_what)draw(3, CHILD_FLIP),
		        .how = draw(4, 3) ? CHILD_ONCE : CHILD_ON};
		long most;

		scenario_count(f.scenario);
		if (f.what == CHILD_THREAD ||
		        f.what == CHILD_MAP) /* few: the other kinds have more to show */
			f.what = draw(5, 4) ? (enum child_what)draw(6, CHILD_THREAD) : f.what;
		most = asked[f.scenario][f.rank][f.what];
		if (!most)
			continue;
		f.at = 1 + draw(7, (int)most);
		fault_try(&f);
		if (number % 50 == 49)
			print_message("%lld faults: %d complaints, %d without effect\n",
			        (long long)number + 1, complaint_count, tolerated_count);
	}
	print_message("%d complaints; %d faults did not end the run; %d ranks were ended by the launcher\n",
	        complaint_count, tolerated_count, unrecorded_count);
	assert_int_equal(complaint_count, 0);
}

/* ---- faults with an answer of their own ---- */

static void say_one(const struct fault *f, const struct ended *e, const char *text)
{
	if (!strstr(ferry_said(), text))
		complain(f, e, "nothing of: %s", text);
}

/* A rank that stops before a call on a file, be it at the start, in loading or in saving, is named. */
static void test_stops_anywhere(void **state)
{
	(void)state;
	complaint_count = 0;
	scenario_count(0);
	for (int part = getenv("FERRY_RANKS_FAULTS") ? 1 : 4; part < 8; part += 3) {
		struct fault f = {.rank = part % RANKS, .what = CHILD_FILE, .how = CHILD_STOP};
		char name[64];
		struct ended e;

		f.at = 1 + asked[0][f.rank][CHILD_FILE] * part / 8;
		patience_s = 1;
		job_run(&e, &f, "bad");
		snprintf(name, sizeof(name), "rank %d (process ", f.rank);
		say_one(&f, &e, name);
		say_one(&f, &e, ") has not moved for");
		if (e.code != 1)
			complain(&f, &e, "the job's exit code");
		job_check_gone();
		if (part != 4)
			continue;
		/* the same for one that only takes its time: nothing happens */
		f.how = CHILD_SLEEP;
		job_run(&e, &f, "bad");
		if (e.code)
			complain(&f, &e, "a slow rank is no stuck one");
	}
	patience_s = PATIENCE_S;
	assert_int_equal(complaint_count, 0);
}

/* A bit flips in data that a rank receives. It continues with other weights than the rest, until ferry
 * compares them. */
static void test_flipped_bit(void **state)
{
	struct fault f = {.scenario = REPLICAS, .rank = 1, .what = CHILD_FLIP, .how = CHILD_ONCE, .at = 3};
	struct ended e;

	(void)state;
	complaint_count = 0;
	job_run(&e, &f, "bad");
	say_one(&f, &e, "ferry train: rank 1: after step ");
	say_one(&f, &e, "differs from rank 0");
	if (e.code != 1)
		complain(&f, &e, "the job's exit code");
	assert_int_equal(complaint_count, 0);
}

/* One rank receives NaN, in gathered weights or in parts of gradients. All ranks skip that step, and only
 * that one. */
static void test_not_finite(void **state)
{
	static const struct {
		int scenario;
		long at;
		int no_loss; /* of the step that is skipped */
	} places[] = {{0, 1, 1}, {0, 20, 0}, {REPLICAS, 1, 0}};

	(void)state;
	complaint_count = 0;
	for (int i = 0; i < 3; i++) {
		struct fault f = {.scenario = places[i].scenario,
		        .rank = 2,
		        .what = CHILD_NAN,
		        .how = CHILD_ONCE,
		        .at = places[i].at};
		int temporary, found;
		struct ended e;
		char *rows;

		job_run(&e, &f, "bad");
		found = checkpoints_check(&f, &e, "bad", &temporary);
		rows = found ? run_numbers("bad") : NULL;
		if (!rows || e.code || e.codes[0] || e.codes[1] || e.codes[2])
			complain(&f, &e, "the run ends");
		else if (count_of(rows, "skipped true") != 1 ||
		         count_of(rows, "loss null") != places[i].no_loss)
			complain(&f, &e, "other steps are skipped:\n%s", rows);
		mem_free(rows);
	}
	assert_int_equal(complaint_count, 0);
}

/* One rank gathers NaN for a sample: no sample is drawn, and all ranks continue. */
static void test_sample_not_finite(void **state)
{
	struct fault f = {.scenario = SAMPLES, .rank = 1, .what = CHILD_NAN, .how = CHILD_ONCE, .at = 32};
	char dir[sizeof(tiny.dir)];
	struct ended e;

	(void)state;
	complaint_count = 0;
	speaker_make();
	memcpy(dir, tiny.dir, sizeof(dir));
	snprintf(tiny.dir, sizeof(tiny.dir), "%s/speaker", work_dir);
	job_run(&e, &f, "bad");
	memcpy(tiny.dir, dir, sizeof(dir));
	say_one(&f, &e, ": no sample: rank 1: logits are not finite");
	if (e.code || e.codes[0] || e.codes[1] || e.codes[2])
		complain(&f, &e, "the run ends");
	assert_int_equal(complaint_count, 0);
}

/* In the ranks' start, where under MPI no rank can hear another by it. */
static void test_start(void **state)
{
	const struct {
		enum child_how how;
		const char *says;
	} starts[] = {
	        {CHILD_ONCE, ranks_are_local ? ": FERRY_LOCAL_RANK is set" : ": MPI_Init_thread failed"},
	        {CHILD_KILL, ") is gone; it was in the ranks' start"},
	        {CHILD_STOP, " s: it is in the ranks' start"}};

	(void)state;
	complaint_count = 0;
	for (int i = 0; i < 3; i++) {
		struct fault f = {.rank = i, .what = CHILD_LINK, .how = starts[i].how, .at = 1};
		char name[64];
		struct ended e;

		patience_s = 1;
		job_run(&e, &f, "bad");
		/* sockets are there when the process is: the others name it from where they wait */
		snprintf(
		        name, sizeof(name), "%srank %d", ranks_are_local && i ? "" : "ferry train: ", f.rank);
		say_one(&f, &e, name);
		say_one(&f, &e, starts[i].says);
		if (count_of(ferry_said(), "ferry train: ") != 1)
			complain(&f, &e, "not told once");
		if (!e.code || run_has("bad"))
			complain(&f, &e, "the job's exit code, or what it left");
		job_check_gone();
	}
	patience_s = PATIENCE_S;
	assert_int_equal(complaint_count, 0);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_faults),
	        cmocka_unit_test(test_stops_anywhere),
	        cmocka_unit_test(test_flipped_bit),
	        cmocka_unit_test(test_not_finite),
	        cmocka_unit_test(test_sample_not_finite),
	        cmocka_unit_test(test_start),
	};
	int failed;

	child_main(argc, argv);
	if (!ranks_begin("test_ranks_inject"))
		return 0;
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	ferry_run_begin("ranks-inject");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
