/* links: comm */
/* also: tsan */

/* Links between real ranks, by MPI and by sockets: every kind of message, many at once, large ones, some that
 * nobody takes, ranks that fail, die or leave. The ranks are this very program: "PROGRAM SCENARIO". */
#include "tests/check.h"
#include "tests/sparing.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/num.h"
#include "comm/launch.h"
#include "comm/link.h"
#include "comm/local_job.h"
#include "comm/world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in a rank ---- */

static int rank, size;

#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "rank %d of %d, line %d: %s: %s\n", rank, size, __LINE__,            \
			        #condition, err_text());                                                     \
			fflush(NULL);                                                                        \
			_exit(9);                                                                            \
		}                                                                                            \
	} while (0)

enum { BLOCK_BYTES = 4096 };

/* Of a message between the two: no block is like another. */
static void block_make(unsigned char *block, int from, int to, int what, int64_t number)
{
	for (int i = 0; i < BLOCK_BYTES && number == 0; i++)
		block[i] = (unsigned char)(i * 131 + i / 251 + from * 17 + to * 29 + what * 7);
	memcpy(block, &number, sizeof(number));
	block[1 + sizeof(number)] ^= (unsigned char)what;
}

static int64_t block_bytes(int64_t bytes, int64_t at)
{
	return bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
}

static unsigned char *message_make(int from, int to, int64_t bytes, int what)
{
	unsigned char *values = mem_alloc((size_t)bytes + 1, 1), block[BLOCK_BYTES];

	must(values);
	for (int64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		block_make(block, from, to, what, at / BLOCK_BYTES);
		memcpy(values + at, block, (size_t)block_bytes(bytes, at));
	}
	return values;
}

static void message_check(const unsigned char *values, int from, int to, int64_t bytes, int what)
{
	unsigned char block[BLOCK_BYTES];

	for (int64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		block_make(block, from, to, what, at / BLOCK_BYTES);
		must(!memcmp(values + at, block, (size_t)block_bytes(bytes, at)));
	}
}

/* All send to all, several messages of different lengths each way, receives in front of and behind sends. */
static void all_to_all(struct link *link, const int64_t *lengths, int kinds)
{
	int self = link_rank(link), all = link_size(link), count = 0;
	struct link_part *parts = mem_alloc((size_t)(all * kinds * 2), sizeof(*parts));

	must(parts);
	for (int k = 0; k < kinds; k++)
		for (int step = 1; step < all; step++) {
			int to = (self + step) % all, from = (self + all - step) % all;

			parts[count++] = (struct link_part){
			        LINK_SEND, to, message_make(self, to, lengths[k], k), lengths[k]};
			parts[count++] = (struct link_part){
			        LINK_RECEIVE, from, mem_alloc((size_t)lengths[k] + 1, 1), lengths[k]};
			must(parts[count - 1].values);
		}
	must(!link_exchange(link, parts, count));
	for (int i = 0; i < count; i++) {
		int kind = all > 1 ? i / (2 * (all - 1)) : 0;

		if (parts[i].way == LINK_RECEIVE)
			message_check(parts[i].values, parts[i].peer, self, lengths[kind], kind);
		mem_free(parts[i].values);
	}
	mem_free(parts);
}

static void sums_check(struct link *link)
{
	double values[3], expected[3] = {0};

	for (int r = 0; r < link_size(link); r++)
		for (int i = 0; i < 3; i++) {
			double own = 1.0 / (3 + r + i) + 1e9 * (r == 1);

			if (r == link_rank(link))
				values[i] = own;
			expected[i] = r ? expected[i] + own : own;
		}
	must(!link_sum(link, values, 3));
	must(!memcmp(values, expected, sizeof(values))); /* in the order of ranks, to the bit */
}

static void broadcast_check(struct link *link)
{
	for (int root = 0; root < link_size(link); root++) {
		unsigned char *values = message_make(root, 0, 5000, link_rank(link) == root ? 1 : 2);

		must(!link_broadcast(link, values, 5000, root));
		message_check(values, root, 0, 5000, 1);
		mem_free(values);
	}
}

static struct link *beside;

