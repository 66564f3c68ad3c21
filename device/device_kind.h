/* The kinds of device and their properties, known without opening one and in builds without its backend.
 *
 * Each backend has one row, each property a column. Code reads properties and never compares names. A new
 * backend needs a row here, its reserves in device_kind.c, and the backend itself (device/backend.h).
 */
#ifndef FERRY_DEVICE_DEVICE_KIND_H
#define FERRY_DEVICE_DEVICE_KIND_H

#include <stdint.h>

/* ROW(NAME, name, is_host, has_bytes, piece's rows, piece's bytes); struct device_facts explains the columns.
 */
#define DEVICE_KIND_LIST(ROW)                                                                                \
	ROW(HOST, "host", 1, 1, 512, INT64_C(256) << 20)                                                     \
	ROW(CUDA, "cuda", 0, 1, 2048, INT64_C(512) << 20)                                                    \
	ROW(META, "meta", 0, 0, 512, INT64_C(256) << 20)

enum device_kind {
#define DEVICE_ENUM(NAME, name, is_host, has_bytes, rows, bytes) DEVICE_##NAME,
	DEVICE_KIND_LIST(DEVICE_ENUM)
#undef DEVICE_ENUM
	        DEVICE_KIND_COUNT
};

/* A device computes results such as logits in pieces of `rows`, or of fewer rows if those exceed `bytes`.
 * Each piece moves the operands that all pieces share once more, so faster arithmetic needs more rows. */
struct device_piece {
	int64_t rows, bytes;
};

struct device_facts {
	const char *name; /* for device_open and messages */
	int is_host;      /* 1: ops run on the host's cores, in the host's memory */
	int has_bytes;    /* 0: it only advances a clock; slabs and arena have no memory */
	struct device_piece piece;
};

/* Static. */
const struct device_facts *device_facts_of(enum device_kind kind);

/* Device memory beside the arena: workspaces of libraries, which the device allocates when it opens, and room
 * for the driver. A plan counts it. */
struct device_reserve {
	const char *name; /* for people; static */
	int64_t bytes;
};
enum { DEVICE_RESERVES_MAX = 8 };

/* The reserves of the CUDA device. MATMUL is the workspace of matrix products; ferry allocates it. CODE is
 * memory that the driver takes when code first runs. NCCL bounds the buffers of one communicator, roughly,
 * even with many GPUs and channels. ferry allocates neither of the last two and only leaves room for them. */
enum { RESERVE_MATMUL_BYTES = 32 << 20, RESERVE_CODE_BYTES = 256 << 20, RESERVE_NCCL_BYTES = 512 << 20 };

/* Groups of more than one rank that the run opens; each takes device memory when its ranks connect. */
struct device_comms {
	int count, ranks_on_node;
};

/* From so many ranks of a host on, NCCL sums in NVSwitch where it can (NVLS), with buffers for that. */
enum { RESERVE_NVLS_RANKS = 5, RESERVE_NVLS_BYTES = 1 << 30 };

/* What the driver takes of a GPU for a process before it allocates anything. A described GPU does not
 * have it to give; what an open one says is free is without it. */
enum { DEVICE_CONTEXT_BYTES = 600 << 20 };

/* Fills list[0 .. DEVICE_RESERVES_MAX) with the reserves of such a device and returns their number.
 * comms NULL: one rank. */
int device_reserve_list(struct device_reserve *list, enum device_kind kind, const struct device_comms *comms);

#endif
