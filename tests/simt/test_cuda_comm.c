/* Collectives between processes as ranks, through the fake NCCL. If a rank fails, hangs or dies, every
 * other rank ends with an error in time. */
#include "tests/check.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "device/backend.h"
#include "tests/simt/fake_nccl.h"
#include "tests/simt/simt_runtime.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct backend backend_cuda;

enum { RANKS_MAX = FAKE_NCCL_RANKS_MAX, VALUES_MAX = 32, SHARD = 37, ALIVE_S = 60, MS = 1000000 };

/* How ranks talk before NCCL does: meetings in shared memory, as in the fake, but all of its own. */
struct post {
	atomic_int arrived;
	char values[RANKS_MAX][256];
};

struct rank {
	int rank, world_size, meetings, ranks_per_node;
	struct post *post;
	struct device_bootstrap bootstrap;
	struct device *device;
	struct stream *stream;
	struct comm *comm;
	dev_addr arena;
	int64_t began_ns;
};

/* In a rank's process, where cmocka's own ways lead back into the parent's. */
#define must(condition)                                                                                      \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: rank %d of %d: not %s; error \"%s\"\n", __FILE__, __LINE__,  \
			        r->rank, r->world_size, #condition, err_text());                             \
			_exit(1);                                                                            \
		}                                                                                            \
	} while (0)

static void post_meet(struct rank *r)
{
	int all = r->world_size * ++r->meetings;

	atomic_fetch_add(&r->post->arrived, 1);
	while (atomic_load(&r->post->arrived) < all)
		usleep(100);
}

static int post_broadcast(void *context, void *values, int64_t bytes, int root)
{
	struct rank *r = context;

	must(bytes <= (int64_t)sizeof(r->post->values[0]));
	if (r->rank == root)
		memcpy(r->post->values[root], values, (size_t)bytes);
	post_meet(r);
	memcpy(values, r->post->values[root], (size_t)bytes);
	post_meet(r);
	return 0;
}

static int post_sum(void *context, double *values, int count)
{
	struct rank *r = context;

	must(count <= VALUES_MAX);
	memcpy(r->post->values[r->rank], values, (size_t)count * sizeof(double));
	post_meet(r);
	memset(values, 0, (size_t)count * sizeof(double));
	for (int rank = 0; rank < r->world_size; rank++)
		for (int i = 0; i < count; i++) {
			double value;

			memcpy(&value, r->post->values[rank] + 8 * i, 8);
			values[i] += value;
		}
	post_meet(r);
	return 0;
}

/* ---- a rank's life ---- */

static void rank_open_device(struct rank *r)
{
	const struct device_options options = {
	        .bootstrap = &r->bootstrap, .check_races = 1, .ranks_per_node = r->ranks_per_node};
	struct simt_machine_options machine = simt_runtime_defaults();

	simt_runtime_set(&machine);
	device_register(&backend_cuda);
	must(!device_open(&r->device, "cuda", &options));
	must(!device_arena_open(r->device, &r->arena, FAKE_NCCL_BYTES_MAX));
	must(!stream_open(&r->stream, r->device, QUEUE_COMM));
}

/* And nothing is left of it. */
static void rank_close(struct rank *r, int findings)
{
	struct fake_nccl_stats stats;

	comm_close(r->comm);
	stream_close(r->stream);
	device_close(r->device);
	fake_nccl_get_stats(&stats);
	must(stats.live_count == 0);
	must(stats.finding_count == findings);
	must(simt_runtime_live() == 0);
}

static double value_of(int rank, int64_t i)
{
	return (double)((rank + 1) * (i % 5 + 1));
}

static double sum_of(int world_size, int64_t i)
{
	return value_of(0, i) * world_size * (world_size + 1) / 2;
}

