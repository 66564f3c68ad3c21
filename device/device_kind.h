/* The kinds of device, and what is known of each without opening it, in a build without it too.
 *
 * One row for each backend. What a program asks of a device is a column, so that no code compares names, and
 * a further backend needs its row here, its reserves in device_kind.c, and the backend (device/backend.h).
 */
#ifndef FERRY_DEVICE_DEVICE_KIND_H
#define FERRY_DEVICE_DEVICE_KIND_H

#include <stdint.h>

/* ROW(NAME, name, is_host, has_bytes, piece's rows, piece's bytes): device_facts explains them. */
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

/* A result that is only needed in pieces, as logits are, is formed on a device in pieces of `rows`, fewer
 * where those would take more than `bytes`. What such a piece is multiplied into is read and written once for
 * each of them, so the faster the arithmetic, the more rows hide that. */
struct device_piece {
	int64_t rows, bytes;
};

struct device_facts {
	const char *name; /* as device_open and messages have it */
	int is_host;      /* its ops run on the cores of the host, and its memory is the host's */
	int has_bytes;    /* 0: it advances a clock, and no memory stands behind slabs and arena */
	struct device_piece piece;
};

/* Static. */
const struct device_facts *device_facts_of(enum device_kind kind);

/* What is taken of device memory beside the arena: workspaces of libraries, which the device allocates when
 * it opens, and room for what a driver takes by itself. A plan counts it. */
struct device_reserve {
	const char *name; /* for people; static */
	int64_t bytes;
};
enum { DEVICE_RESERVES_MAX = 8 };

/* The reserves of the CUDA device: the workspace that it allocates for matrix products, what the driver takes
 * when code is first used, and the buffers of each of NCCL's communicators, which grow with GPUs and channels
 * to about this; the latter two can only be left free. */
enum { RESERVE_MATMUL_BYTES = 32 << 20, RESERVE_CODE_BYTES = 256 << 20, RESERVE_NCCL_BYTES = 512 << 20 };

/* Fills list[0 .. DEVICE_RESERVES_MAX) with the reserves of such a device, in a run that opens comm_count
 * groups of more than one rank (each takes device memory when ranks connect), and returns their number. */
int device_reserve_list(struct device_reserve *list, enum device_kind kind, int comm_count);

#endif
