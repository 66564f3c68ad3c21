/* links: checkpoint */
/* also: tsan */
/* Saves in a background thread, with files long enough for several writers. They give the same bytes as a
 * save in the foreground: after any failure, with any number of ranks, and when killed at any moment. */
#include "tests/checkpoint_fixture.h"
#include "tests/sparing.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/saver.h"

/* Odd lengths: planes begin at odd places, and blocks cut numbers. */
enum { TENSORS = 3 };
static struct model_tensor tensors[TENSORS] = {
        {.name = "model.embed.weight", .rank = 2, .shape = {1001, 911}, .count = 1001 * 911, .trainable = 1},
        {.name = "model.blocks.0.q.weight", .rank = 1, .shape = {7, 1}, .count = 7, .trainable = 1},
        {.name = "model.norm.weight", .rank = 1, .shape = {800003, 1}, .count = 800003, .trainable = 1},
};

static struct model model_make(void)
{
	struct model model = {
	        .config = {.model_type = "fixture"}, .tensors = tensors, .tensor_count = TENSORS};

	for (int t = 0; t < TENSORS; t++)
		model.parameter_count += tensors[t].count;
	return model;
}

static uint32_t value_of(int64_t number, int tensor, enum plane plane, int64_t i)
{
	uint64_t bits = (uint64_t)(number * 64 + tensor * 8 + (int)plane + 1) * 0x9e3779b97f4a7c15u +
	                (uint64_t)i * 0xbf58476d1ce4e5b9u;

	return (uint32_t)(bits >> 32) & (plane == PLANE_HI ? 0xbf7fu : plane == PLANE_LO ? 0xffffu : ~0u);
}

/* The planes of step `number`; what is read of it and what was done with is noted. */
struct planes {
	int64_t number;
	int fails_at; /* this read fails; 0: none */
	int reads, done, ends;
	int64_t delay_ns;
	int differ; /* as a sink: elements that are others */
};

static int planes_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	struct planes *p = context;
	int width = plane_width(plane, ADAMW_STATE_F32);

	assert_true(count > 0 && first >= 0 && first + count <= tensors[tensor].count);
	if (++p->reads == p->fails_at)
		return err_set(ERR_DEVICE, "the planes cannot be read");
	if (p->delay_ns)
		nanosleep(&(struct timespec){0, p->delay_ns}, NULL);
	for (int64_t i = 0; i < count; i++)
		element_put(dst, width, i, value_of(p->number, tensor, plane, first + i));
	return 0;
}

static void planes_done(void *context, int tensor, int64_t first)
{
	struct planes *p = context;

	(void)first;
	if (tensor == PLANE_SOURCE_END) {
		p->ends++;
		return;
	}
	assert_false(p->ends || p->done & 1 << tensor);
	p->done |= 1 << tensor;
}

static int planes_compare(
        void *context, int tensor, enum plane plane, int64_t first, int64_t count, const void *src)
{
	struct planes *p = context;
	int width = plane_width(plane, ADAMW_STATE_F32);

	for (int64_t i = 0; i < count; i += SANITIZED ? 11 : 1)
		p->differ += element_at(src, width, i) != value_of(p->number, tensor, plane, first + i);
	return 0;
}

/* One save, and what it borrows. */
struct job {
	struct model model;
	struct planes planes;
	struct plane_source source;
	struct checkpoint_save save;
};

static void job_make(struct job *job, const char *out, int64_t step, int total_limit)
{
	*job = (struct job){.model = model_make(), .planes = {.number = step}};
	job->source =
	        (struct plane_source){.context = &job->planes, .read = planes_read, .done = planes_done};
	job->save = (struct checkpoint_save){.output_dir = out,
	        .step = step,
	        .model = &job->model,
	        .source = &job->source,
	        .planes = planes_of(ADAMW_STATE_F32),
	        .training = json_pack("{s:I}", "number", (json_int_t)step),
	        .total_limit = total_limit,
	        .world = {.size = 1}};
}

static int job_save(struct job *job, char **path)
{
	struct checkpoint_saver *saver;
	int err = checkpoint_saver_start(&saver, &job->save);

	if (!err)
		err = checkpoint_saver_finish(saver, path);
	json_decref(job->save.training);
	return err;
}

static int save_step(const char *out, int64_t step, int total_limit)
{
	struct job job;

	job_make(&job, out, step, total_limit);
	return job_save(&job, NULL);
}