static double get(const unsigned char *at, enum dtype dtype, int64_t i)
{
	uint16_t h;
	int32_t n;
	int16_t s;
	float f;
	double d;

	memcpy(&h, at + 2 * i, 2);
	switch (dtype) {
	case DTYPE_F32:
		memcpy(&f, at + 4 * i, 4);
		return f;
	case DTYPE_BF16:
		return bf16_to_f32(h);
	case DTYPE_F16:
		return f16_to_f32(h);
	case DTYPE_F64:
		memcpy(&d, at + 8 * i, 8);
		return d;
	case DTYPE_I16:
		memcpy(&s, at + 2 * i, 2);
		return s;
	case DTYPE_I32:
		memcpy(&n, at + 4 * i, 4);
		return n;
	default:
		return at[i];
	}
}

static void set(unsigned char *at, enum dtype dtype, int64_t i, double value)
{
	float f = (float)value;
	uint16_t bf16 = bf16_from_f32(f), f16 = f16_from_f32(f);
	int32_t n = (int32_t)value;
	int16_t s = (int16_t)value;

	switch (dtype) {
	case DTYPE_F32:
		memcpy(at + 4 * i, &f, 4);
		break;
	case DTYPE_BF16:
		memcpy(at + 2 * i, &bf16, 2);
		break;
	case DTYPE_F16:
		memcpy(at + 2 * i, &f16, 2);
		break;
	case DTYPE_F64:
		memcpy(at + 8 * i, &value, 8);
		break;
	case DTYPE_I16:
		memcpy(at + 2 * i, &s, 2);
		break;
	case DTYPE_I32:
		memcpy(at + 4 * i, &n, 4);
		break;
	default:
		at[i] = (unsigned char)value;
	}
}

/* A buffer of as many shards as ranks, filled by value_of over the whole or, of all_gather, the own shard. */
static void fill(struct rank *r, unsigned char *host, enum dtype dtype, int64_t from, int64_t count)
{
	int64_t all = r->world_size * SHARD, bytes = all * dtype_bytes(dtype);

	memset(host, 0xee, (size_t)bytes);
	for (int64_t i = from; i < from + count; i++)
		set(host, dtype, i, value_of(r->rank, i));
	must(!stream_copy_in(r->stream, r->arena, host, bytes));
}

static void fetch(struct rank *r, unsigned char *host, enum dtype dtype)
{
	must(!stream_copy_out(r->stream, host, r->arena, r->world_size * SHARD * dtype_bytes(dtype)));
	must(!stream_sync(r->stream));
}

static void try_dtype(struct rank *r, enum dtype dtype)
{
	static unsigned char host[RANKS_MAX * SHARD * 8];
	int64_t own = r->rank * SHARD, all = r->world_size * SHARD;

	fill(r, host, dtype, own, SHARD);
	must(!comm_all_gather(r->comm, r->stream, r->arena, SHARD, dtype));
	fetch(r, host, dtype);
	for (int64_t i = 0; i < all; i++)
		must(get(host, dtype, i) == value_of((int)(i / SHARD), i));
	for (int root = 0; root < r->world_size; root++) {
		fill(r, host, dtype, 0, all);
		must(!comm_broadcast(r->comm, r->stream, r->arena, all, dtype, root));
		fetch(r, host, dtype);
		for (int64_t i = 0; i < all; i++)
			must(get(host, dtype, i) == value_of(root, i));
	}
	if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
		return;
	fill(r, host, dtype, 0, all);
	must(!comm_reduce_scatter(r->comm, r->stream, r->arena, SHARD, dtype));
	fetch(r, host, dtype);
	for (int64_t i = own; i < own + SHARD; i++)
		must(get(host, dtype, i) == sum_of(r->world_size, i));
	fill(r, host, dtype, 0, all);
	must(!comm_all_reduce(r->comm, r->stream, r->arena, all, dtype));
	fetch(r, host, dtype);
	for (int64_t i = 0; i < all; i++)
		must(get(host, dtype, i) == sum_of(r->world_size, i));
}

