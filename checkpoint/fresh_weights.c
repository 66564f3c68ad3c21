/* Draws the initial weights of a new model into planes, on several threads. */
#include "checkpoint/fresh_weights.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/num.h"
#include "checkpoint/load_memory.h"
#include "checkpoint/parallel.h"

#include <pthread.h>

enum { PIECE_COUNT = 64 << 10 };

/* Memory of one thread, for elements without an address in the sink. */
struct scratch {
	uint16_t hi[PIECE_COUNT];
	int16_t lo[PIECE_COUNT];
};

_Static_assert(sizeof(struct scratch) <= LOAD_SCRATCH_BYTES, "load_memory_bytes counts them");

struct fresh {
	const struct model *model;
	uint64_t seed;
	const struct plane_sink *sink;
	struct plane_range *pieces;
	int64_t piece_count;
	struct scratch *scratch; /* [workers] */
	pthread_mutex_t write_lock;
};

static int write_plane(struct fresh *f, enum plane plane, const struct plane_range *piece, const void *at,
        const void *staged)
{
	int err;

	if (at != staged)
		return 0;
	pthread_mutex_lock(&f->write_lock);
	err = f->sink->write(f->sink->context, piece->tensor, plane, piece->first, piece->count, staged);
	pthread_mutex_unlock(&f->write_lock);
	return err;
}

static void *address(const struct fresh *f, enum plane plane, const struct plane_range *p, void *otherwise)
{
	void *at = f->sink->at ? f->sink->at(f->sink->context, p->tensor, plane, p->first, p->count) : NULL;

	return at ? at : otherwise;
}

static int draw_piece(void *context, int64_t job, int worker)
{
	struct fresh *f = context;
	const struct plane_range *piece = &f->pieces[job];
	struct scratch *scratch = &f->scratch[worker];
	uint16_t *hi = address(f, PLANE_HI, piece, scratch->hi);
	int16_t *lo = address(f, PLANE_LO, piece, scratch->lo);
	int err;

	for (int64_t i = 0; i < piece->count; i++) {
		uint32_t bits =
		        f32_bits(model_init_value(f->model, piece->tensor, piece->first + i, f->seed));

		hi[i] = plane_hi(bits);
		lo[i] = plane_lo(bits);
	}
	err = write_plane(f, PLANE_HI, piece, hi, scratch->hi);
	return err ? err : write_plane(f, PLANE_LO, piece, lo, scratch->lo);
}

static struct plane_range range_at(const struct fresh *f, const struct plane_range *ranges, int64_t i)
{
	return ranges ? ranges[i] : (struct plane_range){(int)i, 0, f->model->tensors[i].count};
}

static int make_pieces(struct fresh *f, const struct plane_range *ranges, int64_t range_count)
{
	int64_t count = 0;

	for (int64_t r = 0; r < range_count; r++)
		count += (range_at(f, ranges, r).count + PIECE_COUNT - 1) / PIECE_COUNT;
	f->pieces = mem_alloc((size_t)count, sizeof(*f->pieces));
	if (!f->pieces)
		return ERR_NOMEM;
	for (int64_t r = 0; r < range_count; r++) {
		struct plane_range range = range_at(f, ranges, r);

		for (int64_t at = 0; at < range.count; at += PIECE_COUNT) {
			int64_t left = range.count - at;

			f->pieces[f->piece_count++] = (struct plane_range){
			        range.tensor, range.first + at, left < PIECE_COUNT ? left : PIECE_COUNT};
		}
	}
	return 0;
}

int fresh_weights_load(const struct model *model, uint64_t seed, const struct plane_sink *sink,
        const struct plane_range *ranges, int64_t range_count, struct pool *pool)
{
	struct fresh f = {.model = model, .seed = seed, .sink = sink};
	int err = make_pieces(&f, ranges, ranges ? range_count : model->tensor_count);

	if (!err) {
		f.scratch = mem_alloc((size_t)parallel_worker_count(pool), sizeof(*f.scratch));
		err = f.scratch ? 0 : ERR_NOMEM;
	}
	if (!err) {
		pthread_mutex_init(&f.write_lock, NULL);
		err = parallel_run(pool, f.piece_count, draw_piece, &f);
		pthread_mutex_destroy(&f.write_lock);
	}
	mem_free(f.scratch);
	mem_free(f.pieces);
	return err;
}
