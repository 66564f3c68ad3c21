/* libraries: ferry_placement. The figures of known cards are those of the described machines. */
#include "tests/check.h"

#include "gpu/cuda_cards.h"
#include "placement/machine.h"

#include <math.h>

static void test_cards_are_the_machines(void **state)
{
	const char *source = getenv("FERRY_SOURCE");

	(void)state;
	assert_true(cuda_cards[0].name != NULL);
	for (const struct cuda_card *c = cuda_cards; c->name; c++) {
		struct machine *m;
		char path[600];

		snprintf(path, sizeof(path), "%s/examples/machines/%s.yaml", source ? source : ".",
		        c->machine);
		assert_int_equal(machine_read(&m, path), 0);
		if (fabs(m->bf16_tflops * m->matmul_share - c->product) > 0.06 ||
		        m->attention_tflops != c->attention ||
		        m->attention_grad_tflops != c->attention_grad || m->gpu_memory_gbps != c->memory ||
		        m->h2d_gbps != c->link)
			fail_msg("%s: not the figures of %s", c->name, path);
		assert_ptr_equal(cuda_card_of(c->name), c);
		machine_free(m);
	}
	assert_null(cuda_card_of("NVIDIA GeForce RTX 4090 Laptop GPU"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cards_are_the_machines)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
