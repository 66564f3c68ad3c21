/* links: cli */
/* not: asan */
/* MPI's own start-up is not clean under it, and its memory is not ours to account for. */

/* Checkpoints of several ranks: complete, and valid for any number of ranks and any strategy. */
#include "tests/ranks_run.h"

#include "checkpoint/load.h"

/* Of a chain: a golden one, where they are, with the rows of its own evaluation. */
static struct run_model model;
static char eval_rows[620];
static const char *golden; /* directory of golden models, or NULL */

#define SETTINGS                                                                                             \
	"learning_rate=1e-3 weight_decay=0.1 threads=1 compute_dtype=fp32 export_dtype=fp32 "                \
	"save_steps=2 save_total_limit=0 vram_budget=off "

static void train(int ranks, const char *out, const char *more)
{
	assert_ranks(0, ranks,
	        "train model=%s data=%s output_dir=%s/%s gradient_accumulation_steps=%d " SETTINGS "%s%s",
	        model.dir, model.data, work_dir, out, 12 / ranks,
	        strstr(more, "max_steps") ? "" : "max_steps=8 ", more);
}

/* Compares all planes of two checkpoints bit for bit, for any split between ranks. */
static void assert_same_state(const char *a, const char *b)
{
	static char one[PLANE_PIECE_COUNT * 4], two[PLANE_PIECE_COUNT * 4];
	struct checkpoint *first, *second;
	const struct manifest *m;
	char path[400];

	snprintf(path, sizeof(path), "%s/%s", work_dir, a);
	assert_int_equal(checkpoint_open(&first, path), 0);
	snprintf(path, sizeof(path), "%s/%s", work_dir, b);
	assert_int_equal(checkpoint_open(&second, path), 0);
	m = checkpoint_manifest(first);
	assert_int_equal(m->planes, checkpoint_manifest(second)->planes);
	assert_int_equal(m->planes, planes_of(m->state));
	assert_int_equal(m->state, checkpoint_manifest(second)->state);
	assert_int_equal(m->step, checkpoint_manifest(second)->step);
	for (int t = 0; t < m->tensor_count; t++) {
		assert_int_equal(m->tensors[t].planes, checkpoint_manifest(second)->tensors[t].planes);
		for (int plane = 0; plane < PLANE_SAVED_COUNT; plane++) {
			int64_t count = m->tensors[t].count;

			if (!(m->tensors[t].planes >> plane & 1))
				continue;
			assert_true(count <= PLANE_PIECE_COUNT);
			assert_int_equal(checkpoint_read(first, t, (enum plane)plane, 0, count, one), 0);
			assert_int_equal(checkpoint_read(second, t, (enum plane)plane, 0, count, two), 0);
			assert_memory_equal(
			        one, two, (size_t)plane_bytes((enum plane)plane, m->state, count));
		}
	}
	checkpoint_close(first);
	checkpoint_close(second);
}

/* ---- from world to world ---- */

enum { LEGS = 4, LEG_STEPS = 2 };

struct leg {
	int ranks;
	const char *more;
};

struct chain {
	const char *golden;
	const char *form; /* of the optimizer's state, and what is frozen */
	double tolerance; /* of losses; a code on the other side of a border moves one more than fp32 does */
	struct leg legs[LEGS];
};

/* The first ones always, all where FERRY_RANKS_ROUNDS is set. */
enum { SHORT_CHAINS = 3 };

static const struct chain chains[] = {
        {"llama3", "optimizer_state=fp32", 5e-6,
                {{3, ""}, {2, "sharding_strategy=SHARD_GRAD_OP wrap_policy=none"},
                        {4, "sharding_strategy=HYBRID_SHARD ranks_per_node=2 cpu_offload=off"},
                        {1, "wrap_policy=size min_num_params=5000"}}},
        {"qwen2", "optimizer_state=8bit", 2e-3,
                {{3, "sharding_strategy=NO_SHARD"},
                        {2, "wrap_policy=size min_num_params=5000 cpu_offload=params load=rank0_only"},
                        {4, "sharding_strategy=HYBRID_SHARD_ZERO2 ranks_per_node=2 state_dict_type=full"},
                        {1, "cpu_offload=off"}}},
        {"gpt_neox", "optimizer_state=fp32 'freeze=.*(embed_in|attention|layers.0.post).*'", 5e-6,
                {{3, "wrap_policy=size min_num_params=5000"},
                        {2, "sharding_strategy=HYBRID_SHARD ranks_per_node=1 load=rank0_only"},
                        {4, "sharding_strategy=SHARD_GRAD_OP cpu_offload=off activations=offload"},
                        {1, "wrap_policy=none"}}},
        {"mistral", "optimizer_state=bf16", 2e-3,
                {{3, "sharding_strategy=SHARD_GRAD_OP cpu_offload=off"},
                        {2, "sharding_strategy=NO_SHARD load=rank0_only state_dict_type=full"},
                        {4, "wrap_policy=none cpu_offload=gradients"}, {1, "schedule=micro_batch_major"}}},
        {"gpt2", "optimizer_state=fp32", 5e-6,
                {{3, "sharding_strategy=NO_SHARD wrap_policy=size min_num_params=1 state_dict_type=full"},
                        {2, "load=rank0_only cpu_offload=optimizer"},
                        {4, "sharding_strategy=HYBRID_SHARD_ZERO2 ranks_per_node=2 wrap_policy=none"},
                        {1, "activations=offload"}}},
        {"llama2", "optimizer_state=fp32", 5e-6,
                {{3, "schedule=micro_batch_major cpu_offload=off"},
                        {2, "activations=keep prefetch_units=1 wrap_policy=none"},
                        {4, "sharding_strategy=SHARD_GRAD_OP load=rank0_only"},
                        {1, "cpu_offload=params,optimizer"}}},
        {"gpt_neox", "optimizer_state=8bit", 2e-3,
                {{3, "wrap_policy=none load=rank0_only state_dict_type=full"},
                        {2, "sharding_strategy=HYBRID_SHARD ranks_per_node=1 cpu_offload=off"},
                        {4, "sharding_strategy=NO_SHARD wrap_policy=size min_num_params=5000"}, {1, ""}}},
};

