/* links: checkpoint */
/* Saving and loading checkpoints: round trips, other world sizes, rotation, foreign files in the
 * directory. */
#include "base/log.h"
#include "tests/checkpoint_fixture.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static char *dir;

static int make_dir(void **state)
{
	int err = fixture_dir_make(state);

	dir = *state;
	return err;
}

static void round_trip(void **state)
{
	char *out = fixture_sub_dir(dir, "out"), *files = fixture_model_files(dir), *path, *hf, *copied;
	struct checkpoint *checkpoint;
	int64_t step = 9;

	(void)state;
	check_ok(checkpoint_find_newest(&path, out, INT64_MAX));
	assert_null(path);
	check_ok(fixture_load_newest(&step, "/does/not/exist"));
	assert_int_equal(step, 0);
	check_ok(fixture_save(out, files, 7, 0));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 7);
	check_ok(fixture_save(out, NULL, 1200000, 0));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 1200000);
	assert_int_equal(fixture_names_with(out, "checkpoint-000007"), 1);
	assert_int_equal(fixture_names_with(out, "checkpoint-1200000"), 1);
	assert_int_equal(fixture_names_with(out, ""), 2);

	path = file_join(out, "checkpoint-000007");
	check_ok(checkpoint_verify(path, NULL, NULL));
	check_ok(checkpoint_open(&checkpoint, path));
	assert_int_equal(checkpoint_manifest(checkpoint)->file_count, 3);
	hf = checkpoint_model_dir(checkpoint);
	assert_int_equal(fixture_names_with(hf, ""), 2); /* no README */
	copied = file_join(hf, "config.json");
	assert_int_equal(file_kind_of(copied), FILE_REGULAR);
	checkpoint_close(checkpoint);
	checkpoint_close(NULL);
	mem_free(copied);
	mem_free(hf);
	mem_free(path);
	mem_free(files);
	mem_free(out);
}

static void names_of_checkpoints(void **state)
{
	(void)state;
	assert_int_equal(checkpoint_step_of("checkpoint-000500"), 500);
	assert_int_equal(checkpoint_step_of("checkpoint-000000"), 0);
	assert_int_equal(checkpoint_step_of("checkpoint-1234567"), 1234567);
	assert_int_equal(checkpoint_step_of("checkpoint-500"), -1);
	assert_int_equal(checkpoint_step_of("checkpoint-0001234"), -1);
	assert_int_equal(checkpoint_step_of("checkpoint-00050x"), -1);
	assert_int_equal(checkpoint_step_of("checkpoint-000500.tmp"), -1);
	assert_int_equal(checkpoint_step_of("checkpoint-"), -1);
	assert_int_equal(checkpoint_step_of("checkpoint-99999999999999999999"), -1);
	assert_int_equal(checkpoint_step_of("model"), -1);
}

/* Rank r of n owns this part of each tensor, which may be nothing. */
static int64_t share_ranges(struct plane_range *ranges, int r, int n)
{
	int64_t used = 0;

	for (int t = 0; t < FIXTURE_TENSORS; t++) {
		int64_t count = fixture_tensors[t].count, first = count * r / n, end = count * (r + 1) / n;

		if (end > first)
			ranges[used++] = (struct plane_range){t, first, end - first};
	}
	return used;
}

/* ---- a rank that gives up ---- */

static struct checkpoint_saving *given_up;

static int agree_alone(void *context, int code)
{
	(void)context;
	return code;
}

/* Rank 0 is open first, so its value is there for rank 1. */
static int share_kept(void *context, uint64_t *value)
{
	static uint64_t kept;

	if (*(int *)context == 0)
		kept = *value;
	*value = kept;
	return 0;
}

static int give_up(void)
{
	checkpoint_saving_close(given_up);
	return 0;
}