/* Newest step, after comparing all of it; 0: none. */
static int64_t newest(const char *out)
{
	struct model model = model_make();
	struct planes planes = {0};
	struct plane_sink sink = {.context = &planes, .write = planes_compare};
	struct checkpoint *checkpoint;
	char *path = NULL;

	check_ok(checkpoint_find_newest(&path, out, INT64_MAX));
	if (!path)
		return 0;
	check_ok(checkpoint_open(&checkpoint, path));
	check_ok(checkpoint_match(checkpoint, &model));
	planes.number = checkpoint_manifest(checkpoint)->step;
	check_ok(checkpoint_load(checkpoint, &sink, NULL, 0, NULL));
	assert_int_equal(planes.differ, 0);
	checkpoint_close(checkpoint);
	mem_free(path);
	return planes.number;
}

static char *dir;

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	return err;
}

static int disarm(void **state)
{
	(void)state;
	file_hook_set(NULL, NULL);
	return 0;
}

/* ---- tests ---- */

static void test_the_same_bytes(void **state)
{
	char *a = fixture_sub_dir(dir, "beside"), *b = fixture_sub_dir(dir, "at-once"), *path = NULL;
	struct job job;

	(void)state;
	job_make(&job, a, 5, 0);
	check_ok(job_save(&job, &path));
	assert_non_null(strstr(path, "beside/checkpoint-000005"));
	assert_int_equal(job.planes.done, (1 << TENSORS) - 1);
	assert_int_equal(job.planes.ends, 1);
	mem_free(path);
	job_make(&job, b, 5, 0);
	check_ok(checkpoint_save(&job.save, NULL));
	json_decref(job.save.training);
	for (int f = 0; f < 2; f++) {
		const char *name =
		        f ? "checkpoint-000005/manifest.json" : "checkpoint-000005/rank-00000.safetensors";
		char *left = file_join(a, name), *right = file_join(b, name), *left_text, *right_text;
		size_t left_len, right_len;

		check_ok(file_read_all(left, 1 << 30, &left_text, &left_len));
		check_ok(file_read_all(right, 1 << 30, &right_text, &right_len));
		assert_int_equal(left_len, right_len);
		assert_memory_equal(left_text, right_text, left_len);
		assert_true(f || left_len > 16 << 20); /* long enough for threads */
		mem_free(left);
		mem_free(right);
		mem_free(left_text);
		mem_free(right_text);
	}
	assert_int_equal(newest(a), 5);
	mem_free(a);
	mem_free(b);
}

/* ---- failures ---- */

struct fault {
	int64_t countdown;
	int answer, forever, fired;
};

static int fault_hook(void *context, const struct file_call *call)
{
	struct fault *fault = context;

	(void)call;
	if (fault->countdown > 0 && --fault->countdown)
		return 0;
	if (fault->fired && !fault->forever)
		return 0;
	fault->fired = 1;
	return fault->answer;
}

static void test_each_call_fails(void **state)
{
	static const struct {
		int answer, forever;
	} kinds[] = {{EIO, 0}, {ENOSPC, 1}, {EINTR, 0}, {FILE_HOOK_SHORT, 0}, {FILE_HOOK_SHORT, 1}};
	char *out = fixture_sub_dir(dir, "faults");
	int64_t each = getenv("FERRY_CAMPAIGN_KILLS") ? 1 : 7 * sparing(16), step = 1, total = 0;

	(void)state;
	check_ok(save_step(out, step, 1));
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		struct fault fault = {.fired = 1};

		for (int64_t n = each > 1 ? 1 + (int64_t)k : 1; fault.fired; n += each) {
			int opened = fixture_open_files(), code;
			int64_t seen;

			fault = (struct fault){n, kinds[k].answer, kinds[k].forever, 0};
			file_hook_set(fault_hook, &fault);
			code = save_step(out, step + 1, 1);
			file_hook_set(NULL, NULL);
			assert_true(!code || code == ERR_IO || code == ERR_INPUT);
			assert_true(!code || strlen(err_text()) > 10);
			assert_int_equal(fixture_open_files(), opened);
			seen = newest(out);
			assert_true(seen == step + 1 || (code && seen == step));
			step = seen;
			total++;
		}
	}
	check_ok(save_step(out, step + 1, 1));
	assert_int_equal(newest(out), step + 1);
	assert_int_equal(fixture_names_with(out, ""), 1);
	print_message("%" PRId64 " faults\n", total);
	mem_free(out);
}

