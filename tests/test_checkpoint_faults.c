/* links: checkpoint */
/* Checkpoints with failing calls, failing allocations, flipped bits, truncated files and killed processes. */
#include "base/log.h"
#include "tests/checkpoint_fixture.h"
#include "tests/sparing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <xxhash.h>

/* Short by default; scripts/campaign_checkpoint.sh sets the environment for long ones. */
static int64_t campaign(const char *name, int64_t usual)
{
	const char *value = getenv(name);

	usual = (usual + sparing(4) - 1) / sparing(4);
	return value && *value ? strtoll(value, NULL, 10) : usual;
}

static uint64_t seed(void)
{
	return (uint64_t)campaign("FERRY_CAMPAIGN_SEED", 1);
}

static char *dir, *files;

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	files = fixture_model_files(dir);
	return err;
}

static int remove_dir(void **state)
{
	mem_free(files);
	return check_dir_remove(state);
}

static int disarm(void **state)
{
	(void)state;
	file_hook_set(NULL, NULL);
	mem_fault_arm(0, MEM_FAULT_ONCE);
	return 0;
}

/* ---- a system call fails ---- */

struct fault {
	int64_t countdown; /* the call that fails first */
	int answer;        /* errno or FILE_HOOK_SHORT */
	int forever;
	int only_writing; /* calls that need room on the disk */
	int fired;
};

static int fault_hook(void *context, const struct file_call *call)
{
	struct fault *fault = context;

	if (fault->only_writing && call->kind != FILE_CALL_CREATE && call->kind != FILE_CALL_WRITE &&
	        call->kind != FILE_CALL_RESERVE && call->kind != FILE_CALL_SYNC &&
	        call->kind != FILE_CALL_MKDIR && call->kind != FILE_CALL_RENAME)
		return 0;
	if (fault->countdown > 0 && --fault->countdown)
		return 0;
	if (fault->fired && !fault->forever)
		return 0;
	fault->fired = 1;
	return fault->answer;
}

static const struct {
	const char *name;
	int answer, forever, only_writing;
} fault_kinds[] = {
        {"EIO once", EIO, 0, 0},
        {"EIO for ever", EIO, 1, 0},
        {"ENOSPC once", ENOSPC, 0, 0},
        {"disk full from here", ENOSPC, 1, 1},
        {"EDQUOT once", EDQUOT, 0, 0},
        {"quota exceeded from here", EDQUOT, 1, 1},
        {"EINTR once", EINTR, 0, 0},
        {"a short transfer", FILE_HOOK_SHORT, 0, 0},
        {"short transfers from here", FILE_HOOK_SHORT, 1, 0},
};
enum { FAULT_KINDS = sizeof(fault_kinds) / sizeof(*fault_kinds) };

static void check_clean(int code, const char *kind, int64_t n)
{
	if (code == ERR_IO || code == ERR_INPUT) {
		if (strlen(err_text()) > 10)
			return;
	}
	print_error("%s at call %" PRId64 ": code %d, text \"%s\"\n", kind, n, code, err_text());
	fail();
}

/* Every call in a campaign; one of a few, another one each time, in the usual test. */
static int64_t stride(int64_t usual)
{
	if (getenv("FERRY_CAMPAIGN_SEED"))
		return 1;
	return usual * sparing(3);
}