static void rank_collectives(struct rank *r)
{
	/* those that get and set know: one of each size and kind of number */
	static const enum dtype dtypes[] = {
	        DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I16, DTYPE_I32, DTYPE_U8};
	struct fake_nccl_stats stats;
	double values[2] = {r->rank + 1, 0.5};

	rank_open_device(r);
	must(!comm_open(&r->comm, r->device, r->rank, r->world_size));
	must(comm_rank(r->comm) == r->rank && comm_world_size(r->comm) == r->world_size);
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		try_dtype(r, dtypes[i]);
	must(!comm_sum_host(r->comm, values, 2));
	must(values[0] == r->world_size * (r->world_size + 1) / 2 && values[1] == 0.5 * r->world_size);
	fake_nccl_get_stats(&stats);
	must(stats.collective_count ==
	        (int)(sizeof(dtypes) / sizeof(dtypes[0])) * (1 + r->world_size) + 2 * 2);
	must(stats.abort_count == 0);
	rank_close(r, 0);
}

/* Two groups of neighbours and two of one rank of each, at once, as HYBRID_SHARD has them on two nodes: each
 * knows its own ranks only, on one stream, and what it sends is counted by node. */
static void rank_groups(struct rank *r)
{
	enum { SIZE = 2, BYTES = 2 * SHARD * 4 };
	const struct comm_group near = {r->rank % 2, SIZE, r->rank / 2 * 2, 1, 4},
	                        far = {r->rank / 2, SIZE, r->rank % 2, 2, 4};
	static unsigned char host[BYTES];
	double values[2] = {r->rank + 1, 0.5};
	struct device_stats stats;
	struct comm *same;

	r->ranks_per_node = 2;
	rank_open_device(r);
	must(!comm_open_group(&r->comm, r->device, &near));
	must(!comm_open_group(&same, r->device, &far));
	must(comm_rank(same) == r->rank / 2 && comm_world_size(same) == SIZE);
	memset(host, 0xee, sizeof(host));
	for (int64_t i = 0; i < SHARD; i++)
		set(host, DTYPE_F32, near.rank * SHARD + i, value_of(r->rank, i));
	must(!stream_copy_in(r->stream, r->arena, host, BYTES));
	must(!comm_all_gather(r->comm, r->stream, r->arena, SHARD, DTYPE_F32));
	must(!comm_all_reduce(same, r->stream, r->arena, SIZE * SHARD, DTYPE_F32));
	must(!comm_reduce_scatter(r->comm, r->stream, r->arena, SHARD, DTYPE_F32));
	must(!stream_copy_out(r->stream, host, r->arena, BYTES));
	must(!stream_sync(r->stream));
	for (int64_t i = 0; i < SHARD; i++) { /* both neighbours had the sum over the nodes */
		double both = value_of(near.rank, i) + value_of(near.rank + 2, i);

		must(get(host, DTYPE_F32, near.rank * SHARD + i) == 2 * both);
	}
	must(!comm_sum_host(r->comm, values, 2));
	must(values[0] == 2 * near.first + 3 && values[1] == 1);
	must(!comm_sum_host(same, values, 1));
	must(values[0] == 10 && values[1] == 1);
	device_get_stats(r->device, &stats);
	must(stats.sent_node_bytes == BYTES / 2 + BYTES / 2); /* gathered, scattered */
	must(stats.sent_network_bytes == BYTES / 2 * 2);      /* over both and back */
	comm_close(same);
	rank_close(r, 0);
}

/* The first rank of the second group has no id to tell: no rank of either is left waiting. */
static void rank_groups_no_id(struct rank *r)
{
	const struct comm_group near = {r->rank % 2, 2, r->rank / 2 * 2, 1, 4};
	int rc;

	if (r->rank == 2)
		fake_nccl_break(FAKE_NCCL_NO_ID, 0);
	rank_open_device(r);
	rc = comm_open_group(&r->comm, r->device, &near);
	must(rc == ERR_DEVICE && !r->comm);
	must(strstr(err_text(), r->rank == 2 ? "ncclGetUniqueId" : "rank 2 could not invite"));
	rank_close(r, 0);
}

