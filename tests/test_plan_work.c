/* links: cli */
/* not: asan */
/* Choosing a plan is slow there, and counts the same. */
/* The work of planning: operations of all plans that ferry lists until it answers. Time is not counted,
 * because it depends on the machine: with all that follows a list 0.7 s for a million operations on an EPYC.
 * docs/results/plans.md has times. */
#include "tests/check.h"

#include "cli/cli.h"
#include "offload/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 16 };

/* millions: as counted when this was written. */
static const struct {
	int code;
	double millions;
	const char *words;
} rows[] = {
        {0, 0.67, "llama-3-8b pc-rtx-4090 gradient_accumulation_steps=16"},
        {5, 2.62, "llama-3-8b pc-rtx-4090 gradient_accumulation_steps=64 ram_budget=40GB"},
        {5, 1.23, "llama-3-8b pc-rtx-4090 gradient_accumulation_steps=512"},
        {5, 6.05, "llama-3-8b pc-rtx-4090 gradient_accumulation_steps=512 lora_rank=16"},
        {0, 1.21, "llama-2-70b h200 lora_rank=16"},
        {0, 1.13, "llama-2-70b h200 gradient_accumulation_steps=64"},
        {5, 4.34, "llama-2-70b h200 gradient_accumulation_steps=512"},
        {0, 1.49, "llama-3.1-405b h100-80-x8 optimizer_state=8bit world_size=64 lora_rank=16"},
        {5, 4.2,
                "llama-3.1-405b h100-80-x8 optimizer_state=8bit world_size=64 "
                "gradient_accumulation_steps=64"},
        {0, 3.17, "gpt-oss-120b workstation-rtx-4090 lora_rank=16 base_format=mxfp4 ram_budget=80GB"},
        {5, 1.28, "gpt-oss-120b workstation-rtx-4090 lora_rank=16 base_format=bf16 ram_budget=80GB"},
};

/* Runs the program in this process, without its text. */
static int quietly(int argc, char *argv[])
{
	int null = open("/dev/null", O_WRONLY), kept[2], code;

	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		kept[i] = dup(1 + i);
		assert_true(kept[i] >= 0 && dup2(null, 1 + i) >= 0);
	}
	code = cli_main(argc, argv);
	fflush(stdout);
	fflush(stderr);
	for (int i = 0; i < 2; i++) {
		assert_true(dup2(kept[i], 1 + i) >= 0);
		close(kept[i]);
	}
	close(null);
	return code;
}

/* Plans a model, a machine and settings; returns the exit code. */
static int plan(const char *row)
{
	const char *source = getenv("FERRY_SOURCE") ? getenv("FERRY_SOURCE") : ".";
	char words[400], model[500], machine[500], *argv[WORDS] = {"ferry", "plan", model, machine};
	int argc = 4;

	snprintf(words, sizeof(words), "%s", row);
	snprintf(model, sizeof(model), "%s/examples/models/%s.json", source, strtok(words, " "));
	snprintf(machine, sizeof(machine), "machine=%s/examples/machines/%s.yaml", source, strtok(NULL, " "));
	for (char *word; (word = strtok(NULL, " ")) && argc < WORDS - 2;)
		argv[argc++] = word;
	argv[argc++] = "--json";
	return quietly(argc, argv);
}

static void test_work(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int64_t before = plan_listed_ops();
		int code = plan(rows[i].words);
		double millions = 1e-6 * (double)(plan_listed_ops() - before);

		print_message("%6.2f million operations: %s\n", millions, rows[i].words);
		assert_int_equal(code, rows[i].code);
		assert_true(millions > 0);
		if (millions > 1.25 * rows[i].millions)
			fail_msg("%.2f million operations, not %.2f", millions, rows[i].millions);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_work)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
