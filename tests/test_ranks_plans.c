/* links: cli */
/* not: asan */
/* The ranks leave without freeing what they hold. */

/* Ranks compare what their plans exchange before the first exchange: another plan on one of them ends all
 * with an error. */
#include "tests/link_job.h"
#include "tests/model_text.h"

#include "device/backend.h"
#include "train/ranks/ranks_compare.h"

/* ---- in a rank ---- */

enum { TOKENS = 24, ODD_RANK = 1 };

static struct engine_options options_of(const struct model *model)
{
	struct engine_options o = {.model = model,
	        .rank = rank,
	        .world_size = size,
	        .policy = {.offload_params = HOME_HOST,
	                .offload_gradients = HOME_HOST,
	                .offload_optimizer = HOME_HOST,
	                .activations = ACTIVATION_RECOMPUTE,
	                .prefetch_units = 1,
	                .compute_dtype = DTYPE_BF16,
	                .gradient_dtype = DTYPE_BF16,
	                .reduce_dtype = DTYPE_BF16,
	                .micro_batches = 2,
	                .rope_positions = TOKENS},
	        .train = {.max_tokens = TOKENS, .max_targets = TOKENS},
	        .adamw = {0.9, 0.95, 1e-8, 0.1, 1},
	        .max_grad_norm = 1,
	        .skip_nonfinite = 1};

	must(adamw_isa_find(&o.isa, "auto") == 0);
	must(pool_open(&o.pool, 1) == 0);
	device_register(&backend_host);
	must(device_open(&o.device, "host", &(struct device_options){.pool = o.pool}) == 0);
	return o;
}

static struct model *model_make(void)
{
	return model_from("{\"model_type\":\"llama\",\"vocab_size\":70,\"hidden_size\":32,"
	                  "\"intermediate_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
	                  "\"num_key_value_heads\":2,\"max_position_embeddings\":64}");
}

/* Compares the plans of this rank with those of the others; returns the code that all have. */
static int compare(const struct engine_options *o)
{
	struct engine *e;

	must(engine_open(&e, o) == 0);
	return ranks_check_plans(e);
}

/* Equal plans, whatever is not exchanged. */
static void same(void)
{
	struct engine_options o = options_of(model_make());

	o.policy.discard = rank == ODD_RANK;
	must(compare(&o) == 0);
}

static void refused(const struct engine_options *o)
{
	must(compare(o) == ERR_INTERNAL);
	must(strstr(err_text(), "this rank's plan differs from rank 0's"));
	must(rank == ODD_RANK || !strncmp(err_text(), "rank 1: ", 8));
}

/* The odd rank plans fewer exchanges, */
static void fewer(void)
{
	struct engine_options o = options_of(model_make());

	o.policy.keep_gathered = rank == ODD_RANK;
	refused(&o);
}

/* or as many of other bytes, */
static void wider(void)
{
	struct engine_options o = options_of(model_make());

	if (rank == ODD_RANK)
		o.policy.gradient_dtype = o.policy.reduce_dtype = DTYPE_F32;
	refused(&o);
}

/* or the same ones in another order. */
static void moved(void)
{
	struct engine_options o = options_of(model_make());

	o.policy.prefetch_units = rank == ODD_RANK ? 3 : 1;
	refused(&o);
}

static const struct scenario scenarios[] = {{"same", same, 1, NULL}, {"fewer", fewer, 1, NULL},
        {"wider", wider, 1, NULL}, {"moved", moved, 1, NULL}};

/* ---- the test ---- */

static void test_plans(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
		for (int ranks = 2; ranks <= 3; ranks++)
			assert_job("local", scenarios[i].name, ranks);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans)};

	if (argc == 2)
		return rank_main(scenarios, sizeof(scenarios) / sizeof(*scenarios), argv[1]);
	link_job_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
