/* links: base */
/* not: asan */
/* Its own memory does not fit in the small stacks. */
/* Limits and sandboxes around the program: each gives a result or a word, never a crash or an endless loop.
 */
#include "tests/ferry_run.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void limit(int resource, rlim_t most)
{
	struct rlimit l = {most, most};

	if (setrlimit(resource, &l))
		_exit(125);
}

static void limit_stack(int kib)
{
	limit(RLIMIT_STACK, (rlim_t)kib << 10);
}

static void limit_files(int count)
{
	limit(RLIMIT_NOFILE, (rlim_t)count);
}

/* The kernel answers sched_getaffinity with this error, as in some sandboxes. */
static void refuse_affinity(int error)
{
	struct sock_filter rules[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_getaffinity, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(125);
}

/* Runs "ferry VERB ARG" under a limit, for at most 30 s. Returns its exit code. 125: the limit cannot be set
 * here. */
static int run_limited(void (*restrain)(int), int value, const char *verb, const char *arg)
{
	const char *binary = getenv("FERRY_BINARY");
	char path[300];
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		snprintf(path, sizeof(path), "%s/stderr", work_dir);
		assert_non_null(freopen(path, "w", stderr));
		assert_non_null(freopen("/dev/null", "w", stdout));
		restrain(value);
		alarm(30);
		execl(binary, binary, verb, arg, NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_affinity(void **state)
{
	static const int errors[] = {1 /* EPERM */, 38 /* ENOSYS */};

	(void)state;
	for (int i = 0; i < 2; i++) {
		int code = run_limited(refuse_affinity, errors[i], "topo", "--json");

		if (code == 125)
			print_message("SKIPPED test_cli_limits: no seccomp here\n");
		else if (code)
			fail_msg("exit code %d: %s", code, ferry_said());
	}
}

/* With the right to raise limits it goes on; else it says what to do. With 64 KiB a thread that UCX 1.18
 * starts before main() ends the process. */
static void test_stack(void **state)
{
	(void)state;
	for (int kib = 128; kib <= 2048; kib *= 2) {
		int code = run_limited(limit_stack, kib, "topo", "--json");

		if (code && (code != 5 || kib >= 1024 || !strstr(ferry_said(), "ulimit -s 8192")))
			fail_msg("%d KiB: exit code %d: %s", kib, code, ferry_said());
	}
}

static void test_files(void **state)
{
	char model[300];
	int code;

	(void)state;
	snprintf(model, sizeof(model), "%s/model.json", work_dir);
	assert_int_equal(file_write_all(model,
	                         "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_layer\":20,\"n_head\":2}", 57),
	        0);
	assert_ferry(0, NULL, "init config=%s output_dir=%s/shards max_shard_size=2KB", model, work_dir);
	snprintf(model, sizeof(model), "%s/shards", work_dir);
	code = run_limited(limit_files, 40, "inspect", model);
	if (code && !strstr(ferry_said(), "Too many open files; allow more with ulimit -n"))
		fail_msg("exit code %d: %s", code, ferry_said());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_affinity),
	        cmocka_unit_test(test_stack),
	        cmocka_unit_test(test_files),
	};
	int failed;

	ferry_run_begin("limits");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
