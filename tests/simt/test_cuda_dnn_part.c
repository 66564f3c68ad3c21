/* Parts of attention for cuDNN: the largest that fit the workspace, and their places. */
#include "tests/check.h"

#include "gpu/cuda_dnn_part.h"

enum { MIB = 1 << 20 };

static void expect(int64_t documents, int64_t kv_heads, int64_t one_bytes, int64_t room_bytes,
        int64_t part_documents, int64_t part_heads)
{
	struct cuda_dnn_part part =
	        cuda_dnn_part_choose((struct cuda_dnn_part){documents, kv_heads}, one_bytes, room_bytes);

	assert_int_equal(part.documents, part_documents);
	assert_int_equal(part.kv_heads, part_heads);
}

static void test_choose(void **state)
{
	(void)state;
	expect(4, 8, 143 * MIB, 268 * MIB, 1, 1); /* Llama 3 8B, 4 x 4096, in the op's scratch */
	expect(4, 8, 143 * MIB, 300 * MIB, 1, 2);
	expect(4, 8, 143 * MIB, 1200ll * MIB, 1, 8);
	expect(4, 8, 143 * MIB, 2400ll * MIB, 2, 8);
	expect(4, 8, 143 * MIB, 4600ll * MIB, 4, 8);
	expect(6, 6, 10, 25, 1, 2); /* parts of one size: 2 divides 6, and so does 3 */
	expect(6, 6, 10, 50, 1, 3);
	expect(3, 1, 10, 10, 1, 1);
	expect(3, 1, 10, 29, 1, 1);
	expect(3, 1, 10, 30, 3, 1);
	expect(2, 4, 0, 10, 2, 4);   /* no workspace at all */
	expect(2, 4, 100, 10, 1, 1); /* not even one: its plan is refused */
}

/* Where a number of the whole op lies, counted from its first. */
static void test_places(void **state)
{
	const struct op_attention_grad whole = {.q = {1000000},
	        .k = {2000000},
	        .v = {3000000},
	        .out = {4000000},
	        .lse = {5000000},
	        .dq = {6000000},
	        .dk = {7000000},
	        .dv = {8000000},
	        .dout = {9000000},
	        .scratch = {10000000},
	        .tokens = 12,
	        .documents = 3,
	        .document_tokens = 4,
	        .heads = 6,
	        .kv_heads = 2,
	        .head_dim = 8,
	        .qkv_stride = 80,
	        .q_head_stride = 8,
	        .kv_head_stride = 8,
	        .out_stride = 48};

	(void)state;
	for (int64_t document = 0; document < 3; document++)
		for (int64_t kv = 0; kv < 2; kv++) {
			struct op_attention_grad part = cuda_dnn_part_of(&whole, document, kv);
			uint64_t token = (uint64_t)document * 4, head = (uint64_t)kv * 3;

			assert_int_equal(part.q.value, 1000000 + 2 * (token * 80 + head * 8));
			assert_int_equal(part.dq.value, 6000000 + 2 * (token * 80 + head * 8));
			assert_int_equal(part.k.value, 2000000 + 2 * (token * 80 + (uint64_t)kv * 8));
			assert_int_equal(part.v.value, 3000000 + 2 * (token * 80 + (uint64_t)kv * 8));
			assert_int_equal(part.dk.value, 7000000 + 2 * (token * 80 + (uint64_t)kv * 8));
			assert_int_equal(part.dv.value, 8000000 + 2 * (token * 80 + (uint64_t)kv * 8));
			assert_int_equal(part.out.value, 4000000 + 2 * (token * 48 + head * 8));
			assert_int_equal(part.dout.value, 9000000 + 2 * (token * 48 + head * 8));
			assert_int_equal(part.lse.value, 5000000 + 4 * (token * 6 + head));
			assert_int_equal(part.scratch.value, 10000000);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_choose),
	        cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