static struct str exports; /* "DIR ROWS LOSS" for check_export.py */

/* The checkpoint as a HuggingFace directory, and the loss that ferry has with it. */
static void export_leg(int chain, int step)
{
	json_t *got;

	assert_ferry(0, NULL,
	        "export checkpoint=%s/chain/checkpoint-%06d output_dir=%s/export-%d-%d export_dtype=fp32",
	        work_dir, step, work_dir, chain, step);
	assert_ferry_json(&got, "eval model=%s/export-%d-%d data=%s compute_dtype=fp32 --json", work_dir,
	        chain, step, eval_rows);
	str_printf(&exports, " %s/export-%d-%d %s %.17g", work_dir, chain, step, eval_rows,
	        json_number_value(json_object_get(got, "loss")));
	json_decref(got);
}

/* What the next world has loaded: a run that has no step left leaves it as its own checkpoint. */
static void assert_handed_over(const struct chain *c, int leg, int step)
{
	char more[500], a[100], b[100];

	remove_run("hand");
	snprintf(more, sizeof(more), "%s %s resume_from_checkpoint=%s/chain/checkpoint-%06d max_steps=%d",
	        c->legs[leg].more, c->form, work_dir, step, step);
	train(c->legs[leg].ranks, "hand", more);
	snprintf(a, sizeof(a), "chain/checkpoint-%06d", step);
	snprintf(b, sizeof(b), "hand/checkpoint-%06d", step);
	assert_same_state(a, b);
	assert_ferry(0, NULL, "verify %s/%s", work_dir, b);
}

/* Each leg goes on from the checkpoint of the one before. Later ones, which a leg leaves too, are removed. */
static void run_chain(int index)
{
	const struct chain *c = &chains[index];
	char more[500], name[100];

	if (golden) {
		golden_model(&model, golden, c->golden);
		snprintf(eval_rows, sizeof(eval_rows), "%s/%s/eval.jsonl", golden, c->golden);
	}
	remove_run("chain");
	remove_run("whole");
	train(1, "whole", c->form);
	for (int leg = 0; leg < LEGS; leg++) {
		int step = LEG_STEPS * leg;

		if (leg)
			assert_handed_over(c, leg, step);
		snprintf(more, sizeof(more), "%s %s%s", c->legs[leg].more, c->form,
		        leg ? " resume_from_checkpoint=auto" : "");
		train(c->legs[leg].ranks, "chain", more);
		export_leg(index, step + LEG_STEPS);
		for (int later = step + 2 * LEG_STEPS; later <= LEGS * LEG_STEPS; later += LEG_STEPS) {
			snprintf(name, sizeof(name), "chain/checkpoint-%06d", later);
			remove_run(name);
		}
	}
	assert_near_runs("whole", "chain", c->tolerance, c->form); /* and the same tokens in each step */
}

static void test_chain(void **state)
{
	int count = getenv("FERRY_RANKS_ROUNDS") ? (int)(sizeof(chains) / sizeof(*chains)) : SHORT_CHAINS;

	(void)state;
	for (int i = 0; i < count; i++) {
		char more[500];

		run_chain(i);
		if (i >= 2)
			continue;
		/* in another format: each rank converts its own part */
		remove_run("on");
		snprintf(more, sizeof(more), "%s resume_from_checkpoint=%s/chain/checkpoint-000002 load=%s",
		        chains[!i].form, work_dir, i ? "rank0_only" : "auto");
		train(2, "on", more);
		assert_near_tail("whole", "on", LEG_STEPS, 2e-2, "in another form");
	}
}

/* Every intermediate one, exported, loads in transformers and has ferry's loss there. */
static void test_transformers(void **state)
{
	const char *source = getenv("FERRY_SOURCE");
	char *command;

	(void)state;
	if (system("python3 -c 'import torch, transformers' 2>/dev/null")) {
		printf("SKIPPED test_ranks_save, transformers: python3 has no transformers\n");
		skip();
	}
	assert_int_equal(str_check(&exports), 0);
	command = mem_printf("python3 %s/tests/check_export.py%s >%s/stderr 2>&1", source ? source : ".",
	        exports.data, work_dir);
	if (system(command))
		fail_msg("%s", ferry_said());
	mem_free(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_chain),
	        cmocka_unit_test(test_transformers),
	};
	int failed;

	if (!ranks_begin("test_ranks_save"))
		return 0;
	ferry_run_begin("ranks-save");
	tiny_model(&model);
	snprintf(eval_rows, sizeof(eval_rows), "%s", model.data);
	golden = golden_dir("test_ranks_save with golden models");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	str_free(&exports);
	ferry_run_end();
	return failed;
}