/* Small exchanges while the other thread has large ones; each in its own order on each rank. */
static void *beside_run(void *unused)
{
	for (int i = 0; i < 50; i++)
		sums_check(beside);
	return unused;
}

static void run_kinds(void)
{
	static const int64_t lengths[] = {1, 0, 4096, 17, 70000, 131072, 131073, (1 << 20) + 9};
	struct link *whole, *half;
	pthread_t thread;

	if (size == 1) {
		must(world_agree(0) == 0);
		return;
	}
	must(!link_open(&whole, 0, 1, size));
	must(!link_open(&beside, 0, 1, size));
	/* those with the same remainder; one alone, too */
	must(!link_open(&half, rank % 2, 2, (size - rank % 2 + 1) / 2));
	for (int round = 0; round < 3; round++) {
		must(!pthread_create(&thread, NULL, beside_run, NULL));
		all_to_all(whole, lengths, 8);
		all_to_all(half, lengths, 3);
		must(!pthread_join(thread, NULL));
		broadcast_check(whole);
		sums_check(half);
		must(!world_agree(0));
	}
	must(world_agree(rank == size - 1 ? err_set(ERR_INPUT, "of the last") : 0) == ERR_INPUT);
	must(strstr(err_text(), "of the last"));
	link_close(half);
	link_close(beside);
	link_close(whole);
}

/* More than MPI's counts and one frame hold. */
static void run_large(void)
{
	int64_t lengths[] = {(280 << 20) + 5};
	struct link *link;

	must(!link_open(&link, 0, 1, size));
	all_to_all(link, lengths, 1);
	link_close(link);
}

/* A receive that ends without its message, which comes later and is not taken for another. */
static void run_late(void)
{
	unsigned char *sent = message_make(1, 0, 300000, 1), *came = message_make(0, 0, 300000, 2);
	struct link_part part = {rank ? LINK_SEND : LINK_RECEIVE, !rank, rank ? sent : came, 300000};
	struct link *link, *other;

	must(!link_open(&link, 0, 1, size));
	must(!link_open(&other, 0, 1, size));
	if (!rank) {
		must(link_exchange_last(link, &part, 1, 100000000) == ERR_DEVICE);
		must(strstr(err_text(), "did not answer in time"));
		message_check(came, 0, 0, 300000, 2);
	}
	must(!world_agree(0));
	if (rank) /* done where the socket took it, or dropped */
		(void)link_exchange_last(link, &part, 1, 100000000);
	broadcast_check(other);
	sums_check(other);
	if (!rank)
		message_check(came, 0, 0, 300000, 2);
	link_close(other);
	link_close(link);
	mem_free(sent);
	mem_free(came);
}

static struct link *waiting_link(int to)
{
	struct link *link;

	must(!link_open(&link, 0, 1, size));
	link_name(link, "the test");
	for (int r = 0; r < size; r++) { /* who ends here does so when all others have come from the start */
		unsigned char here = 1;

		if (r != to && rank == to)
			must(!link_exchange(link, &(struct link_part){LINK_RECEIVE, r, &here, 1}, 1));
		if (r != to && rank == r)
			must(!link_exchange(link, &(struct link_part){LINK_SEND, to, &here, 1}, 1));
	}
	return link;
}

static int receive_from(struct link *link, int peer)
{
	static unsigned char values[200000];

	return link_exchange(link, &(struct link_part){LINK_RECEIVE, peer, values, sizeof(values)}, 1);
}

/* The last rank fails while the others wait for it: all hear its words. */
static void run_fails(void)
{
	struct link *link = waiting_link(size - 1);

	if (rank == size - 1) {
		err_set(ERR_NOMEM, "no room for it");
		link_fail(ERR_NOMEM);
	} else {
		must(receive_from(link, size - 1) == ERR_NOMEM);
		must(strstr(err_text(), "no room for it"));
	}
	must(receive_from(link, 0) == ERR_NOMEM); /* links carry nothing more */
}

/* It dies while half of its message is under way. */
static void run_dies(void)
{
	struct link *link = waiting_link(1);

	if (rank == 1) {
		struct link_part part = {LINK_SEND, 0, message_make(1, 0, 100000, 0), 100000};

		if (getenv(LOCAL_JOB_RANK)) /* to MPI it were a whole one */
			must(!link_exchange_last(link, &part, 1, 60000000000));
		raise(SIGKILL);
	}
	must(receive_from(link, 1) == ERR_DEVICE);
	must(strstr(err_text(), "rank 1 ") && strstr(err_text(), " is gone"));
}

