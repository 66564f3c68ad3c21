/* links: comm */
/* also: tsan */
/* also: usual */

/* Links between real ranks, over MPI and sockets: every kind of message, many at once, large ones, and
 * some that no rank receives. */
#include "tests/link_job.h"

#include "base/num.h"

#include <pthread.h>
#include <stdlib.h>

/* ---- in a rank ---- */

enum { BLOCK_BYTES = 4096 };

/* A block of a message between two ranks; all blocks differ. */
static void block_make(unsigned char *block, int from, int to, int what, int64_t number)
{
	for (int i = 0; i < BLOCK_BYTES && number == 0; i++)
		block[i] = (unsigned char)(i * 131 + i / 251 + from * 17 + to * 29 + what * 7);
	memcpy(block, &number, sizeof(number));
	block[1 + sizeof(number)] ^= (unsigned char)what;
}

static int64_t block_bytes(int64_t bytes, int64_t at)
{
	return bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
}

static unsigned char *message_make(int from, int to, int64_t bytes, int what)
{
	unsigned char *values = mem_alloc((size_t)bytes + 1, 1), block[BLOCK_BYTES];

	must(values);
	for (int64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		block_make(block, from, to, what, at / BLOCK_BYTES);
		memcpy(values + at, block, (size_t)block_bytes(bytes, at));
	}
	return values;
}

static void message_check(const unsigned char *values, int from, int to, int64_t bytes, int what)
{
	unsigned char block[BLOCK_BYTES];

	for (int64_t at = 0; at < bytes; at += BLOCK_BYTES) {
		block_make(block, from, to, what, at / BLOCK_BYTES);
		must(!memcmp(values + at, block, (size_t)block_bytes(bytes, at)));
	}
}

/* Each rank sends several messages of different lengths to each other one. Receives come before and after
 * sends. */
static void all_to_all(struct link *link, const int64_t *lengths, int kinds)
{
	int own = link_rank(link), all = link_size(link), count = 0;
	struct link_part *parts = mem_alloc((size_t)(all * kinds * 2), sizeof(*parts));

	must(parts);
	for (int k = 0; k < kinds; k++)
		for (int step = 1; step < all; step++) {
			int to = (own + step) % all, from = (own + all - step) % all;

			parts[count++] = (struct link_part){
			        LINK_SEND, to, message_make(own, to, lengths[k], k), lengths[k]};
			parts[count++] = (struct link_part){
			        LINK_RECEIVE, from, mem_alloc((size_t)lengths[k] + 1, 1), lengths[k]};
			must(parts[count - 1].values);
		}
	must(!link_exchange(link, parts, count));
	for (int i = 0; i < count; i++) {
		int kind = all > 1 ? i / (2 * (all - 1)) : 0;

		if (parts[i].way == LINK_RECEIVE)
			message_check(parts[i].values, parts[i].peer, own, lengths[kind], kind);
		mem_free(parts[i].values);
	}
	mem_free(parts);
}

static void sums_check(struct link *link)
{
	double values[3], expected[3] = {0};

	for (int r = 0; r < link_size(link); r++)
		for (int i = 0; i < 3; i++) {
			double own = 1.0 / (3 + r + i) + 1e9 * (r == 1);

			if (r == link_rank(link))
				values[i] = own;
			expected[i] = r ? expected[i] + own : own;
		}
	must(!link_sum(link, values, 3));
	must(!memcmp(values, expected, sizeof(values))); /* in the order of ranks, to the bit */
}

static void broadcast_check(struct link *link)
{
	for (int root = 0; root < link_size(link); root++) {
		unsigned char *values = message_make(root, 0, 5000, link_rank(link) == root ? 1 : 2);

		must(!link_broadcast(link, values, 5000, root));
		message_check(values, root, 0, 5000, 1);
		mem_free(values);
	}
}

static struct link *beside;

