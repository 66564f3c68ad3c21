/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Access to files: only rank 0 sees them (load=rank0_only, FULL_STATE_DICT), or all ranks see the same
 * files. Each rank starts in its own directory with relative paths, so it sees only the files of this
 * directory. */
#include "tests/ranks_run.h"

#include "tests/zeros_model.h"

#include "checkpoint/file/load_memory.h"

#include <limits.h>

static char binary[PATH_MAX];

#define SETTINGS "learning_rate=1e-3 threads=1 compute_dtype=fp32 export_dtype=fp32 save_total_limit=0 "

#define RANK0_ONLY                                                                                           \
	"train model=tiny data=rows.jsonl max_steps=4 save_steps=2 load=rank0_only "                         \
	"state_dict_type=FULL_STATE_DICT " SETTINGS

/* Rank 0 in work_dir, the others in work_dir/DIR; `other` is the program that they run. */
static int run_apart(int ranks, const char *dir, const char *other, const char *args)
{
	char *first = mem_printf("cd %s && exec %s %s", work_dir, binary, args);
	char *others = mem_printf("cd %s/%s && exec %s %s", work_dir, dir, other, args);
	int code;

	assert_true(first && others);
	code = ranks_wait_apart(ranks, 0, first, others);
	mem_free(first);
	mem_free(others);
	return code;
}

static void assert_apart(int code, int ranks, const char *args)
{
	int got = run_apart(ranks, "none", binary, args);

	if (got != code)
		fail_msg("%s\nexit code %d, expected %d: %s", args, got, code, ferry_said());
}

static void assert_said(const char *text)
{
	if (!strstr(ferry_said(), text))
		fail_msg("nothing of \"%s\" in: %s", text, ferry_said());
}

static void assert_empty(const char *name)
{
	char path[400], **names;
	size_t count;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(file_list_dir(path, &names, &count), 0);
	file_list_free(names, count);
	assert_int_equal(count, 0);
}

static void assert_same_weights_file(const char *a, const char *b)
{
	char one[400], two[400];

	snprintf(one, sizeof(one), "%s/%s/model.safetensors", work_dir, a);
	snprintf(two, sizeof(two), "%s/%s/model.safetensors", work_dir, b);
	assert_same_files(one, two, "weights as files");
}

/* The same bits as where all ranks read, from a model and from checkpoints of several ranks and of one; what
 * only rank 0 writes is what one rank exports. (More worlds and forms: test_ranks_save.c.) */
static void test_rank0_only(void **state)
{
	static const struct {
		int ranks;
		const char *settings, *from;
	} rows[] = {
	        {3, "gradient_accumulation_steps=4", "all"},
	        {4,
	                "gradient_accumulation_steps=3 sharding_strategy=HYBRID_SHARD ranks_per_node=2 "
	                "optimizer_state=8bit",
	                "first"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char args[2000];

		remove_run("all");
		remove_run("first");
		snprintf(args, sizeof(args), RANK0_ONLY "%s output_dir=first", rows[i].settings);
		assert_apart(0, rows[i].ranks, args);
		assert_ranks(0, rows[i].ranks,
		        "train model=%s/tiny data=%s/rows.jsonl max_steps=4 save_steps=2 " SETTINGS
		        "%s output_dir=%s/all",
		        work_dir, work_dir, rows[i].settings, work_dir);
		assert_same_runs("all", "first", rows[i].settings);
		assert_ferry(0, NULL, "verify %s/first", work_dir);
		assert_ferry(0, NULL,
		        "export checkpoint=%s/all/checkpoint-000002 output_dir=%s/export "
		        "overwrite_output_dir=on export_dtype=fp32",
		        work_dir, work_dir);
		assert_same_weights_file("export", "first/checkpoint-000002/hf");
		remove_run("on");
		snprintf(args, sizeof(args),
		        RANK0_ONLY "%s output_dir=on resume_from_checkpoint=%s/checkpoint-000002",
		        rows[i].settings, rows[i].from);
		assert_apart(0, rows[i].ranks, args);
		assert_same_weights_file("all/model", "on/model");
		assert_empty("none");
	}
	/* without FULL_STATE_DICT each rank writes a part: refused before the first step */
	assert_apart(2, 2, "train model=tiny data=rows.jsonl output_dir=parts load=rank0_only");
	assert_said("ferry train: rank 1: output_dir=parts: this rank does not see what rank 0 writes there");
	assert_said("state_dict_type=FULL_STATE_DICT");
	assert_empty("none");
}

/* Flips a bit of a file of a checkpoint, "RUN/checkpoint-000000/FILE": `verify` names the file and the block
 * that begins at `block_bytes`. */
static void assert_verify_names(const char *name, off_t at_bytes, int64_t block_bytes)
{
	const char *file = strchr(strchr(name, '/') + 1, '/') + 1;
	char path[400], text[200], byte = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0 && pread(fd, &byte, 1, at_bytes) == 1);
	byte ^= 16;
	assert_true(pwrite(fd, &byte, 1, at_bytes) == 1 && !close(fd));
	path[strlen(path) - strlen(file)] = 0;
	assert_int_equal(ferry_run(NULL, "verify %s --json", path), 2);
	snprintf(text, sizeof(text), "%s: byte %lld: ", file, (long long)block_bytes);
	assert_said(text);
}