/* A checkpoint stands; saving the next with a fault at call n; the old or the new one loads, whole. */
static void each_call_of_a_save_fails(void **state)
{
	char *out = fixture_sub_dir(dir, "faults");
	int64_t total = 0, step = 1;

	(void)state;
	check_ok(fixture_save(out, files, step, 0));
	for (int k = 0; k < FAULT_KINDS; k++) {
		struct fault fault = {.fired = 1};
		int64_t n;

		for (n = 1 + k % stride(3); fault.fired; n += stride(k % 4 ? 3 : 1)) {
			int opened = fixture_open_files(), code;
			int64_t seen;

			fault = (struct fault){n, fault_kinds[k].answer, fault_kinds[k].forever,
			        fault_kinds[k].only_writing, 0};
			file_hook_set(fault_hook, &fault);
			code = fixture_save(out, files, step + 1, 1);
			file_hook_set(NULL, NULL);
			if (code)
				check_clean(code, fault_kinds[k].name, n);
			assert_int_equal(fixture_open_files(), opened);
			check_ok(fixture_load_newest(&seen, out));
			assert_true(seen == step + 1 || (code && seen == step));
			if (code && fault_kinds[k].only_writing) /* the room is given back */
				assert_int_equal(fixture_names_with(out, ".tmp"), 0);
			step += 2;
			check_ok(fixture_save(out, files, step, 1)); /* over the leftovers */
			check_ok(fixture_load_newest(&seen, out));
			assert_int_equal(seen, step);
			assert_int_equal(fixture_names_with(out, ""), 1);
			total++;
		}
		assert_true(n > 20);
	}
	print_message("%" PRId64 " faults in saves\n", total);
	mem_free(out);
}

/* Loading the newest of two: it, or an error; never the older one, never nothing. */
static void each_call_of_a_load_fails(void **state)
{
	char *out = fixture_sub_dir(dir, "load-faults");
	int64_t total = 0;

	(void)state;
	check_ok(fixture_save(out, files, 1, 0));
	check_ok(fixture_save(out, files, 2, 0));
	for (int k = 0; k < FAULT_KINDS; k++) {
		struct fault fault = {.fired = 1};
		int64_t n, step;

		for (n = 1; fault.fired; n++) {
			int opened = fixture_open_files(), code;

			fault = (struct fault){n, fault_kinds[k].answer, fault_kinds[k].forever,
			        fault_kinds[k].only_writing, 0};
			file_hook_set(fault_hook, &fault);
			code = fixture_load_newest(&step, out);
			file_hook_set(NULL, NULL);
			if (code)
				check_clean(code, fault_kinds[k].name, n);
			else
				assert_int_equal(step, 2);
			assert_int_equal(fixture_open_files(), opened);
		}
		total += n - 1;
		assert_true(n > (fault_kinds[k].only_writing ? 0 : 8));
	}
	print_message("%" PRId64 " faults in loads\n", total);
	mem_free(out);
}

/* ---- memory runs out ---- */

static void each_allocation_fails(void **state)
{
	char *out = fixture_sub_dir(dir, "memory");
	int64_t total = 0;

	(void)state;
	check_ok(fixture_save(out, files, 1, 0));
	for (int forever = 0; forever < 2; forever++) {
		int64_t n = 0, requests, step;
		int opened = fixture_open_files(), code;

		do { /* the world of one: save, rotate, find, load */
			n += stride(5);
			mem_fault_arm(n, forever ? MEM_FAULT_FOREVER : MEM_FAULT_ONCE);
			code = fixture_save(out, files, 2, 2);
			if (!code)
				code = fixture_load_newest(&step, out);
			requests = mem_fault_arm(0, MEM_FAULT_ONCE);
			if (code)
				check_fails(code, ERR_NOMEM, "out of memory");
			assert_int_equal(fixture_open_files(), opened);
			check_ok(fixture_load_newest(&step, out));
			assert_true(step == 1 || step == 2);
			total++;
		} while (requests >= n);
		assert_true(n > 100);
	}
	print_message("%" PRId64 " failed allocations\n", total);
	mem_free(out);
}

/* ---- damaged bytes ---- */

static const char *const checkpoint_files[] = {
        "manifest.json", "rank-00000.safetensors", "hf/config.json", "hf/tokenizer.json"};

static int load_path(const char *path)
{
	struct model model = fixture_model(0);
	struct fixture_planes planes = {.model = &model};
	struct plane_sink sink = fixture_sink(&planes);
	struct checkpoint *checkpoint;
	int err = checkpoint_open(&checkpoint, path);

	if (!err)
		err = checkpoint_load(checkpoint, &sink, NULL, 0, NULL);
	if (!err)
		assert_int_equal(fixture_differ(&planes, 1), 0);
	checkpoint_close(checkpoint);
	return err;
}

