/* links: cli */
/* Keys of other trainers that count processes, stop a run or need another key: each is said, none is lost. */
#include "tests/ferry_run.h"

static const char axolotl[] = "base_model: models/l\ndatasets:\n  - path: rows.jsonl\n    type: alpaca\n"
                              "sequence_len: 64\nmicro_batch_size: 1\nlearning_rate: 1e-4\n";
static const char torchtune[] = "checkpointer:\n  _component_: torchtune.training.FullModelHFCheckpointer\n"
                                "  checkpoint_dir: models/l\noptimizer:\n  _component_: torch.optim.AdamW\n"
                                "  lr: 3e-5\ndataset:\n  _component_: torchtune.datasets.alpaca_dataset\n"
                                "  source: json\n  data_files: rows.json\n";
static const char accelerate[] =
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n";

struct row {
	const char *file, *more, *words; /* after '!' words that must not be there */
	int code;
};

static void check(const struct row *r)
{
	char path[300], list[400], *word, *rest = list;
	struct str out = {0};
	FILE *f;
	int code;

	snprintf(path, sizeof(path), "%s/run.yaml", work_dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "%s%s", r->file, r->more);
	assert_int_equal(fclose(f), 0);
	code = ferry_run(&out, "config %s", path);
	if (code != r->code)
		fail_msg("%s: exit code %d: %s", r->more, code, ferry_said());
	snprintf(list, sizeof(list), "%s", r->words);
	while ((word = strsep(&rest, "|")))
		if ((strstr(ferry_said(), word + (*word == '!')) != NULL) == (*word == '!'))
			fail_msg("%s: \"%s\" in: %s", r->more, word, ferry_said());
	str_free(&out);
}

static void test_processes(void **state)
{
	static const struct row rows[] = {
	        {axolotl, "dp_shard_size: 16\n", "run.yaml:8: dp_shard_size=16 has no effect|1/16|ranks=16",
	                0},
	        {axolotl, "dp_replicate_size: 2\n", "dp_replicate_size=2 has no effect|ranks=2", 0},
	        {axolotl, "dp_shard_size: 2\ndp_replicate_size: 4\n",
	                "run.yaml:8: dp_shard_size=2 and dp_replicate_size=4 have no effect|1/8|ranks=8|"
	                "!ranks=2|!ranks=4",
	                0},
	        {axolotl, "dp_shard_size: 2\ndp_replicate_size: 4\nranks: 8\n", "!no effect", 0},
	        {axolotl, "dp_shard_size: 8\nranks: 2\n", "2 ranks train, with 2/8 of the rows", 0},
	        {axolotl, "dp_shard_size: 1\n", "!has no effect", 0},
	        {axolotl, "dp_shard_size:\n", "!has no effect", 0},
	        {axolotl, "dp_shard_size: many\n", "must be a number of processes", 2},
	        {torchtune, "data_parallel_shard_dim: 4\n", "data_parallel_shard_dim=4 has no effect|ranks=4",
	                0},
	        {torchtune, "data_parallel_shard_dim: -1\n", "!has no effect", 0},
	        {torchtune, "data_parallel_replicate_dim: 2\n",
	                "data_parallel_replicate_dim=2 has no effect|!tensor", 0},
	        {torchtune, "tensor_parallel_dim: 2\n", "tensor and context parallelism", 2},
	        {accelerate, "num_processes: 8\n", "num_processes=8 has no effect|ranks=8", 0},
	        {accelerate, "parallelism_config:\n  parallelism_config_dp_shard_size: 8\n",
	                "dp_shard_size=8 has no effect|ranks=8", 0},
	        {accelerate, "num_processes: 8\nparallelism_config:\n  parallelism_config_dp_shard_size: 8\n",
	                "num_processes=8 has no effect|!dp_shard_size=8", 0},
	        {accelerate, "parallelism_config:\n  parallelism_config_tp_size: 2\n", "tensor", 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check(&rows[i]);
}

/* axolotl ends a run whose loss stays high. */
static void test_watchdog(void **state)
{
	static const struct row rows[] = {
	        {axolotl, "loss_watchdog_threshold: 5.0\nloss_watchdog_patience: 3\n",
	                "run.yaml:8: loss_watchdog_threshold=5.0: axolotl stops|!results: "
	                "loss_watchdog_threshold",
	                0},
	        {axolotl, "loss_watchdog_threshold:\nloss_watchdog_patience:\n", "!axolotl stops", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check(&rows[i]);
}

/* What only counts beside another key says so. */
static void test_alone(void **state)
{
	static const struct row rows[] = {
	        {axolotl, "model_config:\n  router_aux_loss_coef: 0.1\n",
	                "router_aux_loss_coef=0.1 has no effect without model_config.output_router_logits",
	                0},
	        {axolotl, "model_config:\n  router_aux_loss_coef: 0.1\n  output_router_logits: true\n",
	                "!has no effect", 0},
	        {axolotl, "router_aux_loss_coef: 0.1\n", "!has no effect", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		check(&rows[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_processes), cmocka_unit_test(test_watchdog),
	        cmocka_unit_test(test_alone)};
	int failed;

	ferry_run_begin("counts");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	ferry_run_end();
	return failed;
}