static void test_planes_that_cannot_be_read(void **state)
{
	char *out = fixture_sub_dir(dir, "unreadable");
	struct job job;

	(void)state;
	job_make(&job, out, 1, 0);
	job.planes.fails_at = 20;
	check_fails(job_save(&job, NULL), ERR_DEVICE, "the planes cannot be read");
	assert_int_equal(job.planes.ends, 1); /* so that who waits for it goes on */
	assert_int_equal(fixture_names_with(out, ""), 0);
	mem_free(out);
}

static void test_abandoned(void **state)
{
	char *out = fixture_sub_dir(dir, "abandoned");
	struct checkpoint_saver *saver;
	struct job job;

	(void)state;
	job_make(&job, out, 1, 0);
	job.save.world = (struct checkpoint_world){.size = 2}; /* the other one never answers */
	check_ok(checkpoint_saver_start(&saver, &job.save));
	checkpoint_saver_abandon(saver);
	json_decref(job.save.training);
	assert_int_equal(newest(out), 0);
	check_ok(save_step(out, 2, 0));
	assert_int_equal(newest(out), 2);
	assert_int_equal(fixture_names_with(out, ""), 1);
	mem_free(out);
}

/* ---- ranks ---- */

enum { RANKS = 3 };

/* Where ranks meet: the least of what they bring, and rank 0's value. */
struct meeting {
	pthread_barrier_t barrier;
	int code[RANKS];
	uint64_t value;
};

struct rank {
	struct meeting *meeting;
	struct job job;
	struct plane_range ranges[TENSORS];
	int rank, code, collective_calls;
	pthread_t thread, self;
};

static int least(struct rank *r, int code)
{
	int worst = 0;

	assert_true(pthread_equal(pthread_self(), r->self)); /* the owner of the ranks, never the saver */
	r->collective_calls++;
	r->meeting->code[r->rank] = code;
	pthread_barrier_wait(&r->meeting->barrier);
	for (int i = 0; i < RANKS; i++)
		worst = r->meeting->code[i] < worst ? r->meeting->code[i] : worst;
	pthread_barrier_wait(&r->meeting->barrier);
	return worst;
}

static int meet_agree(void *context, int code)
{
	int worst = least(context, code);

	return worst && !code ? err_set(worst, "another rank failed") : worst;
}

static int meet_share(void *context, uint64_t *value)
{
	struct rank *r = context;

	if (!r->rank)
		r->meeting->value = *value;
	least(r, 0);
	*value = r->meeting->value;
	least(r, 0);
	return 0;
}

/* A loop of steps: at each border ranks ask each other whether all are ready. */
static void *run_rank(void *context)
{
	enum checkpoint_saver_state at = CHECKPOINT_SAVER_RUNS;
	struct checkpoint_saver *saver;
	struct rank *r = context;

	r->self = pthread_self();
	r->code = checkpoint_saver_start(&saver, &r->job.save);
	while (!r->code && at == CHECKPOINT_SAVER_RUNS) {
		nanosleep(&(struct timespec){0, 1000000}, NULL);
		if (!least(r, -!checkpoint_saver_is_ready(saver)))
			(void)!checkpoint_saver_advance(saver, &at);
	}
	if (!r->code)
		r->code = checkpoint_saver_finish(saver, NULL);
	return NULL;
}

static void save_world(const char *out, int64_t step, int failing)
{
	struct meeting meeting = {.value = 0};
	struct rank ranks[RANKS] = {{0}};

	pthread_barrier_init(&meeting.barrier, NULL, RANKS);
	for (int i = 0; i < RANKS; i++) {
		struct rank *r = &ranks[i];

		r->meeting = &meeting;
		r->rank = i;
		job_make(&r->job, out, step, 1);
		r->job.source.context = &r->job.planes;
		r->job.planes.fails_at = i == failing ? 3 : 0;
		for (int t = 0; t < TENSORS; t++) { /* the last tensor first, as backward would have it */
			int64_t count = tensors[TENSORS - 1 - t].count, begin = count * i / RANKS;

			r->ranges[t] =
			        (struct plane_range){TENSORS - 1 - t, begin, count * (i + 1) / RANKS - begin};
		}
		r->job.save.ranges = r->ranges;
		r->job.save.range_count = TENSORS;
		r->job.save.world = (struct checkpoint_world){i, RANKS, r, meet_agree, meet_share};
		assert_int_equal(pthread_create(&r->thread, NULL, run_rank, r), 0);
	}
	for (int i = 0; i < RANKS; i++) {
		pthread_join(ranks[i].thread, NULL);
		assert_int_equal(ranks[i].code, failing < 0 ? 0 : ERR_DEVICE);
		assert_int_equal(ranks[i].job.planes.ends, 1);
		assert_true(ranks[i].collective_calls > 5);
		json_decref(ranks[i].job.save.training);
	}
	pthread_barrier_destroy(&meeting.barrier);
}