/* A rank that lost another one closes its part while rank 0 commits: the checkpoint stays whole. */
static void a_rank_gives_up_beside_the_commit(void **state)
{
	char *out = fixture_sub_dir(dir, "gives_up");
	struct model model = fixture_model(0);
	struct fixture_planes planes;
	struct plane_source source = fixture_source(&planes);
	struct plane_range ranges[2][FIXTURE_TENSORS];
	struct checkpoint_saving *first;
	json_t *training = json_pack("{s:i}", "number", 7);
	int ids[] = {0, 1};
	struct checkpoint_save save = {.output_dir = out,
	        .step = 7,
	        .model = &model,
	        .source = &source,
	        .planes = FIXTURE_ALL_PLANES,
	        .training = training,
	        .may_appear = give_up,
	        .world = {0, 2, &ids[0], agree_alone, share_kept}};
	int64_t step;

	(void)state;
	fixture_fill(&planes, &model, save.step);
	save.ranges = ranges[0];
	save.range_count = share_ranges(ranges[0], 0, 2);
	check_ok(checkpoint_saving_open(&first, &save));
	save.ranges = ranges[1];
	save.range_count = share_ranges(ranges[1], 1, 2);
	save.world.rank = 1;
	save.world.context = &ids[1];
	check_ok(checkpoint_saving_open(&given_up, &save));
	check_ok(checkpoint_saving_write(first));
	check_ok(checkpoint_saving_write(given_up));
	check_ok(checkpoint_saving_commit(first));
	checkpoint_saving_close(first);
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, save.step);
	json_decref(training);
	mem_free(out);
}

/* ---- several ranks, as threads ---- */

struct meeting {
	pthread_barrier_t barrier;
	int size, codes[8];
	uint64_t value;
};

struct rank {
	struct meeting *meeting;
	int rank;
	const char *out;
	int64_t step;
	struct plane_range ranges[FIXTURE_TENSORS];
	int64_t range_count;
	int fails;   /* its source answers with an error */
	int damages; /* its file loses a bit as soon as the checkpoint stands */
	int code;
	char text[ERR_TEXT_BYTES];
};

static int meet_agree(void *context, int code)
{
	struct rank *rank = context;
	struct meeting *meeting = rank->meeting;
	int worst = 0, who = 0;

	meeting->codes[rank->rank] = code;
	pthread_barrier_wait(&meeting->barrier);
	for (int r = 0; r < meeting->size; r++) {
		if (meeting->codes[r] < worst)
			worst = meeting->codes[who = r];
	}
	pthread_barrier_wait(&meeting->barrier);
	if (worst && !code)
		err_set(worst, "rank %d failed", who);
	return worst;
}

static int meet_share(void *context, uint64_t *value)
{
	struct rank *rank = context;

	if (!rank->rank)
		rank->meeting->value = *value;
	pthread_barrier_wait(&rank->meeting->barrier);
	*value = rank->meeting->value;
	pthread_barrier_wait(&rank->meeting->barrier);
	return 0;
}

static int failing_read(void *context, int tensor, enum plane plane, int64_t first, int64_t count, void *dst)
{
	(void)context, (void)tensor, (void)plane, (void)first, (void)count, (void)dst;
	return err_set(ERR_DEVICE, "the plane fell off");
}

/* The parts of checkpoint_save, and a disk that forgets between two of them. */
static int save_damaged(const struct checkpoint_save *save, const struct rank *rank)
{
	struct checkpoint_saving *saving;
	char path[600], byte = 0;
	int rc = checkpoint_saving_open(&saving, save), fd;

	if (rc)
		return rc;
	(void)!checkpoint_saving_write(saving);
	rc = checkpoint_saving_commit(saving);
	if (!rc && rank->damages) {
		snprintf(path, sizeof(path), "%s/checkpoint-%06d/rank-%05d.safetensors", rank->out,
		        (int)rank->step, rank->rank);
		fd = open(path, O_RDWR);
		assert_true(fd >= 0 && pread(fd, &byte, 1, 9) == 1);
		byte ^= 4;
		assert_true(pwrite(fd, &byte, 1, 9) == 1 && !close(fd));
	}
	if (!rc) {
		(void)!checkpoint_saving_verify(saving);
		rc = checkpoint_saving_rotate(saving, NULL);
	}
	checkpoint_saving_close(saving);
	return rc;
}