static void flip(const char *path, uint64_t bit)
{
	unsigned char byte;
	int fd = open(path, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
	byte ^= (unsigned char)(1u << bit % 8);
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
	close(fd);
}

static void flipped_bits(void **state)
{
	char *out = fixture_sub_dir(dir, "flips"), *path = file_join(out, "checkpoint-000001");
	int64_t count = campaign("FERRY_CAMPAIGN_FLIPS", 400), by_load = 0;

	(void)state;
	check_ok(fixture_save(out, files, 1, 0));
	for (int64_t i = 0; i < count; i++) {
		const char *name = checkpoint_files[rng_below(seed(), 1, (uint64_t)i, 4)];
		char *file = file_join(path, name);
		struct stat st;
		uint64_t bit;
		int code;

		assert_int_equal(stat(file, &st), 0);
		bit = rng_below(seed(), 2, (uint64_t)i, (uint64_t)st.st_size * 8);
		flip(file, bit);
		code = checkpoint_verify(path, NULL, NULL);
		if (code != ERR_INPUT || !strstr(err_text(), name)) {
			print_error("bit %" PRIu64 " of %s: code %d, \"%s\"\n", bit, name, code, err_text());
			fail();
		}
		code = load_path(path); /* never wrong content: checked inside */
		by_load += code != 0;
		assert_true(code || name[0] == 'h');
		flip(file, bit);
		mem_free(file);
	}
	check_ok(checkpoint_verify(path, NULL, NULL));
	print_message(
	        "%" PRId64 " flipped bits, all found; %" PRId64 " of them by loading too\n", count, by_load);
	mem_free(path);
	mem_free(out);
}

/* A manifest that was changed and given the right checksum again: refused, or harmless. */
static void manifests_with_a_right_checksum(void **state)
{
	static const char alphabet[] = "{}[],:\"\\0123456789eE.-_ abhilmov/\x80";
	char *out = fixture_sub_dir(dir, "hostile"), *path = file_join(out, "checkpoint-000001");
	char *file = file_join(path, "manifest.json"), *text, *copy;
	int64_t count = campaign("FERRY_CAMPAIGN_FLIPS", 2000), opened = 0;
	size_t len, body;

	(void)state;
	check_ok(fixture_save(out, files, 1, 0));
	check_ok(file_read_all(file, 1 << 20, &text, &len));
	body = (size_t)(strstr(text, " \"checksum\"") - text);
	copy = mem_alloc(len + 1, 1);
	for (int64_t i = 0; i < count; i++) {
		struct checkpoint *checkpoint;
		FILE *f = fopen(file, "wb");
		int code;

		memcpy(copy, text, len);
		for (uint64_t n = 0; n <= rng_below(seed(), 20, (uint64_t)i, 3); n++) {
			uint64_t at = rng_below(seed(), 21 + n, (uint64_t)i, body);

			copy[at] = alphabet[rng_below(seed(), 31 + n, (uint64_t)i, sizeof(alphabet) - 1)];
		}
		fwrite(copy, 1, body, f);
		fprintf(f, " \"checksum\": \"xxh3-64:%016" PRIx64 "\"\n}\n",
		        (uint64_t)XXH3_64bits(copy, body));
		fclose(f);
		code = checkpoint_open(&checkpoint, path);
		assert_true(code == 0 || code == ERR_INPUT || code == ERR_UNSUPPORTED);
		if (code)
			assert_non_null(strstr(err_text(), "/checkpoint-000001"));
		opened += !code;
		checkpoint_close(checkpoint);
	}
	print_message("%" PRId64 " changed manifests, %" PRId64 " of them open\n", count, opened);
	mem_free(text);
	mem_free(copy);
	mem_free(file);
	mem_free(path);
	mem_free(out);
}

static void cut_and_missing_files(void **state)
{
	char *out = fixture_sub_dir(dir, "cut"), *path = file_join(out, "checkpoint-000001");
	int64_t step;

	(void)state;
	check_ok(fixture_save(out, files, 1, 0));
	for (int f = 0; f < 4; f++) {
		char *file = file_join(path, checkpoint_files[f]), *bytes;
		size_t len;

		check_ok(file_read_all(file, 1 << 20, &bytes, &len));
		for (size_t keep = 0; keep <= len + 1; keep += keep + 40 < len ? 37 : 1) {
			if (keep == len)
				continue;
			assert_int_equal(truncate(file, (off_t)keep), 0);
			check_fails(checkpoint_verify(path, NULL, NULL), ERR_INPUT, checkpoint_files[f]);
			assert_true(load_path(path) != 0);
			check_ok(fixture_load_newest(&step, out));
			assert_int_equal(step, 0);
			check_ok(file_write_all(file, bytes, len));
		}
		check_ok(file_remove_tree(file));
		assert_true(load_path(path) == ERR_INPUT && checkpoint_verify(path, NULL, NULL) == ERR_INPUT);
		check_ok(file_write_all(file, bytes, len));
		check_ok(load_path(path));
		mem_free(bytes);
		mem_free(file);
	}
	mem_free(path);
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

/* Saves one step after another and reports each, until it is killed: by itself before its n-th system call,
 * or (n = 0) from outside. */
static void save_until_killed(const char *out, int64_t step, int64_t n, int report)
{
	if (n)
		file_hook_set(kill_hook, &n);
	for (;;) {
		step++;
		if (fixture_save(out, files, step, 2) || write(report, &step, sizeof(step)) != sizeof(step))
			_exit(1);
	}
}

static void killed_at_any_moment(void **state)
{
	char *out = fixture_sub_dir(dir, "kills");
	int64_t count = campaign("FERRY_CAMPAIGN_KILLS", 120), last = 0, partial = 0, newer = 0;

	(void)state;
	for (int64_t i = 0; i < count; i++) {
		int64_t n = i % 2 ? 0 : (int64_t)rng_below(seed(), 3, (uint64_t)i, 150) + 1, step,
		        reported = last;
		struct timespec delay = {0, (long)rng_below(seed(), 4, (uint64_t)i, 8000000)};
		int pipes[2], status;
		pid_t pid;

		assert_int_equal(pipe(pipes), 0);
		pid = fork();
		if (!pid) {
			close(pipes[0]);
			save_until_killed(out, last, n, pipes[1]);
		}
		close(pipes[1]);
		if (!n) {
			nanosleep(&delay, NULL);
			kill(pid, SIGKILL);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		while (read(pipes[0], &step, sizeof(step)) == sizeof(step))
			reported = step;
		close(pipes[0]);
		partial += fixture_names_with(out, ".tmp") > 0;
		if (reported || fixture_names_with(out, "checkpoint-"))
			check_ok(fixture_load_newest(&last, out)); /* whole, and of its step */
		assert_true(last >= reported && last <= reported + 1);
		newer += last > reported;
		/* and every directory of a checkpoint's name is one */
		for (int64_t s = last > 3 ? last - 3 : 0; s <= last; s++) {
			char name[64], *path;

			snprintf(name, sizeof(name), "checkpoint-%06" PRId64, s);
			path = file_join(out, name);
			if (file_kind_of(path) == FILE_DIR)
				check_ok(checkpoint_verify(path, NULL, NULL));
			mem_free(path);
		}
	}
	check_ok(fixture_save(out, files, last + 1, 2));
	assert_int_equal(fixture_names_with(out, ".tmp"), 0);
	print_message("%" PRId64 " kills: %" PRId64 " steps saved, %" PRId64
	              " kills left a temporary directory, %" PRId64 " fell between commit and report\n",
	        count, last, partial, newer);
	assert_true(partial > count / 10);
	mem_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test_teardown(each_call_of_a_save_fails, disarm),
	        cmocka_unit_test_teardown(each_call_of_a_load_fails, disarm),
	        cmocka_unit_test_teardown(each_allocation_fails, disarm),
	        cmocka_unit_test(flipped_bits),
	        cmocka_unit_test(manifests_with_a_right_checksum),
	        cmocka_unit_test(cut_and_missing_files),
	        cmocka_unit_test(killed_at_any_moment),
	};

	return cmocka_run_group_tests_name("checkpoint_faults", tests, make_dir, remove_dir);
}
