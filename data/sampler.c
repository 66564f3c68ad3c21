/* Chooses the rows of a step: the order of each epoch, cut into steps, ranks and micro-batches. */
#include "data/sampler.h"

#include <math.h>

#include "base/err.h"
#include "base/size.h"

int sampler_init(struct sampler *s)
{
	if (s->row_count < 1)
		return err_set(ERR_RANGE, "there are no rows to draw from");
	if (s->batch_rows < 1 || s->batch_rows > INT32_MAX)
		return err_set(ERR_RANGE, "a micro-batch of %lld rows: at least 1 is needed",
		        (long long)s->batch_rows);
	if (s->accumulation < 1 || s->accumulation > INT32_MAX)
		return err_set(ERR_RANGE, "%lld gradient accumulation steps: at least 1 is needed",
		        (long long)s->accumulation);
	if (s->world_size < 1 || s->rank < 0 || s->rank >= s->world_size)
		return err_set(ERR_RANGE, "there is no rank %d of %d", s->rank, s->world_size);
	if (__builtin_mul_overflow(s->batch_rows, s->accumulation, &s->step_rows) ||
	        __builtin_mul_overflow(s->step_rows, (int64_t)s->world_size, &s->step_rows))
		return err_set(ERR_RANGE, "a step of %lld x %lld x %d rows is beyond 2^63",
		        (long long)s->batch_rows, (long long)s->accumulation, s->world_size);
	s->steps_per_epoch = (s->row_count - 1) / s->step_rows + 1;
	return 0;
}

int64_t sampler_draw(const struct sampler *s, int64_t epoch, int64_t place)
{
	if (s->order == SAMPLER_ORDER_SHUFFLE)
		place = permutation_at(s->seed,
		        (s->stream ? s->stream : PERMUTATION_STREAM_EPOCH) + (uint64_t)epoch, s->row_count,
		        place);
	if (!s->mix)
		return place;
	return mix_place(s->mix, epoch, place,
	        s->order == SAMPLER_ORDER_FILE ? MIX_ORDER_FILE : MIX_ORDER_SHUFFLE, s->seed);
}

int sampler_run_steps(int64_t *step_count, const struct sampler *s, double epochs, int64_t max_steps)
{
	double steps;

	if (max_steps > 0) {
		*step_count = max_steps;
		return 0;
	}
	if (!(epochs > 0))
		return err_set(ERR_RANGE,
		        "num_train_epochs is %g and max_steps %lld: one of them must be positive", epochs,
		        (long long)max_steps);
	steps = ceil(epochs * (double)s->steps_per_epoch);
	if (!(steps < 9007199254740992.0))
		return err_set(ERR_RANGE, "num_train_epochs %g gives too many steps", epochs);
	*step_count = steps < 1 ? 1 : (int64_t)steps;
	return 0;
}

void sampler_use(struct sampler *s, struct sampler_steps *steps)
{
	s->steps = steps;
	s->steps_per_epoch = steps->per_epoch;
	s->row_count = steps->epoch_rows;
}

int sampler_step_set(const struct sampler *s, int64_t step)
{
	return s->steps && s->steps->set
	               ? s->steps->set(s->steps, step / s->steps_per_epoch, step % s->steps_per_epoch)
	               : 0;
}

/* Fewer than step_rows at the end of an epoch. */
int64_t sampler_step_rows(const struct sampler *s, int64_t step)
{
	int64_t epoch = step / s->steps_per_epoch, at = step % s->steps_per_epoch;

	return s->steps ? s->steps->rows(s->steps, epoch, at)
	                : min_i64(s->row_count - at * s->step_rows, s->step_rows);
}

int64_t sampler_step_row(const struct sampler *s, int64_t step, int64_t place)
{
	int64_t epoch = step / s->steps_per_epoch, at = step % s->steps_per_epoch;

	return s->steps ? s->steps->row(s->steps, epoch, at, place)
	                : sampler_draw(s, epoch, at * s->step_rows + place);
}

int64_t sampler_micro_most(const struct sampler *s)
{
	return (min_i64(s->row_count, s->step_rows) - 1) / (s->batch_rows * s->world_size) + 1;
}

int64_t sampler_micro_count(const struct sampler *s, int64_t step)
{
	return (sampler_step_rows(s, step) - 1) / (s->batch_rows * s->world_size) + 1;
}

int64_t sampler_rows(const struct sampler *s, int64_t *rows, int64_t step, int64_t index)
{
	int64_t from = (index * s->world_size + s->rank) * s->batch_rows;
	int64_t end = sampler_step_rows(s, step), count = 0;

	for (int64_t i = from; i < end && i < from + s->batch_rows; i++)
		rows[count++] = sampler_step_row(s, step, i);
	return count;
}

double sampler_epochs_done(const struct sampler *s, int64_t step_count)
{
	int64_t epoch = step_count / s->steps_per_epoch, rest = step_count % s->steps_per_epoch;

	return (double)epoch + (s->steps ? s->steps->done(s->steps, epoch, rest)
	                                 : (double)(rest * s->step_rows) / (double)s->row_count);
}