static void *save_as_rank(void *argument)
{
	struct rank *rank = argument;
	struct model model = fixture_model(0);
	struct fixture_planes planes;
	struct plane_source source = fixture_source(&planes);
	json_t *training = json_pack("{s:I}", "number", (json_int_t)rank->step);
	struct checkpoint_save save = {.output_dir = rank->out,
	        .step = rank->step,
	        .model = &model,
	        .source = &source,
	        .planes = FIXTURE_ALL_PLANES,
	        .ranges = rank->ranges,
	        .range_count = rank->range_count,
	        .training = training,
	        .total_limit = 1,
	        .world = {rank->rank, rank->meeting->size, rank, meet_agree, meet_share}};

	fixture_fill(&planes, &model, rank->step);
	if (rank->fails)
		source.read = failing_read;
	rank->code = rank->damages < 0 ? checkpoint_save(&save, NULL) : save_damaged(&save, rank);
	snprintf(rank->text, sizeof(rank->text), "%s", err_text());
	json_decref(training);
	return NULL;
}

/* Rank `failing` fails, and rank `damaging` damages its file. NOBODY: no rank does, and a plain save runs. */
enum { NOBODY = -1 };

static void save_as_world(
        struct rank *ranks, int size, const char *out, int64_t step, int failing, int damaging)
{
	struct meeting meeting = {.size = size};
	pthread_t threads[8];

	pthread_barrier_init(&meeting.barrier, NULL, (unsigned)size);
	for (int r = 0; r < size; r++) {
		ranks[r] = (struct rank){
		        .meeting = &meeting, .rank = r, .out = out, .step = step, .fails = r == failing};
		ranks[r].damages = damaging == NOBODY ? NOBODY : r == damaging;
		ranks[r].range_count = share_ranges(ranks[r].ranges, r, size);
		pthread_create(&threads[r], NULL, save_as_rank, &ranks[r]);
	}
	for (int r = 0; r < size; r++)
		pthread_join(threads[r], NULL);
	pthread_barrier_destroy(&meeting.barrier);
}

/* Written by n ranks, read as a whole and by any other number of ranks. */
static void worlds_of_other_sizes(void **state)
{
	char *out = fixture_sub_dir(dir, "worlds"), *path;
	struct model model = fixture_model(0);
	struct rank ranks[8];
	int64_t step;

	(void)state;
	for (int size = 1; size <= 7; size++) {
		save_as_world(ranks, size, out, 100 + size, NOBODY, NOBODY);
		for (int r = 0; r < size; r++)
			assert_int_equal(ranks[r].code, 0);
		check_ok(fixture_load_newest(&step, out));
		assert_int_equal(step, 100 + size);
		assert_int_equal(fixture_names_with(out, ""), 1); /* the older one is gone */
		check_ok(checkpoint_find_newest(&path, out, INT64_MAX));
		for (int readers = 1; readers <= 8; readers++) {
			struct fixture_planes planes = {.model = &model};
			struct plane_sink sink = fixture_sink(&planes);

			for (int r = 0; r < readers; r++) {
				struct plane_range ranges[FIXTURE_TENSORS];
				int64_t count = share_ranges(ranges, r, readers);
				struct checkpoint *checkpoint;

				check_ok(checkpoint_open(&checkpoint, path));
				check_ok(checkpoint_load(checkpoint, &sink, ranges, count, NULL));
				checkpoint_close(checkpoint);
			}
			assert_int_equal(fixture_differ(&planes, step), 0);
		}
		mem_free(path);
	}
	for (int failing = 0; failing < 4; failing++) { /* one fails: all say so, nothing is left */
		save_as_world(ranks, 4, out, 200, failing, NOBODY);
		for (int r = 0; r < 4; r++) {
			assert_int_equal(ranks[r].code, ERR_DEVICE);
			assert_non_null(strstr(ranks[r].text, r == failing ? "fell off" : "rank "));
		}
		check_ok(fixture_load_newest(&step, out));
		assert_int_equal(step, 107);
		assert_int_equal(fixture_names_with(out, ""), 1);
	}
	mem_free(out);
}

