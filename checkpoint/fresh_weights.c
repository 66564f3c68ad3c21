/* Draws the initial weights of a new model into planes, on several threads. */
#include "checkpoint/fresh_weights.h"

#include "base/err.h"
#include "base/mem.h"
#include "checkpoint/file/load_memory.h"
#include "checkpoint/file/parallel.h"
#include "checkpoint/file/weights.h"

enum { PIECE_COUNT = 64 << 10 };

/* Memory of one thread. */
struct scratch {
	float value[PIECE_COUNT];
};

_Static_assert(sizeof(struct scratch) <= LOAD_SCRATCH_BYTES, "load_memory_bytes counts them");

struct fresh {
	const struct model *model;
	uint64_t seed;
	struct weights_target target;
	struct plane_range *pieces;
	int64_t piece_count;
	struct scratch *scratch; /* [workers] */
};

static int draw_piece(void *context, int64_t job, int worker)
{
	struct fresh *f = context;
	const struct plane_range *piece = &f->pieces[job];
	float *value = f->scratch[worker].value;

	for (int64_t i = 0; i < piece->count; i++)
		value[i] = model_init_value(f->model, piece->tensor, piece->first + i, f->seed);
	return weights_put(&f->target, FORMAT_F32, piece->tensor, piece->first, piece->count, value);
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
	struct fresh f = {.model = model, .seed = seed};
	int err = make_pieces(&f, ranges, ranges ? range_count : model->tensor_count);

	if (!err) {
		f.scratch = mem_alloc((size_t)parallel_worker_count(pool), sizeof(*f.scratch));
		err = f.scratch ? 0 : ERR_NOMEM;
	}
	if (!err) {
		weights_target_open(&f.target, sink, model);
		err = parallel_run(pool, f.piece_count, draw_piece, &f);
		weights_target_close(&f.target);
	}
	mem_free(f.scratch);
	mem_free(f.pieces);
	return err;
}
