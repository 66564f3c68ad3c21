/* links: comm */
/* also: tsan */

/* Ranks that fail, die, stop or leave, and the errors that the other ranks get. */
#include "tests/link_job.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- in a rank ---- */

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
		struct link_part part = {LINK_SEND, 0, mem_alloc(1, 100000), 100000};

		must(part.values);
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

static void die_early(int of)
{
	if (of == 1)
		raise(SIGKILL);
}

/* The process that starts the ranks is killed while it does so. */
static void kill_parent(int of)
{
	if (of != 1)
		return;
	kill(getppid(), SIGKILL);
	_exit(0);
}

/* Never comes here: one rank dies before the ranks' start, and the others hear of it there. */
static void run_early(void)
{
	must(!"all ranks came");
}

/* In its look at the others this rank is held until another one has told, and for so long more. */
static int is_held, held_more_ms;

int fcntl(int fd, int command, ...)
{
	struct err failure;
	va_list ap;
	void *value;
	int of;

	va_start(ap, command);
	value = va_arg(ap, void *);
	va_end(ap);
	if (command == F_GETLK && is_held) {
		is_held = 0;
		while (!heartbeat_hear(&of, &failure))
			usleep(1000);
		usleep((useconds_t)held_more_ms * 1000);
	}
	return (int)syscall(SYS_fcntl, fd, command, value);
}

/* Rank 2 stops, and both others find that out for themselves. */
static void judge(int more_ms)
{
	int pid = 0;

	if (rank == 2)
		raise(SIGSTOP);
	is_held = !rank;
	held_more_ms = more_ms;
	world_set_patience(1);
	must(world_agree(0) == ERR_DEVICE);
	must(sscanf(strstr(err_text(), "rank 2 ("), "rank 2 (process %d) has not moved", &pid) == 1);
	must(world_end(ERR_DEVICE, report, NULL) == ERR_DEVICE);
	kill(pid, SIGKILL);
}

static void run_judged(void)
{
	judge(0);
}

/* After rank 1 has given rank 0 up. */
static void run_judged_late(void)
{
	judge(2000);
}

static void end_by(int code)
{
	must(world_end(code, report, NULL) == code);
	world_leave();
}

/* Returns when all ranks have come here, also where one that goes on has failed since. */
static void meet(void)
{
	unsigned char here = 1;
	struct link *link;

	must(!link_open(&link, 0, 1, size));
	for (int way = 0; way < 2; way++) /* to rank 0, and back */
		for (int r = 1; r < size; r++) {
			enum link_way own = way == !rank ? LINK_SEND : LINK_RECEIVE;

			if (!rank || r == rank)
				must(!link_exchange_last(link,
				        &(struct link_part){own, rank ? 0 : r, &here, 1}, 1, 60000000000));
		}
}

/* Two errors, the words of one in those of the other. */
static void run_two(void)
{
	int rc;

	meet();
	if (rank == 1)
		rc = world_agree(0);
	else
		rc = err_set(ERR_IO, rank ? "no room" : "no room for rows");
	must(rc == ERR_IO);
	end_by(rc);
}

/* The same error on all ranks, each for itself. */
static void run_alike(void)
{
	int rc = world_agree(err_set(ERR_IO, "no room"));

	must(rc == ERR_IO && !strcmp(err_text(), "no room"));
	end_by(rc);
}

/* After one agreement another on an error that quotes the first; then nested ones on it, in other words. */
static void run_again(void)
{
	must(world_agree(rank ? 0 : err_set(ERR_INPUT, "no room")) == ERR_INPUT);
	must(world_agree(rank ? 0 : err_set(ERR_IO, "again no room")) == ERR_IO);
	must(strstr(err_text(), "again no room"));
	must(world_agree(err_reword(ERR_IO, "%s; free some", rank ? "nothing" : err_text())) == ERR_IO);
	end_by(ERR_IO);
}

static void run_peace(void)
{
	must(!world_agree(0));
}

static const struct scenario scenarios[] = {{"fails", run_fails, 0, NULL}, {"dies", run_dies, 0, NULL},
        {"leaves", run_leaves, 0, NULL}, {"early", run_early, 0, die_early},
        {"orphans", run_early, 0, kill_parent}, {"judged", run_judged, 0, NULL},
        {"judged late", run_judged_late, 0, NULL}, {"two", run_two, 0, NULL}, {"alike", run_alike, 0, NULL},
        {"again", run_again, 0, NULL}, {"peace", run_peace, 1, NULL}};

/* ---- the test ---- */

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