/* A rank is late, and several collectives are in flight. */
static void rank_slow(struct rank *r)
{
	unsigned char host[RANKS_MAX * SHARD * 4];

	if (r->rank == 1)
		fake_nccl_break(FAKE_NCCL_SLOW, 2);
	rank_open_device(r);
	must(!comm_open(&r->comm, r->device, r->rank, r->world_size));
	fill(r, host, DTYPE_F32, 0, r->world_size * SHARD);
	for (int i = 0; i < 3; i++)
		must(!comm_all_reduce(r->comm, r->stream, r->arena, r->world_size * SHARD, DTYPE_F32));
	fetch(r, host, DTYPE_F32);
	for (int64_t i = 0; i < r->world_size * SHARD; i++)
		must(get(host, DTYPE_F32, i) == sum_of(r->world_size, i) * r->world_size * r->world_size);
	rank_close(r, 0);
}

/* ---- a rank that breaks the world: rank 1 ---- */

static void in_time(struct rank *r)
{
	must(clock_now_ns() - r->began_ns < 10 * (int64_t)1000 * MS);
}

/* Every rank must see its first failure at open or in the collectives, and everything after it fails. */
static void rank_breaks(struct rank *r, enum fake_nccl_fault fault, int breaker, int open_fails)
{
	struct fake_nccl_stats stats;
	int rc;

	if (r->rank == breaker)
		fake_nccl_break(fault, 2);
	rank_open_device(r);
	rc = comm_open(&r->comm, r->device, r->rank, r->world_size);
	in_time(r);
	must(open_fails ? rc == ERR_DEVICE : !rc);
	if (rc) {
		must(!r->comm);
		must(strstr(err_text(), "NCCL") || strstr(err_text(), "nccl"));
		rank_close(r, 0);
		return;
	}
	for (int i = 0; i < 4 && !rc; i++)
		rc = comm_all_reduce(r->comm, r->stream, r->arena, 8, DTYPE_F32);
	rc = stream_sync(r->stream);
	must(rc == ERR_DEVICE);
	must(strstr(err_text(), "NCCL, rank"));
	in_time(r);
	must(comm_all_gather(r->comm, r->stream, r->arena, 8, DTYPE_F32) == ERR_DEVICE);
	must(strstr(err_text(), "NCCL, rank"));
	fake_nccl_get_stats(&stats);
	must(stats.abort_count == 1);
	rank_close(r, 0);
	in_time(r);
}

static void rank_no_id(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_NO_ID, 0, 1);
}

static void rank_no_init(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_NO_INIT, 1, 1);
}

static void rank_bad_init(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_BAD_INIT, 1, 1);
}

static void rank_refuse(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_REFUSE, 0, 0);
}

static void rank_error(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_ERROR, 1, 0);
}

static void rank_hang(struct rank *r)
{
	rank_breaks(r, FAKE_NCCL_HANG, 1, 0);
}

/* One dies without a word; the others find out by the deadline. */
static void rank_dies(struct rank *r)
{
	rank_open_device(r);
	must(!comm_open(&r->comm, r->device, r->rank, r->world_size));
	must(!comm_all_reduce(r->comm, r->stream, r->arena, 8, DTYPE_F32));
	must(!stream_sync(r->stream));
	if (r->rank == 1)
		_exit(0);
	must(!comm_all_reduce(r->comm, r->stream, r->arena, 8, DTYPE_F32));
	must(stream_sync(r->stream) == ERR_DEVICE);
	must(strstr(err_text(), "did not come in time"));
	in_time(r);
	rank_close(r, 0);
}

static int fail_call(void *context)
{
	(void)context;
	return err_set(ERR_NONFINITE, "the first trouble");
}

/* A rank fails by itself while a collective is in flight that no other comes to: it does not wait for the
 * deadline, which is half an hour. */