/* It goes in peace, and nobody but its socket says so. */
static void run_leaves(void)
{
	struct link *link = waiting_link(1);

	if (rank == 1) {
		heartbeat_stop();
		link_stop();
		_exit(0);
	}
	must(receive_from(link, 1) == ERR_DEVICE);
	must(strstr(err_text(), "rank 1 is gone; rank ") && strstr(err_text(), "waits for it in the test"));
}

/* Never comes here: one rank dies before the ranks' start, and the others hear of it there. */
static void run_early(void)
{
	must(!"all ranks came");
}

static void report(void *context, int of, const char *text)
{
	(void)context;
	(void)of;
	(void)text;
}

static void start_lost(int code, const char *text)
{
	fprintf(stderr, "the ranks' start: %d, %s\n", code, text);
	_exit(8);
}

static int never(void)
{
	return 0;
}

static const struct scenario {
	const char *name;
	void (*run)(void);
	int ends; /* all ranks end well, and leave together */
} scenarios[] = {{"kinds", run_kinds, 1}, {"large", run_large, 1}, {"late", run_late, 1},
        {"fails", run_fails, 0}, {"dies", run_dies, 0}, {"leaves", run_leaves, 0}, {"early", run_early, 0}};

static int rank_main(const char *name)
{
	struct heartbeat_join join = {.patience_ns = 20000000000, .lost = start_lost, .is_stopped = never};
	int rc;

	if (!strcmp(name, "early") && !strcmp(getenv(LOCAL_JOB_RANK), "1"))
		raise(SIGKILL);
	rc = world_start(&join);
	rank = world_self()->rank;
	size = world_self()->size;
	must(!rc);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		if (!strcmp(scenarios[i].name, name)) {
			scenarios[i].run();
			if (scenarios[i].ends) {
				must(world_end(0, report, NULL) == 0);
				world_leave();
			}
			fflush(NULL);
			_exit(0);
		}
	return 9;
}

/* ---- the test ---- */

static char self[400];

/* Runs a job; its exit code. What local_job says goes into `text`. */
static int job_run(const char *by, const char *scenario, int ranks, char *text)
{
	char *const argv[] = {self, (char *)scenario, NULL};
	int status = 0, pipes[2];
	struct local_job_end end;
	ssize_t len;
	pid_t pid;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid && !strcmp(by, "local")) {
		int rc = local_job_run(&end, ranks, argv);

		if ((rc || end.is_told) && write(pipes[1], err_text(), strlen(err_text())) < 0)
			_exit(7);
		_exit(rc ? 7 : end.exit_code);
	}
	if (!pid) {
		char count[12];

		snprintf(count, sizeof(count), "%d", ranks);
		execl(by, by, "--oversubscribe", "--bind-to", "none", "-n", count, self, scenario,
		        (char *)NULL);
		_exit(7);
	}
	close(pipes[1]);
	len = read(pipes[0], text, ERR_TEXT_BYTES - 1);
	text[len < 0 ? 0 : len] = 0;
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void assert_job(const char *by, const char *scenario, int ranks)
{
	char text[ERR_TEXT_BYTES];
	int code = job_run(by, scenario, ranks, text);

	if (code || *text)
		fail_msg("%s, %s, %d ranks: exit %d %s", by, scenario, ranks, code, text);
}

/* NULL: there is no MPI, or a sanitizer, under which its own start-up is not clean. */
static const char *mpirun(void)
{
	const char *launcher = SANITIZED ? NULL : getenv("FERRY_MPIRUN");

	if (launcher && *launcher)
		return launcher;
	print_message("SKIPPED by MPI: no mpirun, or a build without MPI\n");
	return NULL;
}

static void test_kinds(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= 8; ranks += SANITIZED && ranks == 3 ? 5 : 1)
		assert_job("local", "kinds", ranks);
	for (int ranks = 2; ranks <= 5 && mpirun(); ranks += 3)
		assert_job(mpirun(), "kinds", ranks);
}