/* One of the ranks tells of it, however many have found it out. */
static void test_judged(void **state)
{
	static const char *const jobs[] = {"judged", "judged late"};
	char told[] = "/tmp/ferry-told-XXXXXX", line[ERR_TEXT_BYTES], text[ERR_TEXT_BYTES];

	(void)state;
	for (int i = 0; i < 2; i++) {
		FILE *f = fdopen(mkstemp(memcpy(told, "/tmp/ferry-told-XXXXXX", sizeof(told))), "r");
		int count = 0;

		setenv(TOLD, told, 1);
		assert_int_equal(job_run("local", jobs[i], 3, text), 1);
		while (fgets(line, sizeof(line), f)) {
			assert_non_null(strstr(line, "rank 2 (process "));
			count++;
		}
		fclose(f);
		unlink(told);
		unsetenv(TOLD);
		assert_int_equal(count, 1);
	}
}

/* Each error is printed once, and none is lost. */
static void test_told(void **state)
{
	static const struct {
		const char *job, *told;
	} jobs[] = {
	        {"two", "no room for rows\nno room\n"},
	        {"alike", "no room\n"},
	        {"again", "again no room; free some\n"},
	};
	char text[ERR_TEXT_BYTES], told[] = "/tmp/ferry-told-XXXXXX";

	(void)state;
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++)
		for (int by = 0; by < 2; by++) {
			FILE *f = fdopen(mkstemp(memcpy(told, "/tmp/ferry-told-XXXXXX", sizeof(told))), "r");
			size_t len;

			setenv(TOLD, told, 1);
			if (!by || mpirun())
				(void)job_run(by ? mpirun() : "local", jobs[i].job, 3, text);
			len = fread(text, 1, sizeof(text) - 1, f);
			text[len] = 0;
			fclose(f);
			unlink(told);
			unsetenv(TOLD);
			if (!by || mpirun())
				assert_string_equal(text, jobs[i].told);
		}
}

/* Runs in a child process. */
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
	int fd = memfd_create("another's", 0);
	char number[12], text[8];

	setenv(LOCAL_JOB_RANK, "0", 1);
	setenv(LOCAL_JOB_SIZE, "2", 1);
	setenv(LOCAL_JOB_KEY, "1-1", 1);
	setenv(LOCAL_JOB_SOCKETS, "-1,0", 1);
	snprintf(number, sizeof(number), "%d", fd);
	setenv(LOCAL_JOB_HEART, number, 1);
	return write(fd, "kept", 4) != 4 || world_start(&join) != ERR_DEVICE ||
	       !strstr(err_text(), "FERRY_LOCAL_RANK is set") || pread(fd, text, sizeof(text), 0) != 4 ||
	       memcmp(text, "kept", 4);
}

static int start_with_few_files(void)
{
	char *const argv[] = {self, "peace", NULL};
	struct rlimit few = {24, 24};
	struct local_job_end end;

	return setrlimit(RLIMIT_NOFILE, &few) || local_job_run(&end, 8, argv) != ERR_DEVICE ||
	       !strstr(err_text(), "cannot make a socket between ranks ") || waitpid(-1, NULL, WNOHANG) >= 0;
}

/* A job that cannot start leaves nothing. */
static void test_not_started(void **state)
{
	char text[ERR_TEXT_BYTES];

	(void)state;
	assert_int_equal(job_run("local", "peace", 5000, text), 7);
	assert_non_null(strstr(text, "ranks=5000: at most 1024"));
	assert_child(start_by_stale_words);
	assert_child(start_with_few_files);
}

/* Ranks share memory without a name, however they end: looked for in a /dev/shm of this test's own. */
static int nothing_is_left(void)
{
	static const char *const jobs[] = {"peace", "dies", "leaves", "early", "orphans"};
	char text[ERR_TEXT_BYTES], **names = NULL;
	size_t count = 0;

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	        mount("shm", "/dev/shm", "tmpfs", 0, "mode=777"))
		return 77;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (size_t i = 0; i < sizeof(jobs) / sizeof(*jobs); i++) {
		(void)job_run("local", jobs[i], 3, text);
		while (wait(NULL) > 0) /* for ranks without their parent */
			;
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
		print_message("SKIPPED test_comm_fail: no mount namespaces here\n");
		skip();
	}
	assert_int_equal(status, 0);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_fails),
	        cmocka_unit_test(test_dies),
	        cmocka_unit_test(test_judged),
	        cmocka_unit_test(test_told),
	        cmocka_unit_test(test_not_started),
	        cmocka_unit_test(test_nothing_is_left),
	};

	if (argc > 1)
		return rank_main(scenarios, sizeof(scenarios) / sizeof(*scenarios), argv[1]);
	link_job_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