/* The reader finds damage: `verify`, or rank 0 for all. */
static void test_damage(void **state)
{
	char args[1000];

	(void)state;
	assert_verify_names("all/checkpoint-000004/rank-00002.safetensors", 30000, 0);
	assert_verify_names("first/checkpoint-000004/rank-00000.safetensors", 30000, 0);
	assert_verify_names("first/checkpoint-000002/hf/model.safetensors", 30000, 0);
	snprintf(args, sizeof(args),
	        RANK0_ONLY "gradient_accumulation_steps=3 optimizer_state=8bit output_dir=damaged "
	                   "resume_from_checkpoint=all/checkpoint-000004");
	assert_apart(2, 4, args);
	assert_said("ferry train: rank 0: all/checkpoint-000004/rank-00002.safetensors: byte 0: ");
	assert_null(strstr(ferry_said(), "rank 1"));
	assert_false(run_has("damaged"));
}

/* Rows that a tokenizer makes, samples, evaluation. */
static void test_text(void **state)
{
	(void)state;
	speaker_make();
	write_file("words.jsonl", "{\"instruction\":\"Say a.\",\"input\":\"\",\"output\":\"a\"}\n"
	                          "{\"instruction\":\"Say b.\",\"input\":\"\",\"output\":\"b\"}\n"
	                          "{\"instruction\":\"Say c.\",\"input\":\"\",\"output\":\"c\"}\n");
	assert_ranks(0, 2,
	        "train model=%s/speaker data=%s/words.jsonl output_dir=%s/said max_steps=2 " SETTINGS
	        "sample_prompt='Say a.' max_new_tokens=3 eval_split=1",
	        work_dir, work_dir, work_dir);
	assert_apart(0, 2,
	        "train model=speaker data=words.jsonl output_dir=heard max_steps=2 " SETTINGS
	        "sample_prompt='Say a.' max_new_tokens=3 eval_split=1 load=rank0_only "
	        "state_dict_type=FULL_STATE_DICT");
	assert_said("step 2: Say a. ->");
	assert_same_runs("said", "heard", "a tokenizer on rank 0");
	assert_true(run_has("heard/model/tokenizer.json"));
	assert_true(run_has("heard/checkpoint-000002/hf/tokenizer.json"));
	assert_apart(0, 2, "eval model=speaker data=words.jsonl load=rank0_only");
	assert_empty("none");
}

/* ---- ranks that are not alike ---- */

/* Something of rank 1 is not rank 0's: named, and nothing is written. */
static void assert_unlike(const char *more, const char *what)
{
	char args[1000], text[300];

	snprintf(args, sizeof(args), "train model=tiny data=rows.jsonl output_dir=unlike threads=1 %s", more);
	assert_int_equal(run_apart(2, "other", binary, args), 2);
	snprintf(text, sizeof(text), "ferry train: rank 1: %s", what);
	assert_said(text);
	assert_said("rank 0 has \"");
	assert_false(run_has("unlike"));
	assert_false(run_has("other/unlike"));
}