/* The older checkpoint goes only when what every rank wrote was read back as it was; else the new one goes.
 */
static void rotation_of_worlds(void **state)
{
	char *out = fixture_sub_dir(dir, "rotation_of_worlds"), text[100];
	struct rank ranks[8];
	int64_t step;

	(void)state;
	for (int damaging = 0; damaging < 3; damaging++) {
		save_as_world(ranks, 3, out, 100 + 10 * damaging, NOBODY, NOBODY);
		assert_int_equal(fixture_names_with(out, ""), 1);
		save_as_world(ranks, 3, out, 101 + 10 * damaging, NOBODY, damaging);
		snprintf(text, sizeof(text), "rank-%05d.safetensors: byte 0", damaging);
		for (int r = 0; r < 3; r++) {
			assert_int_equal(ranks[r].code, ERR_INPUT);
			assert_non_null(strstr(ranks[r].text, r == damaging ? text : "rank "));
		}
		assert_int_equal(fixture_names_with(out, ""), 1);
		check_ok(fixture_load_newest(&step, out));
		assert_int_equal(step, 100 + 10 * damaging);
	}
	mem_free(out);
}

/* ---- contents of output_dir ---- */

static void rotation(void **state)
{
	char *out = fixture_sub_dir(dir, "rotation"), *path;
	int64_t step;

	(void)state;
	for (int64_t s = 1; s <= 6; s++) {
		check_ok(fixture_save(out, NULL, s * 10, 2));
		assert_int_equal(fixture_names_with(out, ""), s < 2 ? 1 : 2);
	}
	assert_int_equal(fixture_names_with(out, "checkpoint-000050"), 1);
	assert_int_equal(fixture_names_with(out, "checkpoint-000060"), 1);
	/* the same step again, with another content in between */
	path = file_join(out, "checkpoint-000060");
	fixture_put(path, "manifest.json", "{}");
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 50);
	check_ok(fixture_save(out, NULL, 60, 2));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 60);
	assert_int_equal(fixture_names_with(out, ""), 2);
	/* going back to an older step and saving there */
	check_ok(fixture_save(out, NULL, 55, 1));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 55);
	mem_free(path);
	mem_free(out);
}

static void leftovers_and_strangers(void **state)
{
	char *out = fixture_sub_dir(dir, "leftovers"), *path;
	static const char *const keep[] = {"step-000001.tmp", "step-x.0123456789abcdef.tmp", "model",
	        "checkpoint-best", "step-000001.0123456789abcdeg.tmp"};
	int64_t step;

	(void)state;
	for (size_t i = 0; i < sizeof(keep) / sizeof(*keep); i++) {
		path = file_join(out, keep[i]);
		check_ok(file_make_dir(path));
		mem_free(path);
	}
	path = file_join(out, "step-000001.0123456789abcdef.tmp/hf");
	check_ok(file_make_dir(path));
	mem_free(path);
	fixture_put(out, "checkpoint-000009", "a file");
	path = file_join(out, "checkpoint-000008");
	check_ok(file_make_dir(path));
	mem_free(path);
	check_ok(fixture_save(out, NULL, 2, 0));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 2);
	assert_int_equal(fixture_names_with(out, ""), 5 + 3);
	/* what is not ferry's stays when a checkpoint of that name is saved */
	path = file_join(out, "checkpoint-000010");
	check_ok(file_make_dir(path));
	fixture_put(path, "notes", "precious");
	for (int64_t s = 8; s <= 10; s++)
		check_ok(fixture_save(out, NULL, s, 0));
	check_ok(fixture_load_newest(&step, out));
	assert_int_equal(step, 10);
	assert_int_equal(file_is_in(path, "notes"), 0);
	mem_free(path);
	path = file_join(out, "checkpoint-000010.replaced-1");
	assert_int_equal(file_is_in(path, "notes"), 1);
	mem_free(path);
	assert_int_equal(file_is_in(out, "checkpoint-000009.replaced-1"), 1);
	assert_int_equal(fixture_names_with(out, ""), 5 + 3 + 1 + 2);
	mem_free(out);
}