static void test_large(void **state)
{
	(void)state;
	assert_job("local", "large", 2);
	if (mpirun())
		assert_job(mpirun(), "large", 2);
}

static void test_late(void **state)
{
	(void)state;
	assert_job("local", "late", 2);
	if (mpirun())
		assert_job(mpirun(), "late", 2);
}

static void test_fails(void **state)
{
	char text[ERR_TEXT_BYTES];

	(void)state;
	assert_job("local", "fails", 2);
	assert_job("local", "fails", 5);
	if (mpirun()) /* which is not glad of ranks that leave without a word */
		assert_int_equal(job_run(mpirun(), "fails", 3, text), 1);
}

/* The others see it at once, and none has to be ended by the parent; mpirun ends them at once. */
static void test_dies(void **state)
{
	char text[ERR_TEXT_BYTES];

	(void)state;
	for (int ranks = 2; ranks <= 4; ranks++) {
		assert_int_equal(job_run("local", "dies", ranks, text), 1);
		if (strncmp(text, "rank 1 (process ", 16) || !strstr(text, ") was killed by SIGKILL") ||
		        strstr(text, "did not end with the others"))
			fail_msg("said: %s", text);
	}
	assert_job("local", "leaves", 3);
	if (mpirun())
		assert_true(job_run(mpirun(), "dies", 3, text) > 0);
}

/* In a process of its own. */
static void assert_child(int (*run)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(run());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int start_by_stale_words(void)
{
	struct heartbeat_join join = {.lost = start_lost, .is_stopped = never};

	setenv(LOCAL_JOB_RANK, "0", 1);
	setenv(LOCAL_JOB_SIZE, "2", 1);
	setenv(LOCAL_JOB_KEY, "1-1", 1);
	setenv(LOCAL_JOB_SOCKETS, "-1,0", 1);
	return world_start(&join) != ERR_DEVICE || !strstr(err_text(), "FERRY_LOCAL_RANK is set");
}

static int start_with_few_files(void)
{
	char *const argv[] = {self, "kinds", NULL};
	struct rlimit few = {24, 24};
	struct local_job_end end;

	return setrlimit(RLIMIT_NOFILE, &few) || local_job_run(&end, 8, argv) != ERR_DEVICE ||
	       !strstr(err_text(), "no socket between ranks ") || waitpid(-1, NULL, WNOHANG) >= 0;
}

/* What cannot be started leaves nothing. */
static void test_not_started(void **state)
{
	char text[ERR_TEXT_BYTES];

	(void)state;
	assert_int_equal(job_run("local", "kinds", 5000, text), 7);
	assert_non_null(strstr(text, "ranks=5000: at most 1024"));
	assert_child(start_by_stale_words);
	assert_child(start_with_few_files);
}

/* What ranks find each other by has a name for a moment. It goes, however they end: looked for in a /dev/shm
 * of this test's own. */
static int nothing_is_left(void)
{
	static const char *const jobs[] = {"kinds", "dies", "leaves", "early"};
	char text[ERR_TEXT_BYTES], **names = NULL;
	size_t count = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	        mount("shm", "/dev/shm", "tmpfs", 0, "mode=777"))
		return 77;
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		(void)job_run("local", jobs[i], 3, text);
		if (file_list_dir("/dev/shm", &names, &count) || count) {
			print_error("%s leaves %zu files in /dev/shm: %s\n", jobs[i], count,
			        count ? names[0] : err_text());
			return 1;
		}
		file_list_free(names, count);
	}
	return 0;
}

static void test_nothing_is_left(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (!pid)
		_exit(nothing_is_left());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		print_message("SKIPPED: no mount namespaces here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_kinds),
	        cmocka_unit_test(test_large),
	        cmocka_unit_test(test_late),
	        cmocka_unit_test(test_fails),
	        cmocka_unit_test(test_dies),
	        cmocka_unit_test(test_not_started),
	        cmocka_unit_test(test_nothing_is_left),
	};

	if (argc > 1)
		return rank_main(argv[1]);
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	setenv("OMPI_MCA_pml", "ob1", 0);
	setenv("OMPI_MCA_btl", "self,vader", 0);
	setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
	setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