/* Gives the other ranks a copy of rank 0's file, with `bytes` in it from there on; -1 is the end. */
static void copy_with(const char *name, long offset, const char *bytes)
{
	char from[400], to[400];
	FILE *f;

	snprintf(from, sizeof(from), "%s/%s", work_dir, name);
	snprintf(to, sizeof(to), "%s/other/%s", work_dir, name);
	assert_int_equal(file_remove_tree(to), 0);
	assert_int_equal(file_copy(from, to), 0);
	f = fopen(to, "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, offset < 0 ? offset + 1 : offset, offset < 0 ? SEEK_END : SEEK_SET), 0);
	assert_int_equal(fwrite(bytes, 1, strlen(bytes), f), strlen(bytes));
	fclose(f);
}

static void test_unlike(void **state)
{
	static const char *const copies[] = {"tiny/config.json", "tiny/model.safetensors", "rows.jsonl",
	        "saved/checkpoint-000001/manifest.json", "saved/checkpoint-000001/hf/config.json",
	        "saved/checkpoint-000001/rank-00000.safetensors"};
	char path[400], from[400], command[5000];

	(void)state;
	assert_ferry(0, NULL,
	        "train model=%s/tiny data=%s/rows.jsonl output_dir=%s/saved max_steps=1 threads=1 "
	        "gradient_accumulation_steps=2",
	        work_dir, work_dir, work_dir);
	snprintf(path, sizeof(path), "%s/other/tiny", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path, sizeof(path), "%s/other/saved/checkpoint-000001/hf", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	for (size_t i = 0; i < sizeof(copies) / sizeof(*copies); i++)
		copy_with(copies[i], 0, "");
	copy_with("tiny/config.json", -1, " \n");
	assert_unlike("", "model differs: \"config.json of the model: ");
	copy_with("tiny/config.json", 0, "");
	copy_with("tiny/model.safetensors", -20000, "x");
	assert_unlike("", "model differs: \"weights in model.safetensors: ");
	copy_with("tiny/model.safetensors", 0, "");
	copy_with("rows.jsonl", -1, "{\"input_ids\":[1,2,3]}\n");
	assert_unlike("", "data differs: \"data=rows.jsonl: 24 rows, ");
	copy_with("rows.jsonl", 0, "");
	/* the same run saved once more is another checkpoint */
	snprintf(path, sizeof(path), "%s/again", work_dir);
	assert_ferry(0, NULL,
	        "train model=%s/tiny data=%s/rows.jsonl output_dir=%s max_steps=1 threads=1 "
	        "gradient_accumulation_steps=2 learning_rate=1e-3",
	        work_dir, work_dir, path);
	for (size_t i = 3; i < sizeof(copies) / sizeof(*copies); i++) {
		snprintf(from, sizeof(from), "%s/again/%s", work_dir, copies[i] + strlen("saved/"));
		snprintf(path, sizeof(path), "%s/other/%s", work_dir, copies[i]);
		assert_int_equal(file_remove_tree(path), 0);
		assert_int_equal(file_copy(from, path), 0);
	}
	assert_unlike("resume_from_checkpoint=saved/checkpoint-000001",
	        "checkpoint differs: \"manifest of the checkpoint of step 1: ");
	/* a build that differs in its last byte */
	snprintf(path, sizeof(path), "%s/ferry", work_dir);
	assert_int_equal(file_copy(binary, path), 0);
	snprintf(command, sizeof(command), "printf x >>%s && chmod +x %s", path, path);
	assert_int_equal(system(command), 0);
	assert_int_equal(run_apart(2, ".", path, "eval model=tiny data=rows.jsonl"), 2);
	assert_said("ferry eval: rank 1: program differs: \"version ");
}

/* ---- memory ---- */

/* A rank uses load_memory_bytes above its share and above a process that loads nothing. MPI and the
 * allocator add memory for messages of such sizes, and the share ends within a huge page. FERRY_RANKS_MIB
 * sets the size of the model. */
enum { RANKS = 4, THREADS = 1, MESSAGES_MIB = 4, HUGE_PAGE_MIB = 2, SAVING_MIB = 64 };

/* The bound for work_dir/NAME where rank 0 reads for all, or each rank its own (docs/design/memory.md). */
static double bound_mib(const char *name, double plane_mib, int reads_for_all)
{
	struct load_memory load = {.workers = THREADS,
	        .plane_bytes = (int64_t)(plane_mib * 0x1p20) / (reads_for_all ? 1 : RANKS),
	        .shards = reads_for_all ? RANKS : 1,
	        .receivers = reads_for_all};
	struct model *model;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, name);
	assert_int_equal(model_open_path(&model, path), 0);
	load.tensor_count = model->tensor_count;
	model_close(model);
	return (double)load_memory_bytes(&load) / 0x1p20;
}

/* The most that a rank had resident when its weights were loaded. */
static double said_mib(void)
{
	static const char said[] = "largest host memory of a rank: ";
	const char *at = strstr(ferry_said(), said);
	char unit[16] = "";
	double value = 0;

	if (!at || sscanf(at + strlen(said), "%lf %15s", &value, unit) != 2)
		fail_msg("no peak in: %s", ferry_said());
	return value * (!strcmp(unit, "GiB") ? 1024 : 1);
}

/* A checkpoint that rank 0 reads for all, and one that it writes for all. */
static void test_memory_of_checkpoints(void **state)
{
	const char *text = getenv("FERRY_RANKS_MIB");
	double bf16_mib = zeros_model("big", (int64_t)((text ? atof(text) / 4 : 28) * 0x1p20)) / 0x1p20;
	double saved = bf16_mib / 2 * 12, bound = bound_mib("big", saved, 1), empty, peak, grown;
	double share = (saved + bf16_mib) / RANKS; /* with gradients, in bf16 */
	double *peaks;
	int count;

#define BIG                                                                                                  \
	"train model=%s/%s data=%s/rows.jsonl max_length=8 threads=1 save_steps=%d output_dir=%s/%s "        \
	"save_total_limit=1 gradient_accumulation_steps=%d "
	(void)state;
	assert_ranks(0, RANKS, BIG "max_steps=2", work_dir, "tiny", work_dir, 1, work_dir, "small", 1);
	empty = said_mib();
	assert_ferry(0, NULL, BIG "max_steps=1", work_dir, "big", work_dir, 0, work_dir, "big-run", RANKS);
	assert_ranks(0, RANKS,
	        BIG "max_steps=3 resume_from_checkpoint=auto load=rank0_only state_dict_type=full", work_dir,
	        "big", work_dir, 2, work_dir, "big-run", 1);
	peak = said_mib();
	peaks = run_values("big-run", "host_peak_bytes", &count);
	assert_int_equal(count, 3);
	grown = (peaks[2] - peaks[1]) / 0x1p20; /* by a save, of rank 0 */
	mem_free(peaks);
	print_message("resumed by rank 0 for %d ranks: a share of %.1f MiB, at most %.1f MiB resident, %.1f "
	              "without weights, %.1f for loading; saving all of it took %.1f MiB\n",
	        RANKS, share, peak, empty, bound, grown);
	assert_true(peak - share - empty <= bound + MESSAGES_MIB + HUGE_PAGE_MIB);
	assert_true(peak >= share);
	assert_true(grown <= SAVING_MIB);
	assert_verify_names("big-run/checkpoint-000003/rank-00000.safetensors", 100000000, 96468992);
	remove_run("big-run");
}

static double loaded_mib(const char *model, const char *more)
{
	assert_ranks(0, RANKS, "eval model=%s/%s data=%s/rows.jsonl max_samples=4 threads=1 max_length=8 %s",
	        work_dir, model, work_dir, more);
	return said_mib();
}

static void test_memory(void **state)
{
	const char *text = getenv("FERRY_RANKS_MIB");
	double mib = text ? atof(text) : 192, share, empty;
	static const char *const loads[] = {"load=auto", "load=rank0_only"};

	(void)state;
	share = zeros_model("zeros", (int64_t)(mib * 0x1p20)) / 0x1p20 / RANKS;
	empty = loaded_mib("tiny", "");
	for (size_t i = 0; i < 2; i++) {
		double peak = loaded_mib("zeros", loads[i]), bound = bound_mib("zeros", mib, (int)i);

		print_message("%s: %.1f MiB in bf16 on %d ranks: a share of %.1f MiB, at most %.1f MiB "
		              "resident, %.1f without weights, %.1f for loading\n",
		        loads[i], share * RANKS, RANKS, share, peak, empty, bound);
		assert_true(peak - share - empty <= bound + MESSAGES_MIB + HUGE_PAGE_MIB);
		assert_true(peak >= share); /* the weights are there */
	}
}

int main(void)
{
	const struct CMUnitTest apart[] = {
	        /* ranks in directories of their own: ferry starts all of its ranks in one */
	        cmocka_unit_test(test_rank0_only),
	        cmocka_unit_test(test_damage),
	        cmocka_unit_test(test_text),
	        cmocka_unit_test(test_unlike),
	};
	const struct CMUnitTest memory[] = {
	        cmocka_unit_test(test_memory),
	        cmocka_unit_test(test_memory_of_checkpoints),
	};
	const char *ferry = getenv("FERRY_BINARY");
	struct run_model tiny;
	char path[400];
	int failed;

	if (!ranks_begin("test_ranks_files"))
		return 0;
	ferry_run_begin("ranks-files");
	assert_non_null(realpath(ferry ? ferry : "build/ferry", binary));
	tiny_model(&tiny);
	snprintf(path, sizeof(path), "%s/none", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	snprintf(path, sizeof(path), "%s/other", work_dir);
	assert_int_equal(file_make_dir(path), 0);
	failed = ranks_are_local ? 0 : cmocka_run_group_tests(apart, NULL, NULL);
	failed += cmocka_run_group_tests(memory, NULL, NULL);
	ferry_run_end();
	return failed;
}