static void test_ranks(void **state)
{
	char *out = fixture_sub_dir(dir, "ranks");

	(void)state;
	save_world(out, 3, -1);
	assert_int_equal(newest(out), 3);
	for (int failing = 0; failing < RANKS; failing++) {
		save_world(out, 4, failing);
		assert_int_equal(newest(out), 3);
		assert_int_equal(fixture_names_with(out, ".tmp"), 0);
	}
	save_world(out, 5, -1);
	assert_int_equal(newest(out), 5);
	assert_int_equal(fixture_names_with(out, ""), 1); /* the old one was rotated out */
	mem_free(out);
}

/* ---- kill -9 ---- */

static int kill_hook(void *context, const struct file_call *call)
{
	int64_t *countdown = context;

	(void)call;
	if (!--*countdown)
		raise(SIGKILL);
	return 0;
}

static void test_killed_at_any_moment(void **state)
{
	const char *wanted = getenv("FERRY_CAMPAIGN_KILLS"), *seed = getenv("FERRY_CAMPAIGN_SEED");
	int64_t count = wanted ? atoll(wanted) / 10 : 16 / sparing(4), last = 0, partial = 0;
	char *out = fixture_sub_dir(dir, "kills");

	(void)state;
	for (int64_t i = 0; i < count; i++) {
		uint64_t key = seed ? (uint64_t)atoll(seed) : 1;
		int64_t n = (int64_t)rng_below(key, 3, (uint64_t)i, 90) + 1, reported = last, step = last;
		struct timespec delay = {0, (long)rng_below(key, 4, (uint64_t)i, 120000000)};
		int pipes[2], status;
		pid_t pid;

		assert_int_equal(pipe(pipes), 0);
		pid = fork();
		if (!pid) {
			if (i % 2)
				file_hook_set(kill_hook, &n);
			while (++step && !save_step(out, step, 2))
				if (write(pipes[1], &step, sizeof(step)) != sizeof(step))
					break;
			_exit(1);
		}
		close(pipes[1]);
		if (i % 2 == 0) {
			nanosleep(&delay, NULL);
			kill(pid, SIGKILL);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		while (read(pipes[0], &step, sizeof(step)) == sizeof(step))
			reported = step;
		close(pipes[0]);
		partial += fixture_names_with(out, ".tmp") > 0;
		last = newest(out);
		assert_true(last >= reported && last <= reported + 1);
	}
	check_ok(save_step(out, last + 1, 2));
	assert_int_equal(fixture_names_with(out, ".tmp"), 0);
	print_message("%" PRId64 " kills: %" PRId64 " steps saved, %" PRId64
	              " kills left a temporary directory\n",
	        count, last, partial);
	mem_free(out);
}

/* ---- memory ---- */

/* A file of 200 MB costs a ring, however long it is. */
static void test_memory(void **state)
{
	char *out = fixture_sub_dir(dir, "memory");
	struct rusage before, after;
	int64_t count = tensors[2].count;
	int status;
	pid_t pid;

	(void)state;
#ifdef __SANITIZE_THREAD__
	skip(); /* its shadow is of several times the size */
#endif
	pid = fork();
	if (!pid) {
		tensors[2].count = tensors[2].shape[0] = 16000003;
		getrusage(RUSAGE_SELF, &before);
		if (save_step(out, 1, 0))
			_exit(2);
		getrusage(RUSAGE_SELF, &after);
		_exit(after.ru_maxrss - before.ru_maxrss > 48 << 10);
	}
	tensors[2].count = tensors[2].shape[0] = count;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	mem_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_the_same_bytes),
	        cmocka_unit_test_teardown(test_each_call_fails, disarm),
	        cmocka_unit_test(test_planes_that_cannot_be_read),
	        cmocka_unit_test(test_abandoned),
	        cmocka_unit_test(test_ranks),
	        cmocka_unit_test(test_killed_at_any_moment),
	};

	return cmocka_run_group_tests_name("checkpoint_saver", tests, make_dir, check_dir_remove);
}
