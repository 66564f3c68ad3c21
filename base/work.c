/* Counts what the process has done of the piece of work that it is at. */
#include "base/work.h"

#include "base/clock.h"
#include "base/size.h"

#include <stdatomic.h>

const char work_step[] = "step";

static _Atomic(const char *) what; /* NULL: no work */
static atomic_int place[5];
static _Atomic int64_t done, total, begin_ns;

void work_begin(const char *name, int64_t count)
{
	atomic_store(&what, NULL);
	atomic_store(&done, 0);
	atomic_store(&total, count);
	atomic_store(&begin_ns, clock_now_ns());
	for (int i = 0; i < 5; i++)
		atomic_store(&place[i], 0);
	atomic_store(&what, name);
}

void work_add(int64_t count)
{
	atomic_fetch_add_explicit(&done, count, memory_order_relaxed);
}

void work_end(void)
{
	atomic_store(&what, NULL);
}

void work_at(int layer, int layer_count, int micro, int micro_count, int is_backward)
{
	const int now[5] = {layer, layer_count, micro, micro_count, is_backward};

	for (int i = 0; i < 5; i++)
		atomic_store_explicit(&place[i], now[i], memory_order_relaxed);
}

int work_now(struct work_state *state)
{
	const char *name = atomic_load(&what);

	if (!name)
		return 0;
	*state = (struct work_state){.what = name,
	        .total = atomic_load(&total),
	        .layer = atomic_load(&place[0]),
	        .layer_count = atomic_load(&place[1]),
	        .micro = atomic_load(&place[2]),
	        .micro_count = atomic_load(&place[3]),
	        .is_backward = atomic_load(&place[4]),
	        .seconds = 1e-9 * (double)(clock_now_ns() - atomic_load(&begin_ns))};
	state->done = min_i64(atomic_load(&done), state->total);
	return name == atomic_load(&what);
}