static void rank_gives_up(struct rank *r)
{
	struct stream *cpu;
	struct event *event;

	rank_open_device(r);
	must(!comm_open(&r->comm, r->device, r->rank, r->world_size));
	if (r->rank == 1) {
		must(!stream_open(&cpu, r->device, QUEUE_CPU));
		must(!event_open(&event, r->device));
		must(!stream_call(cpu, fail_call, NULL, NULL));
		must(!event_record(event, cpu));
		must(!stream_wait(r->stream, event));
		must(!comm_all_reduce(r->comm, r->stream, r->arena, 8, DTYPE_F32));
		must(stream_sync(r->stream) == ERR_NONFINITE);
		must(strstr(err_text(), "the first trouble"));
		in_time(r);
		event_close(event);
		stream_close(cpu);
	}
	post_meet(r);
	rank_close(r, 0);
}

/* One has no memory left to open NCCL; all hear of it at once. */
static void rank_no_memory(struct rank *r)
{
	int rc;

	rank_open_device(r);
	if (r->rank == 1)
		mem_fault_arm(2, MEM_FAULT_ONCE);
	rc = comm_open(&r->comm, r->device, r->rank, r->world_size);
	mem_fault_arm(0, MEM_FAULT_ONCE);
	must(rc == (r->rank == 1 ? ERR_NOMEM : ERR_UNSUPPORTED));
	must(r->rank == 1 || strstr(err_text(), "1 other rank"));
	rank_close(r, 0);
}

static void rank_no_bootstrap(struct rank *r)
{
	const struct device_options options = {.poison = 0};

	device_register(&backend_cuda);
	must(!device_open(&r->device, "cuda", &options));
	must(comm_open(&r->comm, r->device, r->rank, r->world_size) == ERR_UNSUPPORTED);
	must(!r->comm);
	device_close(r->device);
}

/* ---- the parent ---- */

typedef void rank_fn(struct rank *r);

static void world_run(rank_fn *fn, int world_size, int64_t timeout_ns)
{
	struct post *post =
	        mmap(NULL, sizeof(*post), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[RANKS_MAX];

	assert_true(post != MAP_FAILED);
	check_ok(fake_nccl_share());
	for (int rank = 0; rank < world_size; rank++) {
		struct rank r = {.rank = rank, .world_size = world_size, .post = post};

		pids[rank] = fork();
		if (pids[rank])
			continue;
		alarm(ALIVE_S);
		r.began_ns = clock_now_ns();
		r.bootstrap = (struct device_bootstrap){post_broadcast, post_sum, &r, timeout_ns};
		fn(&r);
		_exit(0);
	}
	for (int rank = 0; rank < world_size; rank++) {
		int status = -1;

		assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
		if (status)
			print_error("rank %d of %d ended with status %d\n", rank, world_size, status);
		assert_int_equal(status, 0);
	}
	munmap(post, sizeof(*post));
}

static void test_collectives(void **state)
{
	(void)state;
	setenv("FERRY_NCCL", "1", 1); /* of a world of one too */
	for (int world_size = 1; world_size <= RANKS_MAX; world_size++)
		world_run(rank_collectives, world_size, 0);
	unsetenv("FERRY_NCCL");
}

static void test_groups(void **state)
{
	(void)state;
	world_run(rank_groups, 4, 0);
	world_run(rank_groups_no_id, 4, 0);
}

static void test_slow(void **state)
{
	(void)state;
	world_run(rank_slow, 3, 0);
}

static void test_faults(void **state)
{
	static rank_fn *const ranks[] = {rank_no_id, rank_no_init, rank_bad_init, rank_refuse, rank_error,
	        rank_hang, rank_dies, rank_no_memory};

	(void)state;
	for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++)
		world_run(ranks[i], 2 + (int)i % 3, 300 * MS);
	world_run(rank_gives_up, 2, 0);
}

static void test_refused(void **state)
{
	(void)state;
	world_run(rank_no_bootstrap, 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_collectives),
	        cmocka_unit_test(test_groups),
	        cmocka_unit_test(test_slow),
	        cmocka_unit_test(test_faults),
	        cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