static void wrong_places(void **state)
{
	struct checkpoint *checkpoint;
	char *path;

	(void)state;
	check_fails(checkpoint_open(&checkpoint, dir), ERR_INPUT, "manifest.json");
	check_fails(checkpoint_open(&checkpoint, "/does/not/exist"), ERR_INPUT, "manifest.json");
	fixture_put(dir, "plain", "");
	path = file_join(dir, "plain");
	check_fails(fixture_save(path, NULL, 1, 0), ERR_INPUT, "plain");
	mem_free(path);
}

static void other_models(void **state)
{
	char *out = fixture_sub_dir(dir, "models"), *path = file_join(out, "checkpoint-000001");
	struct model model = fixture_model(1);
	struct model_tensor mine[FIXTURE_TENSORS];
	struct checkpoint *checkpoint;

	(void)state;
	check_ok(fixture_save(out, NULL, 1, 0));
	check_ok(checkpoint_open(&checkpoint, path));
	check_ok(checkpoint_match(checkpoint, &model)); /* it has its own head: untied */
	assert_int_equal(model.tensor_count, FIXTURE_TENSORS);
	memcpy(mine, fixture_tensors, sizeof(mine));
	model.tensors = mine;
	mine[1].shape[0] = 6, mine[1].count = 30;
	check_fails(checkpoint_match(checkpoint, &model), ERR_INPUT, "has shape [5, 5], the model's [6, 5]");
	mine[1].name = "model.blocks.0.k.weight";
	check_fails(
	        checkpoint_match(checkpoint, &model), ERR_INPUT, "the model's is model.blocks.0.k.weight");
	model = fixture_model(0);
	model.tensor_count--;
	check_fails(checkpoint_match(checkpoint, &model), ERR_INPUT, "it has 5 tensors, the model 4");
	checkpoint_close(checkpoint);
	mem_free(path);
	mem_free(out);
}

static void planes_left_out(void **state)
{
	char *out = fixture_sub_dir(dir, "weights"), *path = NULL;
	struct model model = fixture_model(0);
	struct fixture_planes planes = {0}, back = {.model = &model};
	struct plane_source source = fixture_source(&planes);
	struct plane_sink sink = fixture_sink(&back);
	json_t *training = json_pack("{s:i}", "number", 7);
	struct checkpoint_save save = {.output_dir = out,
	        .model = &model,
	        .source = &source,
	        .planes = 1u << PLANE_HI | 1u << PLANE_LO,
	        .training = training,
	        .world = {.size = 1}};
	struct checkpoint *checkpoint;
	float value;

	(void)state;
	fixture_fill(&planes, &model, 3);
	check_ok(checkpoint_save(&save, &path));
	check_ok(checkpoint_open(&checkpoint, path));
	check_ok(checkpoint_load(checkpoint, &sink, NULL, 0, NULL));
	assert_memory_equal(back.value[PLANE_HI], planes.value[PLANE_HI], sizeof(back.value[0]));
	assert_memory_equal(back.value[PLANE_LO], planes.value[PLANE_LO], sizeof(back.value[0]));
	check_fails(
	        checkpoint_read(checkpoint, 0, PLANE_M, 0, 1, &value), ERR_INPUT, "does not contain \"m\"");
	checkpoint_close(checkpoint);
	json_decref(training);
	mem_free(path);
	mem_free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(round_trip),
	        cmocka_unit_test(names_of_checkpoints),
	        cmocka_unit_test(a_rank_gives_up_beside_the_commit),
	        cmocka_unit_test(worlds_of_other_sizes),
	        cmocka_unit_test(rotation_of_worlds),
	        cmocka_unit_test(rotation),
	        cmocka_unit_test(leftovers_and_strangers),
	        cmocka_unit_test(wrong_places),
	        cmocka_unit_test(other_models),
	        cmocka_unit_test(planes_left_out),
	};

	return cmocka_run_group_tests_name("checkpoint_save", tests, make_dir, check_dir_remove);
}
