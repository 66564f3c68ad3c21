/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Checkpoints of several ranks: whole, and good for any number of ranks and any strategy. */
#include "tests/ranks_run.h"

#include "checkpoint/load.h"

static struct run_model tiny;

#define SETTINGS                                                                                             \
	"weight_decay=0.1 threads=1 compute_dtype=fp32 export_dtype=fp32 max_steps=6 "                       \
	"save_steps=2 save_total_limit=0 "

static void train(int ranks, const char *out, const char *more)
{
	assert_ranks(0, ranks,
	        "train model=%s data=%s output_dir=%s/%s gradient_accumulation_steps=%d " SETTINGS "%s%s",
	        tiny.dir, tiny.data, work_dir, out, 12 / ranks,
	        strstr(more, "learning_rate") ? "" : "learning_rate=1e-3 ", more);
}

/* The weights of two checkpoints, bit for bit. */
static void assert_same_weights(const char *a, const char *b)
{
	static char one[PLANE_PIECE_COUNT * 2], two[PLANE_PIECE_COUNT * 2];
	struct checkpoint *first, *second;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, a);
	assert_int_equal(checkpoint_open(&first, path), 0);
	snprintf(path, sizeof(path), "%s/%s", work_dir, b);
	assert_int_equal(checkpoint_open(&second, path), 0);
	for (int t = 0; t < checkpoint_manifest(first)->tensor_count; t++)
		for (int plane = PLANE_HI; plane <= PLANE_LO; plane++) {
			int64_t count = checkpoint_manifest(first)->tensors[t].count;

			assert_true(count <= PLANE_PIECE_COUNT);
			assert_int_equal(checkpoint_read(first, t, (enum plane)plane, 0, count, one), 0);
			assert_int_equal(checkpoint_read(second, t, (enum plane)plane, 0, count, two), 0);
			assert_memory_equal(one, two, (size_t)count * 2);
		}
	checkpoint_close(first);
	checkpoint_close(second);
}

/* Three ranks save, others go on: as if nothing had been. */
static void test_elastic(void **state)
{
	static const struct {
		int ranks;
		const char *more;
	} others[] = {{2, ""}, {4, "sharding_strategy=HYBRID_SHARD ranks_per_node=2 wrap_policy=none"},
	        {1, "cpu_offload=off"}, {3, "sharding_strategy=NO_SHARD"}};

	(void)state;
	train(1, "whole", "");
	train(3, "three", "");
	assert_near_runs("whole", "three", 5e-6, "three ranks");
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		char more[400], why[60];

		snprintf(why, sizeof(why), "resumed on %d ranks", others[i].ranks);
		remove_run("on");
		snprintf(more, sizeof(more), "%s resume_from_checkpoint=%s/three/checkpoint-000002",
		        others[i].more, work_dir);
		train(others[i].ranks, "on", more);
		assert_near_tail("whole", "on", 2, 5e-6, why);
	}
	/* and on, in one directory: three ranks, two, one */
	remove_run("three/checkpoint-000006");
	remove_run("three/checkpoint-000004");
	train(2, "three", "resume_from_checkpoint=auto");
	remove_run("three/checkpoint-000006");
	train(1, "three", "resume_from_checkpoint=auto");
	assert_near_runs("whole", "three", 5e-6, "3, 2 and 1 ranks");
}

/* Shards end at borders of blocks, so any number of ranks reads what another wrote, in any form of state: and
 * each rank converts what it holds. A code that falls on the other side of a border moves the loss more than
 * fp32 does. */
static void test_elastic_states(void **state)
{
	static const char *const forms[] = {"optimizer_state=bf16", "optimizer_state=8bit"};

	(void)state;
	for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
		char more[400];

		train(1, "whole_form", forms[i]);
		train(3, "three_form", forms[i]);
		assert_near_runs("whole_form", "three_form", 2e-3, forms[i]);
		remove_run("on");
		snprintf(more, sizeof(more), "%s resume_from_checkpoint=%s/three_form/checkpoint-000002",
		        forms[i], work_dir);
		train(2, "on", more);
		assert_near_tail("whole_form", "on", 2, 2e-3, forms[i]);
		remove_run("on");
		snprintf(more, sizeof(more), "resume_from_checkpoint=%s/three_form/checkpoint-000002 %s",
		        work_dir, forms[1 - i]);
		train(2, "on", more);
		assert_near_tail("whole_form", "on", 2, 2e-2, "in another form");
		remove_run("whole_form");
		remove_run("three_form");
	}
}

/* Steps of rate 0 leave every bit of the weights: what is loaded is what was saved, whoever holds it. */
static void test_weights_are_the_same(void **state)
{
	static const struct {
		int ranks;
		const char *more;
	} others[] = {{2, ""}, {4, "sharding_strategy=HYBRID_SHARD ranks_per_node=2"}, {1, ""}};

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		char more[400];

		remove_run("same");
		snprintf(more, sizeof(more),
		        "%s resume_from_checkpoint=%s/three/checkpoint-000004 learning_rate=0 "
		        "lr_scheduler_type=constant "
		        "save_first_step=on",
		        others[i].more, work_dir);
		train(others[i].ranks, "same", more);
		assert_ferry(0, NULL, "verify %s/same/checkpoint-000006", work_dir);
		assert_same_weights("three/checkpoint-000004", "same/checkpoint-000006");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_elastic),
	        cmocka_unit_test(test_weights_are_the_same),
	        cmocka_unit_test(test_elastic_states),
	};
	int failed;

	if (!ranks_begin("test_ranks_save"))
		return 0;
	ferry_run_begin("ranks-save");
	tiny_model(&tiny);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
