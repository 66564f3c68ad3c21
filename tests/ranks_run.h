/* Runs `ferry` as several ranks, each with one core's share. mpirun starts the ranks; with
 * FERRY_TEST_LOCAL set, ferry does. */
#ifndef FERRY_TESTS_RANKS_RUN_H
#define FERRY_TESTS_RANKS_RUN_H

#include "tests/launcher.h"
#include "tests/run_fixture.h"

#include <math.h>

static const char *launcher; /* mpirun; NULL: none */
static int ranks_are_local;

/* An environment variable of all processes that a test starts; each test has its own value. */
#define JOB_MARK "FERRY_TEST_JOB"

/* MPI's start takes most of a small job, and half of that is a search for networks that tests do not have. */
static const char *const transport[][2] = {
        {"OMPI_MCA_pml", "ob1"}, {"OMPI_MCA_btl", "self,vader"}, {"OMPI_MCA_mpi_yield_when_idle", "1"}};

/* If ranks cannot be started: 0, and a line that names the test. */
static inline int ranks_begin(const char *test)
{
	char mark[32];

	launcher = launcher_path();
	ranks_are_local = getenv("FERRY_TEST_LOCAL") != NULL;
	if (!ranks_are_local && !launcher) {
		printf("SKIPPED %s: %s\n", test, launcher_absence());
		return 0;
	}
	snprintf(mark, sizeof(mark), "%d", (int)getpid());
	setenv(JOB_MARK, mark, 1);
	for (size_t i = 0; i < sizeof(transport) / sizeof(*transport); i++)
		setenv(transport[i][0], transport[i][1], 0);
	launcher_apart();
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	return 1;
}

/* "mpirun -n RANKS PROGRAM ARGS" or "PROGRAM ARGS ranks=RANKS"; for one rank the plain command. */
static inline void ranks_launch(
        char *command, size_t command_bytes, int ranks, const char *program, const char *args)
{
	if (ranks == 1)
		snprintf(command, command_bytes, "%s %s", program, args);
	else if (ranks_are_local)
		snprintf(command, command_bytes, "%s %s ranks=%d", program, args, ranks);
	else
		snprintf(command, command_bytes, "%s --oversubscribe --bind-to none -n %d %s %s", launcher,
		        ranks, program, args);
}

/* ranks_launch for ferry. */
__attribute__((format(printf, 4, 5))) static inline void ranks_command(
        char *command, size_t command_bytes, int ranks, const char *fmt, ...)
{
	const char *binary = getenv("FERRY_BINARY");
	char args[3500];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(args, sizeof(args), fmt, ap);
	va_end(ap);
	ranks_launch(command, command_bytes, ranks, binary ? binary : "build/ferry", args);
}

/* Runs the command with stderr in work_dir/stderr. Returns the exit code. */
static inline int ranks_wait(const char *command)
{
	return run_wait(run_start(command));
}

/* Runs `odd` as this rank and `others` as the other ones, each a command of the shell. mpirun starts one
 * script for all, which asks for its rank: that of Open MPI 5.0.7 dies if it is to start several programs. */
static inline int ranks_wait_apart(int ranks, int odd_rank, const char *odd, const char *others)
{
	char command[1000];

	write_file("apart", "if [ \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = %d ]; then\n%s\nelse\n%s\nfi\n",
	        odd_rank, odd, others);
	snprintf(command, sizeof(command), "%s --oversubscribe --bind-to none -n %d sh %s/apart", launcher,
	        ranks, work_dir);
	return ranks_wait(command);
}

#define assert_ranks(code, ranks, ...)                                                                       \
	do {                                                                                                 \
		char command_[4096];                                                                         \
		int got_;                                                                                    \
		ranks_command(command_, sizeof(command_), ranks, __VA_ARGS__);                               \
		got_ = ranks_wait(command_);                                                                 \
		if (got_ != (code))                                                                          \
			fail_msg("%s\nexit code %d, expected %d: %s", command_, got_, (code), ferry_said()); \
	} while (0)

/* Each step has twelve rows, for any number of ranks. The last step of an epoch has fewer, and some ranks
 * have none. */
#define TWELVE_ROWS                                                                                          \
	"learning_rate=1e-3 weight_decay=0.1 lr_scheduler_type=cosine warmup_steps=1 threads=1 "             \
	"compute_dtype=fp32 export_dtype=fp32 overwrite_output_dir=on "

static inline void train_twelve(int ranks, const struct run_model *m, const char *out, const char *more)
{
	assert_ranks(0, ranks,
	        "train model=%s data=%s output_dir=%s/%s gradient_accumulation_steps=%d " TWELVE_ROWS "%s%s",
	        m->dir, m->data, work_dir, out, 12 / ranks,
	        strstr(more, "vram_budget=") ? "" : "vram_budget=off " /* cpu_offload=auto is on */, more);
}

/* A number of each row of metrics.jsonl (mem_free); skips rows without it. */
static inline double *run_values(const char *name, const char *key, int *count)
{
	char path[400], *text, *at, *end;
	double *values;
	size_t len;

	snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", work_dir, name);
	text = at = read_file(path, &len);
	values = mem_alloc(len, sizeof(*values));
	assert_non_null(values);
	*count = 0;
	while ((end = memchr(at, '\n', len - (size_t)(at - text)))) {
		const json_t *value;
		json_t *row;

		assert_int_equal(json_parse(&row, path, at, (size_t)(end - at)), 0);
		value = json_object_get(row, key);
		if (value) {
			assert_true(json_is_number(value)); /* null: it was not finite */
			values[(*count)++] = json_number_value(value);
		}
		json_decref(row);
		at = end + 1;
	}
	mem_free(text);
	return values;
}

/* Compares losses, norms and eval losses of two runs; b begins `skipped` rows later. They may differ as
 * much as another order of sums makes them. */
static inline void assert_near_tail(
        const char *a, const char *b, int skipped, double tolerance, const char *why)
{
	static const char *const keys[] = {"loss", "grad_norm", "eval_loss", "target_tokens", "tokens"};

	for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
		int a_count, b_count;
		double *one = run_values(a, keys[k], &a_count), *two = run_values(b, keys[k], &b_count);

		int first = a_count < skipped ? a_count : skipped;

		if (a_count - first != b_count || (k == 0 && !b_count))
			fail_msg("%s: %d and %d rows with %s", why, a_count, b_count, keys[k]);
		for (int i = 0; i < b_count; i++)
			if (!(fabs(one[first + i] - two[i]) <= tolerance * fabs(two[i])))
				fail_msg("%s: %s %d is %.9g and %.9g", why, keys[k], i, one[first + i],
				        two[i]);
		mem_free(one);
		mem_free(two);
	}
}

static inline void assert_near_runs(const char *a, const char *b, double tolerance, const char *why)
{
	assert_near_tail(a, b, 0, tolerance, why);
}

#endif
