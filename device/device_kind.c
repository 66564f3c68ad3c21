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

/* Which runs have a reserve: all, those of several ranks (for each communicator), those of many on one
 * host. */
enum reserve_of { RESERVE_ALWAYS, RESERVE_PER_COMM, RESERVE_OF_MANY };

static const struct {
	enum device_kind kind;
	struct device_reserve reserve;
	enum reserve_of of;
} reserves[] = {
        {DEVICE_CUDA, {"cuBLASLt workspace", RESERVE_MATMUL_BYTES}, RESERVE_ALWAYS},
        {DEVICE_CUDA, {"kernels and library code", RESERVE_CODE_BYTES}, RESERVE_ALWAYS},
        {DEVICE_CUDA, {"NCCL", RESERVE_NCCL_BYTES}, RESERVE_PER_COMM},
        {DEVICE_CUDA, {"NCCL's sums in NVSwitch", RESERVE_NVLS_BYTES}, RESERVE_OF_MANY},
};

int device_reserve_list(struct device_reserve *list, enum device_kind kind, const struct device_comms *comms)
{
	const struct device_comms none = {0};
	int count = 0;

	comms = comms ? comms : &none;
	for (size_t i = 0; i < sizeof(reserves) / sizeof(reserves[0]); i++) {
		int times = reserves[i].of == RESERVE_ALWAYS ? 1
		            : reserves[i].of == RESERVE_PER_COMM
		                    ? comms->count
		                    : comms->count && comms->ranks_on_node >= RESERVE_NVLS_RANKS;

		if (reserves[i].kind != kind || !times)
			continue;
		list[count] = reserves[i].reserve;
		list[count++].bytes *= times;
	}
	assert(count <= DEVICE_RESERVES_MAX);
	return count;
}