/* Small exchanges while the other thread has large ones; each in its own order on each rank. */
static void *beside_run(void *unused)
{
	for (int i = 0; i < 50; i++)
		sums_check(beside);
	return unused;
}

static void run_kinds(void)
{
	static const int64_t lengths[] = {1, 0, 4096, 17, 70000, 131072, 131073, (1 << 20) + 9};
	struct link *whole, *half;
	pthread_t thread;

	if (size == 1) {
		must(world_agree(0) == 0);
		return;
	}
	must(!link_open(&whole, 0, 1, size));
	must(!link_open(&beside, 0, 1, size));
	/* those with the same remainder; one alone, too */
	must(!link_open(&half, rank % 2, 2, (size - rank % 2 + 1) / 2));
	for (int round = 0; round < 3; round++) {
		must(!pthread_create(&thread, NULL, beside_run, NULL));
		all_to_all(whole, lengths, 8);
		all_to_all(half, lengths, 3);
		must(!pthread_join(thread, NULL));
		broadcast_check(whole);
		sums_check(half);
		must(!world_agree(0));
	}
	must(world_agree(rank == size - 1 ? err_set(ERR_INPUT, "of the last") : 0) == ERR_INPUT);
	must(strstr(err_text(), "of the last"));
	link_close(half);
	link_close(beside);
	link_close(whole);
}

/* More than MPI's pieces, a turn and a buffer of sockets hold; under a sanitizer, where ranks have sockets
 * only, more than those. */
static void run_large(void)
{
	int64_t lengths[] = {((SANITIZED ? 25 : 280) << 20) + 5};
	struct link *link;

	must(!link_open(&link, 0, 1, size));
	all_to_all(link, lengths, 1);
	link_close(link);
}

/* A receive that ends without its message, which comes later and is not taken for another. */
static void run_late(void)
{
	unsigned char *sent = message_make(1, 0, 300000, 1), *came = message_make(0, 0, 300000, 2);
	struct link_part part = {rank ? LINK_SEND : LINK_RECEIVE, !rank, rank ? sent : came, 300000};
	struct link *link, *other;

	must(!link_open(&link, 0, 1, size));
	must(!link_open(&other, 0, 1, size));
	if (!rank) {
		must(link_exchange_last(link, &part, 1, 100000000) == ERR_DEVICE);
		must(strstr(err_text(), "did not answer in time"));
		message_check(came, 0, 0, 300000, 2);
	}
	must(!world_agree(0));
	if (rank) /* done where the socket took it, or dropped */
		(void)link_exchange_last(link, &part, 1, 100000000);
	broadcast_check(other);
	sums_check(other);
	if (!rank)
		message_check(came, 0, 0, 300000, 2);
	link_close(other);
	link_close(link);
	mem_free(sent);
	mem_free(came);
}

static const struct scenario scenarios[] = {
        {"kinds", run_kinds, 1, NULL}, {"large", run_large, 1, NULL}, {"late", run_late, 1, NULL}};

/* ---- the test ---- */

static void test_kinds(void **state)
{
	(void)state;
	for (int ranks = 1; ranks <= 8; ranks += SANITIZED && ranks == 3 ? 5 : 1)
		assert_job("local", "kinds", ranks);
	for (int ranks = 2; ranks <= 5 && mpirun(); ranks += 3)
		assert_job(mpirun(), "kinds", ranks);
}

static void test_large(void **state)
{
	(void)state;
	assert_job("local", "large", 2);
	if (mpirun())
		assert_job(mpirun(), "large", 2);
}

static void test_late(void **state)
{
	(void)state;
	assert_job("local", "late", 2);
	if (mpirun())
		assert_job(mpirun(), "late", 2);
}

int main(int argc, char *argv[])
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(test_kinds),
	        cmocka_unit_test(test_large),
	        cmocka_unit_test(test_late),
	};

	if (argc > 1)
		return rank_main(scenarios, sizeof(scenarios) / sizeof(*scenarios), argv[1]);
	link_job_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
