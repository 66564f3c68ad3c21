/* Properties of each kind of device, and the memory that its libraries take. */
#include "device/device_kind.h"

#include <assert.h>
#include <stddef.h>

const struct device_facts *device_facts_of(enum device_kind kind)
{
	static const struct device_facts facts[] = {
#define DEVICE_FACTS(NAME, name, is_host, has_bytes, rows, bytes) {name, is_host, has_bytes, {rows, bytes}},
	        DEVICE_KIND_LIST(DEVICE_FACTS)
#undef DEVICE_FACTS
	};

	assert((unsigned)kind < DEVICE_KIND_COUNT);
	return &facts[kind];
}

static const struct {
	enum device_kind kind;
	struct device_reserve reserve;
	int is_per_comm;
} reserves[] = {
        {DEVICE_CUDA, {"cuBLASLt workspace", RESERVE_MATMUL_BYTES}, 0},
        {DEVICE_CUDA, {"kernels and library code", RESERVE_CODE_BYTES}, 0},
        {DEVICE_CUDA, {"NCCL", RESERVE_NCCL_BYTES}, 1},
};

int device_reserve_list(struct device_reserve *list, enum device_kind kind, int comm_count)
{
	int count = 0;

	for (size_t i = 0; i < sizeof(reserves) / sizeof(reserves[0]); i++) {
		if (reserves[i].kind != kind || (reserves[i].is_per_comm && !comm_count))
			continue;
		list[count] = reserves[i].reserve;
		if (reserves[i].is_per_comm)
			list[count].bytes *= comm_count;
		count++;
	}
	assert(count <= DEVICE_RESERVES_MAX);
	return count;
}
